"""A DBOS program of its own, in this process, that has turns in its workflows."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import pytest
from dbos import DBOS, SetWorkflowID, WorkflowHandle

from prompty import Paused
from prompty.drivers.aio import AsyncDriver
from prompty.durable.dbos import find_pause, turn
from prompty.loop.effects import CallModel

SECONDS = 60.0
Workflow = Callable[..., Any]


class Turn(NamedTuple):
    """A turn for the workflow `one`."""

    source: Any
    inputs: Any
    options: dict[str, Any]


TURNS: dict[str, Turn] = {}  # by the id of the workflow: functions are not stored


async def one(id: str) -> Any:
    """A workflow that is a turn and nothing else."""
    source, inputs, options = TURNS[id]
    return await turn(source, inputs, **options)


class Program:
    """A launched program. When it ends, what is under way ends as in a crash, and goes on in the next one."""

    def __init__(self, workflows: dict[str, Any]) -> None:
        self._workflows = workflows

    def start(self, name: str, *arguments: object, id: str = "mine") -> WorkflowHandle[Any]:
        with SetWorkflowID(id):
            handle: WorkflowHandle[Any] = DBOS.start_workflow(self._workflows[name], *arguments)
        return handle

    def start_turn(self, source: Any, inputs: Any = None, *, id: str = "mine", **options: Any) -> WorkflowHandle[Any]:
        """Start a workflow that is one turn."""
        TURNS[id] = Turn(source, inputs, options)
        return self.start("one", id, id=id)

    def run(self, name: str, *arguments: object, id: str = "mine") -> Any:
        return self.start(name, *arguments, id=id).get_result()

    def result(self, id: str = "mine") -> Any:
        handle: WorkflowHandle[Any] = DBOS.retrieve_workflow(id)
        return handle.get_result(polling_interval_sec=0.05)

    def pause(self, id: str = "mine") -> Paused:
        """Wait until a workflow waits for a person."""
        found: list[Paused] = []

        def look() -> bool:  # once: an answer may end the pause before a second look
            found.extend(filter(None, [find_pause(DBOS, id)]))
            return bool(found)

        until(look)
        return found[0]

    def steps(self, id: str = "mine") -> list[str]:
        """The names of the stored steps, without the run that they belong to."""
        return [_shorten(step["function_name"]) for step in DBOS.list_workflow_steps(id)]


def _shorten(name: str) -> str:
    kind, _, rest = name.partition(":")
    return f"{kind}:{rest.partition(':')[2]}" if kind in ("tool", "intent") else name


@contextmanager
def launched(url: str, *workflows: Workflow, **config: Any) -> Iterator[Program]:
    """Launch a program with these functions as workflows, and with `one`."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.partition("///")[2])) as connection:
            connection.execute("PRAGMA journal_mode = WAL")  # which waits less for the disk
    settings: Any = {
        "name": "own",
        "system_database_url": url,
        "application_version": "1",
        "notification_listener_polling_interval_sec": 0.05,
        "log_level": "CRITICAL",
        **config,
    }
    DBOS(config=settings)
    known = (one, *workflows)
    registered = {workflow.__name__: DBOS.workflow(name=workflow.__name__)(workflow) for workflow in known}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(_launch(), loop).result()
    try:
        yield Program(registered)
    finally:
        loop.call_soon_threadsafe(loop.stop)  # in the middle of whatever it does
        thread.join()
        DBOS.destroy(destroy_registry=True)
        _bury(loop)


async def _launch() -> None:
    DBOS.launch()  # which takes this event loop for its workflows


def _bury(loop: asyncio.AbstractEventLoop) -> None:
    """End what was under way. It cannot store anything any more.

    A thread of DBOS's executor that has just begun a workflow brings it to this loop and waits for it, so the loop runs
    until these threads have ended.
    """

    def has_begun() -> bool:
        return any(thread.name.startswith("dbos-executor") for thread in threading.enumerate())

    async def end() -> None:
        while (left := asyncio.all_tasks() - {asyncio.current_task()}) or has_begun():
            for task in left:
                task.cancel()
            await asyncio.sleep(0.005)
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()

    loop.run_until_complete(end())
    loop.close()


def wrap_model_calls(monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Any], Any]) -> None:
    """Let a test delay model calls: `wrap` gets the events of a call that has not begun, and returns others."""
    perform = AsyncDriver.perform

    def wrapped(driver: Any, effect: Any) -> Any:
        events = perform(driver, effect)
        return wrap(events) if isinstance(effect, CallModel) else events

    monkeypatch.setattr(AsyncDriver, "perform", wrapped)


def until(holds: Callable[[], bool], within: float = SECONDS) -> None:
    """Wait for something, but not forever."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
