"""HTTP server beside a worker, for the probes of an orchestrator and for Prometheus.

It runs on a thread of its own, on an address that the host chooses. It answers GET alone, and shows counts and states,
but nothing of what a run says.
"""

import io
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Self

from prompty.errors import RequestError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Page = Callable[[], tuple[HTTPStatus, bytes]]
REQUEST_SECONDS = 5.0


def parse_address(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, or `PORT` for this machine alone."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise RequestError(f"{text!r} is not an address", "Write 8080, or 0.0.0.0:8080 to be reached from outside.")
    return host.strip("[]") or "127.0.0.1", int(port)


def probe(find_problem: Callable[[], str | None]) -> Page:
    """Return a page that says `ok`, or what is wrong."""

    def answer() -> tuple[HTTPStatus, bytes]:
        problem = find_problem()
        status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        return status, f"{problem or 'ok'}\n".encode()

    return answer


class ProbeServer:
    """Serves pages by their paths. Use it as a context manager, or `open` and `close` it."""

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Page]) -> None:
        self._address, self._handler = address, type("Handler", (_Handler,), {"pages": pages})
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int:
        assert self._server is not None  # noqa: S101  it is open
        return int(self._server.server_address[1])

    def open(self) -> None:
        """Listen. Raise RequestError if the address is not free."""
        try:
            self._server = _Server(self._address, self._handler)
        except OSError as error:
            host, port = self._address
            reason = error.strerror or str(error)
            raise RequestError(f"cannot listen on {host}:{port}: {reason}", "Choose another address.") from None
        threading.Thread(target=self._server.serve_forever, name="prompty probes", daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)


class _Incoming(io.RawIOBase):
    """The bytes of a request. All of them must come before the deadline, so that a slow client holds no thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._deadline = connection, monotonic() + REQUEST_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        self._connection.settimeout(max(self._deadline - monotonic(), 0.001))
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    pages: ClassVar[Mapping[str, Page]] = {}

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Incoming(self.connection))

    def do_GET(self) -> None:
        page = self.pages.get(self.path)
        status, body = page() if page else (HTTPStatus.NOT_FOUND, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "prompty"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a probe comes every few seconds."""
