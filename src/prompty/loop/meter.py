"""What a run uses, counted together with the prompts that it runs as tools."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from prompty.errors import BudgetSpent
from prompty.loop.stop import Budget, overspent, tokens_of
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Reply, Usage
from prompty.pricing import get_pricer

NO_USAGE = Usage()
CallKind = tuple[object, ...]  # calls of one kind are expected to use about the same


class CountedReply(NamedTuple):
    """A reply, and the agent that asked for it."""

    agent: PromptAgent
    reply: Reply


class _Size(NamedTuple):
    tokens: int = 0
    cost: Decimal = Decimal()


@dataclass(slots=True)
class _Tree:
    """What the meters of a tree of runs share: the calls under way, and who waits for their ends."""

    lock: AbstractContextManager[Any]
    under_way: "dict[Meter, tuple[CallKind, _Size | None]]" = field(default_factory=dict)
    largest: dict[CallKind, _Size] = field(default_factory=dict)
    waiting: list[Callable[[], object]] = field(default_factory=list)


class Meter:
    """The usage and cost of a run and of those below it, and the budgets that hold for them.

    An answer counts in the run that asked and in every run above it, so a budget holds for all of them together. Runs
    that fail count as well. A tree has one lock, because the prompts of one answer may run in parallel threads.

    Parallel calls could all begin before one of them has used anything. So under a budget of tokens or money, a call
    that may exceed what is left waits for those under way, and the first call of each kind is alone. A tree exceeds its
    budget by at most one call that was larger than expected.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        parent: "Meter | None" = None,
        *,
        lock: AbstractContextManager[Any] | None = None,
        usage: Usage = NO_USAGE,
        cost: Decimal | None = None,
        has_answers: bool = False,
    ) -> None:
        self.usage: Usage = usage
        self.cost: Decimal | None = cost
        self.replies: list[CountedReply] = []
        # Keys of tool calls whose usage was counted while they ran, so that their results do not count it again.
        self.live: set[str] = set()
        self._budget, self._parent = budget, parent
        self._has_answers = has_answers
        self._tree: _Tree = parent._tree if parent else _Tree(lock or nullcontext())
        budgets = [meter._budget for meter in self._line() if meter._budget is not None]
        self.is_limited: bool = any(one.tokens is not None or one.cost is not None for one in budgets)
        self.limits_cost: bool = any(one.cost is not None for one in budgets)

    def _line(self) -> "Iterator[Meter]":
        """Yield this meter and those above it."""
        meter: Meter | None = self
        while meter is not None:
            yield meter
            meter = meter._parent

    def count(self, agent: PromptAgent, reply: Reply, cost: Decimal | None) -> None:
        """Count an answer, or a piece of one. If the cost of one is unknown, so is that of the runs above it."""
        with self._tree.lock:
            for meter in self._line():
                meter._add(reply.usage, cost)
                meter.replies.append(CountedReply(agent, reply))
            if call := self._tree.under_way.get(self):
                kind, known = call[0], self._tree.largest.get(call[0], _Size())
                self._tree.largest[kind] = _Size(
                    max(tokens_of(reply.usage), known.tokens), max(cost or Decimal(), known.cost)
                )
            self._end()

    def count_stored(self, key: str, usage: Usage, cost: Decimal | None) -> None:
        """Count what a tool call used in another process, by its result."""
        with self._tree.lock:
            if key not in self.live:
                self.live.add(key)
                for meter in self._line():
                    meter._add(usage, cost)

    def _add(self, usage: Usage, cost: Decimal | None) -> None:
        is_known = cost is not None and (self.cost is not None or not self._has_answers)
        self.cost = (self.cost or Decimal()) + cost if is_known and cost is not None else None
        self.usage = usage if self.usage is NO_USAGE else self.usage + usage
        self._has_answers = True

    def used(self) -> Json:
        """Return what was used as JSON, for a process that performs a part of the run."""
        return {"usage": {**self.usage.to_json()}, "cost": None if self.cost is None else str(self.cost)}

    def set_used(self, used: Any) -> None:
        """Begin with what was used elsewhere, so that budgets hold for the rest."""
        self.usage, self._has_answers = Usage(**used["usage"]), True
        self.cost = None if used["cost"] is None else Decimal(used["cost"])

    def find_cost(self) -> Decimal | None:
        """Return the cost, from the price list if it was not counted with the answers. None if it is not known."""
        if self.cost is not None or not self.replies:
            return self.cost
        if sum((counted.reply.usage for counted in self.replies), NO_USAGE) != self.usage:
            return None
        costs = [get_pricer(agent, required=False)(reply) for agent, reply in self.replies]
        return sum((cost for cost in costs if cost is not None), Decimal()) if None not in costs else None

    def check(self) -> None:
        """Raise BudgetSpent if a budget of this run or of one above it is spent."""
        if self.is_limited and (spent := self.find_spent()):
            raise BudgetSpent(spent)

    def find_spent(self) -> str | None:
        """Describe the first budget that is spent, from here to the top, or return None."""
        with self._tree.lock:
            found = (overspent(one._budget, one.usage, one.cost) for one in self._line() if one._budget is not None)
            return next(filter(None, found), None)

    def begin(self, kind: CallKind, wake: Callable[[], object]) -> bool:
        """Return True if a call may begin now. If not, `wake` is called when one under way has ended."""
        with self._tree.lock:
            self._tree.under_way.pop(self, None)
            expected = self._tree.largest.get(kind)
            if not self._may_begin(expected):
                self._tree.waiting.append(wake)
                return False
            self._tree.under_way[self] = kind, expected
            return True

    def _may_begin(self, expected: _Size | None) -> bool:
        others = self._tree.under_way
        if not others:
            return True
        if expected is None or any(size is None for _, size in others.values()):
            return False
        return all(meter._has_room(expected) for meter in self._line())

    def _has_room(self, expected: _Size) -> bool:
        """Return True if a call and those under way below this run fit into its budget."""
        budget = self._budget
        if budget is None:
            return True
        sizes = [expected]
        sizes += [size for one, (_, size) in self._tree.under_way.items() if size and self in one._line()]
        if budget.tokens is not None and tokens_of(self.usage) + sum(size.tokens for size in sizes) > budget.tokens:
            return False
        return budget.cost is None or sum((size.cost for size in sizes), self.cost or Decimal()) <= Decimal(
            str(budget.cost)
        )

    def give_up(self) -> None:
        """Say that the call under way has ended without an answer."""
        if self._tree.under_way:
            with self._tree.lock:
                self._end()

    def _end(self) -> None:
        if self._tree.under_way.pop(self, None) is not None:
            waiting, self._tree.waiting = self._tree.waiting, []
            for wake in waiting:
                with suppress(RuntimeError):  # its event loop is closed
                    wake()
