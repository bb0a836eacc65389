"""What all benchmarks share: sides that take turns, and a cost beside its limit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

NOISE = 1.15

Measure = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """One measured cost; `unit` says what a figure of 1 is, `seconds` what the figure was made from."""

    name: str
    figure: float
    unit: str
    limit: float
    seconds: Mapping[str, float]

    @property
    def exceeded(self) -> bool:
        """Whether it is over the limit by more than a busy machine explains."""
        return self.figure > self.limit * NOISE

    @property
    def verdict(self) -> str:
        """What the table says of it."""
        if self.figure <= self.limit:
            return "ok"
        return "over" if self.exceeded else "over, within noise"


def take_turns(rounds: int, sides: Mapping[str, Measure]) -> list[dict[str, float]]:
    """Return the seconds of each side in each round. They take turns, so a busy moment of the machine meets all."""
    return [{name: measure() for name, measure in sides.items()} for _ in range(rounds)]


def best_of(rounds: int, sides: Mapping[str, Measure]) -> dict[str, float]:
    """Return the least seconds of each side."""
    times = take_turns(rounds, sides)
    return {name: min(time[name] for time in times) for name in sides}
