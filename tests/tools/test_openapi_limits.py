"""What OpenAPI tools take from a service: so much, for so long, and over TLS from whom they asked only."""

import asyncio
import gzip
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from prompty.registry import DEFAULT
from prompty.safety.redaction import Redactor
from prompty.tools.kinds import TOOL_KINDS
from prompty.tools.openapi import client, document as documents, read_result
from tests.loopback import Forever, Hold, Server, json_reply, reply, stream
from tests.tools.openapi_parts import (
    PLAIN,
    agent_of,
    called,
    document,
    own_kind,
    refusal,
    resolve,
    result_of,
)


@pytest.fixture
def service() -> Iterator[Server]:
    """A service that the host allows."""
    with Server() as server, own_kind(f"127.0.0.1:{server.port}"):
        server.answer(json_reply({"ok": True}))
        yield server


def test_the_least_recently_used_document_is_dropped(
    service: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_CACHED_DOCUMENTS", 2)
    service.answer(json_reply(PLAIN))

    async def fetch(*names: str) -> list[str]:
        """Describe documents, and return those that were fetched."""
        service.requests.clear()
        for name in names:
            agent = agent_of(tmp_path, f"{service.url}/{name}")
            await DEFAULT[TOOL_KINDS].get("openapi").describe(agent.tools[0], agent)
        return [request.path.strip("/") for request in service.requests]

    assert asyncio.run(fetch("a", "b", "a", "b")) == ["a", "b"]
    assert asyncio.run(fetch("a", "c", "a", "b")) == ["c", "b"]


def test_an_error_says_what_the_service_said(service: Server, tmp_path: Path) -> None:
    service.answer(reply(b"x" * 5000, status=422, headers={"content-type": "text/plain"}))
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": service.url})
    assert result_of(called(agent, {})) == f"Error: Tool 'act' failed: 422 Scripted: {'x' * 2000}…"


def test_an_answer_without_end_is_cut(service: Server, tmp_path: Path) -> None:
    service.answer(stream(Forever(b"x" * 60_000, 0), headers={"content-type": "text/plain"}))
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": service.url})
    told = result_of(called(agent, {}))
    assert len(told) < 1_000_000
    assert service.wait_until(lambda: service.open == 0)


def test_an_answer_of_more_than_a_megabyte_says_that_it_was_cut() -> None:
    response = client.HttpResponse(200, "OK", "text/plain", "utf-8", b"abc", True)
    assert read_result(response, Redactor()) == "abc\n[the response was truncated after 1,000,000 bytes]"


def test_an_answer_that_is_packed_unasked_is_refused(service: Server, tmp_path: Path) -> None:
    service.answer(reply(gzip.compress(b"x" * 1000), headers={"content-encoding": "gzip"}))
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": service.url})
    assert "the encoding 'gzip'" in result_of(called(agent, {}))
    assert service.requests[0].headers["accept-encoding"] == "identity"


def test_a_service_that_does_not_answer_is_not_waited_for(
    service: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.2)
    service.answer([Hold()])
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": service.url})
    assert "did not answer" in result_of(called(agent, {}))
    assert service.wait_until(lambda: service.open == 0)


def test_a_service_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with Server() as gone:
        url = gone.url
    agent = agent_of(tmp_path, PLAIN, connection={"endpoint": url})
    with own_kind("127.0.0.0/8"):
        assert "cannot connect to" in result_of(called(agent, {}))
        assert "cannot fetch the OpenAPI document" in refusal(agent_of(tmp_path, f"{url}/api.json"))


@pytest.mark.process
def test_nothing_of_http_is_imported_before_a_request() -> None:
    code = "import prompty, prompty.tools.openapi, sys; assert not {'httpx2', 'httpx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)  # noqa: S603  our own code


def certificate(folder: Path, name: str) -> Path:
    """A certificate that vouches for itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + built.public_bytes(serialization.Encoding.PEM))
    return path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.end_headers()
        self.wfile.write(f"hello {self.headers['host']}".encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a service with the certificate of `service.test`, which we trust."""
    path = certificate(tmp_path, "service.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    trusting = ssl.create_default_context(cafile=str(path))
    monkeypatch.setattr(client, "load_certificates", lambda _: trusting)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("name", "told"), [("service.test", "hello service.test"), ("other.test", "cannot connect to")]
)
def test_a_certificate_must_be_of_the_name_and_not_of_the_address(
    secure: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    resolve(monkeypatch, ["127.0.0.1"])
    agent = agent_of(tmp_path, document(PLAIN["paths"]), connection={"endpoint": f"https://{name}:{secure}"})
    with own_kind(name):
        assert told in result_of(called(agent, {}))
