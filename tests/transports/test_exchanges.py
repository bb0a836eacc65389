"""What goes over a connection, and what does not: encodings, redirects, cookies, proxies, certificates, keys."""

import gzip
import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from socket import create_server
from ssl import CERT_REQUIRED, PROTOCOL_TLS_SERVER, SSLContext
from threading import Thread

import pytest

from prompty import invoke, invoke_async
from prompty.errors import ModelError, PromptyError
from tests.drivers.clients import close_clients
from tests.internet import Internet
from tests.loopback import RESET, Server, event, gzip_reply, json_reply, reply, stream
from tests.transports.subject import ANSWER, KEY, Subject

CONTENT = json.dumps(ANSWER).encode()


def skip_if_exempt(subject: Subject, duty: str) -> None:
    if subject.is_exempt(duty):
        pytest.skip(f"{subject.name} is exempt: {duty}")


def call_both(subject: Subject, url: str) -> list[object]:
    """The answers of a call from a thread and of one from an event loop."""
    answers = [call(subject, url) for call in (call_once, call_once_async)]
    close_clients()  # a server that ends waits for its connections
    return answers


def call_once(subject: Subject, url: str) -> object:
    return invoke(subject.agent(url), max_retries=0)


def call_once_async(subject: Subject, url: str) -> object:
    return subject.run(invoke_async(subject.agent(url), max_retries=0))


def fail_both(subject: Subject, url: str) -> list[ModelError]:
    errors = []
    for call in (call_once, call_once_async):
        with pytest.raises(ModelError) as raised:
            call(subject, url)
        errors.append(raised.value)
    return errors


def test_gzip_is_asked_for_and_read(subject: Subject, server: Server) -> None:
    server.answer(gzip_reply(ANSWER))
    assert call_both(subject, server.url) == ["Fine."] * 2
    if not subject.is_exempt("encodings"):
        assert [request.headers["accept-encoding"] for request in server.requests] == ["gzip"] * 2


def test_a_compressed_stream_is_read_as_it_comes(subject: Subject, server: Server) -> None:
    events = b"".join(
        event({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": end}]})
        for word, end in (("Fi", None), ("ne.", "stop"))
    )
    packed = gzip.compress(events + event("[DONE]"))
    server.answer(stream(packed[:20], packed[20:], headers={"content-encoding": "gzip"}))
    assert list(invoke(subject.agent(server.url), stream=True)) == ["Fi", "ne."]


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip", "nonsense"])
def test_an_encoding_that_was_not_asked_for_is_refused(subject: Subject, server: Server, encoding: str) -> None:
    skip_if_exempt(subject, "encodings")
    server.answer(reply(CONTENT, headers={"content-encoding": encoding}))
    for error in fail_both(subject, server.url):
        assert "which was not asked for" in str(error)
    assert server.wait_until(lambda: server.busy == 0)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(subject: Subject, server: Server, status: int) -> None:
    skip_if_exempt(subject, "redirects")
    server.answer(reply(b"", status, {"location": f"{server.url}/elsewhere"}), json_reply(ANSWER))
    with pytest.raises(ModelError, match="redirects are not followed"):
        invoke(subject.agent(server.url))
    server.answer(reply(b"", status, {"location": f"{server.url}/elsewhere"}), json_reply(ANSWER))
    with pytest.raises(ModelError, match="redirects are not followed"):
        subject.run(invoke_async(subject.agent(server.url)))
    assert len(server.requests) == 2


def test_cookies_are_not_kept(subject: Subject, server: Server) -> None:
    skip_if_exempt(subject, "cookies")
    server.answer(json_reply(ANSWER, headers={"set-cookie": "session=1; path=/"}))
    agent = subject.agent(server.url)

    async def twice() -> None:
        await invoke_async(agent)
        await invoke_async(agent)

    invoke(agent)
    invoke(agent)
    subject.run(twice())
    assert [request.headers.get("cookie") for request in server.requests] == [None] * 4


@pytest.mark.parametrize("credentials", ["", "user:pass%20word@"])
def test_a_proxy_of_the_environment_is_used(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credentials: str
) -> None:
    skip_if_exempt(subject, "environment")
    with Internet(tmp_path, ["models.example"], ANSWER) as internet:
        monkeypatch.setenv("HTTP_PROXY", internet.url.replace("://", f"://{credentials}"))
        monkeypatch.setenv("http_proxy", internet.url.replace("://", f"://{credentials}"))
        assert call_both(subject, "http://models.example") == ["Fine."] * 2
    expected = "Basic dXNlcjpwYXNzIHdvcmQ=" if credentials else None
    assert [(one.origin, one.headers.get("proxy-authorization")) for one in internet.arrivals] == [
        ("http://models.example", expected)
    ] * 2


def test_a_host_of_no_proxy_is_reached_directly(
    subject: Subject, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_if_exempt(subject, "environment")
    server.answer(json_reply(ANSWER))
    with Internet(tmp_path, ["models.example"], ANSWER) as internet:
        internet.use(monkeypatch.setenv)
        monkeypatch.delenv("SSL_CERT_FILE")
        assert call_both(subject, server.url) == ["Fine."] * 2
    assert internet.arrivals == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_request_to_this_machine_stays_on_it(
    subject: Subject, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    skip_if_exempt(subject, "environment")
    server.answer(json_reply(ANSWER))
    with Internet(tmp_path, ["models.example"], ANSWER) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert call_both(subject, server.url.replace("127.0.0.1", host)) == ["Fine."] * 2
    assert len(server.requests) == 2
    assert (proxy.arrivals, proxy.tunnels) == ([], [])


def test_a_private_authority_is_trusted_and_no_other(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_if_exempt(subject, "environment")
    with Internet(tmp_path, ["models.example"], ANSWER) as internet:
        internet.use(monkeypatch.setenv)
        assert call_both(subject, "https://models.example") == ["Fine."] * 2
        monkeypatch.delenv("SSL_CERT_FILE")
        for error in fail_both(subject, "https://models.example/other"):
            assert "certificate" in str(error)
    assert len(internet.arrivals) == 2


def test_a_client_certificate_is_shown(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_if_exempt(subject, "environment")
    internet = Internet(tmp_path, ["127.0.0.1", "localhost"], ANSWER)  # for its certificate
    internet._server.server_close()
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(internet.certificate)
    context.load_verify_locations(internet.certificate)
    context.verify_mode = CERT_REQUIRED
    monkeypatch.setenv("SSL_CERT_FILE", str(internet.certificate))
    with create_server(("127.0.0.1", 0)) as listening:
        url = f"https://localhost:{listening.getsockname()[1]}"
        seen: list[object] = []

        def serve() -> None:
            for _ in range(2):
                with listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as secured:
                    seen.append(secured.getpeercert())
                    with secured.makefile("rb") as request:
                        lines = list(iter(request.readline, b"\r\n"))
                        length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
                        request.read(length)
                    head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(CONTENT)}\r\n\r\n"
                    secured.sendall(head.encode() + CONTENT)

        thread = Thread(target=serve)
        thread.start()
        monkeypatch.setenv("PROMPTY_CLIENT_CERT", str(internet.certificate))
        monkeypatch.setenv("PROMPTY_CLIENT_KEY", str(internet.certificate))
        assert call_both(subject, url) == ["Fine."] * 2
        thread.join(5)
    assert len(seen) == 2


FAILURES: dict[str, Callable[[Server], None]] = {
    "echo": lambda server: server.answer(json_reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401)),
    "reset": lambda server: server.answer([RESET]),
    "nonsense": lambda server: server.answer([f"{KEY}\r\n\r\n".encode(), RESET]),
    "answer": lambda server: server.answer(json_reply(ANSWER)),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_no_key_is_in_an_error_or_a_log(
    subject: Subject, server: Server, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    FAILURES[failure](server)
    with caplog.at_level(logging.DEBUG):
        told: list[str] = []
        for call in (call_once, call_once_async):
            try:
                call(subject, server.url)
            except PromptyError as error:
                told += [repr(error), *traceback.format_exception(error)]
    assert KEY not in "".join(told)
    assert KEY not in caplog.text
