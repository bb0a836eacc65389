"""What a turn may use up, and what it has used."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal

from prompty.model.message import Usage
from prompty.model.reply import Reply

_COUNTS = [field.name for field in fields(Usage)]

Price = Callable[[Reply], Decimal | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The most that a turn may use: tokens in and out together, dollars, seconds.

    What is already under way is not cut off: tokens and money are counted when an answer is there. After that no tool
    runs and no model is asked.
    """

    tokens: int | None = None
    cost: Decimal | float | None = None
    seconds: float | None = None


def total(first: Usage, second: Usage) -> Usage:
    """Two usages together; what neither says stays unknown."""
    return Usage(**{name: _sum(getattr(first, name), getattr(second, name)) for name in _COUNTS})


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first + (second or 0)


def tokens_of(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def overspent(budget: Budget, usage: Usage, cost: Decimal | None) -> str | None:
    """Which part of a budget is used up, in words."""
    if budget.tokens is not None and tokens_of(usage) >= budget.tokens:
        return f"the turn has used {tokens_of(usage)} tokens; its budget is {budget.tokens}"
    if budget.cost is not None and cost is not None and cost >= Decimal(str(budget.cost)):
        return f"the turn has cost ${cost:.6f}; its budget is ${budget.cost}"
    return None
