"""Tools of MCP servers, against a server of our own over streamable HTTP, in both eras of the protocol.

The server runs on a thread of the test, so that a test can change its tools, hold its calls, and let it die.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from logging import INFO
from typing import Any

import httpx2
import mcp_types as types
import pytest
import uvicorn
from mcp.server import Server

import prompty
from prompty import CancelToken, Message, loads, tool, turn, turn_async
from prompty.errors import ToolError
from prompty.events import ToolFinished, ToolProgress
from prompty.mcp import register_mcp_server
from prompty.messages import TextPart
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.testing import Script, call
from prompty.tools.mcp.sessions import CheckedTransport
from tests.conversations.turns import scripted
from tests.tools.openapi_parts import own_kind
from tests.watchdog import within
from tests.ways import SYNC, Seen, Way, sync_and_async

pytestmark = pytest.mark.slow

MODERN = b"2026-07-28"
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


def offered(name: str, description: str = "A tool", schema: dict[str, Any] | None = None) -> types.Tool:
    return types.Tool(name=name, description=description, input_schema=schema or {"type": "object"})


class OwnServer:
    """A server on loopback. `legacy` is one from before the era of 2026: it does not know the newer requests."""

    def __init__(self, *, legacy: bool = False) -> None:
        self.tools = [offered("add", "Adds", NUMBERS), *map(offered, ("show", "fail", "figures", "wait", "report"))]
        self.legacy, self.deaf, self.closed = legacy, False, False
        self.began, self.released, self.abandoned = threading.Event(), threading.Event(), threading.Event()
        self.keys: set[bytes] = set()
        self.port = 0

    def start(self) -> None:
        server = Server("own", on_list_tools=self._list, on_call_tool=self._call)
        self._app: Any = server.streamable_http_app()
        config = uvicorn.Config(
            self._asgi, port=self.port, log_config=None, timeout_graceful_shutdown=0, ws="none", interface="asgi3"
        )
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run)
        self._thread.start()
        while not self._uvicorn.started:
            self._thread.join(0.01)
            assert self._thread.is_alive()
        self.port = self._uvicorn.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join()

    def in_a_call(self, act: Callable[[], None]) -> threading.Thread:
        """Do something once a call of `wait` has begun."""

        def wait() -> None:
            assert self.began.wait(30)
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _asgi(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers:
            self.keys.add(headers.get(b"authorization", b""))
        if self.deaf and scope.get("method") == "DELETE":
            await asyncio.sleep(20)
        elif scope["type"] == "http" and (self.closed or (self.legacy and is_modern(headers))):
            status = 401 if self.closed else 404
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send)

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        """One tool on each page."""
        page = int(params.cursor or 0) if params else 0
        following = str(page + 1) if page + 1 < len(self.tools) else None
        return types.ListToolsResult(tools=self.tools[page : page + 1], next_cursor=following)

    async def _call(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        match params.name:
            case "add":
                return result(types.TextContent(text=str(arguments["a"] + arguments["b"])))
            case "show":
                return result(*SHOWN)
            case "fail":
                return types.CallToolResult(content=[types.TextContent(text="out of paper")], is_error=True)
            case "figures":
                return types.CallToolResult(content=[], structured_content={"degrees": 4})
            case "wait":
                return await self._wait()
            case "report":
                await context.session.report_progress(1, 2, "half\u202e way")
                await context.session.send_log_message("warning", "ink is low", related_request_id=context.request_id)
                return result(types.TextContent(text="reported"))
        return result(types.TextContent(text=f"{params.name} ran"))

    async def _wait(self) -> types.CallToolResult:
        self.began.set()
        try:
            while not self.released.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.abandoned.set()
            raise
        return result(types.TextContent(text="waited"))


def is_modern(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"mcp-protocol-version") == MODERN


def result(*content: Any) -> types.CallToolResult:
    return types.CallToolResult(content=list(content))


SHOWN = (
    types.TextContent(text="look"),
    types.ImageContent(data="aW1hZ2U=", mime_type="image/png"),
    types.AudioContent(data="c291bmQ=", mime_type="audio/wav"),
    types.EmbeddedResource(resource=types.TextResourceContents(uri="demo://a", text="a text")),
    types.EmbeddedResource(resource=types.BlobResourceContents(uri="demo://b/c.pdf", blob="cGRm", mime_type="a/pdf")),
    types.EmbeddedResource(resource=types.BlobResourceContents(uri="demo://d", blob="cA==", mime_type="image/png")),
    types.ResourceLink(name="link", uri="demo://e", description="another"),
)


@pytest.fixture(params=[False, True], ids=["modern", "legacy"])
def either(request: pytest.FixtureRequest, clean_registry: None) -> Iterator[OwnServer]:
    yield from running(OwnServer(legacy=request.param))


@pytest.fixture
def own(clean_registry: None) -> Iterator[OwnServer]:
    yield from running(OwnServer())


def running(server: OwnServer) -> Iterator[OwnServer]:
    server.start()
    register_mcp_server("own", url=server.url)
    try:
        yield server
    finally:
        prompty.close()
        server.released.set()
        server.stop()


def turn_with(way: Way, *answers: Any, tool: dict[str, Any] | None = None, **options: Any) -> Seen:
    """A turn of an agent that has the tools of the server."""
    agent = scripted(tools=[{"name": "own", "kind": "mcp", **(tool or {})}])
    with Script(*answers, "Done."):
        return way.turn(agent, **options)


def results(seen: Seen) -> list[Message]:
    return [message for message in seen.messages if message.role == "tool"]


@pytest.mark.spec("000 §7.1.3", "the tools of an MCP server are functions")
@sync_and_async
def test_tools_are_found_and_called(way: Way, either: OwnServer) -> None:
    agent = scripted(tools=[{"name": "printer", "kind": "mcp", "serverName": "own"}])
    with Script(call("add", a=1, b=2), "Three.") as script:
        seen = way.turn(agent)
    assert (seen.result, seen.texts[-2]) == ("Three.", "3")
    functions = {one["function"]["name"]: one["function"] for one in script.requests[0]["tools"]}
    assert list(functions) == ["add", "show", "fail", "figures", "wait", "report"]
    assert (functions["add"]["description"], functions["add"]["parameters"]) == ("Adds", NUMBERS)


@sync_and_async
def test_results_become_parts(way: Way, either: OwnServer) -> None:
    seen = turn_with(way, [call("show"), call("figures"), call("fail")], sendable=False)  # Responses takes no audio
    shown, figures, failed = results(seen)
    assert shown.content == (
        TextPart("look"),
        ImagePart("aW1hZ2U=", "image/png"),
        AudioPart("c291bmQ=", "audio/wav"),
        TextPart("a text"),
        FilePart("cGRm", "a/pdf", "c.pdf"),
        ImagePart("cA==", "image/png"),
        TextPart("link: demo://e another"),
    )
    assert figures.text == '{"degrees":4}'
    assert (failed.text, failed.is_error) == ("Error: Tool 'fail' failed: out of paper", True)


@sync_and_async
@pytest.mark.filterwarnings("ignore:The logging capability")
def test_progress_is_an_event_and_logs_go_to_the_logger(
    way: Way, either: OwnServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(INFO, "prompty.tools")
    seen = turn_with(way, call("report"))
    assert results(seen)[0].text == "reported"
    assert seen.of(ToolProgress) == [ToolProgress("report", "call_1", 1, 2, "half\\u202e way")]
    told = {(one.levelname, one.getMessage()) for one in caplog.records if one.name == "prompty.tools"}
    assert ("INFO", "report: 1 of 2 half\\u202e way") in told
    assert ("WARNING", "ink is low") in told


@sync_and_async
def test_the_file_may_give_an_address_and_a_key(way: Way, own: OwnServer) -> None:
    connection = {"endpoint": own.url, "apiKey": "sk-made-up-key"}
    with own_kind("127.0.0.1"):
        seen = turn_with(way, call("add", a=2, b=2), tool={"name": "elsewhere", "connection": connection})
    assert results(seen)[0].text == "4"
    assert own.keys == {b"Bearer sk-made-up-key"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@sync_and_async
def test_a_server_on_this_machine_needs_no_word_of_the_program(way: Way, host: str, own: OwnServer) -> None:
    connection = {"kind": "anonymous", "endpoint": own.url.replace("127.0.0.1", host)}
    seen = turn_with(way, call("add", a=2, b=2), tool={"name": "inside", "connection": connection})
    assert results(seen)[0].text == "4"


@pytest.mark.parametrize(
    ("endpoint", "refused"),
    [
        ("https://10.0.0.5/mcp", "https://10.0.0.5 has the address 10.0.0.5, which is not public"),
        ("https://[fd00:ec2::254]/mcp", "which is not public"),
        ("http://10.0.0.5/mcp", "neither https nor on this machine"),
        ("http://127.0.0.1:9/admin#", "has a fragment"),
        ("http://127.0.0.1:9/admin?all=1", "has a query other than `api-version`"),
        ("http://127.0.0.1:9/a/../admin", "in its path"),
    ],
)
@sync_and_async
def test_a_file_chooses_no_private_server_and_no_whole_url(way: Way, endpoint: str, refused: str) -> None:
    tool = f"{{name: inside, kind: mcp, connection: {{kind: anonymous, endpoint: '{endpoint}'}}}}"
    agent = loads(f"---\nmodel: {{id: m, provider: scripted}}\ntools: [{tool}]\n---\nuser:\nHi")
    with Script("Done."):
        seen = way.turn(agent)
    assert refused in str(seen.error)
    assert "prompty.openapi.allow" not in str(seen.error)  # the function of another kind of tool


def test_a_name_with_a_private_address_is_refused(own: OwnServer) -> None:
    async def find() -> list[str]:
        return await CheckedTransport(httpx2, needs_public=True).find_addresses(f"https://localhost:{own.port}/mcp")

    with pytest.raises(ToolError, match=r"which is not public[\s\S]*trusted_endpoints"):
        asyncio.run(find())


@pytest.mark.parametrize(
    ("endpoint", "refused"),
    [("https://literal.example/mcp", True), ("${env:MCP_URL}", False), ("${env:NOT_SET:https://x.example/mcp}", True)],
)
def test_a_key_of_the_environment_goes_to_an_address_of_the_environment(
    endpoint: str, refused: bool, own: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_KEY", "sk-made-up-key")
    monkeypatch.setenv("MCP_URL", own.url)
    tool = f"{{name: t, kind: mcp, connection: {{endpoint: '{endpoint}', apiKey: '${{env:MCP_KEY}}'}}}}"
    text = f"---\nmodel: {{id: m, provider: scripted}}\ntools: [{tool}]\n---\nuser:\nHi"
    agent = loads(text)
    with own_kind("127.0.0.1"), Script(call("add", a=2, b=2), "Done."):
        seen = SYNC.turn(agent)
    if refused:
        assert "the value of MCP_KEY would go to" in str(seen.error)
        assert not own.keys
    else:
        assert (seen.error, own.keys) == (None, {b"Bearer sk-made-up-key"})


@sync_and_async
def test_a_new_list_is_seen_by_the_next_turn(way: Way, either: OwnServer) -> None:
    turn_with(way)
    either.tools = [offered("print")]
    assert results(turn_with(way, call("print")))[0].text == "print ran"


@sync_and_async
def test_a_call_that_takes_too_long_leaves_the_session_whole(way: Way, either: OwnServer) -> None:
    seen = turn_with(way, call("wait"), tool_timeout=0.3)
    assert "no result within 0.3 s" in results(seen)[0].text
    assert either.abandoned.wait(5)  # the server was told
    assert results(turn_with(way, call("add", a=1, b=1)))[0].text == "2"


@sync_and_async
def test_a_turn_that_is_cancelled_leaves_the_session_whole(way: Way, either: OwnServer) -> None:
    cancel = CancelToken()
    waiting = either.in_a_call(cancel.cancel)
    seen = turn_with(way, call("wait"), cancel=cancel)
    waiting.join()
    assert "was interrupted" in str([message.text for message in seen.messages])
    assert either.abandoned.wait(5)
    assert results(turn_with(way, call("add", a=1, b=1)))[0].text == "2"


@sync_and_async
def test_a_server_that_dies_in_a_call_is_an_error_and_comes_back(way: Way, either: OwnServer) -> None:
    dying = either.in_a_call(either.stop)
    seen = turn_with(way, call("wait"))
    dying.join()
    assert seen.result == "Done."
    assert results(seen)[0].is_error is True
    seen = turn_with(way)
    assert "cannot use the MCP server 'own' (tool 'own')" in str(seen.error)
    either.start()
    assert results(turn_with(way, call("add", a=1, b=1)))[0].text == "2"


def test_many_turns_at_once_share_a_session(either: OwnServer) -> None:
    async def one(number: int) -> object:
        agent = scripted(tools=[{"name": "own", "kind": "mcp"}])
        seen: list[Any] = []
        with Script(call("add", a=number, b=1), "Done."):
            await turn_async(agent, on_event=seen.append)
        return next(event.result.text for event in seen if isinstance(event, ToolFinished))

    async def all_of_them() -> list[object]:
        return await asyncio.gather(*(asyncio.create_task(one(number)) for number in range(50)))

    assert asyncio.run(all_of_them()) == [str(number + 1) for number in range(50)]
    assert asyncio.run(one(7)) == "8"  # on another event loop


@sync_and_async
def test_a_server_that_is_closed_opens_again(way: Way, either: OwnServer) -> None:
    for number in range(5):
        assert results(turn_with(way, call("add", a=number, b=0)))[0].text == str(number)
        prompty.close()


@sync_and_async
def test_closing_ends_the_calls_under_way(way: Way, either: OwnServer) -> None:
    closing = either.in_a_call(prompty.close)
    assert "the MCP server was closed" in results(turn_with(way, call("wait")))[0].text
    closing.join()


def test_closing_does_not_wait_for_a_server_that_hangs(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.tools.mcp.sessions.CLOSE_SECONDS", 0.2)
    own.legacy = own.deaf = True  # one of the older era is told that a session ends
    turn_with(SYNC)
    started = time.monotonic()
    prompty.close()
    assert 0.2 <= time.monotonic() - started < 5


def test_an_owner_that_is_not_let_in_is_told_to_check(own: OwnServer) -> None:
    own.closed = True
    seen = turn_with(SYNC)
    assert "cannot use the MCP server 'own' (tool 'own')" in str(seen.error)
    assert "its headers" in str(seen.error)


@sync_and_async
def test_a_server_can_be_used_by_a_sync_call_inside_an_async_tool(way: Way, own: OwnServer) -> None:
    """Its session lives on an event loop that no tool blocks."""
    agent = scripted(tools=[{"name": "own", "kind": "mcp", "serverName": "own", "allowedTools": ["add"]}])

    @tool
    async def nested() -> str:
        with Script(call("add", a=1, b=2), lambda request: str(request.body["messages"][-1]["content"])):  # type: ignore[index]  # JSON
            return str(turn(agent))

    def run() -> Seen:
        with Script([call("add", a=3, b=4), call("nested")], "Done."):
            return way.turn(agent, tools=[nested])

    assert within(run).told == ["7", "3"]
