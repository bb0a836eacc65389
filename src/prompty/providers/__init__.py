"""Providers: wire formats, which are pure functions on plain JSON, and transports.

An `Api` is a path and the functions that write its requests and read its replies. `reply` and the decoder agree: the
same answer gives the same `Reply`, streamed or not.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from prompty.errors import RequestError, WrongArgument
from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.message import Json, Message, Reply
from prompty.model.request import Function, OutputSchema, WireRequest, WrittenTool
from prompty.model.tool import ToolDefinition, runs_at_provider
from prompty.providers.credentials import check_online, check_trust, unusable_connection
from prompty.providers.endpoint import Endpoint, append_path
from prompty.providers.facts import ModelFacts, add_facts, find_model_facts, find_need_of_responses
from prompty.providers.profiles import Profile, find_profile
from prompty.registry import DEFAULT, ExtensionPoint, Registry

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Client

    from prompty.wire.stream import Decoder  # with all events, which only a call needs
    from prompty.wire.structured import StrictOneOf


class Bytes(Protocol):
    """The bytes of a streamed answer. Closing it closes the connection."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        """End the stream from another thread, even while its reader waits for bytes."""


class AsyncBytes(Protocol):
    """The async form of `Bytes`."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class Transport(Protocol):
    """Sends requests to one endpoint with one credential. Failures are raised as ModelError."""

    def send(self, request: WireRequest, /) -> bytes: ...
    def stream(self, request: WireRequest, /) -> Bytes: ...


class AsyncTransport(Protocol):
    """The async form of `Transport`."""

    async def send(self, request: WireRequest, /) -> bytes: ...
    async def stream(self, request: WireRequest, /) -> AsyncBytes: ...


class TransportInterceptor(ABC):
    """Replaces the transports of every provider within `with interceptor:`, to record or to answer requests.

    It is active in this context, and in threads and tasks that copy it. `is_live` is False if no server is asked.
    """

    is_live: bool = True

    @abstractmethod
    def transport(self, provider: "Provider", agent: PromptAgent, /) -> Transport:
        """Return the transport to use for an agent."""

    @abstractmethod
    def transport_async(self, provider: "Provider", agent: PromptAgent, /) -> AsyncTransport:
        """Return the async transport to use for an agent."""

    @abstractmethod
    def hide(self, values: Sequence[object], /) -> None:
        """Mask these input values in whatever is recorded."""

    def __enter__(self) -> Self:
        _interceptors.set((*_interceptors.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _interceptors.set(_interceptors.get()[:-1])


class TransportSubstitute(ABC):
    """Answers the requests of every provider within `with substitute:`, so that nothing connects and no credential is
    looked up. An interceptor records its answers.
    """

    @abstractmethod
    def transport(self) -> Transport:
        """Return the transport to use instead of a provider's."""

    @abstractmethod
    def transport_async(self) -> AsyncTransport:
        """Return the async transport to use instead of a provider's."""

    def __enter__(self) -> Self:
        _substitutes.set((*_substitutes.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _substitutes.set(_substitutes.get()[:-1])


# Stacks without tokens, so that several threads can enter one interceptor or substitute at once.
_interceptors: ContextVar[tuple[TransportInterceptor, ...]] = ContextVar("prompty_interceptors", default=())
_substitutes: ContextVar[tuple[TransportSubstitute, ...]] = ContextVar("prompty_substitutes", default=())


def active_interceptors() -> tuple[TransportInterceptor, ...]:
    """Return the interceptors of this context, the innermost last."""
    return _interceptors.get()


def has_live_transport() -> bool:
    """Return False if the answers of this context are recorded ones: no server needs a pause before a retry."""
    interceptors = _interceptors.get()
    return not interceptors or interceptors[-1].is_live


def has_server() -> bool:
    """Return False if a substitute such as a `Script`, or a recording, answers in this context."""
    return not _substitutes.get() and has_live_transport()


def asks_server(agent: PromptAgent) -> bool:
    """Return True if calls of an agent's model leave the process."""
    providers, key = agent.registry[PROVIDERS], agent.model.provider
    return has_server() and not (providers.has(key) and providers.get(key).hosts is None)


# Call ids that an API accepts: by default any text.
ANY_ID = re.compile(r"(?s).+")


def turn_messages(reply: Reply, results: Sequence[Message]) -> list[Message]:
    """Return an assistant turn and the results of its calls, in the order of the calls."""
    return [reply.message(), *results]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestBase:
    """What the requests to one model have in common. `fit_request` makes it once for each model of a run."""

    api: "Api"
    model: str
    """The id of the model, as it is sent."""
    options: ModelOptions
    """The options as the model takes them, with the tools that the provider runs under `additional_properties`."""
    omitted: Mapping[str, str] = field(default_factory=dict)
    """The options that are not sent because the model refuses them, by their names in the file, with the reason."""
    output: OutputSchema | None = None
    """The schema of the answer."""
    hosted: tuple[ToolDefinition, ...] = ()
    """The tools that the provider runs."""
    reasoning: str | None = None
    """The file's choice of a field for thoughts, on servers that have several."""
    refusal: "StrictOneOf | None" = None
    """A `oneOf` in a strict schema, which no API takes."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Api:
    """One API of a provider.

    `request` writes a body, and `headers` those of its headers that are no credentials, from what all requests to a
    model have in common.

    `stream_body` changes a request body into one for a stream. `options` maps model options to their wire names,
    `operation` is the name of the API in telemetry, and `call_ids` matches the call ids that it accepts. If servers
    differ, `adapt` returns the API for one of them.

    `name` is the API's name in the facts about models, and `facts` are those of the model to ask. If models differ,
    `fit` returns the API for one of them. `chosen` is the reason why this API was chosen, if the file names none.
    `bind` marks the thoughts in a reply to a request body. `provider_tool` writes a tool that the provider runs, or
    returns None for a kind that the API lacks.

    `unfinished` are the finish reasons of an answer that continues: when it is sent back, and `join` adds what follows
    to it, or without `join` when it is fetched again by its id.
    """

    path: str
    name: str = ""
    request: Callable[[RequestBase, Sequence[Message], Sequence[Function]], Json]
    reply: Callable[[Json], Reply]
    tool_messages: Callable[[Reply, Sequence[Message]], list[Message]] = turn_messages
    decoder: "Callable[[], Decoder] | None" = None
    stream_body: Callable[[Json], Json] = lambda body: body
    headers: Callable[[RequestBase], Mapping[str, str]] = lambda _: {}
    options: Mapping[str, str] = field(default_factory=dict)
    operation: str = "chat"
    call_ids: re.Pattern[str] = ANY_ID
    adapt: "Callable[[Api, Profile], Api] | None" = None
    fit: "Callable[[Api, ModelFacts], Api] | None" = None
    facts: ModelFacts | None = None
    chosen: str | None = None
    bind: Callable[[Json, Reply], Reply] | None = None
    unfinished: tuple[str, ...] = ()
    join: Callable[[Reply, Reply], Reply] | None = None
    provider_tool: "Callable[[ToolDefinition], WrittenTool | None] | None" = None

    def bind_reply(self, body: Json, reply: Reply) -> Reply:
        """Return a reply as it must be stored. Some models refuse their own thoughts after something before them has
        changed."""
        return self.bind(body, reply) if self.bind else reply


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestPreview:
    """The URL and headers of a request for people to read. A key is shown as the name of a variable."""

    url: str
    headers: tuple[str, ...] = ()


def preview_request(agent: PromptAgent, api: Api) -> RequestPreview:
    """Return the endpoint of the agent's connection, with the path of an API."""
    endpoint = getattr(agent.model.connection, "endpoint", None) or "https://endpoint.invalid"
    return RequestPreview(url=append_path(endpoint, api.path))


def find_endpoint_profile(agent: PromptAgent) -> Profile:
    """Return the profile of the server at the endpoint of the agent's connection."""
    return find_profile(getattr(agent.model.connection, "endpoint", None) or "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """A provider: its APIs by `apiType`, its transports, and how its requests are shown to people.

    `hosts` are the provider's own: they get credentials of the environment even if only the file names them. None is
    for a provider that sends nothing.
    `connection_kinds` are the kinds of connection it takes; none means that `prompty check` does not know.
    `profile` returns the profile of the server that an agent's requests go to. `models_path` lists its models.
    `endpoint` returns where an agent's requests go, and with which headers; None is for a provider that does not say.
    """

    key: str
    apis: Mapping[str, Api]
    transport: Callable[[PromptAgent], Transport]
    transport_async: Callable[[PromptAgent], AsyncTransport]
    preview: Callable[[PromptAgent, Api], RequestPreview] = preview_request
    hosts: tuple[str, ...] | None = ()
    connection_kinds: tuple[str, ...] = ()
    profile: Callable[[PromptAgent], Profile] = find_endpoint_profile
    models_path: str | None = None
    endpoint: Callable[[PromptAgent], Endpoint] | None = None

    def transport_for(self, agent: PromptAgent) -> Transport:
        """Return the transport of an agent, or that of the innermost interceptor."""
        interceptors = _interceptors.get()
        return interceptors[-1].transport(self, agent) if interceptors else self.connect(agent)

    def transport_async_for(self, agent: PromptAgent) -> AsyncTransport:
        """Return the async transport of an agent, or that of the innermost interceptor."""
        interceptors = _interceptors.get()
        return interceptors[-1].transport_async(self, agent) if interceptors else self.connect_async(agent)

    def connect(self, agent: PromptAgent) -> Transport:
        """Return the transport of an agent, or that of the innermost substitute. Raise RequestError if a variable is
        not set, or would go where it may not."""
        if substitutes := _substitutes.get():
            return substitutes[-1].transport()
        self._check(agent)
        return self.transport(agent)

    def connect_async(self, agent: PromptAgent) -> AsyncTransport:
        """The async form of `connect`."""
        if substitutes := _substitutes.get():
            return substitutes[-1].transport_async()
        self._check(agent)
        return self.transport_async(agent)

    def _check(self, agent: PromptAgent) -> None:
        """Raise RequestError if the provider may not be asked."""
        self.check_connection(agent)
        if self.hosts is not None:
            check_online(agent)
        check_trust(agent, self.hosts)

    def check_connection(self, agent: PromptAgent) -> None:
        """Raise RequestError if the provider cannot use the kind of the agent's connection."""
        connection = agent.model.connection
        if connection is not None and self.connection_kinds and connection.kind not in self.connection_kinds:
            raise unusable_connection(connection.kind, self.key, self.connection_kinds)

    def api_for(self, agent: PromptAgent, *, offers_tools: bool | None = None) -> Api:
        """Return the API for an agent's requests, as its server and its model take it.

        A written `apiType` is obeyed. If the file has none, an OpenAI model that needs Responses gets it.
        """
        profile = self.profile(agent)
        facts, chosen = self._find_facts(agent, profile), None
        if profile.name == "openai" and self._may_choose_responses(agent):
            chosen = _find_tool_of_responses(agent)
            if facts is not None and not chosen:
                offered = bool(agent.tools) if offers_tools is None else offers_tools
                chosen = find_need_of_responses(facts, agent.model.options, offers_tools=offered)
        return _specialize(self.api("responses" if chosen else agent.model.api_type), profile, facts, chosen)

    def responses_for(self, agent: PromptAgent, reason: str) -> Api | None:
        """Return the Responses API for an agent whose server asks for it, if the file leaves the choice to us."""
        profile = self.profile(agent)
        if not self._may_choose_responses(agent) or "responses" not in profile.apis:
            return None
        return replace(self.apis["responses"], facts=self._find_facts(agent, profile), chosen=reason)

    def _may_choose_responses(self, agent: PromptAgent) -> bool:
        return "api_type" not in agent.model.model_fields_set and "responses" in self.apis

    def _find_facts(self, agent: PromptAgent, profile: Profile) -> ModelFacts | None:
        """Return the facts of the agent's model. A provider that does not say where its requests go has none."""
        return None if self.profile is find_endpoint_profile else find_model_facts(agent, profile)

    def api(self, api_type: str) -> Api:
        """Return the API of this type. Raise RequestError if the provider has none."""
        found: object = api_type
        if not isinstance(found, str):
            raise WrongArgument("api_type", found, "text", f"Pass one of {', '.join(self.apis)}.")
        if api_type in self.apis:
            return self.apis[api_type]
        raise RequestError(
            f"the provider '{self.key}' has no API of type '{api_type}'",
            f"Write `apiType:` with one of {', '.join(self.apis)}.",
            keys=("model", "apiType"),
        )


@lru_cache(maxsize=128)
def _specialize(api: Api, profile: Profile, facts: ModelFacts | None, chosen: str | None) -> Api:
    """Return an API as a server and a model take it."""
    api = api.adapt(api, profile) if api.adapt else api
    if facts is None:
        return replace(api, chosen=chosen) if chosen else api
    return replace(api.fit(api, facts) if api.fit else api, facts=facts, chosen=chosen)


def _find_tool_of_responses(agent: PromptAgent) -> str | None:
    """Return the reason why the tools of an agent need the Responses API, or None."""
    hosted = next((tool.name for tool in agent.tools if runs_at_provider(tool)), None)
    return f"the tool '{hosted}' runs at the provider" if hosted else None


class ExecutorProtocol(Protocol):
    """Sends messages to a model and returns its raw reply."""

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> object: ...
    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> object: ...


class ProcessorProtocol(Protocol):
    """Converts a raw reply to a result."""

    def process(self, agent: PromptAgent, response: object, /) -> object: ...
    async def process_async(self, agent: PromptAgent, response: object, /) -> object: ...


class Pair(NamedTuple):
    """An executor and the processor that reads its replies (§7.8)."""

    executor: ExecutorProtocol
    processor: ProcessorProtocol


PROVIDERS: ExtensionPoint[Provider] = ExtensionPoint("provider")
EXECUTORS: ExtensionPoint[ExecutorProtocol] = ExtensionPoint("executor")
PROCESSORS: ExtensionPoint[ProcessorProtocol] = ExtensionPoint("processor")


def register_provider(name: str, provider: Provider, *, registry: Registry = DEFAULT) -> None:
    """Register a provider for files with `provider: name`."""
    registry[PROVIDERS].register(name, provider)


def register_connection(name: str, *clients: object, registry: Registry = DEFAULT) -> None:
    """Register SDK clients, sync and async, for files with `connection: {kind: reference, name: name}`."""
    registry.connections.register(name, *clients)


def use_client(client: "Client | AsyncClient", *, for_: str, registry: Registry = DEFAULT) -> None:
    """Send all requests to a provider over an HTTP client of your program, with its proxies, certificates and hooks.

    `for_` is a provider such as "openai", or "mcp" or "openapi" for tools, which need an `httpx2.AsyncClient`. Async
    code needs one as well, and sync code an `httpx2.Client`. The client stays yours: nothing closes it.
    """
    import httpx2  # slow, and few programs bring a client

    is_tool = for_ in ("mcp", "openapi")
    kinds: tuple[type, ...] = (httpx2.AsyncClient,) if is_tool else (httpx2.Client, httpx2.AsyncClient)
    if not isinstance(client, kinds):
        expected = " or an ".join(f"httpx2.{kind.__name__}" for kind in kinds)
        raise WrongArgument("use_client()", client, f"an {expected}", f"Pass an {expected}.")
    registry.connections.use(for_, client)


def register_executor(name: str, executor: ExecutorProtocol, *, registry: Registry = DEFAULT) -> None:
    """Register an executor for files with `provider: name`. It needs a processor of the same name."""
    registry[EXECUTORS].register(name, executor)


def register_processor(name: str, processor: ProcessorProtocol, *, registry: Registry = DEFAULT) -> None:
    """Register a processor for files with `provider: name`. It needs an executor of the same name."""
    registry[PROCESSORS].register(name, processor)


def register_model_facts(host: str, match: str, /, **facts: object) -> None:
    """Register facts about the models whose whole id matches a regular expression, at a known server such as `openai`,
    or at any other (`compatible`). They override those of this release, fact by fact.

    For example: `register_model_facts("openai", "house-model-.*", temperature="refused")`.
    """
    add_facts(host, match, facts)
