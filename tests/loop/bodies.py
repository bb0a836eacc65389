"""Whether a history can be sent: over each of the three wires, by the real code of the providers."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from prompty import Message, PromptAgent
from prompty.drivers.target import resolve_base
from prompty.pipeline.history import normalize_history
from prompty.pipeline.request import build_request
from prompty.providers import Api
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.tools import Function
from tests.legality import assert_legal

APIS: dict[str, Api] = {"chat": chat.API, "responses": responses.API, "messages": messages.API}
# what OpenAI and Anthropic both take as the name of a function
NAME = re.compile(r"[A-Za-z0-9_-]+")


def agent_for(api_name: str, **parts: Any) -> PromptAgent:
    """A prompt for this API; chat goes to a compatible server, which is sent reasoning."""
    model: dict[str, Any] = {"id": "some-model"}
    if api_name == "messages":
        model["provider"] = "anthropic"
    elif api_name == "responses":
        model["apiType"] = "responses"
    else:
        model["connection"] = {"kind": "anonymous", "endpoint": "http://localhost:8080/v1"}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **parts})


AGENTS = {name: agent_for(name) for name in APIS}
BASES = {name: resolve_base(agent) for name, agent in AGENTS.items()}


def sent(api_name: str, history: Sequence[Message], functions: Sequence[Function] = ()) -> dict[str, Any]:
    """The body that a history becomes, once it is repaired."""
    agent, base = AGENTS[api_name], BASES[api_name]
    fixed = normalize_history(history, base.api.call_ids)
    return dict(build_request(agent, fixed, base, functions=functions).body)


def assert_sendable(history: Sequence[Message]) -> None:
    """Fail when one of the APIs would refuse this history, repaired as every request is."""
    for api_name in APIS:
        assert_taken(api_name, sent(api_name, history))


def assert_taken(api_name: str, body: dict[str, Any]) -> None:
    """Fail when an API would refuse this body. Ids and names are judged here: across the whole conversation, by what
    the API takes (chat takes any text as an id, and all take an id that begins with a digit)."""
    calls, results = calls_in(api_name, body), results_in(api_name, body)
    ids = [call["id"] for call in calls]
    assert all(APIS[api_name].call_ids.fullmatch(one) for one in ids), ids
    assert len(set(ids)) == len(ids), f"one id twice: {ids}"
    assert [result["id"] for result in results] == ids
    assert all(NAME.fullmatch(call["name"]) for call in calls), calls
    plain = _with_plain_ids(body, {one: f"id_{number}" for number, one in enumerate(ids)})
    _assert_legal(api_name, json.dumps(plain))


@lru_cache(maxsize=4096)  # turns that are played again and again send the same again and again
def _assert_legal(api_name: str, body: str) -> None:
    assert_legal(api_name, json.loads(body))


def _with_plain_ids(value: Any, plain: dict[str, str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _with_plain_ids(entry, plain, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [_with_plain_ids(entry, plain, key) for entry in value]
    return plain.get(value, value) if key in ("id", "call_id", "tool_call_id", "tool_use_id") else value


def calls_in(api_name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a body, each with `id`, `name` and `arguments`, whatever its API calls them."""
    match api_name:
        case "chat":
            entries = [entry for one in body["messages"] for entry in one.get("tool_calls") or []]
            return [{"id": entry["id"], **entry["function"]} for entry in entries]
        case "responses":
            return [{**item, "id": item["call_id"]} for item in body["input"] if item.get("type") == "function_call"]
        case _:
            return [{**block, "arguments": block["input"]} for block in _blocks(body, "tool_use")]


def results_in(api_name: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a body, each with `id` and `content`."""
    match api_name:
        case "chat":
            told = [one for one in body["messages"] if one["role"] == "tool"]
            return [{"id": one["tool_call_id"], "content": one["content"]} for one in told]
        case "responses":
            items = [item for item in body["input"] if item.get("type") == "function_call_output"]
            return [{"id": item["call_id"], "content": item["output"]} for item in items]
        case _:
            blocks = _blocks(body, "tool_result")
            return [{"id": block["tool_use_id"], "content": block.get("content", "")} for block in blocks]


def _blocks(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for one in body["messages"] for block in one["content"] if block["type"] == kind]
