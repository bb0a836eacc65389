"""The engine DBOS: state in a SQLite file or in PostgreSQL, and no server of its own. Only this module knows DBOS.

DBOS is one for each process. Workflows run on an event loop of our own, on a thread of our own: DBOS takes the loop it
is launched in, and is dead when that one ends. It writes JSON; what says that it is a pickle is refused before it is
read, in this whole process.
"""

import asyncio
import json
import os
import sqlite3
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from prompty.durable.engine import Body, Limits, State, Status, StoredStep, Workflow
from prompty.durable.names import NameLock, name_lock
from prompty.durable.values import SCHEMA
from prompty.errors import RequestError, RunRefused, UnknownRun
from prompty.extras import require
from prompty.model.message import Json
from prompty.safety.redaction import mask_secrets

T = TypeVar("T")
APPLICATION = "prompty"
QUEUE = "prompty"
VERSION = f"prompty-{SCHEMA}"
TOPIC = "steering"
STREAM = "deltas"
WORKFLOW = "prompty.turn"
POLL = 0.1
# A run that ends its worker whenever it goes on is given up at last. Workers that come and go may well die a hundred
# times in a long run, which is what DBOS allows, and a run that was beside another one is none the worse for it.
RECOVERIES = 1000
_STATES: dict[str, State] = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "running",
    "SUCCESS": "finished",
    "CANCELLED": "cancelled",
}
_ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


class DbosEngine:
    """Workflows in the database of a URL: `sqlite:///runs.db` or `postgresql://…`."""

    def __init__(self, url: str, name: str | None = None, limits: Limits | None = None) -> None:
        if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
            raise RequestError(
                f"{mask_secrets(url)!r} is no database for runs", "Write sqlite:///runs.db or postgresql://…"
            )
        self.url, self.name, self.limits = url, name, limits or Limits()
        self._dbos: Any = None
        self._client: Any = None
        self._loop: _LoopThread | None = None
        self._lock: NameLock | None = None
        self._running: dict[str, Future[Any]] = {}
        self._opening = threading.Lock()

    # A worker.

    def open(self, workflow: Workflow, /) -> None:
        if self.name is None:
            return
        if _working:
            raise RequestError("this process has a worker already", "Close it first: DBOS is one for each process.")
        self._lock = name_lock(self.url, self.name)
        _working.append((self, workflow))
        try:
            self._loop = _LoopThread()
            self._dbos = self._loop.run(self._launched())
        except BaseException:
            self.close()
            raise

    async def _launched(self) -> Any:
        """DBOS, in the loop that it will use."""
        _refuse_pickles()
        _prepare(self.url)
        dbos = _library()
        _registered()
        config = {
            "name": APPLICATION,
            "system_database_url": self.url,
            "application_version": VERSION,
            "executor_id": self.name,
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "log_level": "ERROR",
        }
        instance = dbos.DBOS(config=config)
        dbos.DBOS.launch()
        rate = self.limits.rate
        await dbos.DBOS.register_queue_async(
            QUEUE,
            worker_concurrency=self.limits.worker_concurrency,
            global_concurrency=self.limits.concurrency,
            limiter={"limit": rate[0], "period": rate[1]} if rate else None,
            polling_interval_sec=POLL,
        )
        return instance

    def close(self, drain: float = 0) -> None:
        if self._loop is not None and drain == 0:
            self._loop.run(_end_all())  # before DBOS is gone, which they would complain about
        if self._dbos is not None:
            _library().DBOS.destroy(workflow_completion_timeout_sec=int(drain))
            self._dbos = None
        if self._loop is not None:
            self._loop.stop()
            self._loop = None
        _working[:] = [entry for entry in _working if entry[0] is not self]
        if self._client is not None:
            self._client.destroy()
            self._client = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # What a workflow has of it.

    async def step(self, name: str, body: Body, /) -> Json:
        async def run() -> Json:
            return await body()

        result: Json = await _library().DBOS.run_step_async({"name": name, "preemptible": True}, run)
        return result

    async def received(self) -> list[str]:
        texts: list[str] = []
        while (text := await _library().DBOS.recv_async(TOPIC, timeout_seconds=0)) is not None:
            texts.append(str(text))
        return texts

    async def owned(self) -> bool:
        context, database = require("dbos._context", extra="durable").get_local_dbos_context(), self._dbos._sys_db

        def check() -> None:
            with database.engine.begin() as connection:
                database._check_owner_txn(connection, context.workflow_id, context.owner_xid)

        try:
            await asyncio.to_thread(check)
        except _library().error.DBOSWorkflowConflictIDError:
            return False
        return True

    async def write(self, value: Json, /) -> None:
        with suppress(_library().error.DBOSWorkflowConflictIDError):  # the step itself will be told
            await _library().DBOS.write_stream_async(STREAM, value)

    # What everybody has of it.

    @property
    def client(self) -> Any:
        with self._opening:
            if self._client is None:
                _refuse_pickles()
                if self.name is None:
                    _prepare(self.url)
                    _library().DBOS.migrate(self.url)
                self._client = _library().DBOSClient(
                    system_database_url=self.url,
                    serializer=_library().DBOSPortableJSONSerializer(),
                    application_name=APPLICATION,
                )
            return self._client

    def start(self, id: str, record: Json, /, *, priority: int | None = None) -> None:
        if self._loop is None:
            self.client.enqueue({**_queued(id), **({} if priority is None else {"priority": priority})}, record)
            return
        handle = self._loop.run(_begun(id, record))
        future = self._running[id] = self._loop.submit(handle.get_result(polling_interval_sec=POLL))
        future.add_done_callback(lambda _: self._running.pop(id, None))

    def submit(self, records: Mapping[str, Json], /) -> None:
        database = self.client._sys_db

        def in_one_transaction() -> None:
            with database.engine.begin() as connection:
                for id, record in records.items():
                    self.client.enqueue_in_transaction(connection, _queued(id), record)

        until_it_is_there = require("dbos._sys_db", extra="durable").db_retry(sys_db=database)
        until_it_is_there(in_one_transaction)()

    def status(self, id: str, /) -> Status | None:
        found = self.client.list_workflows(workflow_ids=[id])
        return _status(found[0]) if found else None

    def wait(self, id: str, seconds: float, /) -> Status:
        """A workflow of this process says when it has ended; others are asked."""
        until = time.monotonic() + seconds
        if (running := self._running.get(id)) is not None:
            wait([running], seconds)
        while True:
            found = self.client.list_workflows(workflow_ids=[id], load_input=False)
            if not found:
                raise UnknownRun(id)
            status, left = _status(found[0]), until - time.monotonic()
            if status.ended is not None or left <= 0:
                return status
            time.sleep(min(POLL, left))

    def find(self, prefix: str = "", /, *, outputs: bool = True) -> list[Status]:
        given: dict[str, Any] = {"workflow_id_prefix": prefix} if prefix else {}
        found = self.client.list_workflows(name=WORKFLOW, load_input=False, load_output=outputs, **given)
        return [_status(one) for one in found]

    def ended(self, ids: Sequence[str], /) -> list[Status]:
        found = self.client.list_workflows(workflow_ids=list(ids), status=_ENDED, load_input=False) if ids else []
        return [_status(one) for one in found]

    def steps(self, id: str, /) -> list[StoredStep]:
        return list(_named(self.client.list_workflow_steps(id)))

    def written(self, id: str, after: int, /) -> list[object]:
        _, values = self.client._sys_db.read_stream_values(id, STREAM, after, 1000)
        return [_value(*value) for value in values]

    def send(self, id: str, text: str, /) -> None:
        self.client.send(id, text, TOPIC)

    def cancel(self, id: str, /) -> None:
        self.client.cancel_workflow(id)

    def retry(self, id: str, /) -> None:
        status = self.wait(id, 0)
        if status.state == "cancelled" or status.error is None:  # it was given up
            self.client.resume_workflow(id, queue_name=QUEUE)
        else:
            last = max(
                (step["function_id"] for step in self.client.list_workflow_steps(id, load_output=False)), default=0
            )
            self.client.rewind_workflow(id, start_step=last + 1, application_version=VERSION, queue_name=QUEUE)

    def delete(self, ids: Sequence[str], /) -> None:
        self.client.delete_workflows(list(ids))

    def adopt(self, name: str, /, *, force: bool = False) -> int:
        if self._dbos is None:
            raise RequestError("only a worker can take over the runs of another one", "Give the runtime a name.")
        lock = None if force else name_lock(self.url, name)
        try:
            return len(_library().DBOS._recover_pending_workflows([name]))
        finally:
            if lock is not None:
                lock.release()


# DBOS is one for each process, and so is the worker: the engine that is open, and what it runs.
_working: list[tuple[DbosEngine, Workflow]] = []


@cache
def _library() -> Any:
    return require("dbos", extra="durable")


@cache
def _registered() -> Any:
    """The one workflow that DBOS knows. It is told once, and stays known when DBOS is destroyed."""

    async def turn(record: Json) -> Json:
        [(engine, workflow)] = _working
        return await workflow(engine, record)

    return _library().DBOS.workflow(name=WORKFLOW, max_recovery_attempts=RECOVERIES)(turn)


def _queued(id: str) -> dict[str, Any]:
    return {"workflow_name": WORKFLOW, "queue_name": QUEUE, "workflow_id": id, "app_version": VERSION}


async def _begun(id: str, record: Json) -> Any:
    with _library().SetWorkflowID(id):
        return await _library().DBOS.start_workflow_async(_registered(), record)


@cache
def _refuse_pickles() -> None:
    """DBOS reads a row by what the row says of itself: one that says it is a pickle would run whatever is in it."""
    serialization = require("dbos._serialization", extra="durable")

    def refuse(self: object, serialized_data: str) -> object:
        raise RunRefused("a row of the database", "it is a pickle, and reading one can run anything")

    serialization.DefaultSerializer.deserialize = refuse


def _prepare(url: str) -> None:
    """Make the file of a database: private, and with a log in which a write waits for the disk once."""
    if url.startswith("sqlite:"):
        path = Path(url.partition("///")[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT, 0o600))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")


def _value(text: str, format: str) -> object:
    if format != "portable_json":
        raise RunRefused("a row of the database", f"it is written as {format!r}")
    return json.loads(text)


def _status(found: Any) -> Status:
    given = found.input if isinstance(found.input, dict) else {}
    ended = found.completed_at
    return Status(
        id=found.workflow_id,
        state=_STATES.get(found.status, "broken"),
        record=next(iter(given.get("args", ())), None),
        output=found.output,
        error=_words(found.error),
        worker=found.executor_id,
        recovered=max((found.recovery_attempts or 0) - 1, 0),  # the first time counts, too
        created=_moment(found.created_at),
        ended=None if ended is None else _moment(ended),
    )


def _words(error: object) -> str | None:
    """Why a workflow broke. What DBOS could not read, it gives as it found it."""
    if isinstance(error, str):
        return "its row is not JSON but perhaps a pickle, and is not read"
    return str(error) if error else None


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _named(steps: Sequence[Any]) -> Iterator[StoredStep]:
    """Steps by our names. DBOS keeps what was received one by one, and that there was no more as nothing."""
    texts: list[object] = []
    drains = 0
    for step in steps:
        name, result = step["function_name"], step["output"]
        if not name.startswith("DBOS."):
            yield StoredStep(name, result)
        elif name == "DBOS.recv" and result is not None:
            texts.append(result)
        elif name == "DBOS.recv":
            drains += 1
            yield StoredStep(f"received:{drains}", texts)
            texts = []


class _LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="prompty durable", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.submit(coroutine).result()

    def stop(self) -> None:
        """End what runs on it. Workflows that are left are not at their end: nothing is kept of that."""
        self.run(_end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
