"""Stores of sessions in async code: blocking ones on threads, async ones in code of both colours, and no deadlock."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prompty import Guardrails, tool, turn, turn_async
from prompty.errors import MemoryFailed, RequestError
from prompty.memory import InProcessMemory, SqliteMemory
from prompty.model.message import Json
from prompty.testing import Script, call
from tests.conversations.turns import scripted
from tests.watchdog import within
from tests.ways import Way, sync_and_async


class Recorded:
    """A store that notes on which thread each method runs."""

    def __init__(self) -> None:
        self.inner = InProcessMemory()
        self.threads: dict[str, threading.Thread] = {}

    def note(self, method: str) -> None:
        self.threads[method] = threading.current_thread()

    def load(self, session_id: str, /) -> list[Json]:
        self.note("load")
        return self.inner.load(session_id)

    def append(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        self.note("append")
        self.inner.append(session_id, messages)

    def replace(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        self.inner.replace(session_id, messages)

    def acquire(self, session_id: str, /) -> Callable[[], None] | None:
        self.note("acquire")
        free = self.inner.acquire(session_id)

        def release() -> None:
            assert free is not None
            self.note("release")
            free()

        return free and release


class QuickStore(Recorded):
    never_blocks = True


class AsyncStore:
    """A store with async methods, also the one that releases a session."""

    def __init__(self) -> None:
        self.inner = InProcessMemory()
        self.appending, self.may_append = asyncio.Event(), asyncio.Event()
        self.may_append.set()

    async def load(self, session_id: str, /) -> list[Json]:
        await asyncio.sleep(0)
        return self.inner.load(session_id)

    async def append(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        self.appending.set()
        await self.may_append.wait()
        self.inner.append(session_id, messages)

    async def replace(self, session_id: str, messages: tuple[Json, ...], /) -> None:
        self.inner.replace(session_id, messages)

    async def acquire(self, session_id: str, /) -> Callable[[], object] | None:
        await asyncio.sleep(0)
        release = self.inner.acquire(session_id)

        async def release_async() -> None:
            await asyncio.sleep(0)
            assert release is not None
            release()

        return release and release_async


def roles(store: Any) -> list[object]:
    return [message["role"] for message in store.load("s")]


def test_async_code_uses_a_store_on_threads() -> None:
    store = Recorded()

    async def main() -> object:
        with Script("Hello."):
            return await turn_async(scripted(), memory=store, session_id="s")

    assert asyncio.run(main()) == "Hello."
    assert store.threads.keys() == {"acquire", "load", "append", "release"}
    assert threading.current_thread() not in store.threads.values()


def test_a_store_that_never_blocks_is_used_on_the_event_loop() -> None:
    store = QuickStore()

    async def main() -> None:
        with Script("Hello."):
            await turn_async(scripted(), memory=store, session_id="s")

    asyncio.run(main())
    assert set(store.threads.values()) == {threading.current_thread()}


def test_sync_code_uses_a_store_on_its_own_thread() -> None:
    store = Recorded()
    with Script("Hello."):
        turn(scripted(), memory=store, session_id="s")
    assert set(store.threads.values()) == {threading.current_thread()}


@sync_and_async
def test_a_store_may_have_async_methods(way: Way) -> None:
    store = AsyncStore()
    with Script("Hello Ada.", "You are Ada.") as script:
        way.turn(scripted(), {"q": "I am Ada"}, memory=store, session_id="s")
        assert way.turn(scripted(), {"q": "Who am I?"}, memory=store, session_id="s").result == "You are Ada."
    body: Any = script.requests[1]
    assert [message["content"] for message in body["messages"]][1:] == ["I am Ada", "Hello Ada.", "Who am I?"]
    assert store.inner.acquire("s") is not None


@sync_and_async
def test_an_async_store_that_fails_is_an_error_with_the_session(way: Way) -> None:
    class Broken(AsyncStore):
        async def load(self, session_id: str, /) -> list[Json]:
            raise OSError("no route")

    with Script():
        error = way.turn(scripted(), memory=Broken(), session_id="mine").error
    assert isinstance(error, MemoryFailed)
    assert "'mine' cannot be used: no route" in str(error)


def test_a_session_that_is_locked_while_its_task_is_cancelled_is_released() -> None:
    begun, may_end = threading.Event(), threading.Event()

    class Slow(Recorded):
        def acquire(self, session_id: str, /) -> Callable[[], None] | None:
            begun.set()
            assert may_end.wait(30)
            return super().acquire(session_id)

    store = Slow()

    async def main() -> None:
        task = asyncio.create_task(turn_async(scripted(), memory=store, session_id="s"))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()  # impatiently
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Script():
        asyncio.run(main())
    assert store.inner.acquire("s") is not None


def test_messages_of_a_cancelled_turn_are_stored_before_the_session_is_released() -> None:
    store = AsyncStore()

    @tool
    async def hang() -> str:
        running.set()
        await asyncio.sleep(60)
        return "never"

    async def main() -> None:
        store.may_append.clear()
        task = asyncio.create_task(turn_async(scripted(), tools=[hang], memory=store, session_id="s"))
        await running.wait()
        task.cancel()
        await store.appending.wait()
        task.cancel()
        await asyncio.sleep(0.01)
        assert store.inner.acquire("s") is None
        store.may_append.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    running = asyncio.Event()
    with Script(call("hang")):
        asyncio.run(main())
    assert roles(store.inner) == ["user", "assistant", "tool"]
    assert store.inner.acquire("s") is not None


@sync_and_async
@pytest.mark.parametrize("hook", ["tool", "gate", "guardrail"])
@pytest.mark.parametrize(("api", "is_async"), [("turn", False), ("turn", True), ("turn_async", True)])
@pytest.mark.parametrize("kind", ["in process", "sqlite", "async"])
def test_a_turn_inside_a_turn_of_the_same_session_is_an_error_that_says_so(
    way: Way, hook: str, api: str, is_async: bool, kind: str, tmp_path: Path
) -> None:
    kept: Any = InProcessMemory() if kind == "in process" else AsyncStore()
    errors: list[Exception] = []

    def options() -> dict[str, Any]:
        memory = SqliteMemory(tmp_path / "sessions.db") if kind == "sqlite" else kept
        return {"memory": memory, "session_id": "s"}

    results: dict[str, Any] = {"tool": "no", "gate": [True], "guardrail": True}

    async def ask_again_async(*_: object) -> Any:
        try:
            await turn_async(scripted(), **options())
        except RequestError as error:
            errors.append(error)
        return results[hook]

    def ask_again(*_: object) -> Any:
        try:
            turn(scripted(), **options())
        except RequestError as error:
            errors.append(error)
        return results[hook]

    async def block(*_: object) -> Any:
        return ask_again()

    chosen: Any = (ask_again_async if api == "turn_async" else block) if is_async else ask_again
    hooks: dict[str, Any] = {
        "tool": {"tools": [tool(name="look")(no_arguments(chosen, is_async=is_async))]},
        "gate": {"tools": [tool(name="look")(lambda: "seen")], "gate": chosen},
        "guardrail": {"tools": [tool(name="look")(lambda: "seen")], "guardrails": Guardrails(tool=chosen)},
    }

    def run() -> Any:
        with Script(call("look"), "Done."):
            return way.turn(scripted(), **options(), **hooks[hook]).result

    assert within(run) == "Done."
    [error] = errors
    assert "the session 's' is in use by the turn that this call is part of" in str(error)


def no_arguments(function: Any, *, is_async: bool) -> Any:
    async def look_async() -> str:
        return str(await function())

    def look() -> str:
        return str(function())

    return look_async if is_async else look


@sync_and_async
def test_a_turn_inside_a_turn_may_use_another_session_of_the_same_store(way: Way, tmp_path: Path) -> None:
    store = SqliteMemory(tmp_path / "sessions.db")

    @tool
    async def look() -> str:
        with Script("inner"):
            return str(turn(scripted(), memory=store, session_id="other"))

    def run() -> Any:
        with Script(call("look"), "Done."):
            return way.turn(scripted(), memory=store, session_id="s", tools=[look]).result

    assert within(run) == "Done."
    assert roles(store) == ["user", "assistant", "tool", "assistant"]


def test_sync_code_does_not_wait_for_a_session_on_the_event_loop_that_it_blocks() -> None:
    store, running = InProcessMemory(), asyncio.Event()

    @tool
    async def look() -> str:
        running.set()
        await asyncio.sleep(0.1)
        return "seen"

    async def main() -> str:
        with Script(call("look"), "Done."):
            task = asyncio.create_task(turn_async(scripted(), memory=store, session_id="s", tools=[look]))
            await running.wait()
            with pytest.raises(RequestError, match=r"event loop that waits for this call\n.*await turn_async"):
                turn(scripted(), memory=store, session_id="s")
            return str(await task)

    assert within(lambda: asyncio.run(main())) == "Done."


@sync_and_async
def test_a_call_that_a_tool_leaves_behind_waits_for_the_session(way: Way) -> None:
    """Nothing waits for it, so it can have the session once the turn has ended."""
    store, answers = InProcessMemory(), []

    def follow_up() -> None:
        with Script("followed up"):
            answers.append(turn(scripted(), {"q": "and?"}, memory=store, session_id="s"))

    thread = threading.Thread(target=follow_up)

    @tool
    def look() -> str:
        thread.start()
        return "seen"

    def run() -> Any:
        with Script(call("look"), "Done."):
            return way.turn(scripted(), memory=store, session_id="s", tools=[look]).result

    assert within(run) == "Done."
    within(thread.join)
    assert answers == ["followed up"]
    assert roles(store) == ["user", "assistant", "tool", "assistant", "user", "assistant"]
