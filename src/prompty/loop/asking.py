"""One answer of a model: what is sent, who is asked, and what the host says to it."""

from collections.abc import Sequence
from dataclasses import replace

from prompty.errors import GuardrailError, ModelError, Refused, StreamCut
from prompty.loop.context import (
    SUMMARY,
    characters,
    compacted,
    left_out,
    measured_ratio,
    plain_summary,
    room_for_summary,
)
from prompty.loop.effects import CheckGuardrail, Emit, Loop, OfferedTool, Rewrite, Summarise
from prompty.loop.guardrails import read
from prompty.loop.repair import repaired
from prompty.loop.retry import call_model
from prompty.loop.state import Choice, Plan, TurnState
from prompty.model.event import Compacted, FellBack
from prompty.model.message import Message
from prompty.model.reply import Reply
from prompty.pipeline.request import read_messages, request_for

# What is wrong with a request is wrong with it everywhere.
_OWN_FAULT = (400, 413, 422)


def asked_model(plan: Plan, state: TurnState, tools: Sequence[OfferedTool]) -> Loop[Reply]:
    """Ask the model, or those that stand in for it, one after the other."""
    messages = yield from _fitting(plan, state)
    while True:
        choice = plan.choice(state.model)
        try:
            reply = yield from _asked(plan, state, choice, messages, tools)
        except ModelError as error:
            if state.model >= len(plan.fallbacks) or not _another_may_help(error):
                raise
            failure = error
        else:
            if plan.context:
                state.ratio = measured_ratio(messages, reply.usage, state.ratio)
            state.count(reply, choice.price)
            return (yield from _checked(plan, reply))
        state.model += 1
        yield from Emit(FellBack(plan.choice(state.model).agent.model.id, str(failure)))


def _asked(
    plan: Plan, state: TurnState, choice: Choice, messages: Sequence[Message], tools: Sequence[OfferedTool]
) -> Loop[Reply]:
    history = repaired(messages, choice.api.call_ids)
    if "input" in plan.guarded:
        history = yield from _guarded(history)
    functions = [tool.function for tool in tools]
    request = request_for(
        choice.agent, history, choice.api, functions=functions, stream=plan.stream, timeout=plan.timeout
    )
    return (yield from call_model(request, plan.max_retries, state.model))


def _another_may_help(error: ModelError) -> bool:
    """Not after words went out, not after a refusal, and not when the request itself is at fault."""
    if isinstance(error, Refused) or (isinstance(error, StreamCut) and not error.retryable):
        return False
    return error.status not in _OWN_FAULT


def _guarded(messages: list[Message]) -> Loop[list[Message]]:
    said = read((yield from CheckGuardrail("input", tuple(messages))))
    if isinstance(said, Rewrite):
        return read_messages(said.value if isinstance(said.value, list | tuple) else [said.value])
    if not said.allowed:
        raise GuardrailError("input", said.reason)
    return messages


def _checked(plan: Plan, reply: Reply) -> Loop[Reply]:
    if "output" not in plan.guarded:
        return reply
    said = read((yield from CheckGuardrail("output", reply.message())))
    if isinstance(said, Rewrite):
        return replace(reply, text=said.value.text if isinstance(said.value, Message) else str(said.value))
    if not said.allowed:
        raise GuardrailError("output", said.reason)
    return reply


def _fitting(plan: Plan, state: TurnState) -> Loop[list[Message]]:
    """The messages that are sent: all, or what the context has room for."""
    if plan.context is None:
        return state.messages
    limit = characters(plan.context, state.ratio)
    gone = left_out(state.messages, limit)
    if not gone:
        return state.messages
    if gone != state.gone:
        dropped = [state.messages[position] for position in sorted(gone)]
        most = room_for_summary(limit) - len(SUMMARY) - 1
        told = (yield from Summarise(tuple(dropped), most)) if plan.context.summary else None
        state.gone, state.summary = gone, (told or plain_summary(dropped, most))[:most]
        yield from Emit(Compacted(len(dropped), state.summary))
    return compacted(state.messages, gone, state.summary)
