"""How many rows are under way at once: more while it goes well, fewer when the provider says so or gets slow.

Pure: each function takes what is known and gives what is known then. Times are seconds of any one clock.
"""

from dataclasses import dataclass, replace

FIRST = 4.0
DECREASE = 0.7
SLOWER = 2.0  # so many times the usual time of a call counts as slow
FEWEST = 10  # calls whose mean says something
FORGET = 1.05  # how fast the usual time follows calls that have become slower for good
LONGEST_PAUSE = 60.0  # what a server asks for, within reason
REFUSALS = frozenset({429, 503})


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """`limit` is how many rows may be under way, `most` its cap. Nothing starts before `paused_until`; what began
    before `lowered` says nothing about the limit of now. `usual` is how long calls take when the provider has time,
    `seconds` and `calls` are of those since it was last compared with that."""

    most: int
    limit: float
    paused_until: float = 0.0
    lowered: float = float("-inf")
    probing: bool = True
    usual: float | None = None
    seconds: float = 0.0
    calls: int = 0


def new_control(most: int) -> Control:
    return Control(most=most, limit=min(FIRST, most))


def room(control: Control, under_way: int, now: float) -> int:
    """How many rows may start."""
    return 0 if now < control.paused_until else max(int(control.limit) - under_way, 0)


def succeeded(control: Control, *, begun: float, now: float, under_way: int) -> Control:
    """A row has been answered: one more for each round of rows, or for each row until the first refusal. A limit that
    is not used up does not grow."""
    step = 1.0 if control.probing else 1.0 / control.limit
    grown = control.limit + step if under_way >= int(control.limit) else control.limit
    control = replace(control, limit=min(grown, float(control.most)))
    if begun < control.lowered:
        return control
    control = replace(control, seconds=control.seconds + now - begun, calls=control.calls + 1)
    return _compared(control, now) if control.calls >= max(control.limit / 2, FEWEST) else control


def refused(control: Control, *, begun: float, now: float, retry_after: float | None) -> Control:
    """The provider has no room. Refusals of rows that began before the limit was lowered are of one cause. What it asks
    to wait, all rows wait."""
    until = max(control.paused_until, now + min(retry_after or 0.0, LONGEST_PAUSE))
    control = replace(control, paused_until=until, probing=False)
    return control if begun < control.lowered else _lowered(control, now)


def _compared(control: Control, now: float) -> Control:
    """Compare a round of calls with the usual ones."""
    mean = control.seconds / control.calls
    usual = mean if control.usual is None else min(mean, control.usual * FORGET)
    slow = control.usual is not None and mean > SLOWER * control.usual
    control = replace(control, usual=usual, seconds=0.0, calls=0)
    return _lowered(replace(control, probing=False), now) if slow else control


def _lowered(control: Control, now: float) -> Control:
    return replace(control, limit=max(control.limit * DECREASE, 1.0), lowered=now, seconds=0.0, calls=0)
