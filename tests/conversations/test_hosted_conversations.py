"""Generated conversations with functions, tools at the provider, reasoning, phases and pauses, over HTTP.

The server knows what it has said. Whatever the client sends next has all of it, in order and unchanged (K3, K4).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import prompty
from prompty import Message, user
from tests import hosted
from tests.hosted import FUNCTION, Json, agent_at, answer
from tests.loopback import Server

GATE, FULL = 150, 1_000  # conversations of each API
# Parts of an answer before its last one. Each letter becomes an item or a pair of blocks with ids of its own.
RESPONSES_PARTS = "rscmipx"
MESSAGES_PARTS = "rstqx"


@dataclass(frozen=True)
class Answer:
    """The pieces of one answer: those before the last are paused."""

    pieces: list[list[Json]]

    @property
    def parts(self) -> list[Json]:
        return [part for piece in self.pieces for part in piece]

    @property
    def calls(self) -> list[Json]:
        return [part for part in self.parts if part["type"] in ("function_call", "tool_use")]


@dataclass
class Said:
    """What was said so far: in requests, the messages of users, the answers and the results of their calls."""

    wire: str
    entries: list[tuple[str, Any]] = field(default_factory=list)

    def expect(self, begun: list[Json]) -> list[Json]:
        """Return the conversation that the next request has, with the answer that was begun."""
        if self.wire == "responses":
            return self._expect_items()
        turns: list[Json] = []
        for kind, value in [*self.entries, *([("begun", begun)] if begun else [])]:
            role = "assistant" if kind in ("answer", "begun") else "user"
            content = _keep_blocks(value) if kind == "answer" else value
            if turns and turns[-1]["role"] == role:
                turns[-1]["content"] += content
            else:
                turns.append({"role": role, "content": list(content)})
        return turns

    def _expect_items(self) -> list[Json]:
        items: list[Json] = []
        for at, (kind, value) in enumerate(self.entries):
            is_earlier = any(later == "user" for later, _ in self.entries[at + 1 :])
            items += _keep_items(value, is_earlier=is_earlier) if kind == "answer" else value
        last = max((at for at, item in enumerate(items) if item.get("type") == "compaction"), default=0)
        return items[last:]


def _keep_items(said: Answer, *, is_earlier: bool) -> list[Json]:
    kinds = {item["type"] for item in said.parts}
    if kinds <= {"message", "reasoning"} and not any("phase" in item for item in said.parts):
        text = "".join(item["content"][0]["text"] for item in said.parts if item["type"] == "message")
        return [{"role": "assistant", "content": text}]
    return [
        {**item, "result": None} if is_earlier and item["type"] == "image_generation_call" else item
        for item in said.parts
    ]


def _is_plain(block: Json) -> bool:
    return block["type"] == "thinking" or (block["type"] == "text" and "citations" not in block)


def _keep_blocks(said: Answer) -> list[Json]:
    """Return the blocks that go back. A last piece of nothing but text goes back as one text."""
    *before, last = said.pieces
    if all(map(_is_plain, last)):
        last = [hosted.text_block("".join(block["text"] for block in last if block["type"] == "text"))]
    return [block for piece in (*before, last) for block in piece]


class Author:
    """Writes answers, with ids that no other part of the conversation has."""

    def __init__(self, wire: str) -> None:
        self._wire, self._numbers = wire, count(1)

    def write(self, letters: str, calls: int, pauses: list[bool]) -> Answer:
        write = self._write_item if self._wire == "responses" else self._write_blocks
        parts = [part for letter in letters for part in write(letter)]
        parts += [part for _ in range(calls) for part in write("f")] or write("a")
        if self._wire == "responses":
            return Answer([parts])
        pieces: list[list[Json]] = [[]]
        may_pause = iter(pauses)
        for part in parts:
            pieces[-1].append(part)
            if part["type"] == "server_tool_use" and next(may_pause, False):
                pieces.append([])
        return Answer(pieces)

    def _write_item(self, letter: str) -> list[Json]:
        at = str(next(self._numbers))
        match letter:
            case "r":
                return [hosted.reasoned(f"Hm {at}.", at), hosted.searched(at=f"{at}r")]
            case "s":
                return [hosted.searched(f"query {at}", at)]
            case "c":
                return [hosted.spoken(f"Let me see {at}.", "commentary", at)]
            case "m":
                return [hosted.listed_tools(at), hosted.ran_mcp("read", at, request=None)]
            case "i":
                return [hosted.drawn("aW1n", at)]
            case "p":
                return [hosted.spoken(f"Part {at}. ", "final_answer", at)]
            case "x":
                return [hosted.spoken(f"Word {at}. ", at=at)]
            case "k":
                return [hosted.compacted(at)]
            case "f":
                return [hosted.called("look", at, at=at)]
        return [hosted.spoken(f"Answer {at}.", at=at)]

    def _write_blocks(self, letter: str) -> list[Json]:
        at = str(next(self._numbers))
        match letter:
            case "r":
                return [hosted.thought(f"Hm {at}.")]
            case "s":
                return [hosted.search(f"query {at}", at), hosted.search_result(at)]
            case "t":
                return [hosted.text_block(f"I will search {at}."), hosted.search(at=at), hosted.search_result(at)]
            case "q":
                return [hosted.text_block(f"It is so {at}.", hosted.CITATION)]
            case "x":
                return [hosted.text_block(f"Word {at}. ")]
            case "f":
                return [hosted.tool_use("look", at, at=at)]
        return [hosted.text_block(f"Answer {at}.")]


@dataclass(frozen=True)
class Round:
    letters: str
    calls: int
    pauses: list[bool]


def conversations(letters: str) -> st.SearchStrategy[list[list[Round]]]:
    """User turns of rounds: each but the last of a turn calls functions."""

    def rounds(calls: st.SearchStrategy[int]) -> st.SearchStrategy[Round]:
        return st.builds(Round, st.text(letters, max_size=4), calls, st.lists(st.booleans(), max_size=3))

    turn = st.tuples(st.lists(rounds(st.integers(1, 3)), max_size=2), rounds(st.just(0)))
    return st.lists(turn.map(lambda parts: [*parts[0], parts[1]]), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def hold(server: Server, wire: str, turns: list[list[Round]], *, streamed: bool) -> None:
    """Hold a conversation, and compare each request with what was said before it."""
    author, said = Author(wire), Said(wire)
    raw: Json = hosted.WEB_SEARCH if wire == "messages" else {"type": "web_search"}
    agent = agent_at(server, wire, raw, tools=[FUNCTION])
    history: list[Message] = []
    for number, turn in enumerate(turns):
        text = f"Question {number}"
        said.entries.append(("user", _write_user(wire, text)))
        answers = [author.write(one.letters, one.calls, one.pauses) for one in turn]
        server.requests.clear()
        server.answer(*_script(wire, answers, streamed=streamed))
        result = _run(agent, [*history, user(text)], streamed=streamed)
        _compare(server, said, answers)
        history = list(result)
    assert [message.role for message in history].count("user") == len(turns)


def _run(agent: prompty.PromptAgent, messages: list[Message], *, streamed: bool) -> tuple[Message, ...]:
    options: Any = {"messages": messages, "tools": {"look": lambda at="": f"saw {at}"}}
    if not streamed:
        result: Any = prompty.turn(agent, details=True, **options)
        return tuple(result.messages)
    with prompty.turn(agent, stream=True, **options) as stream:
        assert stream.result.startswith(stream.text[:1])
        assert stream.text == stream.result
        return stream.messages


def _script(wire: str, answers: list[Answer], *, streamed: bool) -> Iterator[Any]:
    for said in answers:
        for piece in said.pieces[:-1]:
            yield answer(wire, *piece, stop="pause_turn", streamed=streamed)
        stop = {} if wire == "responses" else {"stop": "tool_use" if said.calls else "end_turn"}
        yield answer(wire, *said.pieces[-1], streamed=streamed, **stop)


def _compare(server: Server, said: Said, answers: list[Answer]) -> None:
    key = "input" if said.wire == "responses" else "messages"
    requests = iter(server.requests)
    for one in answers:
        for at in range(len(one.pieces)):
            begun = [block for piece in one.pieces[:at] for block in piece]
            assert next(requests).body[key] == said.expect(begun)
        said.entries.append(("answer", one))
        if one.calls:
            said.entries.append(("results", [_write_result(said.wire, call) for call in one.calls]))
    assert next(requests, None) is None


def _write_user(wire: str, text: str) -> list[Json]:
    return [{"role": "user", "content": text}] if wire == "responses" else [hosted.text_block(text)]


def _write_result(wire: str, call: Json) -> Json:
    at = str(call.get("call_id", call["id"])).partition("_")[2]
    if wire == "responses":
        return {"type": "function_call_output", "call_id": call["call_id"], "output": f"saw {at}"}
    return {"type": "tool_result", "tool_use_id": call["id"], "content": f"saw {at}"}


@settings(max_examples=GATE)
@given(turns=conversations(RESPONSES_PARTS), streamed=st.booleans())
def test_the_next_request_of_responses_has_every_item_unchanged(
    server: Server, turns: list[list[Round]], streamed: bool
) -> None:
    hold(server, "responses", turns, streamed=streamed)


@settings(max_examples=GATE)
@given(turns=conversations(MESSAGES_PARTS), streamed=st.booleans())
def test_the_next_request_of_messages_has_every_block_unchanged(
    server: Server, turns: list[list[Round]], streamed: bool
) -> None:
    hold(server, "messages", turns, streamed=streamed)


@pytest.mark.slow
@pytest.mark.nightly
@settings(max_examples=FULL)
@given(turns=conversations(f"{RESPONSES_PARTS}k"), streamed=st.booleans())
def test_a_thousand_conversations_over_responses(server: Server, turns: list[list[Round]], streamed: bool) -> None:
    hold(server, "responses", turns, streamed=streamed)


@pytest.mark.slow
@pytest.mark.nightly
@settings(max_examples=FULL)
@given(turns=conversations(MESSAGES_PARTS), streamed=st.booleans())
def test_a_thousand_conversations_over_messages(server: Server, turns: list[list[Round]], streamed: bool) -> None:
    hold(server, "messages", turns, streamed=streamed)
