"""Conversations that are cut to what fits."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from prompty import Context, Message, Tokens, assistant, system, tool, tool_result, user
from prompty.events import Compacted
from prompty.loop.context import (
    SUMMARY,
    compact,
    count_characters,
    get_summary_size,
    group_units,
    select_dropped,
    write_plain_summary,
)
from prompty.model.message import ToolCall, Usage
from prompty.model.request import WireRequest
from prompty.pipeline.history import normalize_history
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS
from prompty.providers.fitting import fit_request
from prompty.registry import DEFAULT
from prompty.testing import Script, answer, call
from tests.conversations.turns import assert_history_is_legal, scripted
from tests.legality import assert_legal
from tests.ways import Way, sync_and_async

EXAMPLES = 3_000 if os.environ.get("PROMPTY_SOAK") else 300
words = st.text("abc ", max_size=40)


@st.composite
def tool_turns(draw: st.DrawFn, number: int) -> list[Message]:
    """An answer with parallel calls, signed thoughts and all its results."""
    calls = [call("look", id=f"c{number}_{at}", at=draw(words)) for at in range(draw(st.integers(1, 3)))]
    uses = [{"type": "tool_use", "id": one.id, "name": one.name, "input": {"at": "x"}} for one in calls]
    blocks = [{"type": "thinking", "thinking": draw(words), "signature": f"signed {number}"}, *uses]
    said = assistant(tool_calls=calls, opaque={"anthropic_blocks": blocks})
    return [said, *(tool_result(one.id, draw(words)) for one in calls)]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    messages = [system(f"system {at}") for at in range(draw(st.integers(0, 2)))]
    messages.append(user(f"u{draw(words)}"))
    for number in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["user", "assistant", "system", "tools"]))
        if kind == "tools":
            messages += draw(tool_turns(number))
        else:
            messages.append({"user": user, "assistant": assistant, "system": system}[kind](f"w{draw(words)}"))
    return messages


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories(), st.integers(60, 400))
def test_what_is_left_is_whole_and_fits(messages: list[Message], limit: int) -> None:
    gone = select_dropped(messages, limit)
    if not gone:
        kept = messages
    else:
        summary = write_plain_summary([messages[at] for at in sorted(gone)], get_summary_size(limit) - len(SUMMARY) - 1)
        kept = compact(messages, gone, summary)
    whole = [tuple(group) for group in group_units(messages)]
    assert all(set(group) <= gone or not set(group) & gone for group in whole)
    assert [one for one in kept if one.role == "system"] == [one for one in messages if one.role == "system"]
    last_question = [one for one in messages if one.role == "user"][-1]
    assert last_question in kept
    assert messages[-1] in kept
    staying = {*whole[-1], messages.index(last_question)}
    least = count_characters([one for at, one in enumerate(messages) if at in staying or one.role == "system"])
    assert count_characters(kept) <= max(limit, least + get_summary_size(limit))
    check_signatures(messages, kept)


def check_signatures(messages: list[Message], kept: list[Message]) -> None:
    """No signed block without its neighbours, and every API takes the rest."""
    assert_history_is_legal(kept)
    api = DEFAULT[PROVIDERS].get("anthropic").api("chat")
    body: Any = build_request(
        scripted(), normalize_history([*kept, user("?")], api.call_ids), fit_request(scripted(), api)
    ).body
    assert_legal("messages", body)
    blocks = [one.opaque["anthropic_blocks"] for one in kept if "anthropic_blocks" in one.opaque]
    sent = [part for turn in body["messages"] if turn["role"] == "assistant" for part in turn["content"]]
    assert [part["signature"] for part in sent if part["type"] == "thinking"] == [
        turn[0]["signature"]  # type: ignore[index]  # a list of blocks
        for turn in blocks
    ]


@tool
def look(at: str) -> str:
    return "x" * 300


@sync_and_async
def test_a_conversation_over_its_budget_is_cut_and_summed_up(way: Way) -> None:
    history = [system("Be brief."), user("first " * 20), assistant("yes " * 50), user("and now?")]
    with Script(call("look", at="a"), "Done.") as script:
        seen = way.turn(scripted(), messages=history, tools=[look], context_budget=200)
    assert seen.result == "Done."
    first: Any = script.requests[0]["messages"]
    assert [message["role"] for message in first] == ["system", "user", "user"]
    assert first[1]["content"].startswith("[Summary of earlier conversation]\nUser asked: ")
    assert len(seen.of(Compacted)) == 1
    assert seen.messages[1].text.startswith("first")


@sync_and_async
def test_tokens_are_counted_by_what_the_model_says_it_read(way: Way) -> None:
    history = [user("word " * 40), assistant("word " * 40), user("and now?")]
    with Script(call("look", at="a"), "Done.") as script:
        way.turn(scripted(), messages=history, tools=[look], context_budget=Tokens(200))
    assert len(script.requests[0]["messages"]) == 3  # 408 characters are estimated at 102 tokens
    with Script("Done.") as script:
        way.turn(scripted(), messages=history, context_budget=Tokens(50))
    assert SUMMARY in script.requests[0]["messages"][0]["content"]


@sync_and_async
def test_tokens_that_are_no_messages_drop_no_message_of_a_conversation_that_fits(way: Way) -> None:
    def reply(*calls: ToolCall) -> Callable[[WireRequest], Any]:
        def count(request: WireRequest) -> Any:
            messages: Any = request.body["messages"]
            tokens = 5000 + sum(len(str(one.get("content") or "")) for one in messages) // 4  # 5,000 for hosted tools
            return answer("Done.", *calls, usage=Usage(input_tokens=tokens, output_tokens=5))

        return count

    @tool
    def read(at: str) -> str:
        return "y" * 3000

    history = [one for _ in range(10) for one in (user("q" * 100), assistant("a" * 100))]
    with Script(reply(call("read", at="a")), reply()):
        seen = way.turn(scripted(), messages=[*history, user("now")], tools=[read], context_budget=Tokens(8000))
    assert seen.of(Compacted) == []  # 6,250 tokens


@sync_and_async
def test_the_definitions_of_tools_count_before_the_first_answer(way: Way) -> None:
    @tool(description="Look. " * 2000)  # 3,000 tokens
    def look(at: str) -> str:
        return at

    history = [user("q" * 4000), assistant("a" * 4000), user("now")]
    for tools, expected in ([], 0), ([look], 1):
        with Script("Done."):
            seen = way.turn(scripted(), messages=history, tools=tools, context_budget=Tokens(4000))
        assert len(seen.of(Compacted)) == expected


@sync_and_async
def test_the_host_may_sum_up_and_what_it_cannot_is_summed_up_plainly(way: Way) -> None:
    def summary(messages: list[Message], characters: int) -> str:
        return f"{len(messages)} messages"

    async def late(messages: list[Message], characters: int) -> str:
        await asyncio.sleep(0)
        return summary(messages, characters)

    def broken(messages: list[Message], characters: int) -> str:
        raise RuntimeError("no")

    history = [user("first " * 20), assistant("yes " * 50), user("and now?")]
    for one, told in ((summary, "2 messages"), (late, "2 messages"), (broken, "User asked")):
        with Script("Done.") as script:
            way.turn(scripted(), messages=history, context_budget=Context(limit=200, summary=one))
        assert told in script.requests[0]["messages"][0]["content"]


@sync_and_async
def test_a_file_may_sum_up(way: Way, tmp_path: Path) -> None:
    file = tmp_path / "summary.prompty"
    file.write_text(
        "---\nname: summary\nmodel: {id: s, provider: scripted}\n"
        "inputs: {conversation: {kind: string}, characters: {kind: integer}}\n---\n"
        "user:\nSum up in {{characters}} characters:\n{{conversation}}\n"
    )
    history = [user("first " * 20), assistant("yes " * 50), user("and now?")]
    with Script("They talked.", "Done.") as script:
        context = Context(limit=200, summary=file)
        assert way.turn(scripted(), messages=history, context_budget=context).result == "Done."
    assert "user: first first" in script.requests[0]["messages"][0]["content"]
    assert script.requests[1]["messages"][0]["content"].endswith("They talked.")
