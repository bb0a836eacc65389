"""The server for probes, over real connections."""

import socket
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection

import pytest

from prompty.durable import probes
from prompty.durable.probes import ProbeServer, parse_address, probe
from prompty.errors import RequestError

problems: list[str] = []


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    problems.clear()
    pages = {"/readyz": probe(lambda: problems[0] if problems else None), "/metrics": lambda: (HTTPStatus.OK, b"a 1\n")}
    with ProbeServer(("127.0.0.1", 0), pages) as opened:
        yield opened


def get(server: ProbeServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_probe_says_ok_or_what_is_wrong(server: ProbeServer) -> None:
    assert get(server, "/readyz") == (200, "ok\n")
    problems.append("the database is away")
    assert get(server, "/readyz") == (503, "the database is away\n")


def test_other_pages_are_served_and_unknown_ones_are_not(server: ProbeServer) -> None:
    assert get(server, "/metrics") == (200, "a 1\n")
    assert get(server, "/")[0] == get(server, "/readyz/../metrics")[0] == 404
    assert get(server, "/readyz", "POST")[0] == 501


def test_a_client_that_says_nothing_keeps_nobody_waiting(server: ProbeServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port)) as silent:
        silent.send(b"GET /rea")
        assert get(server, "/readyz") == (200, "ok\n")


@pytest.mark.parametrize("sent", [b"x", b"x: y\r\n"])
def test_a_client_that_never_ends_its_request_is_cut_off(
    server: ProbeServer, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "REQUEST_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", server.server_port)) as slow:
        slow.send(b"GET /readyz HTTP/1.1\r\n")
        slow.settimeout(0.05)
        for _ in range(200):  # each piece comes long before a limit of single reads would end
            try:
                slow.send(sent)
                if slow.recv(100) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("the server still reads the request")


def test_it_listens_on_addresses_of_either_version() -> None:
    with ProbeServer(("::1", 0), {"/livez": probe(lambda: None)}) as opened:
        connection = HTTPConnection("::1", opened.server_port, timeout=10)
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()


def test_an_address_that_is_taken_is_named(server: ProbeServer) -> None:
    with pytest.raises(RequestError, match=f"cannot listen on 127.0.0.1:{server.server_port}: Address already in use"):
        ProbeServer(("127.0.0.1", server.server_port), {})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", ("127.0.0.1", 8080)),
        ("10.0.0.7:80", ("10.0.0.7", 80)),
        ("[::1]:80", ("::1", 80)),
        (":80", ("127.0.0.1", 80)),
    ],
)
def test_an_address_without_a_host_is_this_machine(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:http", "1:99999", "٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is not an address"):
        parse_address(text)
