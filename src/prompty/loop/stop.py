"""When a turn ends although the model would go on: conditions that are asked after each round of tools.

They combine: `Stop.steps(5) | Stop.tool_called("submit")`, `Stop.tokens(9000) & ~Stop.tool_called("look_up")`. Any
function of a `Progress` is one too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from prompty.loop.budget import tokens_of
from prompty.model.message import Message, ToolCall, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a turn has come. `calls` are those of the last round, `rounds` how many there were."""

    rounds: int
    calls: tuple[ToolCall, ...]
    messages: tuple[Message, ...]
    usage: Usage
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Stop:
    """A condition."""

    holds: Callable[[Progress], bool]

    def __call__(self, progress: Progress) -> bool:
        return bool(self.holds(progress))

    def __or__(self, other: Callable[[Progress], bool]) -> "Stop":
        return Stop(lambda progress: self(progress) or bool(other(progress)))

    def __and__(self, other: Callable[[Progress], bool]) -> "Stop":
        return Stop(lambda progress: self(progress) and bool(other(progress)))

    def __invert__(self) -> "Stop":
        return Stop(lambda progress: not self(progress))

    @staticmethod
    def steps(count: int) -> "Stop":
        """After so many rounds of tools."""
        return Stop(lambda progress: progress.rounds >= count)

    @staticmethod
    def tool_called(*names: str) -> "Stop":
        """After a round in which one of these tools was asked for."""
        return Stop(lambda progress: any(call.name in names for call in progress.calls))

    @staticmethod
    def tokens(count: int) -> "Stop":
        """After so many tokens, in and out together."""
        return Stop(lambda progress: tokens_of(progress.usage) >= count)

    @staticmethod
    def cost(dollars: float | Decimal) -> "Stop":
        """After so many dollars; never where the price is not known."""
        return Stop(lambda progress: progress.cost is not None and progress.cost >= Decimal(str(dollars)))
