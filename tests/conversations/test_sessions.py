"""Conversations that are remembered (L10)."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from prompty import CancelToken, Message, ModelError, assistant, tool, turn, turn_async, user
from prompty.errors import Cancelled, RequestError
from prompty.events import HistoryRepaired
from prompty.memory import InProcessMemory, MemoryStore, SqliteMemory
from prompty.model.message import Json
from prompty.testing import Fault, Script, call
from tests.conversations.turns import assert_history_is_legal, scripted
from tests.ways import Way, sync_and_async

EXAMPLES = "system:\nBe brief.\nuser:\nexample\nassistant:\nlike this\nuser:\n{{q}}"
THREAD = "system:\nBe brief.\n{{history}}\nuser:\n{{q}}"


@pytest.fixture(params=["in process", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryStore:
    return InProcessMemory() if request.param == "in process" else SqliteMemory(tmp_path / "sessions.db")


@tool
def look(at: str) -> str:
    return f"seen {at}"


def sent(script: Script, number: int = -1) -> list[tuple[str, str]]:
    body: Any = script.requests[number]
    return [(message["role"], message["content"]) for message in body["messages"]]


@pytest.mark.spec("001 How a Turn Interleaves", "a session goes on with the same memory and session id")
@sync_and_async
def test_the_next_turn_knows_what_was_said(way: Way, store: MemoryStore) -> None:
    remembered: dict[str, Any] = {"memory": store, "session_id": "s", "tools": [look]}
    with Script("Hello Ada.", call("look", at="you"), "You are Ada.") as script:
        way.turn(scripted(), {"q": "I am Ada"}, **remembered)
        assert way.turn(scripted(), {"q": "Who am I?"}, **remembered).result == "You are Ada."
    said = [("user", "I am Ada"), ("assistant", "Hello Ada."), ("user", "Who am I?")]
    assert sent(script, 1) == [("system", "Be brief."), *said]
    roles = [message["role"] for message in store.load("s")]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]


@sync_and_async
@pytest.mark.spec("001 How a Turn Interleaves", "memory stores every message of a conversation")
def test_what_the_file_says_itself_is_made_anew_and_not_stored(way: Way, store: MemoryStore) -> None:
    agent = scripted(instructions=EXAMPLES)
    with Script("one", "two") as script:
        for question in ("first", "second"):
            way.turn(agent, {"q": question}, memory=store, session_id="s")
    assert [text for _, text in sent(script)] == ["Be brief.", "example", "like this", "first", "one", "second"]


@sync_and_async
def test_history_goes_where_the_file_has_a_thread(way: Way, store: MemoryStore) -> None:
    agent = scripted(instructions=THREAD, inputs={"q": "Hi", "history": {"kind": "thread"}})
    with Script("one", "two") as script:
        for question in ("first", "the history goes here"):
            way.turn(agent, {"q": question}, memory=store, session_id="s")
    assert [text for _, text in sent(script)] == ["Be brief.", "first", "one", "the history goes here"]


def test_a_thread_that_the_caller_gives_is_the_callers(store: MemoryStore) -> None:
    agent = scripted(instructions=THREAD, inputs={"q": "Hi", "history": {"kind": "thread"}})
    store.append("s", (user("stored").to_json(),))
    with Script("one") as script:
        turn(agent, {"q": "new", "history": [user("given"), assistant("yes")]}, memory=store, session_id="s")
    assert [text for _, text in sent(script)] == ["Be brief.", "given", "yes", "stored", "new"]


@sync_and_async
@pytest.mark.parametrize("end", ["the model fails", "cancelled in a tool"])
def test_a_turn_that_is_cut_off_leaves_a_session_that_works(way: Way, end: str, store: MemoryStore) -> None:
    token = CancelToken()

    @tool
    def stop(at: str) -> str:
        token.cancel("enough")
        return at

    calls = [call("stop", at="a"), call("stop", at="b")]
    cancel = token if end == "cancelled in a tool" else None
    faults = [] if cancel else [Fault(ModelError("down", status=400))]
    with Script(calls, *faults, "Still here."):
        options: dict[str, Any] = {"memory": store, "session_id": "s", "tools": [stop], "max_retries": 0}
        error = way.turn(scripted(), {"q": "go"}, cancel=cancel, **options).error
        assert isinstance(error, Cancelled if cancel else ModelError)
        assert way.turn(scripted(), {"q": "and?"}, **options).result == "Still here."
    stored = [Message.from_json(message) for message in store.load("s")]
    assert [message.role for message in stored] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert_history_is_legal(stored)


FAILURES = {
    "before an answer": ([], ["go"]),
    "after a tool": ([call("look", at="x")], ["go", "", "seen x"]),
}
REPEATS = ["the same inputs", "the error's messages", "no messages"]


@sync_and_async
@pytest.mark.parametrize("repeat", REPEATS)
@pytest.mark.parametrize(("answers", "stored"), FAILURES.values(), ids=FAILURES)
def test_a_failed_turn_can_be_repeated(
    way: Way, answers: list[Any], stored: list[str], repeat: str, store: MemoryStore
) -> None:
    options: dict[str, Any] = {"memory": store, "session_id": "s", "tools": [look], "max_retries": 0}
    down = Fault(ModelError("down", status=400))
    with Script("Hello.", *answers, down, down, "Done.") as script:
        way.turn(scripted(), {"q": "hi"}, **options)
        error = way.turn(scripted(), {"q": "go"}, **options).error
        said = error.messages if error else ()
        given: Any = {"the same inputs": None, "the error's messages": said, "no messages": []}[repeat]
        assert isinstance(way.turn(scripted(), {"q": "go"}, messages=given, **options).error, ModelError)
        assert texts_of(store) == ["hi", "Hello.", *stored]
        assert way.turn(scripted(), {"q": "go"}, messages=given, **options).result == "Done."
    assert [text for _, text in sent(script)] == ["Be brief.", "hi", "Hello.", *stored]
    assert texts_of(store) == ["hi", "Hello.", *stored, "Done."]


def texts_of(store: MemoryStore) -> list[str]:
    return [Message.from_json(message).text for message in store.load("s")]


@sync_and_async
def test_a_question_that_was_answered_can_be_asked_again(way: Way, store: MemoryStore) -> None:
    with Script("one", "two"):
        for _ in range(2):
            way.turn(scripted(), {"q": "Again?"}, memory=store, session_id="s")
    assert texts_of(store) == ["Again?", "one", "Again?", "two"]


@sync_and_async
def test_another_question_after_a_failed_turn_is_a_message_of_its_own(way: Way, store: MemoryStore) -> None:
    options: dict[str, Any] = {"memory": store, "session_id": "s", "max_retries": 0}
    with Script(Fault(ModelError("down", status=400)), Fault(ModelError("down", status=400)), "Done.") as script:
        way.turn(scripted(), {"q": "first"}, **options)
        way.turn(scripted(), {"q": "second"}, **options)
        way.turn(scripted(), {"q": "second"}, **options)
    assert [text for _, text in sent(script)] == ["Be brief.", "first", "second"]
    assert texts_of(store) == ["first", "second", "Done."]


def test_asyncio_cancelling_a_turn_stores_what_happened(store: MemoryStore) -> None:
    begun = asyncio.Event()

    @tool
    async def hang(at: str) -> str:
        begun.set()
        await asyncio.sleep(60)
        return at

    @tool
    async def look(at: str) -> str:
        return f"seen {at}"

    async def cancelled() -> None:
        task = asyncio.create_task(turn_async(scripted(), tools=[hang, look], memory=store, session_id="s"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Script([call("look", at="a"), call("hang", at="b")]):
        asyncio.run(cancelled())
    texts = [Message.from_json(message).text for message in store.load("s")]
    assert texts[2] == "seen a"
    assert "was interrupted" in texts[3]
    assert store.acquire("s")


BROKEN: dict[str, tuple[list[Json], str]] = {
    "a call without its result": (
        [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "look"}}]}],
        "1 calls have no result",
    ),
    "a result without its call": ([{"role": "tool", "content": "x", "tool_call_id": "c"}], "1 results have no call"),
    "something that is no message": ([{"role": "robot"}], "message 1 is invalid"),
}


@sync_and_async
@pytest.mark.parametrize(("stored", "problem"), BROKEN.values(), ids=BROKEN)
def test_a_broken_history_is_mended_and_reported(
    way: Way, stored: list[Json], problem: str, store: MemoryStore
) -> None:
    store.append("s", tuple(stored))
    with Script("Hello."):
        seen = way.turn(scripted(), memory=store, session_id="s", sendable=False)  # the session stays as it was stored
    assert seen.result == "Hello."
    [report] = seen.of(HistoryRepaired)
    assert problem in report.problems[0]


def test_turns_of_one_session_wait_for_each_other(store: MemoryStore) -> None:
    inside, most = [], []

    @tool
    def look(at: str) -> str:
        inside.append(at)
        most.append(len(inside))
        inside.remove(at)
        return at

    def one(number: int) -> None:
        with Script(call("look", at=str(number)), f"answer {number}"):
            turn(scripted(), {"q": str(number)}, tools=[look], memory=store, session_id="s")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8
    stored = [Message.from_json(message) for message in store.load("s")]
    turns = [stored[at : at + 4] for at in range(0, len(stored), 4)]
    assert sorted(f"answer {part[0].text}" for part in turns) == sorted(part[3].text for part in turns)
    assert all(part[0].text == part[2].text for part in turns)


@sync_and_async
def test_a_turn_that_never_had_the_session_stores_nothing(way: Way, store: MemoryStore) -> None:
    token = CancelToken()
    release = store.acquire("s")
    assert release is not None
    threading.Timer(0.2, token.cancel, ["tired of waiting"]).start()
    with Script("never") as script:
        seen = way.turn(scripted(), memory=store, session_id="s", cancel=token)
    release()
    assert str(seen.error) == "tired of waiting"
    assert script.requests == []
    assert store.load("s") == []


@sync_and_async
def test_a_paused_turn_goes_on_in_its_session(way: Way, store: MemoryStore) -> None:
    with Script(call("look", at="x"), "Done."):
        options: dict[str, Any] = {"memory": store, "tools": [look]}
        paused = way.turn(scripted(), session_id="s", approval="always", **options).result
        assert [message["role"] for message in store.load("s")] == ["user"]
        way.resume(scripted(), paused, [True], **options)
    assert [message["role"] for message in store.load("s")] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("given", [{"memory": InProcessMemory()}, {"session_id": "s"}])
def test_memory_and_session_belong_together(given: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="belong together"):
        turn(scripted(), **given)
