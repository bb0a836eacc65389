"""A connection to an MCP server through the official SDK, which speaks both eras of the protocol: it asks a server
which one it knows. The SDK is imported here and nowhere else, when a server is first used."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Any

from prompty.concurrency import in_thread
from prompty.errors import PromptyError
from prompty.extras import require
from prompty.safety.redaction import SHORTEST_SECRET, Redactor, mask_secrets
from prompty.safety.visible import visible
from prompty.tools.mcp_content import McpError
from prompty.tools.mcp_servers import Address

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import LoggingMessageNotificationParams

CONNECT_SECONDS = 30.0
_LONGEST_COMPLAINT = 1000
# What the SDK says when a connection is gone; servers use the same number for mistakes of their own.
_CONNECTION_CLOSED = -32000
_LOST = ("Connection closed", "SSE stream", "Session terminated", "Session not found")
_LOGGER = getLogger("prompty.tools")

Told = Callable[["LoggingMessageNotificationParams"], Awaitable[None]]


async def connect(address: Address, stack: AsyncExitStack, told: Told) -> "Client":
    """Open a connection that ends with `stack`. What goes wrong is raised in words."""
    complaints = Complaints()
    try:
        sdk: Any = await asyncio.wrap_future(in_thread(partial(require, "mcp", extra="mcp")))
        async with asyncio.timeout(CONNECT_SECONDS):
            transport = await _transport(sdk, address, stack, complaints)
            client: Client = sdk.Client(transport, logging_callback=told, log_level="info", cache=None)
            return await stack.enter_async_context(client)
    except PromptyError:
        raise
    except TimeoutError as error:
        raise McpError(_told(f"no answer within {CONNECT_SECONDS:g} s", address, complaints)) from error
    except Exception as error:
        raise McpError(_told(cause_of(error), address, complaints)) from error


async def _transport(sdk: Any, address: Address, stack: AsyncExitStack, complaints: "Complaints") -> Any:
    if address.url is not None:
        # How long a call may take is said by the tool's own time limit.
        timeout = require("httpx2", extra="mcp").Timeout(CONNECT_SECONDS, read=None)
        http = require("httpx2", extra="mcp").AsyncClient(headers=dict(address.headers), timeout=timeout)
        await stack.enter_async_context(http)
        streamable = require("mcp.client.streamable_http", extra="mcp")
        return streamable.streamable_http_client(address.url, http_client=http)
    program, *words = address.command
    parameters = sdk.StdioServerParameters(
        command=program, args=words, env=address.process_environment(), cwd=address.folder
    )
    await complaints.listen(stack)
    return sdk.stdio_client(parameters, errlog=complaints.file)


class Complaints(asyncio.Protocol):
    """What a process writes to its standard error: for the log, and its end for the error when it fails."""

    def __init__(self) -> None:
        self.text = ""
        self.file: Any = None

    async def listen(self, stack: AsyncExitStack) -> None:
        if os.name == "nt":  # its event loop cannot read such a pipe
            self.file = stack.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb"))
            return
        reading, writing = os.pipe()
        self.file = stack.enter_context(os.fdopen(writing, "wb"))
        pipe = stack.enter_context(os.fdopen(reading, "rb"))
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)
        stack.callback(transport.close)

    def data_received(self, data: bytes) -> None:
        said = mask_secrets(visible(data.decode(errors="replace")))
        _LOGGER.debug("an MCP server says: %s", said.rstrip())
        self.text = (self.text + said)[-_LONGEST_COMPLAINT:]


def is_lost(error: Exception) -> bool:
    """Whether an error means that a connection is of no more use."""
    code, said = getattr(error, "code", None), str(error)
    if type(error).__name__ in ("ClosedResourceError", "BrokenResourceError"):
        return True
    return said.startswith(_LOST) and (code == _CONNECTION_CLOSED or said.startswith("Session"))


def cause_of(error: BaseException) -> str:
    """The first cause in a group of errors, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _told(cause: str, address: Address, complaints: Complaints) -> str:
    text = cause
    if complaints.text.strip():
        text = f"{text}; it says: {complaints.text.strip()}"
    return Redactor([dict(address.headers), dict(address.environment)], shortest=SHORTEST_SECRET).mask(text)
