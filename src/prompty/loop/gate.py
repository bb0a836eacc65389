"""What the host says before anything runs. It fails closed: what is not clearly a yes is a no (L2)."""

from collections.abc import Sequence

from prompty.loop.effects import Rewrite, Verdict

ALLOW = Verdict(True)
NO_VERDICT = Verdict(False, "the gate gave no verdict")


def deny(reason: str = "") -> Verdict:
    """The verdict that keeps a call from running; the model is told the reason."""
    return Verdict(False, reason)


def later() -> Verdict:
    """The verdict of somebody who has to ask first: the turn pauses, and `resume` goes on with the answer."""
    return Verdict(False, "", later=True)


def use_result(value: object) -> Rewrite:
    """The answer about a call of which nobody knows what it did: it has happened, and this is its result. True runs it
    again, and `deny("why")` tells the model that it failed."""
    return Rewrite(value)


def verdicts(answer: object, count: int) -> list[Verdict]:
    """One verdict for each of so many calls, from what a gate returned."""
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes) or len(answer) != count:
        return [NO_VERDICT] * count
    return [_verdict(entry) for entry in answer]


def _verdict(entry: object) -> Verdict:
    if isinstance(entry, Verdict):
        return entry if entry.allowed is True and not entry.later else Verdict(False, entry.reason, entry.later is True)
    if entry is True:
        return ALLOW
    return Verdict(False) if entry is False else NO_VERDICT
