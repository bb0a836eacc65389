"""The exact request of many agents to every built-in target, for a model that no table of models knows.

A fact about a model or a server changes the requests to that model or server, and no others. The requests are in
`bodies_without_facts.jsonl`: a line is one agent at one target, with its body and the API's own headers, or its error.
After a deliberate change, run this file with PROMPTY_WRITE_BODIES=1 and read the difference.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prompty import Message, PromptAgent, ToolCall, assistant, loads, prepare, system, tool_result, user
from prompty.errors import PromptyError
from prompty.messages import TextPart
from prompty.model.content import AudioPart, FilePart, ImagePart
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS
from prompty.providers.fitting import fit_request
from prompty.tools import register_tool_kind
from tests.tools.openapi_parts import one_operation
from tests.tools.test_children import Echo
from tests.tools.test_mcp_http import OwnServer, running

RECORDED = Path(__file__).with_name("bodies_without_facts.jsonl")
WRITE = bool(os.environ.get("PROMPTY_WRITE_BODIES"))
MODEL = "house-model-1"

RESOURCE = {"kind": "key", "endpoint": "https://house.openai.azure.com", "apiKey": "made-up"}
PROJECT = {"kind": "key", "endpoint": "https://house.services.ai.azure.com/api/projects/p", "apiKey": "made-up"}
TARGETS: dict[str, dict[str, Any]] = {
    "anthropic": {"provider": "anthropic", "apiType": "chat"},
    "azure chat": {"provider": "azure", "apiType": "chat", "connection": RESOURCE},
    "foundry chat": {"provider": "foundry", "apiType": "chat", "connection": PROJECT},
    "foundry responses": {"provider": "foundry", "apiType": "responses", "connection": PROJECT},
    "openai chat": {"provider": "openai", "apiType": "chat"},
    "openai responses": {"provider": "openai", "apiType": "responses"},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A .prompty file without its model, and how it is called: with inputs, or with messages of the host.

    `api_version` goes into the target's connection, if it has one.
    """

    body: str = "system:\nBe brief.\n\nuser:\nHi"
    options: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[Message] = ()
    stream: bool = False
    api_version: str | None = None


EVERY_OPTION = {
    "temperature": 0.5,
    "maxOutputTokens": 128,
    "topP": 0.9,
    "topK": 5,
    "frequencyPenalty": 0.1,
    "presencePenalty": 0.2,
    "seed": 7,
    "stopSequences": ["END", "STOP"],
    "allowMultipleToolCalls": False,
}
PARAMETERS = [
    {"name": "city", "kind": "string", "required": True, "description": "Where"},
    {"name": "unit", "kind": "string", "required": False, "enumValues": ["C", "F"]},
    {"name": "days", "kind": "integer", "default": 3},
    {"name": "at", "kind": "object", "properties": {"lat": {"kind": "float"}, "lon": {"kind": "float"}}},
    {"name": "tags", "kind": "array", "items": {"kind": "string"}},
    {"name": "extra", "kind": "array"},
]
FUNCTION = {"name": "weather", "kind": "function", "description": "The weather", "parameters": PARAMETERS}
TOOL_OF_MCP = {"name": "own", "kind": "mcp", "allowedTools": ["add", "show"]}
TOOL_OF_OPENAPI = {
    "name": "api",
    "kind": "openapi",
    "specification": "./api.json",
    "connection": {"endpoint": "https://pets.example"},
}
TOOL_OF_PROMPTY = {"name": "shorten", "kind": "prompty", "path": "./shorten.prompty", "bindings": {"words": 3}}
TOOL_OF_ECHO = {"name": "echo", "kind": "echo", "bindings": {"key": "made-up"}}
NESTED = {
    "people": {
        "kind": "array",
        "items": {
            "kind": "object",
            "properties": {"name": {"kind": "string"}, "age": {"kind": "integer", "required": False}},
        },
    },
    "place": {"kind": "object", "properties": {"at": {"kind": "object", "properties": {"lat": {"kind": "float"}}}}},
}
IMAGE = {"inputs": {"picture": {"kind": "image"}}}
PNG, PDF, WAV = "iVBORw0KGgo=", "JVBERi0xLjQ=", "UklGRg=="

FIRST = ToolCall(id="call_1", name="weather", arguments='{"city": "Oslo"}')
SECOND = ToolCall(id="call_2", name="weather", arguments='{"city": "Rome"}')
CALLED = [
    user("Compare Oslo with Rome."),
    assistant("Let me see.", tool_calls=[FIRST, SECOND]),
    tool_result("call_1", "4 degrees"),
    Message("tool", "no such city", tool_call_id="call_2", is_error=True),
    user("And?"),
]
ITEMS = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "c2VhbGVk"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": FIRST.arguments},
]
BLOCKS = [
    {"type": "thinking", "thinking": "Oslo is cold.", "signature": "c2lnbmVk"},
    {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}},
]
DETAILS = [{"type": "reasoning.text", "text": "Oslo is cold.", "signature": "c2lnbmVk", "index": 0}]


def thought(**opaque: Any) -> list[Message]:
    """A tool turn with reasoning, and the blocks of the API that it came from."""
    turn = assistant("", tool_calls=[FIRST], reasoning="Oslo is cold.", opaque=opaque)
    return [user("Is Oslo cold?"), turn, tool_result("call_1", "4 degrees")]


def said(*parts: TextPart | ImagePart | AudioPart | FilePart) -> list[Message]:
    return [user("Look:", *parts)]


WITH_TOOL = {"tools": [FUNCTION]}
CASES: dict[str, Case] = {
    "plain": Case(),
    "option frequencyPenalty": Case(options={"frequencyPenalty": 0.1}),
    "option maxOutputTokens": Case(options={"maxOutputTokens": 128}),
    "option presencePenalty": Case(options={"presencePenalty": 0.2}),
    "option seed": Case(options={"seed": 7}),
    "option stopSequences": Case(options={"stopSequences": ["END"]}),
    "option temperature": Case(options={"temperature": 0}),
    "option topK": Case(options={"topK": 5}),
    "option topP": Case(options={"topP": 0.9}),
    "options all": Case(options=EVERY_OPTION),
    "options all with a tool": Case(options=EVERY_OPTION, parts=WITH_TOOL),
    "additionalProperties": Case(options={"additionalProperties": {"user": "u-1", "metadata": {"team": "a"}}}),
    "additionalProperties below options": Case(
        options={"temperature": 0.1, "additionalProperties": {"temperature": 0.9, "max_tokens": 9, "model": "other"}}
    ),
    "additionalProperties for reasoning": Case(
        options={
            "additionalProperties": {
                "reasoning_effort": "low",
                "reasoning": {"effort": "low"},
                "thinking": {"type": "enabled", "budget_tokens": 2000},
            }
        }
    ),
    "additionalProperties with built-in tools": Case(
        options={"additionalProperties": {"tools": [{"type": "web_search"}]}}
    ),
    "tool function": Case(parts=WITH_TOOL),
    "tool function strict": Case(parts={"tools": [{**FUNCTION, "strict": True}]}),
    "tool function with bindings": Case(
        parts={
            "inputs": {"unit": "C"},
            "tools": [{**FUNCTION, "strict": True, "bindings": {"unit": {"input": "unit"}, "days": 1}}],
        }
    ),
    "tool function chosen": Case(
        options={"allowMultipleToolCalls": True, "additionalProperties": {"tool_choice": {"type": "any"}}},
        parts=WITH_TOOL,
    ),
    "tool mcp": Case(parts={"tools": [TOOL_OF_MCP]}),
    "tool openapi": Case(parts={"tools": [TOOL_OF_OPENAPI]}),
    "tool prompty": Case(parts={"tools": [TOOL_OF_PROMPTY]}),
    "tool of its own kind": Case(parts={"tools": [TOOL_OF_ECHO]}),
    "tools of every kind": Case(
        parts={"tools": [FUNCTION, TOOL_OF_MCP, TOOL_OF_OPENAPI, TOOL_OF_PROMPTY, TOOL_OF_ECHO]}
    ),
    "outputs flat": Case(parts={"outputs": {"city": {"kind": "string"}, "degrees": {"kind": "integer"}}}),
    "outputs nested, with a tool": Case(parts={"outputs": NESTED, **WITH_TOOL}),
    "image by URL": Case(parts=IMAGE, body="user:\nLook: {{picture}}", inputs={"picture": "https://x.example/a.png"}),
    "image as a data URI": Case(
        parts=IMAGE, body="user:\nLook: {{picture}}", inputs={"picture": f"data:image/png;base64,{PNG}"}
    ),
    "image as base64": Case(messages=said(ImagePart(PNG, "image/png", detail="low"))),
    "PDF as a data URI": Case(messages=said(FilePart(f"data:application/pdf;base64,{PDF}"))),
    "PDF as base64": Case(messages=said(FilePart(PDF, "application/pdf", "report.pdf"))),
    "file by id": Case(messages=said(FilePart("file-123"))),
    "file by URL": Case(messages=said(FilePart("https://x.example/report.pdf"))),
    "audio": Case(messages=said(AudioPart(WAV, "audio/wav"))),
    "part with a key of its own": Case(messages=said(TextPart("x", extra={"cache_control": {"type": "ephemeral"}}))),
    "history with calls": Case(parts=WITH_TOOL, messages=CALLED),
    "history with repeated and long ids": Case(
        parts=WITH_TOOL,
        messages=[
            user("Twice."),
            assistant("", tool_calls=[FIRST]),
            tool_result("call_1", "4 degrees"),
            assistant("", tool_calls=[FIRST, ToolCall(id="functions.weather:" + "0" * 50, name="weather")]),
            tool_result("call_1", "5 degrees"),
        ],
    ),
    "history with an image of a tool": Case(
        parts=WITH_TOOL,
        messages=[
            user("Show me."),
            assistant("", tool_calls=[FIRST]),
            Message("tool", [TextPart("here"), ImagePart(PNG, "image/png")], tool_call_id="call_1"),
        ],
    ),
    "history with reasoning": Case(parts=WITH_TOOL, messages=thought()),
    "history with reasoning of Anthropic": Case(parts=WITH_TOOL, messages=thought(anthropic_blocks=BLOCKS)),
    "history with reasoning of Responses": Case(parts=WITH_TOOL, messages=thought(responses_items=ITEMS)),
    "history with reasoning of Responses, nothing stored": Case(
        options={"additionalProperties": {"store": False}},
        parts=WITH_TOOL,
        messages=thought(responses_items=ITEMS),
    ),
    "history with reasoning_details": Case(parts=WITH_TOOL, messages=thought(reasoning_details=DETAILS)),
    "metadata.reasoning": Case(
        parts={"metadata": {"reasoning": "reasoning"}, **WITH_TOOL}, messages=thought(reasoning_details=DETAILS)
    ),
    "stream": Case(stream=True),
    "stream with options of its own": Case(
        stream=True, options={"additionalProperties": {"stream_options": {"include_obfuscation": False}}}
    ),
    "apiVersion 2024-06-01": Case(options=EVERY_OPTION, parts=WITH_TOOL, stream=True, api_version="2024-06-01"),
    "apiVersion 2024-10-21": Case(options=EVERY_OPTION, parts=WITH_TOOL, stream=True, api_version="2024-10-21"),
    "only system text": Case(body="Say hi."),
    "only developer text": Case(body="developer:\nSay hi."),
    "several system texts": Case(messages=[system("One."), user("Hi"), system("Two.")]),
    "prefill": Case(body="user:\nA list:\n\nassistant:\n1. "),
    "role developer": Case(body="developer:\nBe brief.\n\nuser:\nHi"),
    "attribute name": Case(body="user[name=Ada]:\nHi\n\nassistant[name=Bot]:\nHello\n\nuser:\nBye"),
}

CHILD = """---
description: Shortens a text
inputs: {text: {kind: string, required: true}, words: {kind: integer, default: 5}}
---
user:
Shorten to {{words}} words: {{text}}
"""
SERVICE = one_operation(
    {
        "summary": "Find a pet",
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}],
    },
    "/pets/{id}",
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the environment names another server or version."""
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_", "PROMPTY_"))]:
        monkeypatch.delenv(name)


@contextmanager
def outside(case: Case, folder: Path) -> Iterator[None]:
    """What the case's tools need beside the file."""
    (folder / "shorten.prompty").write_text(CHILD)
    (folder / "api.json").write_text(json.dumps(SERVICE))
    register_tool_kind("echo", Echo())
    has_server = any(tool["kind"] == "mcp" for tool in case.parts.get("tools", ()))
    with contextmanager(running)(OwnServer()) if has_server else nullcontext():
        yield


def load_agent(case: Case, target: str, folder: Path) -> PromptAgent:
    model: dict[str, Any] = {"id": MODEL, **TARGETS[target], "options": case.options}
    if case.api_version and "connection" in model:
        model["connection"] = {**model["connection"], "apiVersion": case.api_version}
    return loads(f"---\n{json.dumps({'model': model, **case.parts})}\n---\n{case.body}\n", base_dir=folder)


def write_line(name: str, target: str, folder: Path) -> str:
    """Return the line of one agent at one target."""
    case = CASES[name]
    line: dict[str, object] = {"agent": name, "target": target}
    try:
        agent = load_agent(case, target, folder)
        api = agent.registry[PROVIDERS].get(agent.model.provider).api_for(agent)
        request = build_request(
            agent, case.messages or prepare(agent, case.inputs), fit_request(agent, api), stream=case.stream
        )
        line |= {"headers": dict(request.headers), "body": request.body}
    except PromptyError as error:
        line["error"] = f"{type(error).__name__}: {error}"
    return json.dumps(line, ensure_ascii=False)


def read_recorded() -> dict[tuple[str, str], str]:
    """Return the recorded lines by agent and target, in the order of the file."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines() if RECORDED.exists() else []
    return {(entry["agent"], entry["target"]): line for line in lines for entry in [json.loads(line)]}


def record(lines: Mapping[tuple[str, str], str]) -> None:
    """Replace these lines of the file. Those of agents that are no longer in the table go."""
    known = {key: line for key, line in read_recorded().items() if key[0] in CASES}
    RECORDED.write_text("".join(f"{line}\n" for _, line in sorted({**known, **lines}.items())), encoding="utf-8")


@pytest.mark.usefixtures("clean_registry")
@pytest.mark.parametrize("name", CASES)
def test_the_requests_of_an_agent_are_the_recorded_ones(name: str, tmp_path: Path) -> None:
    with outside(CASES[name], tmp_path):
        lines = {(name, target): write_line(name, target, tmp_path) for target in TARGETS}
    if WRITE:
        record(lines)
    assert lines == {key: line for key, line in read_recorded().items() if key[0] == name}


def test_the_file_has_one_line_for_each_agent_and_target_in_order() -> None:
    recorded = read_recorded()
    assert list(recorded) == sorted((name, target) for name in CASES for target in TARGETS)
    assert len(RECORDED.read_text(encoding="utf-8").splitlines()) == len(recorded)
