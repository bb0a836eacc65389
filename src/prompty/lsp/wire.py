"""JSON-RPC over standard input and output, as language servers speak it.

A thread reads messages into a queue, so that a cancellation overtakes its request, and that the server knows when it
has nothing else to do. Everything else runs in the main thread, in the order of arrival.
"""

import json
import sys
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, BinaryIO, Protocol

from prompty.safety.redaction import masked_traceback

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
NOT_INITIALIZED, CANCELLED, REFUSED = -32002, -32800, -32803
_MAX_BYTES = 64_000_000  # of a message

JsonObject = dict[str, Any]


class RequestFailed(Exception):
    """A request cannot be answered. The client gets the code and the message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Unframed(ValueError):
    """The bytes are no message, or too many."""


def read_message(stream: BinaryIO) -> bytes | None:
    """Return the content of the next message, or None at the end of the stream. Raise Unframed."""
    length, is_header = None, False
    while line := stream.readline(1000):
        name, _, value = line.partition(b":")
        if not line.strip():
            if is_header:
                break
            continue  # blank lines between messages
        is_header = True
        if name.strip().lower() == b"content-length":
            length = int(value) if value.strip().isdigit() else -1
    if not is_header:
        return None
    if length is None or not 0 <= length <= _MAX_BYTES:
        raise Unframed("a message needs a header `Content-Length`")
    content = stream.read(length)
    return content if len(content) == length else None


def write_frame(stream: BinaryIO, message: Mapping[str, Any]) -> None:
    content = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
    stream.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
    stream.flush()


class Handlers(Protocol):
    """The methods of a server by name, and its work between messages."""

    methods: Mapping[str, Callable[[JsonObject], Any]]

    def work(self) -> bool:
        """Do a part of the work that can wait for messages. Return True if some is left."""
        ...


class RpcConnection:
    """Sends messages to a client, and dispatches its messages to handlers."""

    def __init__(self, send: Callable[[JsonObject], None]) -> None:
        self.send = send
        self.exit_code: int | None = None
        self._next_id = 0
        self._is_initialized = self._is_shut_down = False
        self._cancelled: set[str | int] = set()
        self._lock = Lock()

    def notify(self, method: str, params: JsonObject) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: JsonObject | None = None) -> None:
        """Send a request whose answer does not matter."""
        self._next_id += 1
        self.send({"id": f"server-{self._next_id}", "method": method, "params": params})

    def cancel(self, message: object) -> None:
        """Note a cancellation before the messages ahead of it are handled."""
        if isinstance(message, dict) and message.get("method") == "$/cancelRequest":
            with self._lock:
                self._cancelled.add(_get_id(message.get("params")))

    def receive(self, message: object, handlers: Handlers) -> None:
        """Handle a message, and answer if it is a request."""
        if not isinstance(message, dict) or not isinstance(method := message.get("method"), str):
            if not (isinstance(message, dict) and ("result" in message or "error" in message)):  # no answer of a client
                self._fail(None, INVALID_REQUEST, "the message has no method")
            return
        id, params = message.get("id"), message.get("params")
        is_request = "id" in message
        if method == "$/cancelRequest":
            with self._lock:
                self._cancelled.discard(_get_id(params))
            return
        if method == "exit":
            self.exit_code = 0 if self._is_shut_down else 1
            return
        try:
            self._check_state(method, id)
            handler = handlers.methods.get(method)
            if handler is None:
                raise RequestFailed(METHOD_NOT_FOUND, f"there is no method {method[:100]}")
            result = handler(params if isinstance(params, dict) else {})
        except RequestFailed as error:
            if is_request:
                self._fail(id, error.code, str(error))
            return
        except Exception as error:  # the server must survive its own mistakes: the client has unsaved texts
            print(masked_traceback(error), file=sys.stderr, flush=True)  # noqa: T201  the log of the server
            if is_request:
                self._fail(id, INTERNAL_ERROR, f"{type(error).__name__} in the server; see its log")
            return
        self._is_initialized |= method == "initialize"
        self._is_shut_down |= method == "shutdown"
        if is_request:
            self.send({"id": id, "result": result})

    def _check_state(self, method: str, id: object) -> None:
        with self._lock:
            is_cancelled = isinstance(id, str | int) and id in self._cancelled
        if is_cancelled and method not in ("initialize", "shutdown"):  # the session depends on them
            raise RequestFailed(CANCELLED, "cancelled")
        if not self._is_initialized and method != "initialize":
            raise RequestFailed(NOT_INITIALIZED, "send `initialize` first")
        if self._is_shut_down or (self._is_initialized and method == "initialize"):
            raise RequestFailed(INVALID_REQUEST, "the server is shut down, or already initialized")

    def _fail(self, id: object, code: int, message: str) -> None:
        self.send({"id": id, "error": {"code": code, "message": message}})


def _get_id(params: object) -> str | int:
    id = params.get("id") if isinstance(params, dict) else None
    return id if isinstance(id, str | int) else ""


def serve(stdin: BinaryIO, stdout: BinaryIO, create: Callable[[RpcConnection], Handlers]) -> int:
    """Answer messages until the client says `exit` or closes the stream. Return the exit code."""
    connection = RpcConnection(lambda message: write_frame(stdout, message))
    queue: SimpleQueue[object] = SimpleQueue()
    end = object()

    def read() -> None:
        while True:
            message: object
            try:
                if (content := read_message(stdin)) is None:
                    break
                message = json.loads(content)
            except (ValueError, RecursionError) as error:
                message = Unframed(str(error))
            except OSError:
                break
            connection.cancel(message)
            queue.put(message)
        queue.put(end)

    Thread(target=read, daemon=True).start()
    handlers = create(connection)
    has_work = False
    while connection.exit_code is None:
        if has_work and queue.empty():
            has_work = handlers.work()
            continue
        message = queue.get()
        if message is end:
            return 1
        if isinstance(message, Unframed):
            connection.send({"id": None, "error": {"code": PARSE_ERROR, "message": str(message)[:200]}})
            continue
        connection.receive(message, handlers)
        has_work = True
    return connection.exit_code
