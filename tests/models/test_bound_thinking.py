"""Thoughts that are bound to what precedes them (M7): they go back to Claude as long as that has not changed.

The server refuses a thinking block after another prefix than the one it was given out with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from prompty import Context, Message, ModelError, Paused, Steering, loads
from prompty.events import Compacted, FellBack, ModelReply, ModelRequested
from prompty.memory import InProcessMemory, SqliteMemory
from prompty.model.request import WireRequest
from prompty.providers.anthropic import messages as wire
from prompty.providers.fitting import fit_request
from prompty.testing import Fault, call
from prompty.testing.script import ScriptItem
from tests.servers.rules_over_http import TODAY
from tests.servers.rules_server import RulesServer
from tests.ways import ASYNC, SYNC, Seen, Way, every_way, sync_and_async

OPUS, HAIKU, LUNA = "anthropic:claude-opus-5-5", "anthropic:claude-haiku-5-5", "openai:gpt-6-luna"
BOUND = (OPUS, HAIKU, "anthropic:claude-sonnet-5-5")
UNBOUND = ("anthropic:claude-opus-5", "anthropic:claude-opus-4-6")
LAMP = loads(
    """---
name: lamp
model: {provider: anthropic, id: claude-opus-5-5}
inputs:
  tone: {kind: string, default: kind}
---
system:
Be {{tone}}.
user:
Where is my lamp?
"""
)
TRIM = 1  # characters, so that only the last question and the last call are kept
OVERLOADED = Fault(ModelError("overloaded", status=529, retryable=True))


def look(at: str) -> str:
    return f"a lamp at {at}"


def wait(seconds: int) -> str:
    return f"waited {seconds} seconds"


def converse(request: WireRequest) -> ScriptItem:
    """Call one tool after each question."""
    return "Here it is." if ends_with_result(request.body) else call("look", at="home")


def ends_with_result(body: Mapping[str, Any]) -> bool:
    last: Any = (body.get("messages") or body.get("input") or [{}])[-1]
    blocks = last["content"] if isinstance(last.get("content"), list) else []
    return last.get("type") == "function_call_output" or any(block["type"] == "tool_result" for block in blocks)


@dataclass
class Session:
    """A conversation with one server. `options` are the same in each turn."""

    server: RulesServer
    way: Way
    options: dict[str, Any] = field(default_factory=dict)
    memory: Any = field(default_factory=InProcessMemory)

    def ask(self, tone: str = "kind", **options: Any) -> Seen:
        """Take a turn, of which nothing is refused."""
        with self.server:
            seen = self.way.turn(LAMP, {"tone": tone}, sendable=False, **self.choose(**options))
        assert seen.error is None
        assert self.server.refusals == []
        return seen

    def choose(self, **options: Any) -> dict[str, Any]:
        return {"tools": [look], "session_id": "ada", "memory": self.memory, **self.options, **options}

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.server.requests]

    @property
    def sent(self) -> list[list[int]]:
        """The numbers of the thoughts in each request, in the order in which the server gave them out."""
        return [list_numbers(body) for body in self.bodies]


def list_numbers(body: Mapping[str, Any]) -> list[int]:
    return [int(block["signature"].removeprefix("signature_")) for block in list_thoughts(body)]


def list_thoughts(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [block for message in body.get("messages", ()) for block in list_blocks(message) if is_thought(block)]


def list_blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return message["content"] if isinstance(message["content"], list) else []


def is_thought(block: Mapping[str, object]) -> bool:
    return block["type"] == "thinking"


def omit_thoughts(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without thoughts, and without the marks for the provider's cache."""
    return [
        {**message, "content": [omit_mark(block) for block in message["content"] if not is_thought(block)]}
        for message in messages
    ]


def omit_mark(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


def create_session(way: Way, *items: ScriptItem, **options: Any) -> Session:
    return Session(RulesServer(*(items or [converse] * 40), today=TODAY), way, options)


@pytest.fixture(params=[OPUS, HAIKU])
def session(request: pytest.FixtureRequest, way: Way) -> Session:
    return create_session(way, model=request.param)


@every_way
def test_without_a_change_all_thoughts_go_back_verbatim(session: Session) -> None:
    for _ in range(3):
        session.ask()
    assert session.sent == [[], [1], [1], [1, 2], [1, 2], [1, 2, 3]]
    given_out = {"type": "thinking", "thinking": "A tool can tell."}
    expected = [{**given_out, "signature": f"signature_{number}"} for number in (1, 2, 3)]
    assert list_thoughts(session.bodies[-1]) == expected


@sync_and_async
def test_thoughts_are_left_out_while_the_system_text_differs(session: Session) -> None:
    session.ask("kind")
    session.ask("brief")
    assert session.sent[2:] == [[], [2]]
    session.ask("kind")
    assert session.sent[4:] == [[1], [1, 3]]
    session.ask("brief")
    assert session.sent[6:] == [[2], [2, 4]]


@sync_and_async
def test_nothing_but_the_thoughts_is_left_out(session: Session) -> None:
    session.ask("kind")
    session.ask("brief")
    before, after = session.bodies[1]["messages"], session.bodies[3]["messages"]
    assert after[:3] == omit_thoughts(before)
    assert [block["type"] for block in after[1]["content"]] == ["tool_use"]


def summarise(dropped: list[Message], _: int) -> str:
    return f"{len(dropped)} messages about a lamp"


BUDGETS = {"trimmed": TRIM, "summarised": Context(limit=TRIM, summary=summarise)}


@sync_and_async
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_thoughts_of_the_turn_go_back_after_a_history_that_is(budget: Any, session: Session) -> None:
    session.ask()
    assert session.ask(context_budget=budget).of(Compacted)
    assert session.sent[2:] == [[], [2]]
    session.ask()
    assert session.sent[4:] == [[1], [1, 3]]


@sync_and_async
def test_thoughts_after_a_removed_part_of_the_history_are_left_out(session: Session) -> None:
    for _ in range(3):
        session.ask()
    session.memory.replace("ada", tuple(session.memory.load("ada")[4:]))
    session.ask()
    assert session.sent[6:] == [[], [4]]


@sync_and_async
def test_thoughts_are_left_out_while_the_agent_has_another_tool(session: Session) -> None:
    session.ask()
    session.ask(tools=[look, wait])
    assert session.sent[2:] == [[], [2]]
    session.ask()
    assert session.sent[4:] == [[1], [1, 3]]


@sync_and_async
def test_thoughts_are_left_out_after_all_changes_at_once(session: Session) -> None:
    session.ask()
    session.ask()
    assert session.ask("brief", tools=[look, wait], context_budget=TRIM).of(Compacted)
    assert session.sent[4:] == [[], [3]]


@sync_and_async
@pytest.mark.parametrize("model", [OPUS, HAIKU])
def test_thoughts_before_a_steering_message_go_back(way: Way, model: str) -> None:
    steering = Steering()

    def look(at: str) -> str:
        if at == "the attic":
            steering.send("Only floor lamps.")
        return "a lamp"

    turn: list[ScriptItem] = [call("look", at="the attic"), call("look", at="home"), "Here it is."]
    session = create_session(way, converse, converse, *turn, *turn, model=model)
    session.ask()
    session.ask(tools=[look], steering=steering)
    assert session.sent[2:] == [[1], [1, 2], [1, 2, 3]]
    assert [block["type"] for block in list_blocks(session.bodies[3]["messages"][-1])] == ["tool_result", "text"]
    session.ask("brief", tools=[look], steering=steering)
    assert session.sent[5:] == [[], [4], [4, 5]]


@sync_and_async
@pytest.mark.parametrize("model", [OPUS, HAIKU])
def test_thoughts_of_each_round_of_a_turn_go_back(way: Way, model: str) -> None:
    turn: list[ScriptItem] = [call("look", at="home"), call("wait", seconds=1), "Here it is."]
    session = create_session(way, *turn * 3, model=model, tools=[look, wait])
    session.ask()
    session.ask()
    assert session.sent == [[], [1], [1, 2], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    session.ask("brief")
    assert session.sent[6:] == [[], [5], [5, 6]]


@every_way
def test_thoughts_go_back_after_a_pause(session: Session, tmp_path: Path) -> None:
    """Everything is stored between the steps: the session in a file, the pause as JSON."""

    def open_store() -> SqliteMemory:
        return SqliteMemory(tmp_path / "sessions.db")

    session.ask(memory=open_store())
    for number in (2, 3):
        paused = session.ask(memory=open_store(), approval="always").result
        assert isinstance(paused, Paused)
        loaded = Paused.from_json(json.loads(json.dumps(paused.to_json())))
        with session.server:
            resumed = session.way.resume(LAMP, loaded, [True], **session.choose(memory=open_store()))
        assert (resumed.error, resumed.result, session.server.refusals) == (None, "Here it is.", [])
        assert session.sent[-1] == list(range(1, number + 1))
    session.ask("brief", memory=open_store())
    assert session.sent[-2:] == [[], [4]]


@sync_and_async
def test_thoughts_go_back_to_another_model_which_ignores_what_it_cannot_read(way: Way) -> None:
    session = create_session(way)
    for model in (OPUS, HAIKU, LUNA, OPUS):
        session.ask(model=model)
    assert session.sent[:6] == [[], [1], [1], [1, 2], [], []]
    assert [sent[:2] for sent in session.sent[6:]] == [[1, 2], [1, 2]]
    session.ask("brief", model=HAIKU)
    assert [len(sent) for sent in session.sent[6:]] == [2, 3, 0, 1]


@sync_and_async
@pytest.mark.parametrize("model", UNBOUND)
def test_a_model_that_does_not_bind_thoughts_gets_its_own_back_after_a_change(way: Way, model: str) -> None:
    session = create_session(way, model=model)
    session.ask("kind")
    session.ask("brief", tools=[look, wait])
    assert session.sent == [[], [1], [1], [1, 2]]


@sync_and_async
@pytest.mark.parametrize("model", UNBOUND)
def test_thoughts_of_a_model_that_does_not_bind_them_are_left_out_for_one_that_does(way: Way, model: str) -> None:
    session = create_session(way)
    session.ask("kind", model=model)
    session.ask("brief", model=OPUS)
    assert session.sent[2:] == [[], [2]]


@sync_and_async
def test_thoughts_in_a_session_of_an_earlier_release_are_left_out(session: Session) -> None:
    session.ask("kind")
    stored = session.memory.load("ada")
    for message in stored:
        message.get("opaque", {}).pop(wire.BOUND_TO, None)
    session.memory.replace("ada", tuple(stored))
    session.ask("brief")
    assert session.sent[2:] == [[], [2]]


@sync_and_async
@pytest.mark.parametrize(("first", "second"), [(OPUS, HAIKU), (HAIKU, OPUS), (UNBOUND[0], OPUS), (OPUS, UNBOUND[0])])
def test_a_fallback_in_the_middle_of_a_turn_gets_the_thoughts_of_the_turn(way: Way, first: str, second: str) -> None:
    items: list[ScriptItem] = [converse, converse, converse, OVERLOADED, converse, converse, converse]
    session = create_session(way, *items, model=first, fallbacks=[second], max_retries=0)
    session.ask()
    assert session.ask().of(FellBack)
    assert [body["model"] for body in session.bodies[3:]] == [first.split(":")[1], second.split(":")[1]]
    assert session.sent[4] == [1, 2]
    session.ask("brief")
    assert session.sent[-1][-1] == 3


# Thoughts of the running turn always go back, so a change within a turn is refused. These are limits, not wishes.


def assert_refused(session: Session, seen: Seen) -> None:
    assert isinstance(seen.error, ModelError)
    assert seen.error.status == 400
    assert "bound to a different conversation" in seen.error.cause
    assert [refusal.rule for refusal in session.server.refusals] == ["A8"]


@sync_and_async
def test_a_history_that_is_trimmed_within_a_turn_is_refused(session: Session) -> None:
    results = iter(["a lamp", "a lamp " * 200])

    def look(at: str) -> str:
        return next(results)

    session.ask(tools=[look])
    with session.server:
        seen = session.way.turn(LAMP, sendable=False, **session.choose(tools=[look], context_budget=600))
    assert_refused(session, seen)
    assert session.sent[2:] == [[1], [2]]


@sync_and_async
def test_a_turn_that_is_resumed_with_another_tool_is_refused(session: Session) -> None:
    paused = session.ask(approval="always").result
    with session.server:
        seen = session.way.resume(LAMP, paused, [True], **session.choose(tools=[look, wait]))
    assert_refused(session, seen)


@sync_and_async
def test_a_fallback_within_a_turn_after_a_change_that_the_first_model_took_is_refused(way: Way) -> None:
    items: list[ScriptItem] = [converse, converse, converse, OVERLOADED, converse]
    session = create_session(way, *items, model=UNBOUND[0], fallbacks=[OPUS], max_retries=0)
    session.ask("kind")
    with session.server:
        seen = way.turn(LAMP, {"tone": "brief"}, sendable=False, **session.choose())
    assert_refused(session, seen)
    assert session.sent[2:] == [[1], [1, 2], [2]]


@dataclass(frozen=True)
class Turn:
    """What may differ between turns. `forget` is the number of messages that the host removes before the turn. With a
    `fallback`, the model fails after the tool has run."""

    model: str
    tone: str
    tools: tuple[Any, ...]
    budget: int | None
    forget: int
    fallback: str | None


MODELS = (*BOUND, *UNBOUND, LUNA)
TURNS = st.builds(
    Turn,
    model=st.sampled_from(MODELS),
    tone=st.sampled_from(["kind", "brief"]),
    tools=st.sampled_from([(look,), (look, wait)]),
    budget=st.sampled_from([None, None, TRIM]),
    forget=st.sampled_from([0, 0, 0, 4, 8]),
    fallback=st.sampled_from([None, None, *MODELS]),
)


@settings(max_examples=60)
@given(st.lists(TURNS, min_size=2, max_size=6), st.sampled_from([SYNC, ASYNC]))
def test_no_change_between_turns_is_refused_or_changes_more_than_thoughts(turns: list[Turn], way: Way) -> None:
    faults: list[Fault] = []

    def fail_or_converse(request: WireRequest) -> ScriptItem:
        return faults.pop() if faults and ends_with_result(request.body) else converse(request)

    session = create_session(way, *[fail_or_converse] * 40, max_retries=0)
    for turn in turns:
        session.memory.replace("ada", tuple(session.memory.load("ada")[turn.forget :]))
        options: dict[str, Any] = {"tools": list(turn.tools), "context_budget": turn.budget}
        if turn.fallback and not (turn.model in UNBOUND and turn.fallback in BOUND):  # see the limits above
            faults.append(OVERLOADED)
            options["fallbacks"] = [turn.fallback]
        seen = session.ask(turn.tone, model=turn.model, **options)
        assert (seen.result, faults) == ("Here it is.", [])
        check_requests(seen)


def check_requests(seen: Seen) -> None:
    """Fail if a request of a turn lacks a thought of this turn, or anything but thoughts."""
    thoughts: list[object] = []
    for event in seen.events:
        if isinstance(event, ModelReply):
            blocks: Any = event.reply.opaque.get(wire.BLOCKS, [])
            thoughts += [block for block in blocks if is_thought(block)]
        elif isinstance(event, ModelRequested) and event.request.path == wire.API.path:
            body: Any = event.request.body
            sent = list_thoughts(body)
            assert all(thought in sent for thought in thoughts)
            plain = [replace(message, opaque={}) for message in event.request.messages]
            assert omit_thoughts(body["messages"]) == wire.request(fit_request(LAMP, wire.API), plain, ())["messages"]
