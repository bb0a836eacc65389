"""Tools that run at the provider: nothing that an API sends, or that a file asks for, is lost (K1, K2, K4)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

import prompty
from prompty import Message, PromptAgent, user
from prompty.errors import ModelError, RequestError
from prompty.events import ReasoningDelta
from prompty.messages import TextPart
from prompty.model.content import ImagePart
from prompty.pipeline.request import build_request
from prompty.providers.fitting import fit_request
from tests import hosted
from tests.hosted import FUNCTION, Json, agent_at, answer
from tests.loop.bodies import APIS, sent
from tests.loopback import Server
from tests.ways import Way, whole_and_streamed

WIRES = ("responses", "messages")
TEXT = [{"name": "a", "kind": "integer"}]

RESPONSES: dict[str, list[Json]] = {
    "a search": [hosted.reasoned("Hm."), hosted.searched(), hosted.spoken("It is so.")],
    "phases": [hosted.spoken("Let me look.", "commentary"), hosted.spoken('{"a":1}', "final_answer", at="2")],
    "hosted MCP": [hosted.listed_tools(), hosted.ran_mcp(request=None), hosted.spoken("Gone.")],
    "an image": [hosted.drawn(), hosted.spoken("Here.")],
    "a compaction": [hosted.compacted(), hosted.spoken("Go on.")],
    "an approval": [hosted.listed_tools(), hosted.asked_approval(page="a")],
    "a function": [hosted.reasoned("Hm."), hosted.searched(), hosted.called("look", at="1")],
}
MESSAGES: dict[str, list[Json]] = {
    "a search": [
        hosted.thought("Hm."),
        hosted.text_block("I will search."),
        hosted.search(),
        hosted.search_result(),
        hosted.text_block("It is so.", hosted.CITATION),
    ],
    "a function": [hosted.search(), hosted.search_result(), hosted.tool_use("look", at="a")],
    "a paused search": [hosted.text_block("I will search."), hosted.search()],
}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


# what the server sends is what the SDKs read


@pytest.mark.parametrize("items", RESPONSES.values(), ids=RESPONSES)
def test_every_recorded_response_is_one_of_openai_types(items: list[Json]) -> None:
    Response.model_validate(hosted.response(*items))
    events: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    assert [events.validate_python(one).type for one in hosted.response_events(*items)]


@pytest.mark.parametrize("blocks", MESSAGES.values(), ids=MESSAGES)
def test_every_recorded_message_is_one_of_anthropics_types(blocks: list[Json]) -> None:
    AnthropicMessage.model_validate(hosted.message(*blocks))
    events: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    assert [events.validate_python(one).type for one in hosted.message_events(*blocks)]


def test_a_recorded_compaction_is_one_of_anthropics_beta_types() -> None:
    blocks = [hosted.compaction_block()]
    BetaMessage.model_validate(hosted.message(*blocks, stop="compaction"))
    events: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)
    assert [events.validate_python(one).type for one in hosted.message_events(*blocks, stop="compaction")]


# (a) tools of the file


RAW = {
    "chat": {"type": "function", "function": {"name": "raw", "parameters": {"type": "object"}}},
    "responses": {"type": "web_search", "search_context_size": "low"},
    "messages": hosted.WEB_SEARCH,
}


def body_with(wire: str, raw: object, *tools: Json, **options: Any) -> Json:
    model: Json = {"id": "m", "options": {"additionalProperties": {"tools": raw}, **options}}
    model |= {"provider": "anthropic"} if wire == "messages" else {"apiType": wire}
    agent = PromptAgent.model_validate({"model": model, "tools": list(tools), "instructions": "user:\nHi"})
    return dict(build_request(agent, [user("Hi")], fit_request(agent, APIS[wire])).body)


@pytest.mark.parametrize("wire", RAW)
def test_tools_of_the_file_go_before_its_functions(wire: str) -> None:
    tools = body_with(wire, [RAW[wire]], FUNCTION)["tools"]
    assert tools[0] == RAW[wire]
    assert len(tools) == 2
    assert "look" in str(tools[1])


@pytest.mark.parametrize("wire", RAW)
def test_tools_of_the_file_go_without_functions(wire: str) -> None:
    assert body_with(wire, [RAW[wire]])["tools"] == [RAW[wire]]
    assert "tools" not in body_with(wire, [])
    assert "tools" not in body_with(wire, None)


@pytest.mark.parametrize("wire", RAW)
@pytest.mark.parametrize("raw", [{"type": "web_search"}, "web_search", ["web_search"], [None]])
def test_tools_of_the_file_that_are_no_list_of_mappings_are_refused(wire: str, raw: object) -> None:
    with pytest.raises(RequestError, match=r"not a list|not a mapping"):
        body_with(wire, raw, FUNCTION)


@pytest.mark.parametrize("wire", RAW)
@pytest.mark.parametrize(
    "raw",
    [
        [{"type": "custom", "name": "look"}],
        [{"type": "function", "function": {"name": "look"}}],
        [hosted.WEB_SEARCH] * 2,
    ],
)
def test_a_tool_of_the_file_with_a_taken_name_is_refused(wire: str, raw: object) -> None:
    with pytest.raises(RequestError, match="two tools are named"):
        body_with(wire, raw, FUNCTION)


def test_parallel_calls_are_switched_off_for_tools_of_the_file() -> None:
    off = {"allowMultipleToolCalls": False}
    assert body_with("chat", [RAW["chat"]], **off)["parallel_tool_calls"] is False
    assert body_with("responses", [RAW["responses"]], **off)["parallel_tool_calls"] is False
    assert body_with("messages", [RAW["messages"]], **off)["tool_choice"]["disable_parallel_tool_use"] is True


def test_check_reports_tools_of_the_file_at_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    path = tmp_path / "a.prompty"
    lines = ["---", "model:", "  id: gpt-5", "  apiType: responses", "  options:", "    additionalProperties:"]
    path.write_text("\n".join([*lines, "      tools:", "        - web_search", "---", "user:", "Hi", ""]))
    [problem] = [one for one in prompty.check(path) if one.code == "raw-tool"]
    assert (problem.line, problem.severity) == (8, "error")
    with pytest.raises(RequestError, match=r"a\.prompty:8"):
        prompty.invoke(path)


# (m) text around a search


@whole_and_streamed
def test_texts_around_a_search_are_paragraphs(server: Server, way: Way) -> None:
    server.answer(answer("messages", *MESSAGES["a search"], streamed=way.streamed))
    seen = way.turn(agent_at(server, "messages", hosted.WEB_SEARCH))
    assert seen.result == "I will search.\n\nIt is so."
    assert not way.streamed or seen.text == seen.result
    items = [hosted.spoken("I will search."), hosted.searched(), hosted.spoken("It is so.", at="2")]
    server.answer(answer("responses", *items, streamed=way.streamed))
    seen = way.turn(agent_at(server, "responses", RAW["responses"]))
    assert seen.result == "I will search.\n\nIt is so."
    assert not way.streamed or seen.text == seen.result


# (e) commentary


@whole_and_streamed
def test_commentary_is_not_the_answer(server: Server, way: Way) -> None:
    server.answer(answer("responses", *RESPONSES["phases"], streamed=way.streamed))
    seen = way.turn(agent_at(server, outputs=TEXT))
    assert seen.result == {"a": 1}
    assert len(server.requests) == 1
    assert seen.messages[-1].reasoning == "Let me look."
    assert not way.streamed or (seen.text, seen.of(ReasoningDelta)[0].text) == ('{"a":1}', "Let me")
    assert sent("responses", [user("Hi"), seen.messages[-1], user("And?")])["input"][1:3] == RESPONSES["phases"]


# (f) calls that we cannot run


CLIENT_CALLS: list[Json] = [
    {"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed", "action": {"commands": ["ls"]}},
    {"type": "custom_tool_call", "id": "ct_1", "call_id": "c", "name": "x", "input": "y"},
    {"type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed", "pending_safety_checks": []},
    {"type": "apply_patch_call", "id": "ap_1", "call_id": "c", "status": "completed", "operation": {}},
    {"type": "local_shell_call", "id": "ls_1", "call_id": "c", "status": "completed", "action": {}},
    {"type": "tool_search_call", "id": "ts_1", "call_id": "c", "execution": "client", "arguments": {}},
]


@whole_and_streamed
@pytest.mark.parametrize("item", CLIENT_CALLS, ids=lambda item: item["type"])
def test_a_call_that_we_cannot_run_is_an_error_that_names_it(server: Server, way: Way, item: Json) -> None:
    server.answer(answer("responses", item, streamed=way.streamed))
    seen = way.turn(agent_at(server, "responses", {"type": "shell"}))
    assert isinstance(seen.error, ModelError)
    assert f"`{item['type']}`" in seen.cause
    assert len(server.requests) == 1


def test_a_call_that_the_provider_has_run_is_none_of_ours(server: Server) -> None:
    output = {"type": "shell_call_output", "id": "so_1", "call_id": "c", "output": [], "status": "completed"}
    server_search = {**CLIENT_CALLS[5], "execution": "server", "call_id": None}
    items = [CLIENT_CALLS[0], output, server_search, hosted.spoken("Two files.")]
    server.answer(answer("responses", *items, streamed=False))
    assert prompty.turn(agent_at(server, "responses", {"type": "shell"})) == "Two files."


# (g) images


@whole_and_streamed
def test_a_generated_image_is_a_part_of_the_message(server: Server, way: Way) -> None:
    server.answer(answer("responses", *RESPONSES["an image"], streamed=way.streamed))
    seen = way.turn(agent_at(server, "responses", {"type": "image_generation"}))
    assert seen.result == "Here."
    assert seen.messages[-1].content == (TextPart("Here."), ImagePart("aW1n", "image/webp"))
    stored = Message.from_json(seen.messages[-1].to_json())
    later = sent("responses", [user("Hi"), stored, user("And?")])["input"]
    assert later[1] == {**hosted.drawn(), "result": None}
    now = sent("responses", [user("Hi"), stored])["input"]
    assert now[1] == hosted.drawn()


def test_an_image_alone_is_the_result(server: Server) -> None:
    server.answer(answer("responses", hosted.drawn(), streamed=False))
    assert prompty.turn(agent_at(server, "responses", {"type": "image_generation"})) == "aW1n"
    server.answer(answer("responses", hosted.drawn(), hosted.drawn("aQ==", at="2"), streamed=False))
    assert prompty.turn(agent_at(server, "responses", {"type": "image_generation"})) == ["aW1n", "aQ=="]


# refusals


@whole_and_streamed
def test_a_refusal_after_a_search_is_a_refusal(server: Server, way: Way) -> None:
    details = {"type": "refusal", "category": None, "explanation": "Not this."}
    blocks = [hosted.search(), hosted.search_result()]
    server.answer(answer("messages", *blocks, stop="refusal", stop_details=details, streamed=way.streamed))
    seen = way.turn(agent_at(server, "messages", hosted.WEB_SEARCH, outputs=TEXT))
    assert "Not this." in seen.cause
    assert len(server.requests) == 1


# history (K4)


@whole_and_streamed
@pytest.mark.parametrize("case", ["a search", "hosted MCP"])
def test_items_of_an_answer_with_more_than_text_go_back_unchanged(server: Server, way: Way, case: str) -> None:
    server.answer(answer("responses", *RESPONSES[case], streamed=way.streamed))
    seen = way.turn(agent_at(server, "responses", RAW["responses"]))
    assert sent("responses", [*seen.messages, user("And?")])["input"][1:-1] == RESPONSES[case]
    changed = [user("Hi"), Message("assistant", "Other.", opaque=seen.messages[-1].opaque), user("And?")]
    assert sent("responses", changed)["input"][1] == {"role": "assistant", "content": "Other."}


@whole_and_streamed
def test_blocks_of_an_answer_with_more_than_text_go_back_unchanged(server: Server, way: Way) -> None:
    server.answer(answer("messages", *MESSAGES["a search"], streamed=way.streamed))
    seen = way.turn(agent_at(server, "messages", hosted.WEB_SEARCH))
    assert sent("messages", [*seen.messages, user("And?")])["messages"][1]["content"] == MESSAGES["a search"]
    changed = [user("Hi"), Message("assistant", "Other.", opaque=seen.messages[-1].opaque), user("And?")]
    assert sent("messages", changed)["messages"][1]["content"] == [hosted.text_block("Other.")]


def test_half_a_search_of_a_turn_that_was_given_up_does_not_go_back() -> None:
    blocks = [hosted.text_block("I will search."), hosted.search()]
    half = Message("assistant", "I will search.", opaque={"anthropic_blocks": blocks})
    assert sent("messages", [user("Hi"), half])["messages"][1]["content"] == blocks
    assert sent("messages", [user("Hi"), half, user("And?")])["messages"][1]["content"] == blocks[:1]
    other = Message("assistant", (), opaque={"anthropic_blocks": [hosted.search_result("9"), *blocks[:1]]})
    assert sent("messages", [user("Hi"), other, user("And?")])["messages"][-1]["role"] == "user"
