"""Stop conditions, checked after each round of tools.

They combine: `Stop.steps(5) | Stop.tool_called("submit")`, `Stop.tokens(9000) & ~Stop.tool_called("look_up")`. Any
function of a `Progress` is a condition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from prompty.loop.budget import tokens_of
from prompty.model.message import Message, ToolCall, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The progress of a turn. `calls` are those of the last round."""

    rounds: int
    calls: tuple[ToolCall, ...]
    messages: tuple[Message, ...]
    usage: Usage
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop condition."""

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
        """Stop after this many rounds of tools."""
        return Stop(lambda progress: progress.rounds >= count)

    @staticmethod
    def tool_called(*names: str) -> "Stop":
        """Stop after a round that called one of these tools."""
        return Stop(lambda progress: any(call.name in names for call in progress.calls))

    @staticmethod
    def tokens(count: int) -> "Stop":
        """Stop after this many input and output tokens together."""
        return Stop(lambda progress: tokens_of(progress.usage) >= count)

    @staticmethod
    def cost(dollars: float | Decimal) -> "Stop":
        """Stop after this many dollars. Has no effect if the price is unknown."""
        return Stop(lambda progress: progress.cost is not None and progress.cost >= Decimal(str(dollars)))
