"""The target of a model call: a provider's transport, or an executor and a processor of the host (§7.8)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, cast

from prompty.drivers.span_attributes import begin_call_span, record_reply
from prompty.errors import TIMED_OUT, ModelError, PromptyError, mask_error
from prompty.loop.effects import CallModel, Effect
from prompty.model.agent import PromptAgent, create_redactor
from prompty.model.connection import ReferenceConnection
from prompty.model.message import Json, Message, Reply, ToolCall
from prompty.model.request import Function, WireRequest
from prompty.model.trust import refuse_text
from prompty.pipeline.request import build_request, extract_result, list_offered_functions
from prompty.providers import (
    EXECUTORS,
    PROCESSORS,
    PROVIDERS,
    Api,
    AsyncTransport,
    ExecutorProtocol,
    Pair,
    ProcessorProtocol,
    Provider,
    RequestBase,
    Transport,
)
from prompty.providers.credentials import check_missing
from prompty.providers.endpoint import append_path, find_server_name
from prompty.providers.fitting import find_refusals, fit_request
from prompty.providers.wiretap import AsyncWiretapTransport, Exchange, WiretapTransport, get_base_url
from prompty.safety.redaction import mask_secrets, mask_url
from prompty.tracing.spans import Span, begin
from prompty.wire.json_bytes import as_object, parse_reply, read_bytes


class HttpTarget:
    """A model behind a transport. `transport` is a `Transport`, or an `AsyncTransport` in async code."""

    def __init__(
        self,
        agent: PromptAgent,
        provider: Provider,
        *,
        is_async: bool,
        offers_tools: bool | None = None,
    ) -> None:
        self.agent = agent
        self.provider = provider
        self.api: Api = provider.api_for(agent, offers_tools=offers_tools)
        connect = provider.transport_async_for if is_async else provider.transport_for
        self.transport: Any = connect(agent)
        self.base: RequestBase = fit_request(agent, self.api)
        self._is_async = is_async

    @property
    def url(self) -> str:
        return get_base_url(self.transport)

    def describe_url(self, api: Api) -> str | None:
        """Return the URL of requests to an API for people, without credentials, or None if nothing is sent."""
        if not (base := self.url):
            return None
        registered = isinstance(self.agent.model.connection, ReferenceConnection | None)
        url = append_path(base, api.path) if registered else self.provider.preview(self.agent, api).url
        return self.mask(mask_url(url))

    def streams(self, request: WireRequest) -> bool:
        """Return True if the answer arrives in pieces."""
        return request.stream and self.api_of(request).decoder is not None

    def api_of(self, request: WireRequest) -> Api:
        """Return the API of a request: the target's, or Responses if the server asked for it."""
        if request.path == self.api.path or request.path.startswith(f"{self.api.path}/"):
            return self.api
        return replace(self.provider.api("responses"), facts=self.api.facts)

    def intercept(self, begin: Callable[[WireRequest], Exchange]) -> None:
        """Record every exchange of the transport."""
        wrap: Callable[[Any, Any], Transport | AsyncTransport] = (
            AsyncWiretapTransport if self._is_async else WiretapTransport
        )
        self.transport = wrap(self.transport, begin)

    def mask(self, text: str) -> str:
        """Mask the credentials of the transport and what tools bind: a server may repeat them in an error."""
        masked: str = getattr(self.transport, "masked", mask_secrets)(text)
        return create_redactor(self.agent).mask(masked)


class PairTarget:
    """An executor and a processor of the host as a model."""

    url = ""

    def __init__(self, agent: PromptAgent, pair: Pair) -> None:
        if not isinstance(pair.executor, ProviderExecutor):  # which asks when it connects
            check_missing(agent)
            if refusal := refuse_text(agent.trust):
                raise refusal.as_error()
        self.agent = agent
        self.pair = pair
        self.base: RequestBase = fit_request(agent, PAIR_API)
        self.api: Api = PAIR_API

    def describe_url(self, _: Api) -> None:
        return None

    def api_of(self, _: WireRequest) -> Api:
        return self.api

    def streams(self, request: WireRequest) -> bool:
        return request.stream

    def mask(self, text: str) -> str:
        return create_redactor(self.agent).mask(text)

    def _executor(self, request: WireRequest) -> ExecutorProtocol:
        """Return the executor. That of a provider offers the functions of the run."""
        executor = self.pair.executor
        return ProviderExecutor(request.functions) if isinstance(executor, ProviderExecutor) else executor

    def reply(self, request: WireRequest) -> Reply:
        raw = self._executor(request).execute(self.agent, list(request.messages))
        processor = self.pair.processor
        if isinstance(processor, ProviderProcessor):  # the run processes its reply
            return processor.read(self.agent, raw)
        return _reply_from_result(processor.process(self.agent, raw))

    async def reply_async(self, request: WireRequest) -> Reply:
        raw = await self._executor(request).execute_async(self.agent, list(request.messages))
        processor = self.pair.processor
        if isinstance(processor, ProviderProcessor):
            return processor.read(self.agent, raw)
        return _reply_from_result(await processor.process_async(self.agent, raw))


Target = HttpTarget | PairTarget
_REQUEST_FAULTS = (400, 404, 422)


def describe_failure(error: PromptyError, effect: Effect[object], targets: Sequence[Target]) -> PromptyError:
    """Return the error of an effect: with the call it belongs to, and without the credentials that it may quote, since
    a server knows the key of its caller."""
    if isinstance(error, ModelError):
        for target in targets:
            mask_error(error, target.mask)
        if isinstance(effect, CallModel):
            target = targets[effect.model]
            api = target.api_of(effect.request)
            locate_error(error, target, api)
            if error.cause == TIMED_OUT and (timeout := effect.request.timeout) is not None:
                error.advice = f"It had {timeout:g} s. Allow more with `timeout`, or --timeout on a command line."
            if error.status in _REQUEST_FAULTS and not error.advice:
                error.advice = _find_advice(target.agent, api, effect.request)
    return error


def _find_advice(agent: PromptAgent, api: Api, request: WireRequest) -> str:
    """Return what the facts about a model say about a request that it refused."""
    last_role = request.messages[-1].role if request.messages else "user"
    found = find_refusals(fit_request(agent, api), offers_tools=bool(request.functions), last_role=last_role)
    return "\n    ".join(f"{refusal.parameter}: {refusal.message}. {refusal.fix}" for refusal in found)


def locate_error(error: ModelError, target: Target, api: Api) -> None:
    """Name the call that failed in its error, unless an inner call has done so."""
    if error.provider is None:
        model, path = target.agent.model, target.agent.path
        error.provider, error.model = find_server_name(target.agent), target.mask(model.id)
        error.file = None if path is None else str(path)
        error.url = target.describe_url(api)


def resolve_target(agent: PromptAgent, *, is_async: bool, offers_tools: bool | None = None) -> Target:
    """Return the model that answers an agent's prompt."""
    resolved = resolve_provider(agent)
    if isinstance(resolved, Pair):
        return PairTarget(agent, resolved)
    return HttpTarget(agent, resolved, is_async=is_async, offers_tools=offers_tools)


def resolve_base(agent: PromptAgent, *, offers_tools: bool | None = None) -> RequestBase:
    """Return what the requests to an agent's model have in common, without connecting to it."""
    resolved = resolve_provider(agent)
    api = PAIR_API if isinstance(resolved, Pair) else resolved.api_for(agent, offers_tools=offers_tools)
    return fit_request(agent, api)


def resolve_provider(agent: PromptAgent) -> Provider | Pair:
    """Return the provider of an agent. If the host replaced one half of it, the other half stays the provider's."""
    key, registry = agent.model.provider, agent.registry
    replaced = registry[EXECUTORS].is_registered(key) or registry[PROCESSORS].is_registered(key)
    if not replaced and (registry[PROVIDERS].has(key) or not registry[EXECUTORS].has(key)):
        return registry[PROVIDERS].get(key)
    return Pair(get_executor(agent), get_processor(agent))


def get_executor(agent: PromptAgent) -> ExecutorProtocol:
    """Return the executor of an agent's provider. A registered one takes precedence over the provider."""
    key, registry = agent.model.provider, agent.registry
    is_provider = not registry[EXECUTORS].is_registered(key) and registry[PROVIDERS].has(key)
    return ProviderExecutor() if is_provider else registry[EXECUTORS].get(key)


def get_processor(agent: PromptAgent) -> ProcessorProtocol:
    """Return the processor of an agent's provider. A registered one takes precedence over the provider."""
    key, registry = agent.model.provider, agent.registry
    is_provider = not registry[PROCESSORS].is_registered(key) and registry[PROVIDERS].has(key)
    return ProviderProcessor() if is_provider else registry[PROCESSORS].get(key)


class ProviderExecutor:
    """Calls the model that an agent names, and returns its raw JSON. Offers the agent's tools, or `functions`."""

    def __init__(self, functions: Sequence[Function] | None = None) -> None:
        self._functions = functions

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        target = self._connect(agent, is_async=False)
        request = build_request(agent, messages, target.base, functions=self._functions)
        with begin_call_span(agent, target.api, target.url, request) as span, _locating(target):
            return _record_raw(span, target.api, as_object(read_bytes(target.transport.send(request))))

    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> Json:
        target = self._connect(agent, is_async=True)
        functions = await list_offered_functions(agent) if self._functions is None else self._functions
        request = build_request(agent, messages, target.base, functions=functions)
        with begin_call_span(agent, target.api, target.url, request) as span, _locating(target):
            return _record_raw(span, target.api, as_object(read_bytes(await target.transport.send(request))))

    def _connect(self, agent: PromptAgent, *, is_async: bool) -> HttpTarget:
        provider = agent.registry[PROVIDERS].get(agent.model.provider)
        return HttpTarget(agent, provider, is_async=is_async, offers_tools=bool(agent.tools or self._functions))


@contextmanager
def _locating(target: HttpTarget) -> Iterator[None]:
    try:
        yield
    except ModelError as error:
        mask_error(error, target.mask)
        locate_error(error, target, target.api)
        raise


def _record_raw(span: Span, api: Api, payload: Json) -> Json:
    """Record the reply in a raw payload, if it can be read."""
    if span.live:
        with suppress(PromptyError):
            record_reply(span, parse_reply(api.reply, payload))
    return payload


class ProviderProcessor:
    """Reads the raw JSON of the provider that an agent names."""

    def read(self, agent: PromptAgent, response: object) -> Reply:
        provider = agent.registry[PROVIDERS].get(agent.model.provider)
        api = provider.api_for(agent)
        if api.name == "chat" and isinstance(response, dict) and response.get("object") == "response":
            api = provider.api("responses")  # a run offered tools that are not in the file
        reply = parse_reply(api.reply, response)
        if reply.finish_reason in api.unfinished:
            raise ModelError(f"the answer is not complete (`{reply.finish_reason}`), and only a run continues it")
        return reply

    def process(self, agent: PromptAgent, response: object, /) -> object:
        with begin("process") as span:
            return _record_result(span, extract_result(agent, self.read(agent, response)))

    async def process_async(self, agent: PromptAgent, response: object, /) -> object:
        return self.process(agent, response)


def process_response(agent: PromptAgent, response: object) -> object:
    """Return the result of a raw reply, inside a `process` span (§8)."""
    processor = get_processor(agent)
    if isinstance(processor, ProviderProcessor):
        return processor.process(agent, response)
    with begin("process") as span:
        return _record_result(span, processor.process(agent, response))


async def process_response_async(agent: PromptAgent, response: object) -> object:
    """The async form of `process_response`."""
    processor = get_processor(agent)
    if isinstance(processor, ProviderProcessor):
        return processor.process(agent, response)
    with begin("process") as span:
        return _record_result(span, await processor.process_async(agent, response))


def _record_result(span: Span, result: object) -> object:
    span.record("result", result)
    return result


def _pair_request(_: RequestBase, messages: Sequence[Message], __: Sequence[Function]) -> Json:
    return {"messages": [message.to_json() for message in messages]}


def _pair_reply(_: Json) -> Reply:
    raise ModelError("the answers of an executor are read by a processor of the host")


# The request of an executor: messages in our own JSON form.
PAIR_API = Api(path="", request=_pair_request, reply=_pair_reply)


def _reply_from_result(result: object) -> Reply:
    """Return a reply for the result of a processor: text, tool calls, or any other value."""
    if isinstance(result, str):
        return Reply(text=result)
    if isinstance(result, list) and result and all(isinstance(call, ToolCall) for call in result):
        return Reply(tool_calls=tuple(cast(list[ToolCall], result)))
    return Reply(value=result)
