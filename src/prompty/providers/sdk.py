"""A client of an official SDK as transport, for hosts that register one of their own (`kind: reference`).

The client keeps its credential, TLS, pools, proxies, limits and routing; the format is ours. The SDKs of OpenAI and
Anthropic have the same low-level verb: `client.post(path, content=bytes, cast_to=Response)`, which skips their typed
requests and replies.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from socket import SHUT_RDWR
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, Protocol

from prompty.errors import ModelError, PromptyError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.connection import ReferenceConnection
from prompty.model.request import WireRequest
from prompty.providers.endpoint import USER_AGENT
from prompty.providers.http.failures import connection_error, status_error, timeout_error
from prompty.safety.redaction import SHORTEST_SECRET, Redactor, current_redactor, hide_secrets
from prompty.wire.json_bytes import write_bytes

Admit = Callable[[], Awaitable[None]]  # waits until a call may begin
MAX_ANSWER = 64 * 1024 * 1024  # bytes of an answer, after decompression
KEYS = ("api_key", "auth_token")  # what the clients of the SDKs call them
_PLAIN_CLIENTS = ("OpenAI", "AsyncOpenAI", "Anthropic", "AsyncAnthropic")


@dataclass(frozen=True, kw_only=True, slots=True)
class SdkClients:
    """The client classes of one SDK. `headers` are those that a request needs beside the client's own."""

    package: str
    sync_class: str
    async_class: str
    headers: Callable[[Any, WireRequest], Mapping[str, Any]] = lambda _, request: request.headers

    def load(self) -> ModuleType:
        return require(self.package)

    def find(self, agent: PromptAgent, connection: ReferenceConnection, *, is_async: bool) -> "RegisteredClient":
        """Return the client that the host registered under the connection's name, for this kind of code."""
        client_class = getattr(self.load(), self.async_class if is_async else self.sync_class)
        return RegisteredClient(agent.registry.connections.find(connection.name, client_class), self)


class RegisteredClient(NamedTuple):
    """A client of the host's."""

    client: Any
    clients: SdkClients


class _SdkConnection:
    """An SDK client, sync or async, with what is the same for both."""

    def __init__(self, registered: RegisteredClient) -> None:
        client, clients = registered
        self.client = client
        self.sdk: ModuleType = clients.load()
        self._headers = clients.headers
        import httpx2  # slow, and calls without a client of the host use httpcore2

        self.http: ModuleType = httpx2
        self.as_bytes: bool = any(type(client) is getattr(self.sdk, name, None) for name in _PLAIN_CLIENTS)
        self.url: str = str(getattr(client, "base_url", ""))
        self.user_agent: str = f"{USER_AGENT} {client.user_agent}"
        hide_secrets(self._find_keys())

    def arguments(self, request: WireRequest) -> dict[str, Any]:
        """Return the arguments of the client's verb. Azure's client reads the model from the body, so it gets a dict,
        and so does every other client that is not one of the plain ones."""
        headers = {"User-Agent": self.user_agent, **self._headers(self, request)}
        options: dict[str, Any] = {"headers": headers, "max_retries": 0}
        if request.timeout is not None:
            options["timeout"] = request.timeout
        arguments = {"path": request.path, "cast_to": self.http.Response, "options": options}
        if request.method == "GET":
            return arguments
        return {**arguments, **({"content": write_bytes(request.body)} if self.as_bytes else {"body": request.body})}

    def get_verb(self, request: WireRequest) -> Callable[..., Any]:
        """Return the method of the client that sends a request."""
        verb: Callable[..., Any] = self.client.get if request.method == "GET" else self.client.post
        return verb

    def masked(self, text: str) -> str:
        """Return `text` without secrets, the key that the client has now among them."""
        return Redactor(self._find_keys(), shortest=SHORTEST_SECRET, parent=current_redactor()).mask(text)

    def _find_keys(self) -> list[str]:
        return [key.strip() for name in KEYS if isinstance(key := getattr(self.client, name, None), str)]

    def fail(self, error: Exception) -> NoReturn:
        """Raise what an SDK or its HTTP library raised as an error of ours."""
        hide_secrets(self._find_keys())  # it may have renewed one
        if isinstance(error, PromptyError):
            raise error
        known = self._known(error)
        if known is None:
            told = self.masked(f"{type(error).__name__}: {error}")
            raise ModelError(f"the call could not be made: {told}") from error
        raise known from None  # theirs holds what the server sent, and a server knows the key

    def _known(self, error: Exception) -> ModelError | None:
        sdk, http = self.sdk, self.http
        if isinstance(error, sdk.APIStatusError):
            return status_error(error.status_code, self.masked(error.message), error.response.headers, error.body)
        if isinstance(error, sdk.APITimeoutError | http.TimeoutException):
            return timeout_error()
        if isinstance(error, sdk.APIConnectionError | http.HTTPError | http.StreamError):
            cause = error.__cause__ or error
            retryable = not isinstance(cause, http.LocalProtocolError | http.UnsupportedProtocol)
            return connection_error(type(cause).__name__, str(cause), retryable=retryable)
        return None


class SdkTransport(_SdkConnection):
    """A synchronous SDK client."""

    def send(self, request: WireRequest, /) -> bytes:
        try:
            content: bytes = self.get_verb(request)(**self.arguments(request)).content
        except Exception as error:
            self.fail(error)
        return content

    def stream(self, request: WireRequest, /) -> "SdkBytes":
        try:
            return SdkBytes(self, self.get_verb(request)(**self.arguments(request), stream=True))
        except Exception as error:
            self.fail(error)


class _Connection(Protocol):
    def fail(self, error: Exception) -> NoReturn: ...


class SdkBytes:
    """The bytes of an answer while they come, from a client of the host."""

    def __init__(self, connection: _Connection, response: Any) -> None:
        self._connection, self._response = connection, response

    def __iter__(self) -> Iterator[bytes]:
        left = MAX_ANSWER
        try:
            for chunk in self._response.iter_bytes():
                left = _count(left, chunk)
                yield chunk
        except Exception as error:
            self._connection.fail(error)

    def close(self) -> None:
        self._response.close()

    def abort(self) -> None:
        """Closing would not wake a thread that waits for bytes; the end of the connection does."""
        if stream := self._response.extensions.get("network_stream"):  # a mock has none
            with suppress(OSError):
                stream.get_extra_info("socket").shutdown(SHUT_RDWR)


class AsyncSdkTransport(_SdkConnection):
    """An asynchronous SDK client. It has no limit of calls in flight: how many connections it takes is the host's."""

    def __init__(self, registered: RegisteredClient, admit: Admit) -> None:
        super().__init__(registered)
        self._admit = admit

    async def send(self, request: WireRequest, /) -> bytes:
        try:
            await self._admit()
            content: bytes = (await self.get_verb(request)(**self.arguments(request))).content
        except Exception as error:
            self.fail(error)
        return content

    async def stream(self, request: WireRequest, /) -> "AsyncSdkBytes":
        try:
            await self._admit()
            return AsyncSdkBytes(self, await self.get_verb(request)(**self.arguments(request), stream=True))
        except Exception as error:
            self.fail(error)


class AsyncSdkBytes:
    """The async form of `SdkBytes`."""

    def __init__(self, connection: _Connection, response: Any) -> None:
        self._connection, self._response = connection, response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ANSWER
        try:
            async for chunk in self._response.aiter_bytes():
                left = _count(left, chunk)
                yield chunk
        except Exception as error:
            self._connection.fail(error)

    async def aclose(self) -> None:
        await self._response.aclose()


def _count(left: int, chunk: bytes) -> int:
    if len(chunk) > left:
        raise ModelError(f"the answer is longer than {MAX_ANSWER:,} bytes")
    return left - len(chunk)
