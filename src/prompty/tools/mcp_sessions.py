"""Sessions with MCP servers, shared by all turns of a process.

The SDK wants a session to be opened and closed by one task. So each has an owner: a task on the event loop of
`concurrency`, which opens the connection, starts what comes through its queue, and closes. Sync code and any event
loop get there by `asyncio.wrap_future(in_event_loop(…))`. A session that is lost is replaced at the next use.
"""

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from logging import ERROR, INFO, Logger, getLevelNamesMapping, getLogger
from typing import TYPE_CHECKING, Any, TypeVar

from prompty.concurrency import in_event_loop
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible
from prompty.tools.mcp_connection import cause_of, connect, is_lost
from prompty.tools.mcp_content import McpError
from prompty.tools.mcp_servers import Address
from prompty.tools.results import text_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import LoggingMessageNotificationParams

T = TypeVar("T")
CLOSE_SECONDS = 8.0  # the SDK takes at most 7 to end a process
EXIT_SECONDS = 2 * CLOSE_SECONDS
_LOGGER = getLogger("prompty.tools")


class Lost(McpError):
    """The connection ended, and with it what was under way."""


class NeverSent(Exception):
    """The session ended before the request was sent: another one can take it."""


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

    def __init__(self, address: Address) -> None:
        self.address = address
        self.ended = False
        self._requests: asyncio.Queue[_Request | None] = asyncio.Queue()
        self._calls: dict[asyncio.Task[None], _Request] = {}
        self._connected = self._closing = False
        # The owner outlives the turn that needed it first, and must not carry that one's context.
        self._owner = asyncio.get_running_loop().create_task(self._own(), context=Context())

    @property
    def closed(self) -> bool:
        return self._owner.done()

    async def ask(self, work: "Callable[[Client], Awaitable[T]]", logger: Logger) -> T:
        """Have something done with the connection. Cancelling this cancels that, and nothing else."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._requests.put_nowait(_Request(work, logger, answer))
        return await answer

    def end(self) -> None:
        """Take nothing more; what runs may come to its end."""
        if not self.ended:
            self.ended = True
            self._requests.put_nowait(None)

    async def close(self) -> None:
        """End everything, and wait until the process or the connection is gone."""
        self._closing = True
        self.end()
        if not self._connected:
            self._owner.cancel()
        for call in self._calls:
            call.cancel()
        await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)
        self._owner.cancel()  # a server may not answer even to this
        await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)

    async def _own(self) -> None:
        failure: Exception = Lost("the MCP server was closed")
        try:
            async with AsyncExitStack() as stack:
                client = await connect(self.address, stack, self._told)
                self._connected = True
                await self._serve(client)
        except Exception as error:
            failure = Lost(f"the connection to the MCP server was lost: {cause_of(error)}")
            failure = failure if self._connected else error
        finally:
            self.ended = True
            self._refuse(NeverSent() if self._connected and not self._closing else failure)
            for call, request in self._calls.items():
                request.fail(failure)
                call.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*self._calls, return_exceptions=True)

    async def _serve(self, client: "Client") -> None:
        """Start requests as they come. None of them waits for another."""
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
            request.fail(Lost("the MCP server was closed before it answered"))
            raise
        except Exception as error:
            if is_lost(error):
                self.end()
                error = Lost(f"the connection to the MCP server was lost before it answered: {error}")
            request.fail(error)
        else:
            if not request.answer.done():
                request.answer.set_result(result)

    def _refuse(self, failure: Exception) -> None:
        while not self._requests.empty():
            if request := self._requests.get_nowait():
                request.fail(failure)

    async def _told(self, message: "LoggingMessageNotificationParams") -> None:
        """Pass on what a server logs, to the loggers of the calls under way: it does not say for which."""
        level = getLevelNamesMapping().get(message.level.upper(), INFO if message.level == "notice" else ERROR)
        text = message.data if isinstance(message.data, str) else text_of(message.data)
        for logger in {id(one.logger): one.logger for one in self._calls.values()}.values() or [_LOGGER]:
            logger.log(level, "%s", mask_secrets(visible(text)))


class Server:
    """A server, whatever session it is used by. All its methods run on the event loop of `concurrency`."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._sessions: list[Session] = []  # the last is in use; what runs in those before it comes to its end

    async def ask(self, work: "Callable[[Client], Awaitable[T]]", logger: Logger = _LOGGER) -> T:
        """Have something done by the session there is, or by a new one."""
        while True:
            if not self._sessions or self._sessions[-1].ended:
                self._sessions = [*(one for one in self._sessions if not one.closed), Session(self.address)]
            with suppress(NeverSent):
                return await self._sessions[-1].ask(work, logger)

    async def ask_again(self, work: "Callable[[Client], Awaitable[T]]") -> T:
        """The same for what may be done twice: when the session turns out to be lost, a new one is asked."""
        with suppress(Lost):
            return await self.ask(work)
        return await self.ask(work)

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, []
        await asyncio.gather(*(session.close() for session in sessions))


_servers: dict[Address, Server] = {}
_lock = threading.Lock()


def server_at(address: Address) -> Server:
    """The one server of an address in this process."""
    with _lock:
        if not _servers:
            atexit.register(_close_at_exit)
        return _servers.setdefault(address, Server(address))


async def on_its_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine where servers live, from any event loop."""
    return await asyncio.wrap_future(in_event_loop(work))


def close_mcp_servers() -> None:
    """End all sessions and the processes behind them; servers stay known, and open again when they are used."""
    if _servers:
        in_event_loop(_close_all()).result()


async def close_mcp_servers_async() -> None:
    """The same in async code."""
    if _servers:
        await on_its_loop(_close_all())


async def _close_all() -> None:
    await asyncio.gather(*(server.close() for server in list(_servers.values())))


def _close_at_exit() -> None:
    with suppress(Exception):  # nobody is left to hear of it
        in_event_loop(_close_all()).result(timeout=EXIT_SECONDS)
