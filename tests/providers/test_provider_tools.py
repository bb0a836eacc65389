"""Tools that the provider runs: the entries of a request, and what an API cannot apply (K1, K5)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import ToolUnionParam
from anthropic.types.beta import BetaMCPToolsetParam, BetaRequestMCPServerURLDefinitionParam
from hypothesis import given, strategies as st
from openai.types.responses import ToolParam
from pydantic import TypeAdapter, ValidationError

from prompty import PromptAgent, Registry, check, invoke, load, turn
from prompty.analysis.check import check_text
from prompty.analysis.explain import explain
from prompty.errors import LoadError, RequestError, ToolError
from prompty.providers import PROVIDERS
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.providers.provider_tools import add_provider_tools
from prompty.testing import Script, call
from tests.loopback import Server, json_reply
from tests.ways import Way, every_way

Json = dict[str, Any]
RESPONSE = {
    "id": "r",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}],
}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
LOOK: Json = {"name": "look", "kind": "function"}
WIKI: Json = {
    "name": "wiki",
    "kind": "mcp",
    "execution": "provider",
    "connection": {"endpoint": "https://wiki.example/mcp"},
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        yield found


def build(server: Server, api: str, *tools: Json, **model: Any) -> PromptAgent:
    """A prompt for a server that speaks Responses or Messages."""
    path, provider = ("/v1", "openai") if api == "responses" else ("", "anthropic")
    connection = {"kind": "key", "endpoint": f"http://127.0.0.1:{server.port}{path}", "apiKey": "k"}
    api_type = {"apiType": "responses"} if api == "responses" else {}
    return PromptAgent.model_validate(
        {
            "model": {"id": "m", "provider": provider, "connection": connection, **api_type, **model},
            "tools": tools,
            "instructions": "user:\nHi",
        }
    )


def send(server: Server, api: str, *tools: Json, **model: Any) -> Json:
    """Return the body that a server gets."""
    server.answer(json_reply(RESPONSE if api == "responses" else MESSAGE))
    assert invoke(build(server, api, *tools, **model)) == "Hi"
    return server.requests[-1].body


HERE = {"city": "Berlin", "country": "DE", "timezone": "Europe/Berlin"}
ENTRIES: dict[str, tuple[str, Json, Json]] = {
    "a search": ("responses", {"kind": "web_search"}, {"type": "web_search"}),
    "a search of domains": (
        "responses",
        {"kind": "web_search", "allowedDomains": ["example.org"], "options": {"search_context_size": "low"}},
        {"type": "web_search", "filters": {"allowed_domains": ["example.org"]}, "search_context_size": "low"},
    ),
    "a search somewhere": (
        "responses",
        {"kind": "web_search", "location": HERE},
        {"type": "web_search", "user_location": {"type": "approximate", **HERE}},
    ),
    "a version of a search": (
        "responses",
        {"kind": "web_search", "options": {"type": "web_search_2025_08_26"}},
        {"type": "web_search_2025_08_26"},
    ),
    "files": (
        "responses",
        {"kind": "file_search", "vectorStoreIds": ["vs_1"], "maximumResultCount": 8},
        {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 8},
    ),
    "ranked files": (
        "responses",
        {"kind": "file_search", "vectorStoreIds": ["vs_1"], "options": {"ranking_options": {"ranker": "auto"}}},
        {"type": "file_search", "vector_store_ids": ["vs_1"], "ranking_options": {"ranker": "auto"}},
    ),
    "code": (
        "responses",
        {"kind": "code_interpreter"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ),
    "code with files": (
        "responses",
        {"kind": "code_interpreter", "fileIds": ["file_1"]},
        {"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["file_1"]}},
    ),
    "code in a container": (
        "responses",
        {"kind": "code_interpreter", "options": {"container": "cntr_1"}},
        {"type": "code_interpreter", "container": "cntr_1"},
    ),
    "a raw tool": (
        "responses",
        {"kind": "provider", "options": {"type": "image_generation", "size": "auto"}},
        {"type": "image_generation", "size": "auto"},
    ),
    "a server": (
        "responses",
        WIKI,
        {
            "type": "mcp",
            "server_label": "wiki",
            "server_url": "https://wiki.example/mcp",
            "require_approval": "never",
        },
    ),
    "a server with everything": (
        "responses",
        {
            **WIKI,
            "serverName": "w",
            "serverDescription": "All facts",
            "allowedTools": ["read"],
            "approvalMode": "always",
            "connection": {"endpoint": "https://wiki.example/mcp", "apiKey": "wiki-key"},
        },
        {
            "type": "mcp",
            "server_label": "w",
            "server_url": "https://wiki.example/mcp",
            "server_description": "All facts",
            "authorization": "wiki-key",
            "allowed_tools": ["read"],
            "require_approval": "always",
        },
    ),
    "a server that asks for some tools": (
        "responses",
        {
            **WIKI,
            "approvalMode": {
                "kind": "specify",
                "alwaysRequireApprovalTools": ["write"],
                "neverRequireApprovalTools": ["read", "write"],
            },
        },
        {
            "type": "mcp",
            "server_label": "wiki",
            "server_url": "https://wiki.example/mcp",
            "require_approval": {"always": {"tool_names": ["write"]}, "never": {"tool_names": ["read"]}},
        },
    ),
    "a search of Anthropic": (
        "messages",
        {"kind": "web_search", "allowedDomains": ["example.org"], "maxUses": 5, "location": HERE},
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "allowed_domains": ["example.org"],
            "max_uses": 5,
            "user_location": {"type": "approximate", **HERE},
        },
    ),
    "a search without domains": (
        "messages",
        {"kind": "web_search", "blockedDomains": ["example.org"]},
        {"type": "web_search_20250305", "name": "web_search", "blocked_domains": ["example.org"]},
    ),
    "a later search of Anthropic": (
        "messages",
        {"kind": "web_search", "options": {"type": "web_search_20260318", "response_inclusion": "full"}},
        {"type": "web_search_20260318", "name": "web_search", "response_inclusion": "full"},
    ),
    "a page": (
        "messages",
        {"kind": "web_fetch", "maxUses": 2, "options": {"citations": {"enabled": True}}},
        {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": 2, "citations": {"enabled": True}},
    ),
    "code of Anthropic": (
        "messages",
        {"kind": "code_interpreter"},
        {"type": "code_execution_20250825", "name": "code_execution"},
    ),
    "a raw tool of Anthropic": (
        "messages",
        {"kind": "provider", "options": {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}},
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    ),
}
TYPES: dict[str, TypeAdapter[Any]] = {"responses": TypeAdapter(ToolParam), "messages": TypeAdapter(ToolUnionParam)}


@pytest.mark.parametrize(("api", "tool", "entry"), ENTRIES.values(), ids=ENTRIES)
def test_a_tool_of_the_provider_is_an_entry_that_its_api_takes(
    server: Server, api: str, tool: Json, entry: Json
) -> None:
    body = send(server, api, {"name": "web", **tool} if "name" not in tool else tool)
    assert body["tools"] == [entry]
    assert TYPES[api].validate_python(entry) == entry  # a key that no type has would be dropped


def test_a_wrong_entry_does_not_pass_the_check_of_these_tests() -> None:
    with pytest.raises(ValidationError):
        TYPES["responses"].validate_python({"type": "file_search"})
    with pytest.raises(ValidationError):
        TYPES["messages"].validate_python({"type": "web_search_20250305", "name": "other"})


@given(
    allowed=st.none() | st.lists(st.text(min_size=1), min_size=1),
    uses=st.none() | st.integers(1, 99),
    place=st.none() | st.fixed_dictionaries({}, optional={"city": st.text(), "country": st.text()}),
    kind=st.sampled_from(["web_search", "web_fetch"]),
)
def test_whatever_the_fields_say_the_entry_has_a_type_of_the_sdk(
    allowed: list[str] | None, uses: int | None, place: dict[str, str] | None, kind: str
) -> None:
    tool: Json = {"name": "t", "kind": kind, "allowedDomains": allowed, "maxUses": uses}
    if kind == "web_search":
        tool["location"] = place
    agent = PromptAgent.model_validate({"tools": [tool]})
    [entry] = add_provider_tools(agent, messages.API, {})["tools"]
    TYPES["messages"].validate_python(entry)
    if kind == "web_search" and uses is None:
        [entry] = add_provider_tools(agent, responses.API, {})["tools"]
        TYPES["responses"].validate_python(entry)


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_the_order_is_raw_entries_then_provider_tools_then_functions(server: Server, api: str) -> None:
    raw = {"type": "web_search_20260209", "name": "raw"}
    options = {"additionalProperties": {"tools": [raw]}}
    body = send(server, api, LOOK, {"name": "code", "kind": "code_interpreter"}, options=options)
    assert body["tools"][0] == raw
    assert body["tools"][1]["type"].startswith("code_")
    assert body["tools"][2]["name"] == "look"


@every_way
def test_a_turn_sends_them_in_every_round(way: Way, server: Server) -> None:
    agent = build(server, "messages", {"name": "web", "kind": "web_search"})
    with Script("Hi") as script:
        assert way.turn(agent).result == "Hi"
    assert [tool["name"] for tool in script.requests[0]["tools"]] == ["web_search"]


def test_anthropic_gets_the_servers_beside_the_tools_and_the_beta(server: Server) -> None:
    wiki = {**WIKI, "allowedTools": ["read"], "connection": {**WIKI["connection"], "apiKey": "wiki-key"}}
    body = send(server, "messages", wiki)
    entry = {
        "type": "mcp_toolset",
        "mcp_server_name": "wiki",
        "default_config": {"enabled": False},
        "configs": {"read": {"enabled": True}},
    }
    definition = {"type": "url", "name": "wiki", "url": "https://wiki.example/mcp", "authorization_token": "wiki-key"}
    assert (body["tools"], body["mcp_servers"]) == ([entry], [definition])
    TypeAdapter[Any](BetaMCPToolsetParam).validate_python(entry)
    TypeAdapter[Any](BetaRequestMCPServerURLDefinitionParam).validate_python(definition)
    assert server.requests[-1].headers["anthropic-beta"] == "mcp-client-2025-11-20"


def test_other_requests_to_anthropic_have_no_beta(server: Server) -> None:
    send(server, "messages", {"name": "web", "kind": "web_search"})
    assert "anthropic-beta" not in server.requests[-1].headers


SEARCH: Json = {"name": "web", "kind": "web_search"}
REFUSED: dict[str, tuple[str, Json, str, str]] = {
    "blocked domains": ("responses", {**SEARCH, "blockedDomains": ["a.example"]}, "blockedDomains", "cannot block"),
    "a limit": ("responses", {**SEARCH, "maxUses": 3}, "maxUses", "no limit for one tool"),
    "a page": ("responses", {"name": "web", "kind": "web_fetch"}, "kind", "no tool of kind `web_fetch`"),
    "files of Anthropic": (
        "messages",
        {"name": "docs", "kind": "file_search", "vectorStoreIds": ["v"]},
        "kind",
        "no tool of kind `file_search`",
    ),
    "files for code": (
        "messages",
        {"name": "code", "kind": "code_interpreter", "fileIds": ["f"]},
        "fileIds",
        "gets no files",
    ),
    "both lists": (
        "messages",
        {**SEARCH, "allowedDomains": ["a.example"], "blockedDomains": ["b.example"]},
        "blockedDomains",
        "allowed and blocked",
    ),
    "approval of a search": ("messages", {**SEARCH, "approvalMode": "always"}, "approvalMode", "without asking"),
    "approval of a server": ("messages", {**WIKI, "approvalMode": "always"}, "approvalMode", "without asking"),
    "approval of some tools": (
        "messages",
        {**WIKI, "approvalMode": {"kind": "specify", "neverRequireApprovalTools": ["read"]}},
        "approvalMode",
        "without asking",
    ),
    "a condition": (
        "responses",
        {**WIKI, "approvalMode": {"when": {"amount": {"minimum": 1}}}},
        "approvalMode",
        "cannot apply a condition",
    ),
    "a binding": ("responses", {**SEARCH, "bindings": {"query": {"value": "x"}}}, "bindings", "fills in"),
    "no address": ("responses", {"name": "w", "kind": "mcp", "execution": "provider"}, "connection", "the address"),
    "another type": ("responses", {**SEARCH, "options": {"type": "shell"}}, "options", "not a version"),
    "another type of Anthropic": (
        "messages",
        {**SEARCH, "options": {"type": "bash_20250124"}},
        "options",
        "not a version",
    ),
    "another name": ("messages", {**SEARCH, "options": {"name": "other"}}, "options", "set by the tool"),
    "a field twice": (
        "responses",
        {**SEARCH, "allowedDomains": ["a.example"], "options": {"filters": {"allowed_domains": ["b.example"]}}},
        "options",
        "`options.filters` is set by the tool",
    ),
    "a raw tool without a type": (
        "responses",
        {"name": "x", "kind": "provider", "options": {}},
        "options",
        "no `type`",
    ),
}


@pytest.mark.parametrize(("api", "tool", "key", "cause"), REFUSED.values(), ids=REFUSED)
def test_what_an_api_cannot_apply_is_an_error_before_the_call(
    server: Server, api: str, tool: Json, key: str, cause: str
) -> None:
    agent = build(server, api, tool)
    for run in (invoke, turn):
        with pytest.raises(RequestError) as raised:
            run(agent)
        assert cause in raised.value.cause
    assert server.requests == []
    model = {"provider": "openai" if api == "responses" else "anthropic", "id": "gpt-6-luna"}
    found = check_text(write(agent, **model))
    [problem] = [one for one in found if one.code == "provider-tool"]
    assert problem.severity == "error"
    assert problem.key == (f"tools.0.{key}" if key in tool else "tools.0")
    assert raised.value.cause in [one.message for one in found]


def write(agent: PromptAgent, **model: str) -> str:
    """Return a file with the tools of an agent, at the provider's own server."""
    tools = [tool.model_dump(mode="json", exclude_unset=True) for tool in agent.tools]
    for tool, declared in zip(tools, agent.tools, strict=True):
        tool |= {"bindings": {name: {"value": "x"} for name in declared.bindings}} if declared.bindings else {}
    return f"---\nmodel: {json.dumps(model)}\ntools: {json.dumps(tools)}\n---\nuser:\nHi\n"


NO_TOOLS = {
    "chat": {"id": "m", "connection": {"endpoint": "https://gateway.example/v1", "kind": "anonymous"}},
    "Gemini": {
        "id": "gemini-3",
        "connection": {"endpoint": "https://generativelanguage.googleapis.com/v1beta/openai", "kind": "anonymous"},
    },
    "a written chat": {"id": "gpt-6-luna", "apiType": "chat"},
    "embeddings": {"id": "m", "apiType": "embedding"},
}


@pytest.mark.parametrize("model", NO_TOOLS.values(), ids=NO_TOOLS)
def test_an_api_without_such_tools_is_an_error_that_says_what_to_use(model: Json) -> None:
    agent = PromptAgent.model_validate({"model": model, "tools": [SEARCH], "instructions": "user:\nHi"})
    with Script(), pytest.raises(RequestError, match="runs no tools at the provider") as raised:
        invoke(agent)
    assert "apiType: responses" in raised.value.fix
    assert "provider: anthropic" in raised.value.fix


def test_without_an_api_type_a_tool_of_the_provider_chooses_responses_at_openai() -> None:
    agent = PromptAgent.model_validate({"model": "gpt-6-luna", "tools": [SEARCH], "instructions": "user:\nHi"})
    with Script("Hi") as script:
        assert invoke(agent) == "Hi"
    assert script.requests[0]["tools"] == [{"type": "web_search"}]
    assert script.requests[0]["store"] is False
    found = explain(agent)
    assert (found.api_type, found.chosen) == ("responses", "the tool 'web' runs at the provider")
    unknown = PromptAgent.model_validate({"model": "no-such-model", "tools": [SEARCH], "instructions": "user:\nHi"})
    assert explain(unknown).body["tools"] == [{"type": "web_search"}]


def test_a_function_with_the_name_of_anthropics_tool_is_an_error(server: Server) -> None:
    agent = build(server, "messages", SEARCH, {"name": "web_search", "kind": "function"})
    with pytest.raises(RequestError, match="two tools are named 'web_search'"):
        invoke(agent)
    found = check_text(write(agent, provider="anthropic", id="claude-haiku-5-5"))
    assert [one.key for one in found if one.code == "provider-tool"] == ["tools.0.kind"]


def test_a_function_of_the_host_must_not_have_the_name_of_a_provider_tool(server: Server) -> None:
    def web() -> str:
        return "x"

    with pytest.raises(ToolError, match="the function 'web' has the same name as a tool of kind 'web_search'"):
        turn(build(server, "messages", SEARCH), tools=[web])


def test_two_tools_of_one_name_are_an_error_when_the_file_loads(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(
        "---\nmodel: m\ntools:\n  - {name: a, kind: web_search}\n  - {name: a, kind: function}\n---\nuser:\nHi\n"
    )
    with pytest.raises(LoadError, match="a"):
        load(tmp_path / "a.prompty")


WRONG_FIELDS = ("allowedDomains: []", "maxUses: 0", "maxUses: many", "location: Berlin", "options: [a]")


@pytest.mark.parametrize("field", WRONG_FIELDS)
def test_a_wrong_field_is_an_error_when_the_file_loads(field: str) -> None:
    found = check_text(f"---\nmodel: gpt-6-luna\ntools:\n  - {{name: a, kind: web_search, {field}}}\n---\nuser:\nHi\n")
    assert "error" in {one.severity for one in found}


def test_unknown_keys_of_a_provider_tool_are_warnings() -> None:
    tool = "{name: a, kind: web_search, allowDomains: [x], location: {town: B}}"
    found = check_text(f"---\nmodel: gpt-6-luna\ntools:\n  - {tool}\n---\nuser:\nHi\n")
    assert [one.key for one in found if one.code == "unknown-key"] == ["tools.0.allowDomains", "tools.0.location.town"]


SWITCHED = {
    "a kind": ({"tools": [SEARCH]}, "web"),
    "a server": ({"tools": [WIKI]}, "wiki"),
    "a raw entry": ({"model": {"options": {"additionalProperties": {"tools": [{"type": "shell"}]}}}}, "shell"),
    "servers": ({"model": {"options": {"additionalProperties": {"mcp_servers": [{}]}}}}, "mcp_servers"),
    "a search of chat": (
        {"model": {"options": {"additionalProperties": {"web_search_options": {}}}}},
        "web_search_options",
    ),
}


@pytest.mark.parametrize(("parts", "name"), SWITCHED.values(), ids=SWITCHED)
def test_the_host_can_refuse_all_of_them(parts: Json, name: str) -> None:
    model = {"id": "gpt-6-luna", "provider": "openai", "apiType": "responses", **parts.get("model", {})}
    agent = PromptAgent.model_validate({**parts, "model": model, "instructions": "user:\nHi"})
    for run in (invoke, turn):
        with Script() as script, pytest.raises(RequestError, match=f"the tool '{name}' runs at the provider"):
            run(agent, provider_tools=False)
        assert script.requests == []


def test_functions_and_raw_functions_are_not_refused(server: Server) -> None:
    raw = {"type": "function", "name": "own", "parameters": {"type": "object"}}
    agent = build(server, "responses", options={"additionalProperties": {"tools": [raw]}})
    with Script("Hi"):
        assert turn(agent, provider_tools=False) == "Hi"


def test_a_fallback_with_such_a_tool_is_refused(server: Server) -> None:
    extra = {"additionalProperties": {"tools": [{"type": "web_search"}]}}
    fallback = {"id": "b", "apiType": "responses", "options": extra}
    with Script(), pytest.raises(RequestError, match="runs at the provider"):
        turn(build(server, "responses"), fallbacks=[fallback], provider_tools=False)


def test_a_child_inherits_the_refusal(tmp_path: Path) -> None:
    text = "---\nmodel: {id: m, provider: scripted, apiType: responses}\ntools: [%s]\n---\nuser:\nHi\n"
    (tmp_path / "child.prompty").write_text(text % "{name: web, kind: web_search}")
    (tmp_path / "parent.prompty").write_text(text % "{name: child, kind: prompty, path: child.prompty}")
    with Script(call("child"), "Done.") as script:
        turn(tmp_path / "parent.prompty", provider_tools=False)
    assert "runs at the provider" in str(script.requests[-1]["input"])


@pytest.mark.parametrize("approval", ["always", {"web": "always"}, {"when": {"q": {"const": "x"}}}])
def test_a_policy_of_the_host_that_the_provider_cannot_apply_is_an_error(server: Server, approval: object) -> None:
    with pytest.raises(RequestError, match="the provider runs it without asking"):
        turn(build(server, "messages", SEARCH), approval=approval)
    assert server.requests == []


def test_a_policy_of_the_host_makes_a_hosted_server_ask(server: Server) -> None:
    server.answer(json_reply(RESPONSE))
    turn(build(server, "responses", WIKI), approval="always")
    assert server.requests[-1].body["tools"][0]["require_approval"] == "always"


HOSTED = """---
model: {id: m, provider: openai, apiType: responses, connection: {kind: key, endpoint: "%s", apiKey: k}}
tools:
  - name: wiki
    kind: mcp
    execution: provider
    connection: {kind: key, endpoint: "%s", apiKey: "${env:WIKI_KEY}"}
---
user:
Hi
"""


def load_hosted(folder: Path, model: str, wiki: str, **options: Any) -> PromptAgent:
    (folder / "a.prompty").write_text(HOSTED % (model, wiki))
    return load(folder / "a.prompty", **options)


def test_a_key_of_the_environment_goes_to_no_server_that_only_the_file_names(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIKI_KEY", "the-wiki-key")
    own, evil, wiki = f"http://127.0.0.1:{server.port}/v1", "https://evil.example/v1", "https://wiki.example/mcp"
    server.answer(json_reply(RESPONSE))
    with pytest.raises(ToolError, match=r"wiki\.example, which only the file names"):
        invoke(load_hosted(tmp_path, own, wiki))
    [finding] = [one for one in check(tmp_path / "a.prompty") if one.code == "untrusted-variable"]
    assert finding.key == "tools.0.connection.apiKey"
    assert server.requests == []
    assert invoke(load_hosted(tmp_path, own, wiki, trusted_endpoints=["https://wiki.example"])) == "Hi"
    assert server.requests[0].body["tools"][0]["authorization"] == "the-wiki-key"
    with pytest.raises(RequestError, match="its key would also go to the model's endpoint"):
        invoke(load_hosted(tmp_path, evil, wiki, trusted_endpoints=["https://wiki.example"]), max_retries=0)


def test_a_variable_that_is_not_set_fails_the_call(server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}/v1"
    agent = load_hosted(tmp_path, url, "https://wiki.example/mcp", missing_env="defer")
    with pytest.raises(RequestError, match="WIKI_KEY"):
        invoke(agent)
    assert server.requests == []


def test_explain_shows_the_entry_without_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIKI_KEY", "the-wiki-key")
    agent = load_hosted(
        tmp_path, "https://api.openai.com/v1", "https://wiki.example/mcp", trusted_endpoints=["https://wiki.example"]
    )
    found = explain(agent)
    assert found.body["tools"][0]["server_label"] == "wiki"  # type: ignore[index]  # it is a list
    assert "the-wiki-key" not in str(found)


def test_check_warns_of_a_token_in_the_file_and_tells_the_costs() -> None:
    wiki = "{name: w, kind: mcp, execution: provider, connection: {endpoint: 'https://w.example', apiKey: abcdefgh}}"
    found = check_text(f"---\nmodel: {{id: gpt-6-luna}}\ntools:\n  - {wiki}\n---\nuser:\nHi\n")
    assert [(one.code, one.severity) for one in found if one.code != "api-chosen"] == [
        ("runs-at-provider", "info"),
        ("secret-in-file", "warning"),
    ]


OPTIONS = {
    "background": ("background: true", "server-state", "model.options.additionalProperties.background"),
    "a conversation": ("conversation: c", "server-state", "model.options.additionalProperties.conversation"),
    "a response": (
        "previous_response_id: r",
        "server-state",
        "model.options.additionalProperties.previous_response_id",
    ),
    "betas": ("betas: [b]", "misplaced-key", "model.options.additionalProperties.betas"),
}


@pytest.mark.parametrize(("option", "code", "key"), OPTIONS.values(), ids=OPTIONS)
def test_check_warns_of_options_that_do_not_go_with_tools(option: str, code: str, key: str) -> None:
    model = f"{{id: gpt-6-luna, apiType: responses, options: {{additionalProperties: {{{option}}}}}}}"
    found = check_text(f"---\nmodel: {model}\ntools:\n  - {{name: look, kind: function}}\n---\nuser:\nHi\n")
    assert [(one.code, one.key, one.severity) for one in found if one.severity == "warning"] == [(code, key, "warning")]


def test_check_finds_that_every_tool_is_deferred() -> None:
    tool = "{name: web, kind: web_search, options: {defer_loading: true}}"
    text = f"---\nmodel: {{id: claude-haiku-5-5, provider: anthropic}}\ntools:\n  - {tool}\n---\nuser:\nHi\n"
    assert "every tool has `defer_loading`" in str(check_text(text))
    assert "every tool" not in str(check_text(text.replace("tools:\n", "tools:\n  - {name: look, kind: function}\n")))


@pytest.mark.parametrize("kind", ["web_search", "web_fetch", "file_search", "code_interpreter", "provider"])
def test_other_runtimes_have_no_provider_tools(kind: str) -> None:
    extra = ", vectorStoreIds: [v]" if kind == "file_search" else ", options: {type: x}"
    text = f"---\nmodel: {{id: m, provider: anthropic}}\ntools:\n  - {{name: a, kind: {kind}{extra}}}\n---\nuser:\nHi\n"
    found = check_text(text, portable=True)
    assert ("not-portable", "tools.0.kind") in [(one.code, one.key) for one in found]


def test_a_provider_of_the_host_without_such_tools_is_refused(server: Server) -> None:
    registry = Registry()
    registry[PROVIDERS].register("own", Registry()[PROVIDERS].get("scripted"))
    agent = build(server, "responses", SEARCH).model_copy(update={"registry": registry})
    model = agent.model.model_copy(update={"provider": "own", "api_type": "chat"})
    assert chat.API.provider_tool is None
    with Script(), pytest.raises(RequestError, match="runs no tools at the provider"):
        invoke(agent.model_copy(update={"model": model}))
