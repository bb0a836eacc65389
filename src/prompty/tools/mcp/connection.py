"""Connect to an MCP server through the official SDK, which negotiates the protocol version.

The SDK is imported only here, on first use of a server.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any, Self

from prompty.concurrency import in_thread
from prompty.errors import PromptyError
from prompty.extras import require
from prompty.safety.redaction import SHORTEST_SECRET, Redactor, mask_secrets
from prompty.safety.visible import visible
from prompty.tools.mcp import limits
from prompty.tools.mcp.content import McpError
from prompty.tools.openapi.client import ServiceError, resolve
from prompty.tools.openapi.permissions import Permissions, parse_url

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


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerAddress:
    """How to reach a server: a command to start, or a URL. Tools with the same address share a session.

    A URL from a file is checked against `permissions`. They are None for a server that the host registered.
    """

    command: tuple[str, ...] = ()
    environment: Pairs = field(default=(), repr=False)
    folder: str | None = None
    url: str | None = None
    headers: Pairs = field(default=(), repr=False)
    permissions: Permissions | None = field(default=None, repr=False, compare=False)

    def process_environment(self) -> dict[str, str]:
        """Return the process's environment: the allowed variables, and those that the host sets."""
        inherited = {
            name: value for name, value in os.environ.items() if name.upper() in _INHERITED or name.startswith("LC_")
        }
        return {**inherited, **dict(self.environment)}


async def connect(
    address: ServerAddress, stack: AsyncExitStack, on_log: LogCallback, on_message: MessageCallback
) -> "Client":
    """Open a connection that closes with `stack`. Raise `McpError`, with the end of the process's stderr, if it fails.

    `on_message` receives notifications, and an exception for each message that the SDK cannot read.
    """
    stderr = StderrReader()
    try:
        sdk: Any = await asyncio.wrap_future(in_thread(partial(require, "mcp", extra="mcp")))
        async with asyncio.timeout(CONNECT_SECONDS):
            transport = await _open_transport(sdk, address, stack, stderr)
            client: Client = sdk.Client(
                transport, logging_callback=on_log, log_level="info", cache=None, message_handler=on_message
            )
            return await stack.enter_async_context(client)
    except PromptyError:
        raise
    except TimeoutError as error:
        raise McpError(_explain(f"no answer within {CONNECT_SECONDS:g} s", address, stderr)) from error
    except Exception as error:
        raise McpError(_explain(first_cause(error), address, stderr)) from error


async def _open_transport(sdk: Any, address: ServerAddress, stack: AsyncExitStack, stderr: "StderrReader") -> Any:
    if address.url is not None:
        httpx = require("httpx2", extra="mcp")
        # No read timeout: each tool has its own.
        timeout = httpx.Timeout(CONNECT_SECONDS, read=None)
        headers = {"Accept-Encoding": "identity", **dict(address.headers)}
        hooks = {"response": [limits.limit_body]}
        checked = address.permissions and CheckedTransport(httpx, address.permissions)
        if checked:
            await checked.find_addresses(address.url)  # raises before the SDK starts its tasks
        http = await stack.enter_async_context(
            httpx.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks, transport=checked)
        )
        streamable = require("mcp.client.streamable_http", extra="mcp")
        return streamable.streamable_http_client(
            address.url, http_client=http, max_sse_event_size=limits.MAX_MESSAGE_BYTES
        )
    program, *arguments = address.command
    parameters = sdk.StdioServerParameters(
        command=program,
        args=arguments,
        env=address.process_environment(),
        cwd=address.folder,
        encoding=limits.LINES,
    )
    await stderr.open(stack)
    return sdk.stdio_client(parameters, errlog=stderr.file)


class CheckedTransport:
    """HTTP transport that connects to checked addresses only. It uses no proxy, which would resolve names itself."""

    def __init__(self, http: Any, permissions: Permissions) -> None:
        self._http, self._permissions = http, permissions
        self._inner = http.AsyncHTTPTransport(trust_env=False)

    async def find_addresses(self, url: str) -> list[str]:
        """Resolve a URL's host. Raise ToolError if one of its addresses is not allowed."""
        parsed = parse_url(url)
        try:
            addresses = await resolve(parsed)
        except ServiceError as error:
            raise McpError(str(error)) from None
        self._permissions.check(parsed, addresses)
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

    def __init__(self) -> None:
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
        text = mask_secrets(visible(data.decode(errors="replace")))
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
    return Redactor([dict(address.headers), dict(address.environment)], shortest=SHORTEST_SECRET).mask(text)
