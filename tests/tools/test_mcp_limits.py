"""What an MCP server may send: how much of it, how often under one name, and that nothing unreadable leaves a call
waiting."""

import asyncio
import codecs
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given, settings, strategies as st

import prompty
from prompty.errors import ToolError
from prompty.mcp import register_mcp_server
from prompty.testing import Script, call
from prompty.tools import mcp
from prompty.tools.mcp import content, sessions
from prompty.tools.mcp.content import LINES, LineDecoder
from tests.conversations.turns import scripted
from tests.loopback import Hold, Server as SilentServer, event
from tests.tools.test_mcp_http import OwnServer, offered, own, result, results, turn_with
from tests.ways import SYNC, Seen, Way, sync_and_async

__all__ = ["own"]


def refused(own: OwnServer, *tools: types.Tool, **tool: Any) -> str:
    own.tools = list(tools)
    with Script("never") as script:
        seen = SYNC.turn(scripted(tools=[{"name": "own", "kind": "mcp", **tool}]))
    assert isinstance(seen.error, ToolError), seen.error
    assert script.requests == []
    return str(seen.error)


def test_a_server_that_lists_a_name_twice_is_refused(own: OwnServer) -> None:
    assert "lists the tool 'print' twice" in refused(own, offered("print", "first"), offered("print", "last"))


def test_a_binding_that_no_tool_of_a_server_takes_is_an_error(own: OwnServer) -> None:
    assert "the binding 'c' of the tool 'own' matches no parameter" in refused(own, own.tools[0], bindings={"c": 1})


def test_a_long_description_is_cut(own: OwnServer) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "p" * 50_000, "enum": ["q" * 9000]}},
    }
    own.tools = [offered("print", "d" * 5_000_000, schema)]
    with Script("Done.") as script:
        SYNC.turn(scripted(tools=[{"name": "own", "kind": "mcp"}]))
    [function] = [one["function"] for one in script.requests[0]["tools"]]
    parameter = function["parameters"]["properties"]["a"]
    assert len(function["description"]) == len(parameter["description"]) == content.MAX_TOOL_DESCRIPTION
    assert parameter["enum"] == ["q" * 9000]  # a value that counts is not prose


def test_definitions_that_are_too_long_together_are_refused(own: OwnServer) -> None:
    large = [offered(f"t{at}", "", {"type": "object", "title": "t", "enum": ["x" * 300_000]}) for at in range(8)]
    error = refused(own, *large)
    assert "2,000,000 characters" in error
    assert "allowedTools" in error


def test_more_tools_than_a_model_can_use_are_refused(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "MAX_OFFERED_TOOLS", 3)
    tools = [offered(f"t{at}") for at in range(5)]
    error = refused(own, *tools)
    assert "offers 5 tools, more than 3" in error
    assert "allowedTools" in error
    assert "Done." in turn_with(SYNC, tool={"allowedTools": ["t0", "t4"]}).texts


def test_a_list_of_tools_ends_at_a_limit(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "MAX_LISTED_TOOLS", 3)
    assert "lists more than 3 tools" in refused(own, *(offered(f"t{at}") for at in range(5)))


def test_a_message_over_http_that_is_too_long_ends_the_call(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def call_tool(context: Any, params: Any) -> types.CallToolResult:
        return result(types.TextContent(text="x" * 300_000))

    monkeypatch.setattr(content, "MAX_MESSAGE_BYTES", 200_000)
    monkeypatch.setattr(own, "_call", call_tool)
    own.stop()
    own.start()
    [message] = results(turn_with(SYNC, call("show"), tool_timeout=20))
    assert message.is_error
    assert "within 20 s" not in message.text


NOTICE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 200}}


def flooding(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have a server answer calls of `show` with notifications without end. Return the event of its client's leaving."""
    left, usual = threading.Event(), own._asgi

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        message = await receive() if scope.get("method") == "POST" else {}
        if b'"show"' not in message.get("body", b""):
            first = iter([message] if message else [])
            await usual(scope, lambda: to_coroutine(message) if next(first, None) else receive(), send)
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving = asyncio.create_task(receive())
        while not leaving.done():
            await send({"type": "http.response.body", "body": event(NOTICE), "more_body": True})
            await asyncio.sleep(0)
        left.set()

    monkeypatch.setattr(own, "_asgi", answer)
    own.stop()
    own.start()
    return left


async def to_coroutine(message: Any) -> Any:
    return message


def test_a_flood_ends_with_the_timeout_of_the_turn(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> None:
    flooding(own, monkeypatch)
    [message] = results(turn_with(SYNC, call("show"), timeout=2))
    assert "no result within 2 s" in message.text
    assert "2" in results(turn_with(SYNC, call("add", a=1, b=1)))[0].text


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [(content, "MAX_LINES", "more than 90 lines"), (sessions, "MAX_EVENTS", "more than 90 messages and no answer")],
)
def test_a_flood_ends_without_a_timeout(
    module: ModuleType, name: str, reason: str, own: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = flooding(own, monkeypatch)
    monkeypatch.setattr(module, name, 90)
    [message] = results(turn_with(SYNC, call("show"), tool_timeout=30))
    assert reason in message.text
    assert left.wait(30)
    assert "2" in results(turn_with(SYNC, call("add", a=1, b=1)))[0].text


def test_a_message_over_http_with_too_many_values_ends_the_call(
    own: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call_tool(context: Any, params: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[], structured_content={"x": [{}] * 200_000})

    monkeypatch.setattr(own, "_call", call_tool)
    own.stop()
    own.start()
    [message] = results(turn_with(SYNC, call("show"), tool_timeout=30))
    assert message.is_error
    assert "within 30 s" not in message.text


@sync_and_async
def test_a_server_that_never_answers_ends_with_the_timeout_of_the_turn(way: Way, clean_registry: None) -> None:
    with SilentServer() as silent:
        silent.answer([Hold()])
        register_mcp_server("own", url=f"{silent.url}/mcp")
        begun = time.monotonic()
        try:
            error = str(turn_with(way, timeout=0.5).error)
        finally:
            prompty.close()
    assert time.monotonic() - begun < 15  # it waited for 30 s
    assert "the server of the tool 'own' did not list its functions within 0.5 s, the call's timeout" in error
    assert "timeout=" in error


@sync_and_async
def test_a_registered_timeout_holds_for_the_start(way: Way, clean_registry: None) -> None:
    with SilentServer() as silent:
        silent.answer([Hold()])
        register_mcp_server("own", url=f"{silent.url}/mcp", timeout=0.5)
        begun = time.monotonic()
        try:
            error = str(turn_with(way).error)
        finally:
            prompty.close()
    assert time.monotonic() - begun < 15
    assert "no answer within 0.5 s" in error


def test_calls_have_the_timeout_of_their_server_or_of_the_turn(own: OwnServer) -> None:
    assert "no result within 2 s" in results(turn_with(SYNC, call("wait"), timeout=2))[0].text
    assert "no result within 0.3 s" in results(turn_with(SYNC, call("wait"), timeout=20, tool_timeout=0.3))[0].text
    register_mcp_server("own", url=own.url, timeout=1.9)
    assert "no result within 1.9 s" in results(turn_with(SYNC, call("wait"), tool_timeout=20))[0].text


@pytest.mark.parametrize("timeout", [0, -1, True, "10", float("nan")])
def test_a_timeout_is_a_number_of_seconds(timeout: Any, clean_registry: None) -> None:
    with pytest.raises(ToolError, match="the timeout of the MCP server 'own' is"):
        register_mcp_server("own", url="http://127.0.0.1:9", timeout=timeout)


SERVER = Path(__file__).with_name("raw_mcp_server.py")
REPLIES = {
    "deep": "malformed or too long",
    "endless": "malformed or too long",
    "long": "malformed or too long",
    "odd": "malformed or too long",
}


def with_raw_server(*answers: Any) -> Seen:
    agent = scripted(tools=[{"name": "raw", "kind": "mcp"}])
    with Script(*answers, "Done."):
        return SYNC.turn(agent, tool_timeout=30)


@pytest.mark.process
@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("mode", REPLIES)
def test_a_reply_of_a_process_that_cannot_be_read_ends_the_call(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    register_mcp_server("raw", command=[sys.executable, str(SERVER), mode])
    try:
        [message] = results(with_raw_server(call("act")))
        assert REPLIES[mode] in message.text
        assert "within 30 s" not in message.text
        # the next turn has a new session
        assert results(with_raw_server(call("fine")))[0].text == "fine"
    finally:
        prompty.close()


@pytest.mark.process
@pytest.mark.usefixtures("clean_registry")
def test_what_a_process_prints_between_its_messages_is_ignored() -> None:
    register_mcp_server("raw", command=[sys.executable, str(SERVER), "noisy"])
    try:
        assert results(with_raw_server(call("act")))[0].text == "act"
    finally:
        prompty.close()


@settings(max_examples=200)
@given(st.lists(st.text(max_size=12), max_size=6), st.integers(1, 7), st.integers(1, 8))
def test_lines_within_the_limit_are_decoded_as_they_are(lines: list[str], size: int, limit: int) -> None:
    text = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
    decoder = LineDecoder(limit=limit)
    decoded = "".join(decoder.decode(text[at : at + size]) for at in range(0, len(text), size))
    sent = text.decode().split("\n")[:-1]
    read = decoded.split("\n")[:-1]
    assert len(read) == len(sent)
    assert read == [line if len(line) <= limit else "\0" for line in sent]


def test_the_encoding_of_lines_is_utf_8() -> None:
    assert "é漢".encode(LINES) == "é漢".encode()
    assert codecs.getincrementaldecoder(LINES)().decode("é漢\n".encode()) == "é漢\n"
