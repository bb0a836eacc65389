"""A scripted provider on the loopback interface: raw bytes, so that it can do what no well-behaved server does.

A test gives it replies, each a list of steps: bytes to write, and moments to hold, pause, reset or close. It records
every request, and knows how many sockets are open to it and how many of them are in the middle of an answer.
"""

import asyncio
import gzip
import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from socket import SO_LINGER, SOL_SOCKET, socket
from types import TracebackType
from typing import Any, Self, cast

PATIENCE = 5.0  # seconds after which a test that waits for the server has failed


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sent. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads(self.content))


class Hold:
    """A step at which the server waits until the test says `release`, or until the client goes away."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._released = threading.Event()
        self._wake: Callable[[], object] = lambda: None

    def release(self) -> None:
        self._released.set()
        self._wake()

    async def passed(self) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(event.set)
        self.reached.set()
        if not self._released.is_set():
            await event.wait()


@dataclass(frozen=True, slots=True)
class Pause:
    """A step that lets time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Forever:
    """A step that never ends: these bytes again and again."""

    chunk: bytes
    every: float = 0.005


@dataclass(frozen=True, slots=True)
class End:
    """A step that ends the connection: with a reset, or by closing it."""

    reset: bool


RESET, CLOSE = End(reset=True), End(reset=False)

Step = bytes | Hold | Pause | Forever | End
Reply = Sequence[Step]


def reply(content: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole answer."""
    return [_head(status, {"content-length": str(len(content)), **(headers or {})}), content]


def json_reply(payload: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A whole answer of JSON."""
    return reply(json.dumps(payload).encode(), status, {"content-type": "application/json", **(headers or {})})


def gzip_reply(payload: object) -> Reply:
    """A whole answer of JSON, packed."""
    return reply(gzip.compress(json.dumps(payload).encode()), headers={"content-encoding": "gzip"})


def stream(*parts: Step, headers: Mapping[str, str] | None = None) -> Reply:
    """An answer in chunks: each `bytes` becomes one chunk. It ends properly, unless its last part ends it otherwise."""
    head = _head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **(headers or {})})
    steps = [_chunk(part) if isinstance(part, bytes) else part for part in parts]
    open_ended = bool(parts) and isinstance(parts[-1], End | Forever | Hold)
    return [head, *steps] if open_ended else [head, *steps, b"0\r\n\r\n"]


def event(payload: object) -> bytes:
    """A server-sent event; a string is sent as it is."""
    data = payload if isinstance(payload, str) else json.dumps(payload)
    name = payload.get("type") if isinstance(payload, dict) else None
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def cut(content: bytes, *positions: int) -> list[bytes]:
    """The same bytes in several pieces."""
    return [content[start:end] for start, end in pairwise((0, *positions, len(content)))]


def _chunk(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port on which nobody listens."""
    with closing(socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


class Server:
    """Answers with its replies in order, with the last of them from then on."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.replies: list[Reply] = []
        self.port = port
        self.accepted = 0
        self._connections: set[_Connection] = set()
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """How many sockets to this server are open."""
        return len(self._connections)

    @property
    def busy(self) -> int:
        """How many of them are in the middle of an answer."""
        return sum(connection.busy for connection in tuple(self._connections))

    def answer(self, *replies: Reply) -> None:
        """Give these replies, in place of those before."""
        self.replies = list(replies)

    def wait_until(self, state: Callable[[], bool]) -> bool:
        """Whether it comes to this before patience ends."""
        with self._changed:
            return self._changed.wait_for(state, timeout=PATIENCE)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(stopped.set)
        server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await stopped.wait()
        for _ in range(5):
            await asyncio.sleep(0)  # a server that is closed while it accepts loses the socket without closing it
        server.close()
        # What was being accepted is a task of the loop until it is a connection, so both must be gone.
        while self._connections or len(asyncio.all_tasks()) > 1:
            for connection in self._connections:
                connection.transport.abort()
            await asyncio.sleep(0)

    def next_reply(self, request: Request) -> Reply:
        self.requests.append(request)
        self.has_changed()
        if not self.replies:
            return reply(b"nothing is scripted", status=400)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def has_changed(self) -> None:
        with self._changed:
            self._changed.notify_all()


@dataclass(eq=False)
class _Connection(asyncio.Protocol):
    server: Server
    busy: bool = False
    received: bytearray = field(default_factory=bytearray)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.server._connections.add(self)
        self.server.accepted += 1
        self.task = asyncio.ensure_future(self._answer_all())

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.task.cancel()
        asyncio.get_running_loop().call_soon(self._has_closed)  # asyncio closes the socket once this has returned

    def _has_closed(self) -> None:
        self.server._connections.discard(self)
        self.server.has_changed()

    def end(self, *, reset: bool) -> None:
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
            self.transport.abort()
        else:
            self.transport.close()

    async def _answer_all(self) -> None:
        while True:
            request = await self._request()
            self.busy = True
            for step in self.server.next_reply(request):
                await self._perform(step)
            self.busy = False
            self.server.has_changed()

    async def _perform(self, step: Step) -> None:
        match step:
            case Hold():
                await step.passed()
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case Forever(chunk, every):
                while True:
                    self.transport.write(_chunk(chunk))
                    await asyncio.sleep(every)
            case End(reset):
                self.end(reset=reset)
            case content:
                self.transport.write(content)

    async def _request(self) -> Request:
        head = await self._until(lambda: self.received.find(b"\r\n\r\n") + 1)
        first, *lines = bytes(self._taken(head + 3)).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
        length = int(headers.get("content-length", 0))
        await self._until(lambda: len(self.received) >= length)
        method, path, _ = first.split(" ", 2)
        return Request(method, path, headers, bytes(self._taken(length)))

    async def _until(self, state: Callable[[], int]) -> int:
        while not (found := state()):
            self.arrived.clear()
            await self.arrived.wait()
        return found

    def _taken(self, length: int) -> bytearray:
        taken = self.received[:length]
        del self.received[:length]
        return taken
