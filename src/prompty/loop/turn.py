"""The agent loop: ask the model, run the tools it calls, ask again, until it answers (001).

It decides and does nothing: every model call, tool, question and wait is an effect that a driver performs. Whatever
happens, the messages in its state are a history one can go on from.
"""

from collections.abc import Sequence
from dataclasses import replace

from prompty.errors import BudgetSpent, Cancelled, IterationsExceeded, MemoryFailed, PromptyError, ResultError
from prompty.loop.asking import asked_model
from prompty.loop.batch import (
    Offered,
    allowed_calls,
    asked_calls,
    guarded_calls,
    judgement,
    open_calls,
    planned_calls,
    run_calls,
)
from prompty.loop.budget import overspent
from prompty.loop.effects import DescribeTools, DrainSteering, Emit, LoadMemory, Loop, OfferedTool, SaveMemory
from prompty.loop.repair import problems_in, readable
from prompty.loop.state import Plan, TurnState
from prompty.model.event import (
    Done,
    HistoryRepaired,
    IterationStarted,
    MessagesChanged,
    RunCancelled,
    RunFailed,
    RunPaused,
    RunStarted,
)
from prompty.model.message import Message, user
from prompty.model.paused import Paused
from prompty.model.reply import Reply
from prompty.pipeline.process import result_of


def turn(plan: Plan, messages: Sequence[Message]) -> Loop[Done | Paused]:
    """Decide the next step until the model answers without calls."""
    return (yield from resumed_turn(plan, TurnState(list(messages))))


def resumed_turn(plan: Plan, state: TurnState) -> Loop[Done | Paused]:
    """A turn from wherever it stands."""
    try:
        yield from Emit(RunStarted(plan.run_id))
        yield from _remember(plan, state)
        end = yield from _rounds(plan, state)
        yield from _save(plan, state)
        if isinstance(end, Paused):
            yield from Emit(RunPaused(end))
            return end
        done = state.done(end)
        yield from Emit(done)
        return done
    except PromptyError as error:
        reason = error.reason if isinstance(error, Cancelled) else str(error)
        state.settle(plan.api, reason)
        error.messages = tuple(state.messages)
        if not isinstance(error, MemoryFailed):
            yield from _save(plan, state)
        yield from Emit(RunCancelled(reason) if isinstance(error, Cancelled) else RunFailed(reason))
        raise


def _rounds(plan: Plan, state: TurnState) -> Loop[object]:
    """Answers and tools in turn, to the result; a `Paused` if a person has to be asked."""
    tools = yield from DescribeTools()
    offered = Offered(tools)
    while True:
        reply = state.open[0] if state.open else (yield from _next_answer(plan, state, tools))
        if not reply.tool_calls:
            fits, result = _finished(plan, state, reply)
            if fits and not (yield from _spoken(plan, state, follow_ups=True)):
                return result
            continue
        paused = yield from _run_batch(plan, state, reply, offered)
        if paused:
            return paused
        state.settle(plan.api, "")
        yield from _save(plan, state)
        yield from Emit(MessagesChanged(tuple(state.messages)))
        if plan.stop and plan.stop(state.progress(reply)):
            return _ended(plan, replace(reply, tool_calls=()))


def _next_answer(plan: Plan, state: TurnState, tools: Sequence[OfferedTool]) -> Loop[Reply]:
    state.iteration += 1
    yield from Emit(IterationStarted(state.iteration))
    yield from _spoken(plan, state)
    reply = yield from asked_model(plan, state, tools)
    if reply.tool_calls:
        state.open = (reply, [None] * len(reply.tool_calls))
        _check_limits(plan, state)
    else:
        state.messages.append(reply.message())
    return reply


def _check_limits(plan: Plan, state: TurnState) -> None:
    if state.iteration > plan.max_iterations:
        raise IterationsExceeded(plan.max_iterations)
    if spent := overspent(plan.budget, state.usage, state.cost):
        raise BudgetSpent(spent)


def _run_batch(plan: Plan, state: TurnState, reply: Reply, offered: Offered) -> Loop[Paused | None]:
    """Fill the slots of an answer's calls; or stop before any of them runs, or where nobody knows what one did."""
    slots = state.open[1] if state.open else []
    planned = planned_calls(reply.tool_calls, offered, f"{plan.run_id}:{state.iteration}", slots)
    if "tool" in plan.guarded:
        planned = yield from guarded_calls(planned, offered, slots)
    if plan.gated or offered.may_ask or state.decided:
        asked = asked_calls(planned, offered)
        said = yield from judgement(asked, gated=plan.gated, decided=state.decided)
        if any(verdict.later for verdict in said):
            yield from _save(plan, state)
            return state.paused(plan, reply, list(zip(asked, said, strict=True)))
        planned = yield from allowed_calls(planned, said, slots)
        state.decided = {}
    unknown = yield from run_calls(planned, offered, slots, sequential=plan.sequential, max_parallel=plan.max_parallel)
    if unknown:
        state.unknown = frozenset(planned[position].key for position in unknown)
        yield from _save(plan, state)
        return state.paused(plan, reply, open_calls(planned, unknown, offered, slots))
    state.count_tools(slots)
    return None


def _finished(plan: Plan, state: TurnState, reply: Reply) -> tuple[bool, object]:
    """The result of an answer, if it fits. One that does not is sent back once, with what is wrong with it."""
    try:
        return True, plan.finish(reply)
    except ResultError as error:
        if state.corrected:
            return True, _ended(plan, reply)
        state.corrected = True
        state.messages.append(user(f"{error}\nAnswer again, so that it fits. Answer with the JSON alone."))
        return False, None


def _ended(plan: Plan, reply: Reply) -> object:
    """The result of an answer that is not gone on with."""
    return plan.finish(reply) if plan.strict else result_of(plan.agent, reply)


def _spoken(plan: Plan, state: TurnState, *, follow_ups: bool = False) -> Loop[bool]:
    """Take in what a person has said meanwhile; whether there was something."""
    said = (yield from DrainSteering(follow_ups)) if plan.steered else []
    if said:
        state.messages += [user(text) for text in said]
        yield from Emit(MessagesChanged(tuple(state.messages)))
    return bool(said)


def _remember(plan: Plan, state: TurnState) -> Loop[None]:
    """Put what is stored of a session into its place, mended where it needs to be."""
    if plan.session is None:
        return
    stored = yield from LoadMemory(plan.session.id)
    state.remembered = True
    if state.open:  # a turn that goes on has its messages with it
        return
    history, unreadable = readable(stored)
    problems = [*unreadable, *problems_in(history)]
    if problems:
        yield from Emit(HistoryRepaired(tuple(problems)))
    at = plan.session.history_at
    state.messages[at:at] = history
    state.saved = plan.session.new_from + len(history)


def _save(plan: Plan, state: TurnState) -> Loop[None]:
    """Store what is new."""
    new = state.messages[state.saved :]
    if plan.session and state.remembered and new:
        yield from SaveMemory(plan.session.id, tuple(message.to_json() for message in new))
        state.saved = len(state.messages)
