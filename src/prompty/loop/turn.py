"""The agent loop: ask the model, run the tools it calls, ask again, until it answers (001).

It decides and does nothing: every model call, tool, question and wait is an effect that a driver performs. What it
knows about a turn is in `TurnState`; whatever happens, the messages in there are a history one can go on from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import count

from prompty.errors import BudgetSpent, Cancelled, IterationsExceeded, PromptyError
from prompty.loop.batch import Offered, Slots, judged_calls, planned_calls, run_calls
from prompty.loop.budget import Budget, Price, overspent, total
from prompty.loop.effects import DescribeTools, Emit, Loop, OfferedTool
from prompty.loop.repair import repaired
from prompty.loop.retry import call_model
from prompty.loop.stop import Progress
from prompty.model.agent import PromptAgent
from prompty.model.event import Done, IterationStarted, MessagesChanged, RunCancelled, RunFailed, RunStarted
from prompty.model.message import Message
from prompty.model.reply import Reply, Usage
from prompty.pipeline.request import request_for
from prompty.providers import Api, WireRequest
from prompty.tools.results import error_message


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a turn is told beforehand."""

    agent: PromptAgent
    api: Api
    run_id: str
    finish: Callable[[Reply], object]
    price: Price
    gated: bool = False
    sequential: bool = False
    max_parallel: int | None = None
    max_iterations: int = 10
    stop: Callable[[Progress], bool] | None = None
    budget: Budget = field(default_factory=Budget)
    max_retries: int = 3
    timeout: float | None = None
    stream: bool = False


@dataclass(slots=True)
class TurnState:
    """What has happened so far. While tools run, `open` is the answer that called them, with a slot for each."""

    messages: list[Message]
    iteration: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Decimal | None = None
    open: tuple[Reply, Slots] | None = field(default=None, repr=False)

    def count(self, reply: Reply, price: Price) -> None:
        """Add what an answer used. A cost that is not known for one answer is not known for the turn."""
        cost = price(reply)
        known = cost is not None and (self.iteration == 1 or self.cost is not None)
        self.cost = (self.cost or Decimal()) + cost if known and cost is not None else None
        self.usage = total(self.usage, reply.usage)

    def settle(self, api: Api, reason: str) -> None:
        """Put the open answer and its results into the history at once; a call without a result gets one that says
        why it did not run."""
        if self.open is None:
            return
        reply, slots = self.open
        results = [
            result or error_message(call, f"Tool '{call.name}' was not run: {reason}")
            for call, result in zip(reply.tool_calls, slots, strict=True)
        ]
        self.messages += api.tool_messages(reply, results)
        self.open = None


def turn(plan: Plan, messages: Sequence[Message]) -> Loop[Done]:
    """Decide the next step until the model answers without calls."""
    state = TurnState(list(messages))
    try:
        yield from Emit(RunStarted(plan.run_id))
        reply = yield from _answer(plan, state)
        done = _done(state, plan.finish(reply))
        yield from Emit(done)
        return done
    except Cancelled as error:
        state.settle(plan.api, error.reason)
        error.messages = tuple(state.messages)
        yield from Emit(RunCancelled(error.reason))
        raise
    except PromptyError as error:
        state.settle(plan.api, str(error))
        error.messages = tuple(state.messages)
        yield from Emit(RunFailed(str(error)))
        raise


def _answer(plan: Plan, state: TurnState) -> Loop[Reply]:
    tools = yield from DescribeTools()
    offered = Offered(tools)
    for iteration in count(1):
        yield from Emit(IterationStarted(iteration))
        reply = yield from call_model(_request(plan, state, tools), plan.max_retries)
        state.iteration = iteration
        state.count(reply, plan.price)
        if not reply.tool_calls:
            state.messages.append(reply.message())
            return reply
        state.open = (reply, [None] * len(reply.tool_calls))
        _check_limits(plan, state)
        yield from _run_batch(plan, state, reply, offered)
        state.settle(plan.api, "")
        yield from Emit(MessagesChanged(tuple(state.messages)))
        if plan.stop and plan.stop(_progress(state, reply)):
            return replace(reply, tool_calls=())
    raise AssertionError("unreachable")


def _request(plan: Plan, state: TurnState, tools: Sequence[OfferedTool]) -> WireRequest:
    history = repaired(state.messages, plan.api.call_ids)
    functions = [tool.function for tool in tools]
    return request_for(plan.agent, history, plan.api, functions=functions, stream=plan.stream, timeout=plan.timeout)


def _check_limits(plan: Plan, state: TurnState) -> None:
    if state.iteration > plan.max_iterations:
        raise IterationsExceeded(plan.max_iterations)
    if spent := overspent(plan.budget, state.usage, state.cost):
        raise BudgetSpent(spent)


def _run_batch(plan: Plan, state: TurnState, reply: Reply, offered: Offered) -> Loop[None]:
    """Fill the slots of an answer's calls."""
    slots = state.open[1] if state.open else []
    planned = planned_calls(reply.tool_calls, offered, f"{plan.run_id}:{state.iteration}", slots)
    if plan.gated and planned:
        planned = yield from judged_calls(planned, offered, slots)
    yield from run_calls(planned, offered, slots, sequential=plan.sequential, max_parallel=plan.max_parallel)


def _progress(state: TurnState, reply: Reply) -> Progress:
    return Progress(
        rounds=state.iteration,
        calls=reply.tool_calls,
        messages=tuple(state.messages),
        usage=state.usage,
        cost=state.cost,
    )


def _done(state: TurnState, result: object) -> Done:
    return Done(
        result=result,
        messages=tuple(state.messages),
        usage=state.usage,
        cost=state.cost,
        iterations=state.iteration,
    )
