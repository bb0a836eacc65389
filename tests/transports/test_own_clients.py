"""Requests over the HTTP clients of a program: `use_client`."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from prompty import Registry, invoke, invoke_async, loads, turn_async
from prompty.concurrency import in_event_loop
from prompty.errors import ModelError, RequestError, WrongArgument
from prompty.mcp import register_mcp_server
from prompty.model.agent import PromptAgent
from prompty.providers import use_client
from prompty.testing import Script, call
from prompty.tools.mcp.sessions import SESSIONS
from tests.drivers.wires import Chat, Messages
from tests.loopback import Server, json_reply, stream
from tests.tools.openapi_parts import PLAIN
from tests.tools.test_mcp_http import OwnServer

KEY = "a-key-of-the-file"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def prompt(server: Server, registry: Registry, provider: str = "openai") -> PromptAgent:
    connection = f"{{kind: key, endpoint: '{server.url}/v1', apiKey: {KEY}}}"
    model = f"{{id: m, provider: {provider}, connection: {connection}}}"
    return loads(f"---\nmodel: {model}\n---\nuser:\nHi", registry=registry)


class Counted:
    """An event hook of a client: it adds a header, as a program's instrumentation does."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def __call__(self, request: httpx2.Request) -> None:
        request.headers["x-trace"] = "of-the-program"
        self.urls.append(str(request.url))

    async def on_async(self, request: httpx2.Request) -> None:
        self(request)


@pytest.mark.parametrize(("provider", "wire"), [("openai", Chat()), ("anthropic", Messages())])
def test_a_provider_is_called_over_the_programs_client_in_both_colours(
    provider: str, wire: Any, server: Server
) -> None:
    registry, counted = Registry(), Counted()
    agent = prompt(server, registry, provider)
    server.answer(*[json_reply(wire.whole("Hello"))] * 2, stream(*wire.stream("Hello")))

    async def call_async() -> str:
        async with httpx2.AsyncClient(event_hooks={"request": [counted.on_async]}) as client:
            use_client(client, for_=provider, registry=registry)
            return str(await invoke_async(agent))

    with httpx2.Client(event_hooks={"request": [counted]}) as client:
        use_client(client, for_=provider, registry=registry)
        assert invoke(agent) == "Hello"
        assert asyncio.run(call_async()) == "Hello"
        assert invoke(agent, stream=True).result == "Hello"
    assert len(counted.urls) == 3
    for request in server.requests:
        assert request.headers["x-trace"] == "of-the-program"
        assert KEY in str(request.headers)
        assert request.headers["accept-encoding"] == "gzip"


def test_an_error_of_the_server_is_ours_without_its_key(server: Server) -> None:
    registry = Registry()
    server.answer(*[json_reply({"error": {"message": f"no such model, key {KEY}"}}, 404)] * 2)

    async def call_async() -> None:
        async with httpx2.AsyncClient() as client:
            use_client(client, for_="openai", registry=registry)
            await invoke_async(prompt(server, registry))

    with httpx2.Client() as client:
        use_client(client, for_="openai", registry=registry)
        with pytest.raises(ModelError, match="HTTP 404: no such model, key ••••") as caught:
            invoke(prompt(server, registry))
        with pytest.raises(ModelError, match="HTTP 404: no such model, key ••••"):
            asyncio.run(call_async())
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (httpx2.ReadTimeout("slow"), "did not answer in time"),
        (httpx2.ConnectError(f"refused {KEY}"), "the connection failed: ConnectError: refused ••••"),
        (ValueError(f"a hook failed {KEY}"), "the call could not be made: ValueError: a hook failed ••••"),
    ],
)
def test_what_the_client_raises_is_an_error_of_ours(raised: Exception, message: str, server: Server) -> None:
    def fail(_: httpx2.Request) -> httpx2.Response:
        raise raised

    registry = Registry()
    with httpx2.Client(transport=httpx2.MockTransport(fail)) as client:
        use_client(client, for_="openai", registry=registry)
        with pytest.raises(ModelError, match=message):
            invoke(prompt(server, registry), max_retries=0)


def test_a_redirect_is_not_followed_whatever_the_client_does_otherwise(server: Server) -> None:
    registry = Registry()
    server.answer(json_reply({}, 307, headers={"location": f"{server.url}/elsewhere"}))
    with httpx2.Client(follow_redirects=True) as client:
        use_client(client, for_="openai", registry=registry)
        with pytest.raises(ModelError, match="redirects are not followed"):
            invoke(prompt(server, registry))
    assert len(server.requests) == 1


def test_a_mock_of_the_program_answers_and_an_answer_without_end_is_cut_off(server: Server) -> None:
    answer = json.dumps(Chat().whole("Hello")).encode()
    registry = Registry()
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(200, content=answer))) as client:
        use_client(client, for_="openai", registry=registry)
        assert invoke(prompt(server, registry)) == "Hello"
    endless = httpx2.MockTransport(lambda _: httpx2.Response(200, content=bytes(65 * 1024 * 1024)))
    with httpx2.Client(transport=endless) as client:
        use_client(client, for_="openai", registry=registry)
        with pytest.raises(ModelError, match="the answer is longer than 67,108,864 bytes"):
            invoke(prompt(server, registry), max_retries=0)


def test_a_call_does_not_go_around_a_client_for_the_other_kind_of_code(server: Server) -> None:
    registry = Registry()
    with httpx2.Client() as client:
        use_client(client, for_="openai", registry=registry)
        with pytest.raises(RequestError, match=r"'openai' cannot be used in async code\n +Pass an httpx2.AsyncClient"):
            asyncio.run(invoke_async(prompt(server, registry)))
    assert server.requests == []


def test_another_registry_keeps_its_own_connections(server: Server) -> None:
    server.answer(json_reply(Chat().whole("Hello")))
    with httpx2.Client() as client, Registry() as other:
        use_client(client, for_="openai", registry=Registry())
        assert invoke(prompt(server, other)) == "Hello"
    assert "x-trace" not in server.requests[0].headers


@pytest.mark.parametrize("for_", ["openai", "mcp", "openapi"])
def test_something_else_than_a_client_is_refused(for_: str) -> None:
    with pytest.raises(WrongArgument, match=r"httpx2\.AsyncClient"):
        use_client(object(), for_=for_)  # type: ignore[arg-type]  # the mistake under test
    if for_ != "openai":
        with httpx2.Client() as client, pytest.raises(WrongArgument, match=r"Pass an httpx2\.AsyncClient"):
            use_client(client, for_=for_)


def test_an_openapi_service_is_called_over_the_programs_client(server: Server, tmp_path: Path) -> None:
    registry, counted = Registry(), Counted()
    server.answer(json_reply({"degrees": 4}))
    (tmp_path / "api.json").write_text(json.dumps(PLAIN))
    connection = f"{{kind: anonymous, endpoint: {server.url}}}"
    tool = f"{{name: api, kind: openapi, specification: api.json, connection: {connection}}}"

    async def run() -> str:
        from prompty import openapi

        openapi.allow(hosts=["127.0.0.1"], registry=registry)
        agent = loads(f"---\nmodel: m\ntools: [{tool}]\n---\nuser:\nHi", base_dir=tmp_path, registry=registry)
        async with httpx2.AsyncClient(event_hooks={"request": [counted.on_async]}) as client:
            use_client(client, for_="openapi", registry=registry)
            with Script(call("act"), "Cold."):
                return str(await turn_async(agent))

    assert asyncio.run(run()) == "Cold."
    assert server.requests[0].headers["x-trace"] == "of-the-program"
    assert len(counted.urls) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "10.1.2.3", "example.com"])
def test_a_document_reaches_no_more_hosts_over_the_programs_client(host: str, tmp_path: Path) -> None:
    def never(_: httpx2.Request) -> httpx2.Response:
        raise AssertionError("a request left")

    registry = Registry()
    agent = loads(
        f"---\nmodel: m\ntools: [{{name: api, kind: openapi, specification: 'http://{host}/api.json'}}]\n---\nuser:\nHi",
        base_dir=tmp_path,
        registry=registry,
    )

    async def run() -> None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(never)) as client:
            use_client(client, for_="openapi", registry=registry)
            with Script("Hi"):
                await turn_async(agent)

    with pytest.raises(Exception, match=r"is not public|is not https"):
        asyncio.run(run())


@pytest.mark.slow
def test_an_mcp_server_is_called_over_the_programs_client() -> None:
    own, counted, registry = OwnServer(), Counted(), Registry()
    client = httpx2.AsyncClient(event_hooks={"request": [counted.on_async]})
    own.start()
    try:
        register_mcp_server("own", url=own.url, headers={"authorization": "Bearer of-the-server"}, registry=registry)
        tools = "tools: [{name: own, kind: mcp, serverName: own}]"
        agent = loads(f"---\nmodel: m\n{tools}\n---\nuser:\nHi", registry=registry)
        use_client(client, for_="mcp", registry=registry)

        async def run() -> str:
            with Script(call("add", a=1, b=2), "Three."):
                return str(await turn_async(agent))

        assert asyncio.run(run()) == "Three."
        assert own.keys >= {b"Bearer of-the-server"}
        assert len(counted.urls) > 2
    finally:
        registry.clients.close()
        in_event_loop(client.aclose(), SESSIONS).result(30)
        own.stop()
