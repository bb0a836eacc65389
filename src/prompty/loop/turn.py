"""The agent loop: ask the model, run the tools it calls, ask again, until it answers (001).

The loop decides and performs nothing: every model call, tool call, question and wait is an effect for a driver.
At any point, the messages in its state are a history that a later run can continue.
"""

from collections.abc import Sequence
from dataclasses import replace

from prompty.errors import (
    Cancelled,
    IterationsExceeded,
    MemoryFailed,
    PausedRefused,
    PromptyError,
    Refused,
    ResultError,
    describe_run,
)
from prompty.loop.effects import DescribeTools, DrainSteering, Emit, LoadMemory, Loop, OfferedTool, SaveMemory
from prompty.loop.model_step import ask_model
from prompty.loop.state import Plan, TurnState
from prompty.loop.tool_step import (
    Planned,
    Slots,
    Toolset,
    allow_calls,
    decide_calls,
    gated_calls,
    guard_calls,
    plan_calls,
    restore_calls,
    run_calls,
    unanswered_calls,
)
from prompty.model.event import (
    Done,
    HistoryRepaired,
    IterationStarted,
    MessagesChanged,
    OutputRejected,
    RunCancelled,
    RunFailed,
    RunPaused,
    RunStarted,
)
from prompty.model.message import Json, Message, Reply, user
from prompty.model.paused import Paused
from prompty.pipeline.history import find_repairs, parse_stored
from prompty.pipeline.outputs import STOPPED

# A refused or filtered answer is a decision, not a mistake: asking again would not correct it.
_CORRECTABLE = ("text", "shape", "cut", "empty")


def run_loop(plan: Plan, state: TurnState) -> Loop[Done | Paused]:
    """Run from the given state to a result or a pause. Without `plan.run_tools`, stop after the first answer."""
    try:
        if plan.observed:
            yield Emit(RunStarted(plan.run_id))
        if plan.session is not None:
            yield from _load_session(plan, state)
        end = yield from (_run_rounds(plan, state) if plan.run_tools else _run_once(plan, state))
        if plan.session is not None:
            yield from _save(plan, state)
        if isinstance(end, Paused):
            yield Emit(RunPaused(end))
            return end
        done = state.done(end)
        if plan.observed:
            yield Emit(done)
        return done
    except PromptyError as error:
        reason = error.reason if isinstance(error, Cancelled) else str(error)
        state.count_tools(plan.run_id)
        state.settle(plan.choices[0].base.api, reason.partition("\n")[0])  # the advice is for people
        describe_run(error, tuple(state.messages), state.usage, state.meter.find_cost)
        if not isinstance(error, MemoryFailed) and state.resumed is None:  # otherwise the pause can be resumed again
            yield from _save(plan, state)
        yield Emit(RunCancelled(reason) if isinstance(error, Cancelled) else RunFailed(reason))
        raise


def _run_once(plan: Plan, state: TurnState) -> Loop[object]:
    """Return the result of one answer. The caller runs its tool calls."""
    tools = (yield from DescribeTools()) if plan.has_tools else ()
    reply = yield from _next_reply(plan, state, tools)
    return plan.finish(reply)


def _run_rounds(plan: Plan, state: TurnState) -> Loop[object]:
    """Alternate answers and tool calls. Return the result, or a `Paused` if a call needs a decision."""
    tools = yield from DescribeTools()
    toolset = Toolset(tools)
    while True:
        pending = state.pending_batch
        reply = pending[0] if pending else (yield from _next_reply(plan, state, tools))
        if not reply.tool_calls:
            fits, result = yield from _finish(plan, state, reply)
            if fits and not (yield from _apply_steering(plan, state, follow_ups=True)):
                return result
            continue
        paused = yield from _run_batch(plan, state, reply, toolset)
        if paused:
            return paused
        state.settle(plan.choices[0].base.api, "")
        yield from _save(plan, state)
        if plan.observed:
            yield Emit(MessagesChanged(tuple(state.messages)))
        if plan.settings.stop and plan.settings.stop(state.progress(reply)):
            return plan.finish(replace(reply, tool_calls=(), finish_reason=STOPPED))


def _next_reply(plan: Plan, state: TurnState, tools: Sequence[OfferedTool]) -> Loop[Reply]:
    state.iteration += 1
    if plan.observed:
        yield Emit(IterationStarted(state.iteration))
    if plan.hooks.steering:
        yield from _apply_steering(plan, state)
    try:
        reply = yield from ask_model(plan, state, tools)
    except Refused as error:
        if not plan.keeps_refusals:
            raise
        reply = Reply(refusal=error.refusal)
    if reply.tool_calls and plan.run_tools:
        state.pending_batch = (reply, [None] * len(reply.tool_calls))
        _check_limits(plan, state)
    else:
        state.messages.append(reply.message())
    return reply


def _check_limits(plan: Plan, state: TurnState) -> None:
    if state.iteration > plan.settings.max_iterations:
        called = [call.name for message in state.messages for call in message.tool_calls]
        raise IterationsExceeded(plan.settings.max_iterations, called)
    state.meter.check()


def _run_batch(plan: Plan, state: TurnState, reply: Reply, toolset: Toolset) -> Loop[Paused | None]:
    """Fill the slots of an answer's calls. Pause before any of them runs, or if the outcome of one is unknown."""
    slots = state.pending_batch[1] if state.pending_batch else []
    planned = yield from _plan_batch(plan, state, reply, toolset, slots)
    asks = any(call.call.asks_approval for call in planned.values())
    if plan.hooks.gate or toolset.has_policies or state.decided or asks:
        verdicts = yield from decide_calls(
            planned, toolset, gated=plan.hooks.gate, decided=state.decided, approval=plan.settings.approval
        )
        if any(verdict.deferred for verdict in verdicts):
            yield from _save(plan, state)
            calls = gated_calls(planned, toolset)  # private copies
            return state.paused(plan, reply, list(zip(calls, verdicts, strict=True)))
        planned = yield from allow_calls(planned, verdicts, slots)
        state.decided = {}
    state.resumed = None
    settings = plan.settings
    sequential = settings.tool_execution == "sequential"
    uncertain = yield from run_calls(planned, toolset, slots, sequential=sequential, max_parallel=settings.max_parallel)
    state.count_tools(plan.run_id)
    if uncertain:
        state.uncertain_calls = frozenset(planned[position].key for position in uncertain)
        yield from _save(plan, state)
        return state.paused(plan, reply, unanswered_calls(planned, uncertain, toolset, slots))
    return None


def _plan_batch(plan: Plan, state: TurnState, reply: Reply, toolset: Toolset, slots: Slots) -> Loop[Planned]:
    """Return an answer's calls with their final arguments. After a pause, these are the arguments that were shown."""
    key, resumed = f"{plan.run_id}:{state.iteration}", state.resumed
    if resumed:
        return restore_calls(reply.tool_calls, {call.key: call for call in resumed.calls}, toolset, key, slots)
    planned = plan_calls(reply.tool_calls, toolset, key, slots)
    if "tool" in plan.hooks.guardrails:
        planned = yield from guard_calls(planned, toolset, slots)
    return planned


def _finish(plan: Plan, state: TurnState, reply: Reply) -> Loop[tuple[bool, object]]:
    """Return True and the result of an answer. An answer that does not match is sent back once with the error."""
    try:
        return True, plan.finish(reply)
    except ResultError as error:
        if state.repair_used or error.reason not in _CORRECTABLE or state.meter.find_spent():
            raise
        rejected = OutputRejected(error.reason, error.cause, error.text)
    state.repair_used = True
    if plan.observed:
        yield Emit(rejected)
    state.messages.append(user(f"{rejected.cause}\nCorrect this, and answer with the JSON only."))
    return False, None


def _apply_steering(plan: Plan, state: TurnState, *, follow_ups: bool = False) -> Loop[bool]:
    """Append queued steering messages. Return True if there were any."""
    texts = (yield from DrainSteering(follow_ups)) if plan.hooks.steering else []
    if texts:
        state.messages += [user(text) for text in texts]
        yield Emit(MessagesChanged(tuple(state.messages)))
    return bool(texts)


def _load_session(plan: Plan, state: TurnState) -> Loop[None]:
    """Insert the stored history of the session, repaired where needed."""
    if plan.session is None:
        return
    stored = yield from LoadMemory(plan.session.id)
    if state.resumed and _is_settled(state.resumed, stored):
        raise PausedRefused(
            f"it was resumed already: the session '{plan.session.id}' has its calls",
            "Start a new turn to continue the conversation.",
        )
    state.session_loaded = True
    state.stored = len(stored)
    if state.pending_batch:  # a resumed turn carries its messages
        return
    history, unreadable = parse_stored(stored)
    problems = [*unreadable, *find_repairs(history)]
    if problems:
        yield Emit(HistoryRepaired(tuple(problems)))
    at, new_from = plan.session.history_at, plan.session.new_from
    if plan.settings.messages is not None and (end := _find_end(history, state.messages)):
        state.saved = end  # the caller's messages have the history: those of an error do
        return
    if _is_asked_again(state.messages[new_from:], history):
        del state.messages[new_from:]
    state.messages[at:at] = history
    state.saved = new_from + len(history)


def _find_end(history: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return where the history ends in a conversation that contains it, or 0."""
    stored, said, length = [one.to_json() for one in history], [one.to_json() for one in messages], len(history)
    starts = (at for at in range(len(said) - length + 1) if length and said[at : at + length] == stored)
    return next((start + length for start in starts), 0)


def _is_asked_again(new: Sequence[Message], history: Sequence[Message]) -> bool:
    """Return True if the new messages are stored and no final answer followed them: a failed turn is repeated."""
    answers = [at for at, message in enumerate(history) if message.role == "assistant" and not message.tool_calls]
    unanswered = history[answers[-1] + 1 :] if answers else history
    return bool(_find_end(new, unanswered))


def _is_settled(paused: Paused, stored: Sequence[Json]) -> bool:
    """Return True if a session has a paused turn's calls among the messages stored after the pause."""
    calls = [call.to_wire() for call in Reply.from_json(paused.reply).tool_calls]
    since = stored[paused.stored :] if paused.stored is not None else ()
    return any(message.get("tool_calls") == calls for message in since)


def _save(plan: Plan, state: TurnState) -> Loop[None]:
    """Append the new messages to the session."""
    if plan.session and state.session_loaded and (new := state.messages[state.saved :]):
        yield from SaveMemory(plan.session.id, tuple(message.to_json() for message in new))
        state.saved = len(state.messages)
        state.stored += len(new)
