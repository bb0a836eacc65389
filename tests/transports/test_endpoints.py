"""A file chooses an origin and a path for its model, no whole URL, and no server of a private network."""

import asyncio
from collections.abc import Callable, Sequence

import httpcore2
import pytest

import prompty
from prompty import PromptAgent
from prompty.errors import RequestError
from prompty.providers.credentials import check_trust, needs_public_address
from prompty.providers.http.network import AsyncNetwork, Network
from prompty.safety.origins import find_endpoint_fault, parse_origin
from tests.loopback import Server, json_reply
from tests.transports.subject import ANSWER

OPENAI_HOSTS = ("api.openai.com",)


def declare(endpoint: str, trusted: Sequence[str] = ()) -> PromptAgent:
    text = f"---\nmodel: {{id: m, connection: {{kind: anonymous, endpoint: '{endpoint}'}}}}\n---\nuser:\nhi"
    return prompty.loads(text, trusted_endpoints=trusted)


@pytest.mark.parametrize(
    ("rest", "path"),
    [("/v1", "/v1/chat/completions"), ("/v1/", "/v1/chat/completions"), ("/a;x", "/a;x/chat/completions")],
)
def test_the_path_of_the_api_follows_that_of_the_file(rest: str, path: str, server: Server) -> None:
    server.answer(json_reply(ANSWER))
    assert prompty.invoke(declare(f"{server.url}{rest}")) == "Fine."
    assert [request.path for request in server.requests] == [path]


@pytest.mark.parametrize(
    "rest",
    [
        "/admin#",
        "/admin#/v1",
        "/admin?all=1&x=",
        "/admin?",
        "/v1?api-version=1&x=2",
        "/a/../../admin",
        "/a/%2e%2E/admin",
        "/a/..;x/admin",
        "/v1/./admin",
    ],
)
def test_a_file_does_not_choose_the_whole_url(rest: str, server: Server) -> None:
    with pytest.raises(RequestError, match=r"the endpoint '.*' has (a fragment|a query|`\.`)"):
        prompty.invoke(declare(f"{server.url}{rest}"))
    assert not server.requests


def test_a_program_may_choose_the_whole_url(server: Server) -> None:
    server.answer(json_reply(ANSWER))
    connection = {"kind": "anonymous", "endpoint": f"{server.url}/v1?tenant=7"}
    agent = PromptAgent.model_validate({"model": {"id": "m", "connection": connection}, "instructions": "user:\nhi"})
    assert prompty.invoke(agent) == "Fine."
    assert [request.path for request in server.requests] == ["/v1/chat/completions?tenant=7"]


def test_an_api_version_is_the_only_query() -> None:
    assert find_endpoint_fault("https://own.example/openai?api-version=2026-10-01") is None
    assert find_endpoint_fault("https://own.example/v1") is None


PRIVATE = ["10.0.0.5", "169.254.169.254", "192.168.1.9", "[fd00:ec2::254]", "[::ffff:10.0.0.1]", "100.64.0.1"]


@pytest.mark.parametrize("host", PRIVATE)
def test_a_private_address_needs_a_word_of_the_program(host: str) -> None:
    endpoint = f"https://{host}/v1"
    with pytest.raises(RequestError, match=r"which is not public[\s\S]*trusted_endpoints"):
        prompty.invoke(declare(endpoint))
    check_trust(declare(endpoint, trusted=[endpoint]), OPENAI_HOSTS)


def test_the_environment_may_name_a_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_URL", "https://10.0.0.5/v1")
    check_trust(declare("${env:OWN_URL}"), OPENAI_HOSTS)
    with pytest.raises(RequestError, match="which is not public"):
        check_trust(declare("https://10.0.0.5/v1"), OPENAI_HOSTS)


ORIGIN = parse_origin("https://models.example")


def connect(host: str, port: int) -> object:
    return Network(ORIGIN).connect_tcp(host, port)


def connect_async(host: str, port: int) -> object:
    return asyncio.run(AsyncNetwork(ORIGIN).connect_tcp(host, port))


COLOURS = pytest.mark.parametrize("connect", [connect, connect_async], ids=["sync", "async"])


@COLOURS
def test_a_name_with_a_private_address_is_refused_before_it_is_connected(
    connect: Callable[[str, int], object], server: Server
) -> None:
    """`localhost` is a name that has such an address everywhere."""
    with pytest.raises(RequestError, match=r"https://models\.example has the address .*, which is not public"):
        connect("localhost", server.port)
    assert not server.accepted


@COLOURS
def test_a_name_without_an_address_is_an_error_of_the_connection(connect: Callable[[str, int], object]) -> None:
    with pytest.raises(httpcore2.ConnectError):
        connect("a" * 64, 443)  # no name can have so many letters


@pytest.mark.parametrize(
    ("endpoint", "is_checked"),
    [
        ("https://models.example/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://api.groq.com/openai/v1", False),
        ("http://localhost:11434/v1", False),
        ("http://127.0.0.1:8080/v1", False),
    ],
)
def test_servers_that_only_a_file_names_have_public_addresses(endpoint: str, is_checked: bool) -> None:
    assert needs_public_address(declare(endpoint), OPENAI_HOSTS) is is_checked
