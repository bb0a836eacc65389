"""Engine on DBOS, which keeps its state in SQLite or PostgreSQL and needs no server. Only this module knows DBOS.

A process has one instance of DBOS. It is bound to the event loop that launches it, so workflows run on our own loop
and thread. It stores JSON; pickles are refused unread in the whole process.
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

from prompty.durable.engine import Limits, State, Status, StepBody, StoredStep, Workflow
from prompty.durable.envelope import SCHEMA
from prompty.durable.names import NameLock, name_lock
from prompty.errors import RequestError, RunRefused, UnknownRun
from prompty.extras import require
from prompty.model.message import Json
from prompty.safety.redaction import mask_secrets

T = TypeVar("T")
APPLICATION = "prompty"
QUEUE = "prompty"
APPLICATION_VERSION = f"prompty-{SCHEMA}"
TOPIC = "steering"
STREAM = "deltas"
WORKFLOW = "prompty.turn"
POLL_SECONDS = 0.1
# Give up on a run that kills its worker every time. The default of DBOS, 100, is within reach of a long run on workers
# that come and go, and a run is also counted when another one on the same worker is to blame.
MAX_RECOVERIES = 1000
_STATES: dict[str, State] = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "running",
    "SUCCESS": "finished",
    "CANCELLED": "cancelled",
}
_ENDED_STATES = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


class DbosEngine:
    """Workflows in a database: `sqlite:///runs.db` or `postgresql://…`."""

    def __init__(self, url: str, name: str | None = None, limits: Limits | None = None) -> None:
        if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
            raise RequestError(
                f"unsupported database URL {mask_secrets(url)!r}", "Use sqlite:///runs.db or postgresql://…"
            )
        self.url = url
        self.name = name
        self.limits: Limits = limits or Limits()
        self._dbos: Any = None
        self._client: Any = None
        self._loop: _LoopThread | None = None
        self._lock: NameLock | None = None
        self._running: dict[str, Future[Any]] = {}
        self._opening = threading.Lock()

    # The worker.

    def open(self, workflow: Workflow, /) -> None:
        if self.name is None:
            return
        if _working:
            raise RequestError("this process already has a worker", "Close it first: DBOS allows one per process.")
        self._lock = name_lock(self.url, self.name)
        _working.append((self, workflow))
        try:
            self._loop = _LoopThread()
            self._dbos = self._loop.run(self._launch())
        except BaseException:
            self.close()
            raise

    async def _launch(self) -> Any:
        """Launch DBOS on the loop that it will use."""
        _refuse_pickles()
        _prepare_database(self.url)
        dbos = _library()
        _register_workflow()
        config = {
            "name": APPLICATION,
            "system_database_url": self.url,
            "application_version": APPLICATION_VERSION,
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
            polling_interval_sec=POLL_SECONDS,
        )
        return instance

    def close(self, drain: float = 0) -> None:
        if self._loop is not None and drain == 0:
            self._loop.run(_cancel_all())  # before DBOS is destroyed: they would log errors
        database = None if self._dbos is None else self._dbos._sys_db
        if self._dbos is not None:
            _library().DBOS.destroy(workflow_completion_timeout_sec=int(drain))
            self._dbos = None
        if self._loop is not None:
            self._loop.stop()
            self._loop = None
        if database is not None:
            database.engine.dispose()  # once more: what ended after DBOS was destroyed has put its connections back
        _working[:] = [entry for entry in _working if entry[0] is not self]
        if self._client is not None:
            self._client.destroy()
            self._client = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # For the running workflow.

    async def step(self, name: str, body: StepBody, /) -> Json:
        async def run() -> Json:
            return await body()

        result: Json = await _library().DBOS.run_step_async({"name": name, "preemptible": True}, run)
        return result

    async def receive(self) -> list[str]:
        texts: list[str] = []
        while (text := await _library().DBOS.recv_async(TOPIC, timeout_seconds=0)) is not None:
            texts.append(str(text))
        return texts

    async def is_owner(self) -> bool:
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
        with suppress(_library().error.DBOSWorkflowConflictIDError):  # the step itself fails with the same error
            await _library().DBOS.write_stream_async(STREAM, value)

    # For workers and clients.

    @property
    def client(self) -> Any:
        with self._opening:
            if self._client is None:
                _refuse_pickles()
                if self.name is None:
                    _prepare_database(self.url)
                    _library().DBOS.migrate(self.url)
                self._client = _library().DBOSClient(
                    system_database_url=self.url,
                    serializer=_library().DBOSPortableJSONSerializer(),
                    application_name=APPLICATION,
                )
            return self._client

    def start(self, id: str, record: Json, /, *, priority: int | None = None) -> None:
        if self._loop is None:
            self.client.enqueue({**_queue_options(id), **({} if priority is None else {"priority": priority})}, record)
            return
        handle = self._loop.run(_start_workflow(id, record))
        future = self._running[id] = self._loop.submit(handle.get_result(polling_interval_sec=POLL_SECONDS))
        future.add_done_callback(lambda _: self._running.pop(id, None))

    def submit(self, records: Mapping[str, Json], /) -> None:
        database = self.client._sys_db

        def enqueue_all() -> None:
            with database.engine.begin() as connection:
                for id, record in records.items():
                    self.client.enqueue_in_transaction(connection, _queue_options(id), record)

        retry_on_disconnect = require("dbos._sys_db", extra="durable").db_retry(sys_db=database)
        retry_on_disconnect(enqueue_all)()

    def status(self, id: str, /) -> Status | None:
        workflows = self.client.list_workflows(workflow_ids=[id])
        return _to_status(workflows[0]) if workflows else None

    def wait(self, id: str, seconds: float, /) -> Status:
        """Wait for the future of a workflow in this process, and poll the database for others."""
        until = time.monotonic() + seconds
        if (running := self._running.get(id)) is not None:
            wait([running], seconds)
        while True:
            workflows = self.client.list_workflows(workflow_ids=[id], load_input=False)
            if not workflows:
                raise UnknownRun(id)
            status, left = _to_status(workflows[0]), until - time.monotonic()
            if status.ended is not None or left <= 0:
                return status
            time.sleep(min(POLL_SECONDS, left))

    def find(self, prefix: str = "", /, *, outputs: bool = True) -> list[Status]:
        selection: dict[str, Any] = {"workflow_id_prefix": prefix} if prefix else {}
        options = {"name": WORKFLOW, "load_input": False, "load_output": outputs}
        return [_to_status(workflow) for workflow in self.client.list_workflows(**options, **selection)]

    def find_ended(self, ids: Sequence[str], /) -> list[Status]:
        if not ids:
            return []
        ended = self.client.list_workflows(workflow_ids=list(ids), status=_ENDED_STATES, load_input=False)
        return [_to_status(workflow) for workflow in ended]

    def steps(self, id: str, /) -> list[StoredStep]:
        return list(_to_steps(self.client.list_workflow_steps(id)))

    def read_stream(self, id: str, offset: int, /) -> list[object]:
        _, values = self.client._sys_db.read_stream_values(id, STREAM, offset, 1000)
        return [_parse_stream_value(*value) for value in values]

    def send(self, id: str, text: str, /) -> None:
        self.client.send(id, text, TOPIC)

    def cancel(self, id: str, /) -> None:
        self.client.cancel_workflow(id)

    def retry(self, id: str, /) -> None:
        status = self.wait(id, 0)
        if status.state == "cancelled" or status.error is None:  # or it reached MAX_RECOVERIES
            self.client.resume_workflow(id, queue_name=QUEUE)
        else:
            last = max(
                (step["function_id"] for step in self.client.list_workflow_steps(id, load_output=False)), default=0
            )
            self.client.rewind_workflow(
                id, start_step=last + 1, application_version=APPLICATION_VERSION, queue_name=QUEUE
            )

    def delete(self, ids: Sequence[str], /) -> None:
        self.client.delete_workflows(list(ids))

    def adopt(self, name: str, /, *, force: bool = False) -> int:
        if self._dbos is None:
            raise RequestError("only a worker can take over the runs of another worker", "Give the runtime a name.")
        lock = None if force else name_lock(self.url, name)
        try:
            return len(_library().DBOS._recover_pending_workflows([name]))
        finally:
            if lock is not None:
                lock.release()


# The worker of this process: the open engine and its workflow function. DBOS allows one.
_working: list[tuple[DbosEngine, Workflow]] = []


@cache
def _library() -> Any:
    return require("dbos", extra="durable")


@cache
def _register_workflow() -> Any:
    """Return the workflow function. Its registration survives the destruction of DBOS."""

    async def turn(record: Json) -> Json:
        [(engine, workflow)] = _working
        return await workflow(engine, record)

    return _library().DBOS.workflow(name=WORKFLOW, max_recovery_attempts=MAX_RECOVERIES)(turn)


def _queue_options(id: str) -> dict[str, Any]:
    return {"workflow_name": WORKFLOW, "queue_name": QUEUE, "workflow_id": id, "app_version": APPLICATION_VERSION}


async def _start_workflow(id: str, record: Json) -> Any:
    with _library().SetWorkflowID(id):
        return await _library().DBOS.start_workflow_async(_register_workflow(), record)


@cache
def _refuse_pickles() -> None:
    """Disable the pickle reader of DBOS: a row chooses its own format, and a pickle can run any code."""
    serialization = require("dbos._serialization", extra="durable")

    def refuse(self: object, serialized_data: str) -> object:
        raise RunRefused("a row of the database", "it is a pickle, which can run any code when it is read")

    serialization.DefaultSerializer.deserialize = refuse


def _prepare_database(url: str) -> None:
    """Create the file of a SQLite database: private, and with a write-ahead log, which syncs once per write."""
    if url.startswith("sqlite:"):
        path = Path(url.partition("///")[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT, 0o600))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")


def _parse_stream_value(text: str, format: str) -> object:
    if format != "portable_json":
        raise RunRefused("a row of the database", f"its format is {format!r}")
    return json.loads(text)


def _to_status(workflow: Any) -> Status:
    arguments = workflow.input if isinstance(workflow.input, dict) else {}
    ended = workflow.completed_at
    return Status(
        id=workflow.workflow_id,
        state=_STATES.get(workflow.status, "broken"),
        record=next(iter(arguments.get("args", ())), None),
        output=workflow.output,
        error=_describe_error(workflow.error),
        worker=workflow.executor_id,
        recovered=max((workflow.recovery_attempts or 0) - 1, 0),  # the first execution is counted too
        created=_to_datetime(workflow.created_at),
        ended=None if ended is None else _to_datetime(ended),
    )


def _describe_error(error: object) -> str | None:
    """Describe why a workflow broke. DBOS returns an error that it cannot decode as the raw text."""
    if isinstance(error, str):
        return "its row is not JSON, may be a pickle, and was not read"
    return str(error) if error else None


def _to_datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _to_steps(steps: Sequence[Any]) -> Iterator[StoredStep]:
    """Yield the steps under our names. DBOS stores each received message, and None for an empty queue."""
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
    """Event loop on its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="prompty durable", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.submit(coroutine).result()

    def stop(self) -> None:
        """Cancel all tasks and stop. Workflows among them stay unfinished in the database."""
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
