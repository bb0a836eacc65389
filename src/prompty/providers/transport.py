"""An official SDK as transport: it keeps auth, TLS, pools, proxies and routing; the format is ours.

The SDKs of OpenAI and Anthropic come from one generator and have the same low-level verb: `client.post(path,
content=bytes, cast_to=Response)`. It skips their typed requests and replies, which cost most of a call.
"""

from asyncio import Semaphore, get_running_loop
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from socket import SHUT_RDWR
from types import ModuleType
from typing import Any, NoReturn

from prompty.errors import ModelError, PromptyError
from prompty.extras import require
from prompty.model.request import WireRequest
from prompty.safety.redaction import mask_secrets, remember_secrets
from prompty.version import __version__
from prompty.wire.json_bytes import write_bytes

LONGEST_MESSAGE = 2_000
KEYS = ("api_key", "auth_token")  # what the clients of the SDKs call them
_PLAIN_CLIENTS = ("OpenAI", "AsyncOpenAI", "Anthropic", "AsyncAnthropic")
# Headers that the SDKs set by themselves. All others come from the environment.
_OWN_HEADERS = frozenset(
    {"accept", "content-type", "user-agent", "anthropic-version"}
    | {
        f"x-stainless-{name}"
        for name in ("lang", "package-version", "os", "arch", "runtime", "runtime-version", "async")
    }
)
_TEMPORARY = frozenset({408, 409, 425, 429})
_PERMANENT_PROBLEMS = frozenset({"insufficient_quota", "billing_not_active"})


class SdkConnection:
    """An SDK client, sync or async, with what is the same for both."""

    def __init__(self, client: Any, sdk: ModuleType, *, anonymous: bool = False, ambient: bool = True) -> None:
        self.client = client
        self.sdk = sdk
        self.anonymous = anonymous
        self.http: ModuleType = require("httpx2", extra="openai")
        self.as_bytes: bool = any(type(client) is getattr(sdk, name, None) for name in _PLAIN_CLIENTS)
        self.address: str = str(getattr(client, "base_url", ""))
        self.headers: dict[str, Any] = {"User-Agent": f"prompty/{__version__} {client.user_agent}"}
        self._remember_keys()
        if not ambient:
            self._omit_ambient_headers()
        if anonymous:
            self.headers |= {"Authorization": sdk.Omit(), "X-Api-Key": sdk.Omit()}

    def _omit_ambient_headers(self) -> None:
        """Leave out headers that the client has read from the environment. A key of the connection stays."""
        for name in self.client.default_headers:
            if name.lower() not in _OWN_HEADERS:
                self.headers[name] = self.client.auth_headers.get(name, self.sdk.Omit())

    def arguments(self, request: WireRequest) -> dict[str, Any]:
        """What `client.post` is called with. Azure's client reads the model from the body, so it gets a dict, and so
        does every other client that is not one of the plain ones."""
        options: dict[str, Any] = {"headers": self.headers_for(request), "max_retries": 0}
        if request.timeout is not None:
            options["timeout"] = request.timeout
        body = {"content": write_bytes(request.body)} if self.as_bytes else {"body": request.body}
        return {"path": request.path, "cast_to": self.http.Response, "options": options, **body}

    def headers_for(self, request: WireRequest) -> Mapping[str, Any]:
        """The headers of a request beside the SDK's own."""
        return {**self.headers, **request.headers} if request.headers else self.headers

    def masked(self, text: str) -> str:
        """Return `text` without secrets, the key that the client has now among them."""
        self._remember_keys()
        return mask_secrets(text)

    def _remember_keys(self) -> None:
        remember_secrets(key.strip() for name in KEYS if isinstance(key := getattr(self.client, name, None), str))

    def fail(self, error: Exception) -> NoReturn:
        """Raise what an SDK or its HTTP library raised as an error of ours."""
        if isinstance(error, PromptyError):
            raise error
        known = self._known(error)
        if known is None:
            raise ModelError(f"the call could not be made: {self._told(error)}") from error
        raise known from None  # theirs holds what the server sent, and a server knows the key

    def _told(self, error: BaseException) -> str:
        return self.masked(f"{type(error).__name__}: {error}")

    def _known(self, error: Exception) -> ModelError | None:
        sdk, http = self.sdk, self.http
        if isinstance(error, sdk.APIStatusError):
            return status_error(error.status_code, self.masked(error.message), error.response.headers, error.body)
        if isinstance(error, sdk.APITimeoutError | http.TimeoutException):
            return ModelError("the provider did not answer in time", retryable=True)
        if isinstance(error, sdk.APIConnectionError | http.HTTPError | http.StreamError):
            cause = error.__cause__ or error
            retryable = not isinstance(cause, http.LocalProtocolError | http.UnsupportedProtocol)
            return ModelError(f"the connection failed: {self._told(cause)}", retryable=retryable)
        return None


def address_of(transport: object) -> str:
    """Where a transport leads, as far as one can tell."""
    while hasattr(transport, "inner"):  # those who listen stand before it
        transport = transport.inner
    address: str = getattr(transport, "address", "")
    return address


def status_error(status: int, message: str, headers: Mapping[str, str], body: object) -> ModelError:
    """An HTTP status as an error that says whether trying again can help."""
    problems = {str(body.get("code")), str(body.get("type"))} if isinstance(body, dict) else set()
    temporary = (status in _TEMPORARY or status >= 500) and _PERMANENT_PROBLEMS.isdisjoint(problems)
    retryable = temporary and headers.get("x-should-retry") != "false"
    shown = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
    return ModelError(shown, status=status, retryable=retryable, retry_after=retry_after(headers))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How long a server asks to wait, in seconds: a number, a date, or milliseconds in a header of their own."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1000, 0)
    asked = headers.get("retry-after") or ""
    seconds = _number(asked)
    return _until(asked) if seconds is None else max(seconds, 0)


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) else None


def _until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0)


class SdkTransport(SdkConnection):
    """A synchronous SDK client."""

    def send(self, request: WireRequest, /) -> bytes:
        try:
            content: bytes = self.client.post(**self.arguments(request)).content
        except Exception as error:
            self.fail(error)
        return content

    def stream(self, request: WireRequest, /) -> "SdkBytes":
        try:
            return SdkBytes(self, self.client.post(**self.arguments(request), stream=True))
        except Exception as error:
            self.fail(error)


class SdkBytes:
    """The bytes of an answer while they come."""

    def __init__(self, connection: SdkConnection, response: Any) -> None:
        self._connection, self._response = connection, response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_bytes()
        except Exception as error:
            self._connection.fail(error)

    def close(self) -> None:
        self._response.close()

    def abort(self) -> None:
        """Closing would not wake a thread that waits for bytes; the end of the connection does."""
        socket = self._response.extensions["network_stream"].get_extra_info("socket")
        with suppress(OSError):
            socket.shutdown(SHUT_RDWR)


class AsyncSdkTransport(SdkConnection):
    """An asynchronous SDK client, and how many calls it has in flight.

    `turns` are the calls that may begin in one pass of the event loop. If thousands began at once, the first would
    not be looked at before their connections timed out.
    """

    busy: int = 0

    def __init__(
        self, client: Any, sdk: ModuleType, turns: Semaphore, *, anonymous: bool = False, ambient: bool = True
    ) -> None:
        super().__init__(client, sdk, anonymous=anonymous, ambient=ambient)
        self._turns = turns

    async def _turn(self) -> None:
        await self._turns.acquire()
        get_running_loop().call_soon(self._turns.release)

    async def send(self, request: WireRequest, /) -> bytes:
        self.busy += 1
        try:
            await self._turn()
            content: bytes = (await self.client.post(**self.arguments(request))).content
        except Exception as error:
            self.fail(error)
        finally:
            self.busy -= 1
        return content

    async def stream(self, request: WireRequest, /) -> "AsyncSdkBytes":
        self.busy += 1
        try:
            await self._turn()
            return AsyncSdkBytes(self, await self.client.post(**self.arguments(request), stream=True))
        except Exception as error:
            self.fail(error)
        finally:
            self.busy -= 1


class AsyncSdkBytes:
    """The bytes of an answer while they come."""

    def __init__(self, connection: AsyncSdkTransport, response: Any) -> None:
        self._connection, self._response = connection, response
        connection.busy += 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except Exception as error:
            self._connection.fail(error)

    async def aclose(self) -> None:
        self._connection.busy -= 1
        await self._response.aclose()
