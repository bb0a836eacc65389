"""One file with a tool of every kind: on all three wire formats with the scripted model, and on real llama.cpp."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from prompty import PromptAgent, ToolCall, load, tool
from prompty.errors import IterationsExceeded
from prompty.events import ToolFinished
from prompty.testing import Script, call
from prompty.tools import register_tool_kind
from tests.conversations.turns import assert_history_is_legal
from tests.loopback import Server, json_reply
from tests.real.ways import FAMILIES, Family
from tests.tools.openapi_parts import one_operation, own_kind
from tests.tools.test_children import Echo
from tests.tools.test_mcp_http import OwnServer, running
from tests.ways import Way, sync_and_async

CHILD = "---\nname: shorten\nmodel: {MODEL}\ninputs: {text: {kind: string, required: true}}\n---\nuser:\n{{text}}\n"
CALLS = [
    call("count", text="a b c"),
    call("shorten", text="a long text"),
    call("own_add", a=1, b=2),
    ToolCall(id="act_1", name="act", arguments='{"id": 7}'),
    call("say", text="hello"),
]
NAMES = {one.name for one in CALLS}


@tool
def count(text: str) -> int:
    return len(text.split())


@tool
def add(a: int) -> int:
    """A function of the name that a tool of the MCP server has."""
    return a


@pytest.fixture
def outside(clean_registry: None) -> Iterator[Server]:
    """An MCP server, an HTTP service and a kind of one's own."""
    register_tool_kind("echo", Echo())
    with contextmanager(running)(OwnServer()), Server() as service, own_kind(f"127.0.0.1:{service.port}"):
        service.answer(json_reply({"name": "Rex"}))
        yield service


def agent_with(folder: Path, service: Server, model: dict[str, Any]) -> PromptAgent:
    """The file, and what stands beside it."""
    brief = {**model, "options": {"maxOutputTokens": 20}}
    (folder / "shorten.prompty").write_text(CHILD.replace("{MODEL}", json.dumps(brief)))
    parameter = {"name": "id", "in": "path", "schema": {"type": "integer"}}
    (folder / "api.json").write_text(json.dumps(one_operation({"parameters": [parameter]}, "/pets/{id}")))
    tools: list[dict[str, Any]] = [
        {"name": "count", "kind": "function", "parameters": {"text": {"kind": "string", "required": True}}},
        {"name": "shorten", "kind": "prompty", "path": "./shorten.prompty"},
        {"name": "own", "kind": "mcp", "serverName": "own", "approvalMode": "never", "allowedTools": ["add"]},
        {"name": "api", "kind": "openapi", "specification": "./api.json", "connection": {"endpoint": service.url}},
        {"name": "echo", "kind": "echo", "bindings": {"key": "secret"}},
    ]
    frontmatter = yaml.safe_dump({"name": "all", "model": model, "tools": tools})
    (folder / "all.prompty").write_text(f"---\n{frontmatter}---\nuser:\nDo everything.\n")
    return load(folder / "all.prompty")


@pytest.mark.spec("000 §7.1.3", "a call is run by the handler of its tool's kind")
@pytest.mark.spec("000 §7.1.3", "tools of every kind are sent as functions")
@pytest.mark.spec("000 §7.5", "only function tools are sent")
@pytest.mark.spec("004 Tool Calling", "a turn works as it does for chat")
@sync_and_async
@pytest.mark.parametrize("api_type", ["chat", "responses", "messages"])
def test_a_tool_of_every_kind_runs_on_every_wire(way: Way, api_type: str, outside: Server, tmp_path: Path) -> None:
    agent = agent_with(tmp_path, outside, {"id": "m", "provider": "scripted", "apiType": api_type})
    with Script(CALLS, "Short.", "Done."):
        seen = way.turn(agent, tools=[count, add])
    assert seen.result == "Done."
    assert seen.texts[2:7] == ["3", "Short.", "3", '{"name": "Rex"}', seen.texts[6]]
    assert json.loads(seen.texts[6])["key"] == "secret"
    assert outside.requests[0].path == "/pets/7"
    assert_history_is_legal(seen.messages)


@sync_and_async
@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_a_tool_of_every_kind_runs_on_a_real_server(
    way: Way, family: Family, outside: Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model writes nonsense, but it must call something, by the schemas that every kind has given."""
    monkeypatch.setattr("prompty.loop.model_step.FIRST_WAIT", 0.01)
    model: dict[str, Any] = {"id": "tiny", "provider": family.provider, "apiType": family.api_type}
    model["connection"] = {"kind": "anonymous", "endpoint": url + family.path}
    finished: list[str] = []
    for seed in range(6):
        forced = {"tool_choice": family.must_call, "seed": seed}
        options = {"maxOutputTokens": 100, "temperature": 0.9, "additionalProperties": forced}
        agent = agent_with(tmp_path, outside, {**model, "options": options})
        seen = way.turn(agent, tools=[count, add], max_iterations=1)
        assert seen.error is None or isinstance(seen.error, IterationsExceeded), seen.error
        assert_history_is_legal(seen.messages)
        finished += [event.call.name for event in seen.of(ToolFinished)]
    assert finished
    assert set(finished) <= NAMES | {"add", "shout"}
