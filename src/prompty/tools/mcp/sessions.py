"""Sessions with MCP servers, shared by all turns.

The SDK requires that one task opens and closes a session. So each session has an owner: a task on the event loop of
`concurrency`, which opens the connection, starts the requests in its queue, and closes. Sync code and other event
loops reach it through `run_on_loop`. A lost session is replaced on next use.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from logging import ERROR, INFO, Logger, getLevelNamesMapping, getLogger
from typing import TYPE_CHECKING, Any, TypeVar

from prompty.concurrency import in_event_loop
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible
from prompty.tools.mcp.connection import ServerAddress, connect, first_cause, is_lost, is_unreadable
from prompty.tools.mcp.content import McpError
from prompty.tools.results import to_text

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import LoggingMessageNotificationParams

T = TypeVar("T")
CLOSE_SECONDS = 8.0  # the SDK takes at most 7 to end a process
_LOGGER = getLogger("prompty.tools")


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
        self.ended: bool = False
        self._requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        self._calls: dict[asyncio.Task[None], _Request] = {}
        self._connected = self._closing = False
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
            self._refuse_queued(NotSent() if self._connected and not self._closing else failure)
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
            if not request.answer.done():
                request.answer.set_result(result)

    def _refuse_queued(self, failure: Exception) -> None:
        while not self._requests.empty():
            if request := self._requests.get_nowait():
                request.fail(failure)

    async def _on_message(self, message: object) -> None:
        """End the session after an unreadable message, which may be the response that a call waits for."""
        if is_unreadable(message):
            self.end()
            for call, request in list(self._calls.items()):
                request.fail(ConnectionLost("the MCP server sent a message that is malformed or too long"))
                call.cancel()

    async def _on_log(self, message: "LoggingMessageNotificationParams") -> None:
        """Pass a server's log message to the loggers of all calls in flight: it does not name its call."""
        level = getLevelNamesMapping().get(message.level.upper(), INFO if message.level == "notice" else ERROR)
        text = message.data if isinstance(message.data, str) else to_text(message.data)
        for logger in {request.logger for request in self._calls.values()} or {_LOGGER}:
            logger.log(level, "%s", mask_secrets(visible(text)))


class ServerConnection:
    """A connection that survives lost sessions. All methods run on `concurrency`'s event loop."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._sessions: list[Session] = []  # the last is in use; earlier ones finish their requests

    async def run(self, work: "Callable[[Client], Awaitable[T]]", logger: Logger = _LOGGER) -> T:
        """Run `work` in the current session, or in a new session if that has ended."""
        while True:
            if not self._sessions or self._sessions[-1].ended:
                self._sessions = [*(session for session in self._sessions if not session.closed), Session(self.address)]
            with suppress(NotSent):
                return await self._sessions[-1].run(work, logger)

    async def run_idempotent(self, work: "Callable[[Client], Awaitable[T]]") -> T:
        """Run `work`, and once more in a new session if the first is lost."""
        with suppress(ConnectionLost):
            return await self.run(work)
        return await self.run(work)

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(session.close() for session in sessions))


async def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the sessions' event loop, from any other event loop."""
    return await asyncio.wrap_future(in_event_loop(work))
