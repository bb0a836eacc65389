"""The budget of a run, and stop conditions, which are checked after each round of tools.

Any function of a `Progress` is a condition, and can combine others: `lambda p: Stop.steps(5)(p) or Stop.cost(1)(p)`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from prompty.errors import WrongArgument
from prompty.model.message import Message, Reply, ToolCall, Usage

Price = Callable[[Reply], Decimal | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Limits of a run: input and output tokens together, dollars, seconds.

    Tokens and dollars are counted after each answer. Once they are spent, no tool runs and no model is called.
    """

    tokens: int | None = None
    cost: Decimal | float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("tokens", "cost", "seconds"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | Decimal)):
                raise WrongArgument(f"Budget({name}=…)", value, "a number", "Write a number, or None for no limit.")


def tokens_of(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def overspent(budget: Budget, usage: Usage, cost: Decimal | None) -> str | None:
    """Describe the part of a budget that is spent, or return None."""
    if budget.tokens is not None and tokens_of(usage) >= budget.tokens:
        return f"the turn has used {tokens_of(usage)} tokens; its budget is {budget.tokens}"
    if budget.cost is not None and cost is not None and cost >= Decimal(str(budget.cost)):
        return f"the turn has cost ${cost:.6f}; its budget is ${budget.cost}"
    if budget.cost is not None and cost is None and usage.requests:
        tools = ", ".join(sorted(usage.requests))
        return f"the turn has used tools of the provider whose price is unknown ({tools}); its budget is ${budget.cost}"
    return None


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
    """A stop condition. Any function of a `Progress` is one, and can combine others."""

    holds: Callable[[Progress], bool]

    def __call__(self, progress: Progress) -> bool:
        return bool(self.holds(progress))

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
