"""HTTP server beside a worker, for the probes of an orchestrator and for Prometheus.

It runs on a thread of its own, on an address that the host chooses. It answers GET alone, and shows counts and states,
but nothing of what a run says.
"""

import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, Self

from prompty.durable.metrics import create_prometheus_meter, get_application_meter, observe_runs
from prompty.errors import MissingExtra, RequestError

if TYPE_CHECKING:
    from prompty.durable.worker import Worker

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


def report_metrics(worker: "Worker") -> None:
    """Report the metrics of a worker to the SDK of OpenTelemetry that the application has configured."""
    meter = get_application_meter()
    if meter is not None:
        _attach(worker, meter)


def serve_probes(worker: "Worker", address: tuple[str, int]) -> "ProbeServer":
    """Serve `/livez` and `/readyz` of a worker, and `/metrics` if the extra `metrics` is installed."""
    pages: dict[str, Page] = {"/livez": probe(worker.check_live), "/readyz": probe(worker.check_ready)}
    try:
        prometheus = create_prometheus_meter()
    except MissingExtra:
        pass
    else:
        _attach(worker, prometheus.meter)
        pages["/metrics"] = lambda: (HTTPStatus.OK, prometheus.scrape())
    return ProbeServer(address, pages)


def _attach(worker: "Worker", meter: object) -> None:
    worker.metrics.attach(meter)
    observe_runs(meter, worker.runs.count_runs)


class ProbeServer(ThreadingHTTPServer):
    """Serves pages by their paths, from now on until `close`. Raise RequestError if the address is not free."""

    def __init__(self, address: tuple[str, int], pages: Mapping[str, Page]) -> None:
        self.address_family: int = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, type("Handler", (_Handler,), {"pages": pages}))
        except OSError as error:
            host, port = address
            reason = error.strerror or str(error)
            raise RequestError(f"cannot listen on {host}:{port}: {reason}", "Choose another address.") from None
        threading.Thread(target=self.serve_forever, name="prompty probes", daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    pages: ClassVar[Mapping[str, Page]] = {}

    def handle(self) -> None:
        """Answer a request that comes in time, so that a slow client holds no thread."""
        cutting = threading.Timer(REQUEST_SECONDS, self.connection.shutdown, [socket.SHUT_RD])
        cutting.daemon = True
        cutting.start()
        try:
            super().handle()
        finally:
            cutting.cancel()

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
