"""Sessions with MCP servers, shared by all turns.

The SDK requires that one task opens and closes a session. So each session has an owner: a task on an event loop that
runs nothing else, which opens the connection, starts the requests in its queue, and closes. Sync code and other event
loops reach it through `run_on_loop`. A lost session is replaced on next use.

The SDK negotiates the protocol version. It is imported only here, on first use of a server.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from logging import ERROR, INFO, Logger, getLevelNamesMapping, getLogger
from typing import TYPE_CHECKING, Any, Self, TypeVar

from prompty.clients import Clients
from prompty.concurrency import in_event_loop, in_thread
from prompty.errors import PromptyError, ToolError
from prompty.extras import require
from prompty.model.trust import refuse_private
from prompty.safety.origins import Origin
from prompty.safety.redaction import SHORTEST_SECRET, Redactor, hide_secrets
from prompty.safety.visible import visible
from prompty.tools.calls import to_text
from prompty.tools.mcp import content
from prompty.tools.mcp.content import McpError
from prompty.tools.openapi.client import ServiceError, parse_url, resolve
from prompty.wire.stream import MAX_EVENTS

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import LoggingMessageNotificationParams

CONNECT_SECONDS = 30.0
_MAX_STDERR_LENGTH = 1000
# The SDK's code and texts for a lost connection. Servers use the same code for their own errors.
_CONNECTION_CLOSED = -32000
_CLOSED_TEXTS = ("Connection closed", "SSE stream", "Session terminated", "Session not found")
# What a process needs to run at all, without the host's keys and tokens.
_INHERITED = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TEMP", "TMP", "TZ", "USER", "LOGNAME"}
    | {"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"}
    | {"USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "PROGRAMFILES", "PROCESSOR_ARCHITECTURE"}
)
_LOGGER = getLogger("prompty.tools")

Pairs = tuple[tuple[str, str], ...]
LogCallback = Callable[["LoggingMessageNotificationParams"], Awaitable[None]]
MessageCallback = Callable[[object], Awaitable[None]]
T = TypeVar("T")
SESSIONS = "MCP sessions"  # their event loop. No tool runs on it, so none can block it.
CLOSE_SECONDS = 8.0  # the SDK takes at most 7 to end a process


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerAddress:
    """How to reach a server: a command to start, or a URL. Tools with the same address share a session.

    A file declares it (`is_declared`), or the host has registered it. If only the file names its address, that one
    `needs_public` addresses.
    """

    command: tuple[str, ...] = ()
    environment: Pairs = field(default=(), repr=False)
    folder: str | None = None
    url: str | None = None
    headers: Pairs = field(default=(), repr=False)
    is_declared: bool = False
    needs_public: bool = False
    http: Any = field(default=None, repr=False, compare=False)
    """A client of the program, or None for ours."""
    timeout: float | None = None
    """Seconds for its start and for each call, or None for 30 seconds to start and the limits of the turn."""

    @property
    def start_seconds(self) -> float:
        """The seconds in which the server has to connect, and then to list its tools."""
        return CONNECT_SECONDS if self.timeout is None else self.timeout

    def process_environment(self) -> dict[str, str]:
        """Return the process's environment: the allowed variables, and those that the host sets."""
        inherited = {
            name: value for name, value in os.environ.items() if name.upper() in _INHERITED or name.startswith("LC_")
        }
        return {**inherited, **dict(self.environment)}

    def list_secrets(self) -> list[str]:
        """Return the values that the server gets from us, and what follows a scheme such as `Bearer`."""
        values = [value for _, value in (*self.headers, *self.environment)]
        return [*values, *(value.rpartition(" ")[2] for value in values)]


async def connect(
    address: ServerAddress, stack: AsyncExitStack, on_log: LogCallback, on_message: MessageCallback
) -> "Client":
    """Open a connection that closes with `stack`. Raise `McpError`, with the end of the process's stderr, if it fails.

    `on_message` receives notifications, and an exception for each message that the SDK cannot read.
    """
    stderr = StderrReader(_create_redactor(address))
    try:
        sdk: Any = await asyncio.wrap_future(in_thread(partial(require, "mcp", extra="mcp")))
        async with asyncio.timeout(address.start_seconds):
            transport = await _open_transport(sdk, address, stack, stderr)
            client: Client = sdk.Client(
                transport, logging_callback=on_log, log_level="info", cache=None, message_handler=on_message
            )
            return await stack.enter_async_context(client)
    except PromptyError:
        raise
    except TimeoutError as error:
        raise McpError(_explain(f"no answer within {address.start_seconds:g} s", address, stderr)) from error
    except Exception as error:
        raise McpError(_explain(first_cause(error), address, stderr)) from error


async def _open_transport(sdk: Any, address: ServerAddress, stack: AsyncExitStack, stderr: "StderrReader") -> Any:
    if address.url is not None:
        import httpx2  # slow, and many programs have no MCP server

        httpx: Any = httpx2
        # No read timeout: each tool has its own.
        timeout = httpx.Timeout(CONNECT_SECONDS, read=None)
        headers = {"Accept-Encoding": "identity", **dict(address.headers)}
        hooks = {"response": [content.limit_body]}
        checked: Any = None
        if address.http is not None:
            checked = HostTransport(address.http)
        elif address.is_declared:
            checked = CheckedTransport(httpx, needs_public=address.needs_public)
            await checked.find_addresses(address.url)  # raises before the SDK starts its tasks
        http = await stack.enter_async_context(
            httpx.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks, transport=checked)
        )
        streamable = require("mcp.client.streamable_http", extra="mcp")
        return streamable.streamable_http_client(
            address.url, http_client=http, max_sse_event_size=content.MAX_MESSAGE_BYTES
        )
    program, *arguments = address.command
    parameters = sdk.StdioServerParameters(
        command=program,
        args=arguments,
        env=address.process_environment(),
        cwd=address.folder,
        encoding=content.LINES,
    )
    await stderr.open(stack)
    return sdk.stdio_client(parameters, errlog=stderr.file)


class HostTransport:
    """HTTP transport over a client of the program, which decides how it connects."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def handle_async_request(self, request: Any) -> Any:
        return await self._client.send(request, stream=True, follow_redirects=False)

    async def aclose(self) -> None:
        """Leave the client open: it is the program's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.aclose()


class CheckedTransport:
    """HTTP transport that connects to checked addresses only. It uses no proxy, which would resolve names itself."""

    def __init__(self, http: Any, *, needs_public: bool) -> None:
        self._http, self._needs_public = http, needs_public
        self._inner = http.AsyncHTTPTransport(trust_env=False)

    async def find_addresses(self, url: str) -> list[str]:
        """Resolve a URL's host. Raise ToolError if one of its addresses is not allowed."""
        parsed = parse_url(url)
        try:
            addresses = await resolve(parsed)
        except ServiceError as error:
            raise McpError(str(error)) from None
        if self._needs_public and (
            refusal := refuse_private(Origin(parsed.scheme, parsed.host, parsed.port), addresses)
        ):
            raise ToolError(refusal.cause, refusal.fix)
        return addresses

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request to a checked address of its host."""
        host = request.url.host
        for address in (addresses := await self.find_addresses(str(request.url))):
            pinned = self._http.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (self._http.ConnectError, self._http.ConnectTimeout):
                if address == addresses[-1]:
                    raise
        raise McpError(f"the host name {host} has no address")

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)


class StderrReader(asyncio.Protocol):
    """Reads a process's standard error into the debug log, and keeps its end for the error if the process fails."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.text: str = ""
        self.file: Any = None

    async def open(self, stack: AsyncExitStack) -> None:
        if os.name == "nt":  # the event loop of Windows cannot read such a pipe
            self.file = stack.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb"))
            return
        read_end, write_end = os.pipe()
        self.file = stack.enter_context(os.fdopen(write_end, "wb"))
        pipe = stack.enter_context(os.fdopen(read_end, "rb"))
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)
        stack.callback(transport.close)

    def data_received(self, data: bytes) -> None:
        text = self._redactor.mask(visible(data.decode(errors="replace")))
        _LOGGER.debug("standard error of an MCP server: %s", text.rstrip())
        self.text = (self.text + text)[-_MAX_STDERR_LENGTH:]


def is_lost(error: Exception) -> bool:
    """Return True if an error means that the connection is lost."""
    code, text = getattr(error, "code", None), str(error)
    if type(error).__name__ in ("ClosedResourceError", "BrokenResourceError"):
        return True
    return text.startswith(_CLOSED_TEXTS) and (code == _CONNECTION_CLOSED or text.startswith("Session"))


def is_unreadable(message: object) -> bool:
    """Return True for a malformed message, and False for other output of the process."""
    errors = getattr(message, "errors", None)
    if not isinstance(message, ValueError) or not callable(errors):
        return False
    details = errors(include_url=False)
    if details[0]["type"] == "json_invalid":
        return details[0]["input"].lstrip().startswith("{") or "\0" in details[0]["input"]
    return any(isinstance(detail["input"], dict) for detail in details)


def first_cause(error: BaseException) -> str:
    """Return the text of the first error in an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _explain(cause: str, address: ServerAddress, stderr: StderrReader) -> str:
    text = cause
    if stderr.text.strip():
        text = f"{text}; its standard error ends with: {stderr.text.strip()}"
    return _create_redactor(address).mask(text)


def _create_redactor(address: ServerAddress) -> Redactor:
    """Return what hides the secrets of a server, in texts that belong to no call."""
    return Redactor(address.list_secrets(), shortest=SHORTEST_SECRET)


class ConnectionLost(McpError):
    """The connection ended while requests were in flight."""


class NotSent(Exception):
    """The session ended before the request was sent: another session can take it."""


@dataclass(frozen=True, slots=True)
class _Request:
    work: "Callable[[Client], Awaitable[Any]]"
    logger: Logger
    answer: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Session:
    """One connection to a server, and the task that owns it."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._redactor = _create_redactor(address)
        self.ended: bool = False
        self._requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        self._calls: dict[asyncio.Task[None], _Request] = {}
        self._connected = self._closing = False
        self._unasked = 0  # notifications since the last answer
        # The owner outlives the turn that started it, so it must not inherit that turn's context.
        self._owner = asyncio.get_running_loop().create_task(self._own(), context=Context())

    @property
    def closed(self) -> bool:
        return self._owner.done()

    async def run(self, work: "Callable[[Client], Awaitable[T]]", logger: Logger) -> T:
        """Run `work` with the connection. Cancelling this cancels only `work`."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.put_nowait(_Request(work, logger, answer))
        return await answer

    def end(self) -> None:
        """Accept no more requests. Those in flight may finish."""
        if not self.ended:
            self.ended = True
            self._requests.put_nowait(None)

    async def close(self) -> None:
        """Cancel everything, and wait until the process or the connection has ended."""
        self._closing = True
        self.end()
        if not self._connected:
            self._owner.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)
        self._owner.cancel()  # the server did not react to the end of the queue
        await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)

    async def _own(self) -> None:
        failure: Exception = ConnectionLost("the MCP server was closed")
        try:
            async with AsyncExitStack() as stack:
                client = await connect(self.address, stack, self._on_log, self._on_message)
                self._connected = True
                await self._serve(client)
        except Exception as error:
            lost = ConnectionLost(f"the connection to the MCP server was lost: {first_cause(error)}")
            failure = lost if self._connected else error
        finally:
            self.ended = True
            refusal = NotSent() if self._connected and not self._closing else failure
            while not self._requests.empty():
                if queued := self._requests.get_nowait():
                    queued.fail(refusal)
            for call, request in self._calls.items():
                request.fail(failure)
                call.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*self._calls, return_exceptions=True)

    async def _serve(self, client: "Client") -> None:
        """Start requests as they arrive. They run concurrently."""
        while (request := await self._requests.get()) is not None:
            if not request.answer.done():
                self._start(client, request)
            del request  # a session that rests would keep its last caller
        if self._calls:
            await asyncio.wait(self._calls)

    def _start(self, client: "Client", request: _Request) -> None:
        work = self._perform(client, request)
        call = asyncio.get_running_loop().create_task(work, context=request.context)
        self._calls[call] = request
        call.add_done_callback(self._calls.pop)
        request.answer.add_done_callback(lambda answer: call.cancel() if answer.cancelled() else None)

    async def _perform(self, client: "Client", request: _Request) -> None:
        try:
            result = await request.work(client)
        except asyncio.CancelledError:
            request.fail(ConnectionLost("the MCP server was closed before it answered"))
            raise
        except Exception as error:
            if is_lost(error):
                self.end()
                error = ConnectionLost(f"the connection to the MCP server was lost before it answered: {error}")
            request.fail(error)
        else:
            self._unasked = 0
            if not request.answer.done():
                request.answer.set_result(result)

    async def _on_message(self, message: object) -> None:
        """End the session after an unreadable message, which may be the response that a call waits for, and after too
        many notifications without any response."""
        self._unasked += 1
        if self._unasked > MAX_EVENTS:
            self._fail_all(f"the MCP server sent more than {MAX_EVENTS:,} messages and no answer")
        elif is_unreadable(message):
            self._fail_all("the MCP server sent a message that is malformed or too long")

    def _fail_all(self, cause: str) -> None:
        """End the session and all calls in it."""
        self.end()
        for call, request in list(self._calls.items()):
            request.fail(ConnectionLost(cause))
            call.cancel()

    async def _on_log(self, message: "LoggingMessageNotificationParams") -> None:
        """Pass a server's log message to the loggers of all calls in flight: it does not name its call."""
        level = getLevelNamesMapping().get(message.level.upper(), INFO if message.level == "notice" else ERROR)
        text = message.data if isinstance(message.data, str) else to_text(message.data)
        for logger in {request.logger for request in self._calls.values()} or {_LOGGER}:
            logger.log(level, "%s", self._redactor.mask(visible(text)))


class ServerConnection:
    """A connection that survives lost sessions. All methods run on the sessions' event loop."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._running = 0
        self._sessions: list[Session] = []  # the last is in use; earlier ones finish their requests

    @property
    def is_busy(self) -> bool:
        """True while calls run, and always for a server of the host's: its process remembers what its tools did."""
        return self._running > 0 or not self.address.is_declared

    async def run(self, work: "Callable[[Client], Awaitable[T]]", logger: Logger) -> T:
        """Run `work` in the current session, or in a new session if that has ended."""
        self._running += 1
        try:
            while True:
                if not self._sessions or self._sessions[-1].ended:
                    open_ones = [session for session in self._sessions if not session.closed]
                    self._sessions = [*open_ones, Session(self.address)]
                with suppress(NotSent):
                    return await self._sessions[-1].run(work, logger)
        finally:
            self._running -= 1

    async def aclose(self) -> None:
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(session.close() for session in sessions))


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions with one server, on their event loop. Each call asks the registry for the connection, which may have
    been closed meanwhile because it rested."""

    clients: Clients
    address: ServerAddress

    async def run(self, work: "Callable[[Client], Awaitable[T]]", logger: Logger = _LOGGER) -> T:
        """Run `work` with the server's connection."""
        hide_secrets(self.address.list_secrets())
        kept = self.clients.in_loop()
        kept.is_closed_at_exit = True  # so that the processes of servers end properly
        return await kept.get(self.address, ServerConnection).run(work, logger)

    async def run_idempotent(self, work: "Callable[[Client], Awaitable[T]]") -> T:
        """Run `work`, and once more in a new session if the first is lost."""
        with suppress(ConnectionLost):
            return await self.run(work)
        return await self.run(work)


async def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the sessions' event loop, from any other event loop."""
    return await asyncio.wrap_future(in_event_loop(work, SESSIONS))
