"""What a provider is: formats (pure functions on plain JSON) and a way to reach it.

A provider API is four pure functions and a path. `reply` and the decoder agree: the same answer, streamed or not,
is the same `Reply`.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.model.reply import Reply
from prompty.model.request import Function, WireRequest
from prompty.registry import DEFAULT, Registry
from prompty.wire.options import NONE
from prompty.wire.stream import Decoder


class Bytes(Protocol):
    """The bytes of a streamed answer; closing it gives the connection up."""

    def __iter__(self) -> Iterator[bytes]: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        """End it from another thread, also while that one waits for bytes."""


class AsyncBytes(Protocol):
    """The same for async code."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class Transport(Protocol):
    """Carries requests to one endpoint with one credential. Failures come as ModelError."""

    def send(self, request: WireRequest, /) -> bytes: ...
    def stream(self, request: WireRequest, /) -> Bytes: ...


class AsyncTransport(Protocol):
    """The same for async code."""

    async def send(self, request: WireRequest, /) -> bytes: ...
    async def stream(self, request: WireRequest, /) -> AsyncBytes: ...


class Tap(Protocol):
    """Stands before the transports of every provider within `with tap:`, in this context: threads that copy it and
    tasks too. It listens to what they carry, or answers in their place."""

    def transport(self, provider: "Provider", agent: PromptAgent, /) -> Transport: ...
    def transport_async(self, provider: "Provider", agent: PromptAgent, /) -> AsyncTransport: ...
    def hide(self, values: Sequence[object], /) -> None:
        """Keep these values of a prompt's inputs out of what is kept."""

    def __enter__(self) -> Self:
        _taps.set((*_taps.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _taps.set(_taps.get()[:-1])


# A stack without tokens, so that one tap may be entered in several threads at once.
_taps: ContextVar[tuple[Tap, ...]] = ContextVar("prompty_taps", default=())


def tapped() -> tuple[Tap, ...]:
    """Those that stand before the transports here."""
    return _taps.get()


def _no_headers(_: PromptAgent) -> Mapping[str, str]:
    return {}


def _as_it_is(body: Json) -> Json:
    return body


# Ids of tool calls that an API takes: by default whatever is not empty.
ANY_ID = re.compile(r"(?s).+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """One API of a provider. `options` is its table of model options, `stream_body` what asks for a stream,
    `operation` what telemetry calls it, and `call_ids` what it takes as the id of a tool call."""

    path: str
    request: Callable[[PromptAgent, Sequence[Message], Sequence[Function]], Json]
    reply: Callable[[Json], Reply]
    tool_messages: Callable[[Reply, Sequence[Message]], list[Message]]
    decoder: Callable[[], Decoder] | None = None
    stream_body: Callable[[Json], Json] = _as_it_is
    headers: Callable[[PromptAgent], Mapping[str, str]] = _no_headers
    options: Mapping[str, str] = field(default_factory=lambda: NONE)
    operation: str = "chat"
    call_ids: re.Pattern[str] = ANY_ID


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a request goes and how it says who sends it, for people: the key is the name of a variable."""

    url: str
    headers: tuple[str, ...] = ()


def endpoint_address(agent: PromptAgent, api: Api) -> Address:
    """The endpoint of a prompt's connection with the path of an API."""
    endpoint = getattr(agent.model.connection, "endpoint", None) or "https://endpoint.invalid"
    return Address(url=endpoint.rstrip("/") + api.path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """A provider: its APIs by `apiType`, its transports, and its addresses for people to read."""

    key: str
    apis: Mapping[str, Api]
    transport: Callable[[PromptAgent], Transport]
    transport_async: Callable[[PromptAgent], AsyncTransport]
    address: Callable[[PromptAgent, Api], Address] = endpoint_address

    def transport_for(self, agent: PromptAgent) -> Transport:
        """The transport of an agent, or what stands before it in this context."""
        taps = _taps.get()
        return taps[-1].transport(self, agent) if taps else self.transport(agent)

    def transport_async_for(self, agent: PromptAgent) -> AsyncTransport:
        """The same for async code."""
        taps = _taps.get()
        return taps[-1].transport_async(self, agent) if taps else self.transport_async(agent)

    def api(self, api_type: str) -> Api:
        found = self.apis.get(api_type)
        if found is None:
            offered = ", ".join(self.apis)
            raise RequestError(
                f"the provider '{self.key}' has no API of type '{api_type}'", f"Write `apiType:` one of {offered}."
            )
        return found


def turn_messages(reply: Reply, results: Sequence[Message]) -> list[Message]:
    """An assistant's turn and the results of its calls, in the order of the calls."""
    return [reply.message(), *results]


class ExecutorProtocol(Protocol):
    """Sends messages to a model and gives back its raw reply."""

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> object: ...
    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> object: ...


class ProcessorProtocol(Protocol):
    """Makes a result of a raw reply."""

    def process(self, agent: PromptAgent, response: object, /) -> object: ...
    async def process_async(self, agent: PromptAgent, response: object, /) -> object: ...


class Pair(NamedTuple):
    executor: ExecutorProtocol
    processor: ProcessorProtocol


def register_provider(name: str, provider: Provider, *, registry: Registry = DEFAULT) -> None:
    """Let files say `provider: name`."""
    registry.providers.register(name, provider)


def register_connection(name: str, *clients: object, registry: Registry = DEFAULT) -> None:
    """Let files say `connection: {kind: reference, name: name}` and mean these SDK clients, sync and async."""
    registry.connections.register(name, *clients)


def register_executor(name: str, executor: ExecutorProtocol, *, registry: Registry = DEFAULT) -> None:
    """Let files say `provider: name`, with a processor of the same name."""
    registry.executors.register(name, executor)


def register_processor(name: str, processor: ProcessorProtocol, *, registry: Registry = DEFAULT) -> None:
    """Let files say `provider: name`, with an executor of the same name."""
    registry.processors.register(name, processor)
