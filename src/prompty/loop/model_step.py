"""One model answer: build the request, call the model with retries and fallbacks, check the answer.

This is the only place that retries: SDK retries are off, so that no call is retried at two levels.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from urllib.parse import quote

from prompty.errors import (
    TIMED_OUT,
    GuardrailError,
    ModelError,
    PromptyError,
    Refused,
    ResponseFailed,
    StreamCut,
)
from prompty.loop.context import (
    SUMMARY,
    Context,
    compact,
    estimate_gauge,
    get_summary_size,
    select_dropped,
    write_plain_summary,
)
from prompty.loop.effects import (
    AbandonAnswer,
    CallModel,
    CheckGuardrail,
    Emit,
    Loop,
    OfferedTool,
    Rewrite,
    Summarise,
    Wait,
)
from prompty.loop.policy import parse_guardrail
from prompty.loop.state import Choice, Hooks, Plan, TurnState
from prompty.model.event import Compacted, FellBack, ModelFailed, ModelReply, ModelRequested, Retry
from prompty.model.message import Message, Reply
from prompty.model.request import WireRequest
from prompty.pipeline.caching import build_cached_request
from prompty.pipeline.history import normalize_history
from prompty.pipeline.request import read_messages, warn_once
from prompty.providers import PROVIDERS, RequestBase
from prompty.providers.fitting import fit_request
from prompty.tools.calls import Metered

FIRST_WAIT = 0.5
LONGEST_WAIT = 8.0
LONGEST_REQUESTED_WAIT = 60.0
MAX_CONTINUATIONS = 10  # of one answer
MAX_POLLS = 1_000  # of one answer, which are about two hours
# These statuses blame the request, which every fallback would receive unchanged.
_REQUEST_FAULTS = (400, 413, 422)


def ask_model(plan: Plan, state: TurnState, tools: Sequence[OfferedTool]) -> Loop[Reply]:
    """Ask the model, then its fallbacks one after the other, and return the checked answer."""
    messages = (yield from _fit_context(plan.context, plan.hooks, state, tools)) if plan.context else state.messages
    while True:
        state.meter.check()
        choice = plan.choices[state.model]
        if state.model in state.bases:
            choice = choice._replace(base=state.bases[state.model])
        request = yield from _build_request(plan, choice, messages, tools)
        state.omitted |= request.omitted
        state.calls += 1
        try:
            reply = yield from call_model(
                request, plan.settings.max_retries, call=state.calls, model=state.model, observed=plan.observed
            )
        except ModelError as error:
            if isinstance(error, Refused) and isinstance(error.reply, Reply):
                state.count(error.reply, choice)
            if base := _find_wanted_base(choice, error):
                state.bases[state.model] = base
                continue
            if state.model + 1 >= len(plan.choices) or not _may_fall_back(error):
                raise
            failure = error
        else:
            if state.gauge:
                state.gauge = state.gauge.learn(messages, reply.usage)
            state.count(reply, choice)
            if reply.finish_reason in choice.base.api.unfinished and not reply.tool_calls:
                reply = yield from _continue_answer(plan, state, choice, request, reply)
            state.last_reply = reply = choice.base.api.bind_reply(request.unmarked or request.body, reply)
            state.provider_calls += reply.provider_calls
            return (yield from _check_output(reply)) if "output" in plan.hooks.guardrails else reply
        state.model += 1
        yield Emit(FellBack(plan.choices[state.model].agent.model.id, failure.cause))


def _continue_answer(plan: Plan, state: TurnState, choice: Choice, request: WireRequest, reply: Reply) -> Loop[Reply]:
    """Return the whole of an answer that came unfinished.

    Its pieces are one answer: they share its timeout, they are no rounds, and no fallback is called between them.
    """
    api = choice.base.api
    if api.join is None:
        return (yield from _await_answer(plan, state, choice, request, reply))
    for _ in range(MAX_CONTINUATIONS):
        state.meter.check()
        following = build_cached_request(
            choice.agent,
            [*request.messages, reply.message()],
            choice.base,
            use=plan.cache_use,
            functions=request.functions,
            stream=plan.stream,
            timeout=plan.settings.timeout,
        )
        piece = yield from _call_again(plan, state, following)
        state.count(piece, choice)
        reply = api.join(reply, piece)
        if piece.tool_calls or piece.finish_reason not in api.unfinished:
            return reply
    cause = f"the answer was not complete after {MAX_CONTINUATIONS} continuations (`{reply.finish_reason}`)"
    raise StreamCut(cause, reply, retryable=False)


def _call_again(plan: Plan, state: TurnState, request: WireRequest) -> Loop[Reply]:
    """Call the same model for the same answer."""
    return call_model(request, plan.settings.max_retries, call=state.calls, model=state.model, observed=plan.observed)


def _await_answer(plan: Plan, state: TurnState, choice: Choice, request: WireRequest, reply: Reply) -> Loop[Reply]:
    """Return an answer in the background once it is complete. If nobody waits for it any more, it is cancelled."""
    path = f"{request.path}/{quote(reply.id or '', safe='')}"
    poll = replace(request, path=path, method="GET", body={}, stream=False)
    cancel = AbandonAnswer(replace(request, path=f"{path}/cancel", body={}, stream=False), state.model)
    for attempt in range(1, MAX_POLLS + 1):
        try:
            yield from Wait(min(FIRST_WAIT * float(2 ** min(attempt - 1, 10)), LONGEST_WAIT))
            piece = yield from _call_again(plan, state, poll)
        except PromptyError as error:
            if not isinstance(error, ResponseFailed):
                with suppress(PromptyError):
                    yield from cancel
            raise
        if piece.finish_reason not in choice.base.api.unfinished:
            state.count(piece, choice)
            return piece
    yield from cancel
    raise StreamCut(f"the answer was still `{reply.finish_reason}` after {MAX_POLLS:,} polls", reply, retryable=False)


def _find_wanted_base(choice: Choice, error: ModelError) -> RequestBase | None:
    """Return what requests to the Responses API have in common if a server that was asked on chat names it in its
    refusal, and the file leaves the choice to us."""
    if error.status not in (400, 404) or choice.base.api.name != "chat" or "v1/responses" not in error.cause:
        return None
    agent = choice.agent
    api = (
        agent.registry[PROVIDERS]
        .get(agent.model.provider)
        .responses_for(agent, f"the server asked for it: {error.cause}")
    )
    if api is None:
        return None
    warn_once(agent, "apiType", f"requests go to the Responses API, because {api.chosen}")
    return fit_request(agent, api)


def call_model(
    request: WireRequest, max_retries: int, *, call: int = 1, model: int = 0, observed: bool = True
) -> Loop[Reply]:
    """Call a model, and retry failures unless they are permanent or text has been streamed."""
    for attempt in count(1):
        if observed:
            yield Emit(ModelRequested(call, attempt, model, request))
        try:
            reply = yield from CallModel(request, call, model)
        except ModelError as error:
            failure = error
            failure.attempt = failure.attempt or attempt
        else:
            if observed:
                yield Emit(ModelReply(reply))
            return reply
        is_out_of_time = failure.cause == TIMED_OUT and request.timeout is not None  # which all attempts share
        is_ended = request.method == "GET" and isinstance(failure, ResponseFailed)  # fetching it again changes nothing
        is_final = not failure.retryable or attempt > max_retries or is_out_of_time or is_ended
        yield Emit(ModelFailed(call, attempt, failure, is_final))
        if is_final:
            raise failure
        seconds = wait_after(failure, attempt)
        yield Emit(Retry(attempt, seconds, failure.cause, failure.status, failure.retry_after))
        try:
            yield from Wait(seconds)
        except ModelError:
            raise failure from None  # no time left to wait: the failure explains more than a timeout
    raise AssertionError("unreachable")


def wait_after(error: ModelError, attempt: int) -> float:
    """Return the seconds to wait: the server's `retry_after` up to a maximum, else exponential backoff."""
    if error.retry_after is not None:
        return min(error.retry_after, LONGEST_REQUESTED_WAIT)
    return min(FIRST_WAIT * float(2 ** (attempt - 1)), LONGEST_WAIT)


def _build_request(
    plan: Plan, choice: Choice, messages: Sequence[Message], tools: Sequence[OfferedTool]
) -> Loop[WireRequest]:
    if "input" in plan.hooks.guardrails:
        messages = yield from _check_input(normalize_history(messages, choice.base.api.call_ids))
    functions = [tool.function for tool in tools]
    return build_cached_request(
        choice.agent,
        messages,
        choice.base,
        use=plan.cache_use,
        functions=functions,
        stream=plan.stream,
        timeout=plan.settings.timeout,
    )


def _may_fall_back(error: ModelError) -> bool:
    """Return False after streamed text, after a refusal, and if the request itself is invalid."""
    if isinstance(error, Refused) or (isinstance(error, StreamCut) and not error.retryable):
        return False
    return error.status not in _REQUEST_FAULTS


def _check_input(messages: list[Message]) -> Loop[list[Message]]:
    verdict = parse_guardrail((yield from CheckGuardrail("input", tuple(messages))))
    if isinstance(verdict, Rewrite):
        return read_messages(verdict.value if isinstance(verdict.value, list | tuple) else [verdict.value])
    if not verdict.allowed:
        raise GuardrailError("input", verdict.reason)
    return messages


def _check_output(reply: Reply) -> Loop[Reply]:
    verdict = parse_guardrail((yield from CheckGuardrail("output", reply.message())))
    if isinstance(verdict, Rewrite):
        text = verdict.value.text if isinstance(verdict.value, Message) else str(verdict.value)
        # the offsets are those of the text before
        return replace(
            reply, text=text, citations=tuple([replace(one, start=None, end=None) for one in reply.citations])
        )
    if not verdict.allowed:
        raise GuardrailError("output", verdict.reason)
    return reply


def _fit_context(context: Context, hooks: Hooks, state: TurnState, tools: Sequence[OfferedTool]) -> Loop[list[Message]]:
    """Return the messages to send: all, or as many as fit, with a summary of the rest."""
    state.gauge = state.gauge or estimate_gauge(tools)
    limit = state.gauge.get_character_limit(context)
    dropped = select_dropped(state.messages, limit)
    if not dropped:
        return state.messages
    if dropped != state.dropped:
        messages = [state.messages[position] for position in sorted(dropped)]
        longest = get_summary_size(limit) - len(SUMMARY) - 1
        summary = (yield from Summarise(tuple(messages), longest)) if hooks.summary else None
        if isinstance(summary, Metered):
            state.meter.count_stored(summary.key, summary.usage, summary.cost)
            summary = str(summary.value)
        state.dropped, state.summary = dropped, (summary or write_plain_summary(messages, longest))[:longest]
        yield Emit(Compacted(len(messages), state.summary))
    return compact(state.messages, dropped, state.summary)
