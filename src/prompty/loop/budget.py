"""The budget of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from prompty.errors import WrongArgument
from prompty.model.message import Usage
from prompty.model.reply import Reply

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
    return None
