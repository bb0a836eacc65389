"""Any host of the internet, on the loopback interface: a proxy that answers for every name, over https and http.

Clients that take their proxy and their certificates from the environment reach it under the names that they asked
for, so that a test sees which request would have arrived at which host.
"""

import json
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from types import TracebackType
from typing import NamedTuple, Self, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import prompty


class Arrival(NamedTuple):
    """A request that arrived at a host. Names of headers are in lower case."""

    origin: str
    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"

    @property
    def text(self) -> str:
        return f"{self.path} {self.headers} {self.body.decode()}"


class Response(NamedTuple):
    """An answer. A body of several chunks is sent as such, each when it is there."""

    status: int
    headers: Mapping[str, str]
    body: bytes | Iterable[bytes]


class Internet:
    """The proxy, what arrived, and the answer to all of it: JSON, or a function that answers what arrived."""

    def __init__(self, folder: Path, names: Sequence[str], answer: object) -> None:
        self.arrivals: list[Arrival] = []
        self.tunnels: list[str] = []  # the hosts that clients asked the proxy for, over https
        self.certificate: Path = folder / "internet.pem"
        self.answer: bytes | Callable[[Arrival], Response] = answer if callable(answer) else json.dumps(answer).encode()
        _write_certificate(self.certificate, names)
        self.tls: ssl.SSLContext = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.certificate)
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.internet = self
        self.url: str = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        prompty.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def use(self, set_variable: Callable[[str, str], None]) -> None:
        """Point the environment at this internet. Addresses of this machine are reached directly.

        The proxy and the certificates are read when connections to an origin are first needed, so none may be open.
        """
        prompty.close()
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            set_variable(name, self.url)
        set_variable("NO_PROXY", "127.0.0.1,localhost")
        set_variable("SSL_CERT_FILE", str(self.certificate))


_JSON = {"Content-Type": "application/json"}


class _Server(ThreadingTCPServer):
    internet: Internet


class _Handler(StreamRequestHandler):
    """Reads requests: to a proxy, in a tunnel, or directly."""

    timeout = 10

    def handle(self) -> None:
        with suppress(OSError), ExitStack() as stack:
            self._serve(stack)

    def _serve(self, stack: ExitStack) -> None:
        internet = cast(_Server, self.server).internet
        tunnel = ""
        while head := self._read_head():
            method, target, _ = head[0].split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            if method == "CONNECT":
                internet.tunnels.append(target)
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                secured = stack.enter_context(internet.tls.wrap_socket(self.request, server_side=True))
                self.rfile = stack.enter_context(secured.makefile("rb"))
                self.wfile = stack.enter_context(secured.makefile("wb"))
                tunnel = f"https://{target.removesuffix(':443')}"
                continue
            body = self.rfile.read(int(headers.get("content-length", "0")))
            scheme, _, rest = target.partition("://")
            origin = tunnel or (f"{scheme}://{rest.partition('/')[0]}" if rest else f"http://{headers['host']}")
            arrival = Arrival(origin, target, headers, body, method)
            internet.arrivals.append(arrival)
            answer = internet.answer
            self._send(answer(arrival) if callable(answer) else Response(200, _JSON, answer))

    def _send(self, response: Response) -> None:
        body = response.body
        length = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {"Transfer-Encoding": "chunked"}
        fields = "".join(f"{name}: {value}\r\n" for name, value in {**response.headers, **length}.items())
        self.wfile.write(f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n{fields}\r\n".encode())
        for part in [body] if isinstance(body, bytes) else _write_chunks(body):
            self.wfile.write(part)
            self.wfile.flush()

    def _read_head(self) -> list[str]:
        lines: list[str] = []
        while (line := self.rfile.readline().decode().rstrip("\r\n")) or not lines:
            if not line:
                return []
            lines.append(line)
        return lines


def _write_chunks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n"
    yield b"0\r\n\r\n"


def _write_certificate(path: Path, names: Sequence[str]) -> None:
    """Write a certificate that signs itself, for all these names, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "internet")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=24))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
