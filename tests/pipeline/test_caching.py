"""Requests name what a provider should keep: the static text of a prompt, written once and read by later calls."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import prompty
from prompty import PromptAgent, Usage, assistant, loads, system, tool, user
from prompty.pipeline.caching import list_texts
from prompty.testing import call
from prompty.tracing import Tracer
from prompty.tracing.files import FileSink
from prompty.viewer.page import trace_to_json
from prompty.viewer.trace import find_cached_shares, read_trace
from tests.prompt_cache import CachingServer
from tests.servers.rules_over_http import serve_rules

Json = dict[str, Any]
LONG = ("Judge the answer by these rules, and by no others. " * 100).strip()  # 1,275 tokens of the server
EXPLICIT = {"mode": "explicit"}
EPHEMERAL = {"type": "ephemeral"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CachingServer]:
    server = CachingServer()
    with serve_rules(server, tmp_path, monkeypatch):
        yield server


def prompt(
    model: str = "gpt-5.6",
    *,
    body: str = f"system:\n{LONG}\nuser:\n{{{{x}}}}",
    provider: str = "openai",
    api: str = "chat",
    head: str = "",
    connection: str = "",
    extra: str = "{}",
) -> PromptAgent:
    options = f"options: {{additionalProperties: {extra}}}"
    fields = f"id: {model}, provider: {provider}, apiType: {api}, {options}{connection}"
    return loads(f"---\nmodel: {{{fields}}}\ninputs: {{x: string}}\n{head}\n---\n{body}")


def claude(**parts: Any) -> PromptAgent:
    return prompt("claude-sonnet-5", provider="anthropic", **parts)


def counts(server: CachingServer) -> list[tuple[int | None, int | None]]:
    return [(usage.cache_read_tokens, usage.cache_write_tokens) for usage in server.usages]


def text_of(body: Json) -> str:
    return "".join(text for _, text in list_texts(body))


def list_marks(value: object, name: str) -> list[str]:
    """Return the texts that end at a mark."""
    if isinstance(value, list):
        return [mark for entry in value for mark in list_marks(entry, name)]
    if not isinstance(value, dict):
        return []
    own = [str(value.get("text") or value.get("name") or value["type"])] if name in value else []
    return [*own, *(mark for entry in value.values() for mark in list_marks(entry, name))]


WRITTEN: dict[str, tuple[PromptAgent, str]] = {
    "chat": (prompt(), "prompt_cache_breakpoint"),
    "responses": (prompt("gpt-6-luna", api="responses"), "prompt_cache_breakpoint"),
    "Claude": (claude(), "cache_control"),
}


@pytest.mark.parametrize(("agent", "mark"), WRITTEN.values(), ids=WRITTEN)
def test_a_static_text_is_written_once_and_read_by_every_later_call(
    agent: PromptAgent, mark: str, server: CachingServer
) -> None:
    results = [prompty.invoke(agent, {"x": f"row {number}"}, details=True) for number in range(3)]
    assert counts(server) == [(0, 1275), (1275, 0), (1275, 0)]
    assert [result.usage.cache_read_tokens for result in results] == [0, 1275, 1275]
    bodies = [request.body for request in server.requests]
    assert [list_marks(body, mark) for body in bodies] == [[LONG]] * 3
    unmarked = loads(
        f"---\nmodel: gpt-5.6\ninputs: {{x: string}}\ncache: false\n---\nsystem:\n{LONG}\nuser:\n{{{{x}}}}"
    )
    prompty.invoke(unmarked, {"x": "row 0"})
    assert text_of(bodies[0]) == text_of(server.requests[-1].body)  # the model reads the same


def test_rules_in_a_partial_under_a_comment_keep_their_mark(server: CachingServer, tmp_path: Path) -> None:
    (tmp_path / "_rules.md").write_text(f"{{# by the team #}}{LONG}")
    file = tmp_path / "triage.prompty"
    head = "---\nmodel: {id: claude-sonnet-5, provider: anthropic}\ninputs: {x: string}\n---\n"
    file.write_text(head + "{# sort the mail #}\nsystem:\n{% include '_rules.md' %}\nuser:\n{{x}}\n")
    for number in range(2):
        prompty.invoke(file, {"x": f"row {number}"})
    assert counts(server) == [(0, 1275), (1275, 0)]


def test_one_shot_calls_share_a_key_and_ask_for_nothing_else(server: CachingServer) -> None:
    other = prompt(body=f"system:\nOther. {LONG}\nuser:\n{{{{x}}}}")
    for agent in (prompt(), prompt(), other):
        prompty.invoke(agent, {"x": "a"})
    keys = [request.body["prompt_cache_key"] for request in server.requests]
    assert keys[0] == keys[1] != keys[2]
    assert all(len(key) <= 64 for key in keys)
    assert all(request.body["prompt_cache_options"] == EXPLICIT for request in server.requests)


def test_a_long_prompt_that_begins_with_a_tag_is_not_written(server: CachingServer) -> None:
    agent = prompt(body=f"user:\n{{{{x}}}}\n{LONG}")
    for number in range(2):
        prompty.invoke(agent, {"x": f"row {number}"})
    assert counts(server) == [(0, 0), (0, 0)]
    body = server.requests[0].body
    assert body["prompt_cache_options"] == EXPLICIT
    assert "prompt_cache_key" not in body
    assert list_marks(body, "prompt_cache_breakpoint") == []


def test_a_mark_can_be_in_the_middle_of_a_message(server: CachingServer) -> None:
    agent = prompt(body=f"user:\n{LONG} The answer: {{{{x}}}} Thanks.")
    for value in ("good", "bad"):
        prompty.invoke(agent, {"x": value})
    [message] = server.requests[1].body["messages"]
    marked = {"type": "text", "text": f"{LONG} The answer:", "prompt_cache_breakpoint": EXPLICIT}
    assert message["content"] == [marked, {"type": "text", "text": " bad Thanks."}]
    assert counts(server)[1] == (counts(server)[0][1], 0)


def test_no_mark_is_on_an_answer(server: CachingServer) -> None:
    agent = prompt(body=f"system:\n{LONG}\nuser:\nExample\nassistant:\nFine.\nuser:\n{{{{x}}}}")
    for value in ("good", "bad"):
        prompty.invoke(agent, {"x": value})
    assert list_marks(server.requests[0].body, "prompt_cache_breakpoint") == ["Example"]
    assert counts(server)[1] == (1277, 0)


UNCHANGED: dict[str, tuple[PromptAgent, Json]] = {
    "a short prompt": (prompt(body="system:\nBe kind.\nuser:\n{{x}}"), {"x": "a"}),
    "a short prompt for Claude": (claude(body="system:\nBe kind.\nuser:\n{{x}}"), {"x": "a"}),
    "switched off": (prompt(head="metadata: {cache: false}"), {"x": "a"}),
    "switched off above": (claude(head="cache: false"), {"x": "a"}),
    "a model whose writes are free": (prompt("gpt-4.1"), {"x": "a"}),
    "a model without facts": (prompt("gpt-5.6-of-tomorrow"), {"x": "a"}),
    "options of the file": (prompt(extra="{prompt_cache_options: {mode: implicit}}"), {"x": "a"}),
    "retention of the file": (prompt(extra="{prompt_cache_retention: 24h}"), {"x": "a"}),
    "a mark of the file": (claude(extra="{cache_control: {type: ephemeral}}"), {"x": "a"}),
    "another server": (
        prompt(
            head="metadata: {actsAs: 'openai:gpt-5.6'}",
            connection=", connection: {kind: key, endpoint: 'https://models.example/v1', apiKey: k}",
        ),
        {"x": "a"},
    ),
    "another server for Claude": (
        claude(
            head="metadata: {actsAs: 'anthropic:claude-sonnet-5'}",
            connection=", connection: {kind: key, endpoint: 'https://models.example', apiKey: k}",
        ),
        {"x": "a"},
    ),
}


@pytest.mark.parametrize(("agent", "inputs"), UNCHANGED.values(), ids=UNCHANGED)
def test_a_request_stays_as_it_is(agent: PromptAgent, inputs: Json, server: CachingServer) -> None:
    prompty.invoke(agent, inputs)
    body = server.requests[0].body
    extra = agent.model.options.additional_properties or {}
    assert {name: body[name] for name in body if "cache" in name} == extra
    assert not list_marks(body.get("messages"), "prompt_cache_breakpoint")
    assert not list_marks([body["messages"], body.get("system")], "cache_control")


def test_a_key_of_the_file_wins(server: CachingServer) -> None:
    prompty.invoke(prompt(extra="{prompt_cache_key: mine}"), {"x": "a"})
    assert server.requests[0].body["prompt_cache_key"] == "mine"
    assert counts(server) == [(0, 1275)]


def test_the_rows_of_a_batch_share_their_prefix(server: CachingServer) -> None:
    rows = [{"x": f"row {number}"} for number in range(6)]
    results = asyncio.run(prompty.batch_async(prompt(), rows, concurrency=1))
    assert [row.value for row in results] == ["gpt-5.6 says hello."] * 6
    assert counts(server) == [(0, 1275)] + [(1275, 0)] * 5


def test_a_conversation_at_openai_is_left_to_its_implicit_cache(server: CachingServer) -> None:
    prompty.turn(prompt(), {"x": "a"})
    threaded = loads(
        f"---\nmodel: gpt-5.6\ninputs: {{past: {{kind: thread}}}}\n---\nsystem:\n{LONG}\n{{{{past}}}}\nuser:\nGo on."
    )
    prompty.invoke(threaded, {"past": [user("Hi"), assistant("Ho")]})
    for request in server.requests:
        assert not any("cache" in name for name in request.body)


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is fine. " * 10


def test_a_turn_with_tools_reads_its_own_history_at_anthropic(server: CachingServer) -> None:
    prompty.turn(claude(), {"x": "a"}, tools=[look])
    (_, first), (read, second) = counts(server)
    assert first
    assert second
    assert read == first > 1275  # all of the first request
    last = server.requests[1].body["messages"][-1]["content"][-1]
    assert (last["type"], last["cache_control"]) == ("tool_result", EPHEMERAL)
    prompty.turn(claude(), {"x": "b"}, tools=[look])  # another conversation shares the tools and the instructions
    assert (counts(server)[2][0] or 0) >= 1275


def test_a_single_turn_is_not_written_at_anthropic_beyond_its_prefix(server: CachingServer) -> None:
    prompty.turn(claude(), {"x": "a"})
    assert list_marks(server.requests[0].body, "cache_control") == [LONG]
    messages = [system(LONG), user("a"), assistant("b"), user("c")]
    prompty.turn(claude(), {"x": "a"}, messages=messages)
    assert sorted(list_marks(server.requests[1].body, "cache_control")) == [LONG, "c"]


def test_other_messages_get_no_mark_of_the_prompt(server: CachingServer) -> None:
    prompty.turn(claude(), messages=[system(f"Not this prompt. {LONG}"), user("a")])
    assert list_marks(server.requests[0].body, "cache_control") == []


def test_marks_do_not_change_what_thoughts_are_bound_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = prompt("claude-opus-5-5", provider="anthropic")
    server = CachingServer(call("look", at="a"), "Done.", call("look", at="b"), "Done again.")
    with serve_rules(server, tmp_path, monkeypatch):
        first = prompty.turn(agent, {"x": "a"}, tools=[look], details=True)
        assert not isinstance(first, prompty.Paused)
        prompty.turn(agent, {"x": "a"}, tools=[look], messages=[*first.messages, user("Again.")])
    assert not server.refusals
    blocks = [block["type"] for turn in server.requests[-1].body["messages"] for block in turn["content"]]
    assert blocks.count("thinking") == 2  # of both turns


def test_the_price_of_rows_is_the_price_of_one_write_and_many_reads(server: CachingServer) -> None:
    rows = [{"x": f"row {number}"} for number in range(4)]
    batch = asyncio.run(prompty.batch_async(prompt(), rows, concurrency=1))
    assert [row.error for row in batch] == [None] * 4
    results = [row.result for row in batch]
    fresh = [(result.usage.input_tokens or 0) - 1275 for result in results if result]
    output = sum(result.usage.output_tokens or 0 for result in results if result)
    expected = (1275 * 5 + 3 * 1275 * 0.4 + sum(fresh) * 4 + output * 20) / 1_000_000  # gpt-5.6-sol's prices
    assert float(sum(result.cost or 0 for result in results if result)) == pytest.approx(expected)
    assert sum((result.usage for result in results if result), Usage()).cache_write_tokens == 1275


def test_details_have_the_share_of_cached_input_by_prompt_version(server: CachingServer) -> None:
    agent = prompt(head="name: judge")
    results = [prompty.invoke(agent, {"x": "row"}, details=True) for _ in range(2)]
    [[(version, first)], [(again, second)]] = [list(result.cached_shares.items()) for result in results]
    assert version == again
    assert version.startswith("judge@")
    assert first == 0
    assert second == pytest.approx(1275 / 1276)
    changed = prompty.invoke(
        prompt(head="name: judge", body=f"system:\nNew. {LONG}\nuser:\n{{{{x}}}}"), {"x": "row"}, details=True
    )
    assert version not in changed.cached_shares


def test_a_trace_shows_the_share_of_cached_input_by_prompt_version(server: CachingServer, tmp_path: Path) -> None:
    agent = prompt(head="name: judge")
    prompty.invoke(agent, {"x": "row"})
    Tracer.add("file", FileSink(tmp_path / "traces"))
    try:
        result = prompty.invoke(agent, {"x": "row"}, details=True)
    finally:
        Tracer.clear()
    trace = read_trace(tmp_path / "traces")
    assert find_cached_shares(trace) == pytest.approx(result.cached_shares)
    assert trace_to_json(trace)["cachedShares"] == pytest.approx(result.cached_shares)


def test_a_short_turn_with_tools_stays_as_it_is(server: CachingServer) -> None:
    prompty.turn(claude(body="system:\nBe kind.\nuser:\n{{x}}"), {"x": "a"}, tools=[look])
    assert [list_marks(request.body, "cache_control") for request in server.requests] == [[], []]
