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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from prompty.concurrency import FileLock
from prompty.durable.catalog import (
    ATTEMPT,
    PROMPT,
    WORKFLOW,
    count_runs,
    count_versions,
    delete_workflows,
    label_outcome,
    select_runs,
)
from prompty.durable.dbos_leases import (
    QUARANTINED,
    DbosLeases,
    create_tables,
    find_claim,
    is_taken_over,
    mark_execution,
)
from prompty.durable.dbos_queue import PRIORITY, count_waiting, raise_priorities
from prompty.durable.dbos_timers import DbosTimers
from prompty.durable.engine import Limits, Perform, State, Status, StoredStep, VersionCount, Workflow
from prompty.durable.envelope import SCHEMA, seal, unseal
from prompty.durable.leases import LEASE_SECONDS, Lease, get_label
from prompty.durable.loop_thread import LoopThread, cancel_tasks
from prompty.durable.metrics import RunCount, WorkerMetrics
from prompty.durable.probation import Probation, Trial
from prompty.durable.selection import Outcome, Position, Selection
from prompty.durable.watcher import Watcher
from prompty.errors import RequestError, RunRefused, UnknownRun
from prompty.extras import require
from prompty.model.message import Json
from prompty.safety.redaction import mask_secrets

T = TypeVar("T")
APPLICATION = "prompty"
QUEUE = "prompty"
TENANT_QUEUE = "prompty-tenants"  # each tenant is a partition of it
QUEUES = (QUEUE, TENANT_QUEUE)
APPLICATION_VERSION = f"prompty-{SCHEMA}"
TOPIC = "steering"
STREAM = "deltas"
CREATION_SECONDS = 60.0
POLL_SECONDS = 0.1
QUEUE_SECONDS = 0.5  # a look at the queue costs about as much as a step
TENANT_QUEUE_SECONDS = 1.0
LAUNCHES = 3  # the database ends the session of a process that is suspended in a transaction, also while it starts
PROBE_SECONDS = 5.0
QUERY_SECONDS = 5.0
# Give up on a run that kills its worker every time. The default of DBOS, 100, is within reach of a long run on workers
# that come and go, and a run is also counted when another one on the same worker is to blame.
MAX_RECOVERIES = 1000
_STATES: dict[str, State] = {
    "ENQUEUED": "waiting",
    "DELAYED": "waiting",
    "PENDING": "running",
    "SUCCESS": "finished",
    "CANCELLED": "cancelled",
    QUARANTINED: "quarantined",
}
_ENDED_STATES = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]


class DbosEngine:
    """Workflows in a database: `sqlite:///runs.db` or `postgresql://…`."""

    def __init__(
        self,
        url: str,
        name: str | None = None,
        limits: Limits | None = None,
        lease: float = LEASE_SECONDS,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        if not url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
            raise RequestError(
                f"unsupported database URL {mask_secrets(url)!r}", "Use sqlite:///runs.db or postgresql://…"
            )
        self.url = url
        self.name = name
        self.limits: Limits = limits or Limits()
        self._metrics = metrics or WorkerMetrics()
        self._dbos: Any = None
        self._client: Any = None
        self._loop: _WorkerLoop | None = None
        self._lease: Lease | None = None
        self._lease_seconds = lease
        self._running: dict[str, tuple[Future[Any], datetime]] = {}  # what this process has started, and when
        self._watcher = Watcher(self._find_owners)
        self._watching: asyncio.Task[None] | None = None
        self.probation: Probation = Probation()
        self._opening = threading.Lock()
        self._timers: DbosTimers | None = None

    @property
    def version(self) -> str:
        return APPLICATION_VERSION

    # The worker.

    @property
    def runs_steps_locally(self) -> bool:
        return True

    def open(self, workflow: Workflow, perform: Perform, /) -> None:
        if self.name is None:
            return
        if _working:
            raise RequestError("this process already has a worker", "Close it first: DBOS allows one per process.")
        for attempts_left in reversed(range(LAUNCHES)):
            _working.append((self, workflow, perform))
            try:
                self._open(self.name)
                break
            except BaseException as error:
                self.close()
                if attempts_left == 0 or not _is_disconnect(error):
                    raise

    def _open(self, name: str) -> None:
        leases = DbosLeases(self.client._sys_db.engine, QUEUE, WORKFLOW, APPLICATION_VERSION, self._lease_seconds)
        self._loop = _WorkerLoop()
        self._lease = Lease(leases, name, self._lease_seconds, self._metrics, self._leave_lost_runs)
        try:
            self._dbos = self._loop.run(self._launch(self._lease.id))
        except BaseException:
            _library().DBOS.destroy()  # `close` does that for one that was launched
            raise

    async def _launch(self, worker_id: str) -> Any:
        """Launch DBOS on the loop that it will use."""
        dbos = _library()
        _register_workflow()
        config = {
            "name": APPLICATION,
            "system_database_url": self.url,
            "application_version": APPLICATION_VERSION,
            "executor_id": worker_id,
            "run_migrations": False,  # the client has run them
            "sys_db_idle_transaction_timeout_sec": self._lease_seconds / 2,  # a stopped process would keep its locks
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "log_level": "ERROR",
        }
        instance = dbos.DBOS(config=config)
        dbos.DBOS.launch()
        limits, rate = self.limits, self.limits.rate
        common = {
            "worker_concurrency": limits.worker_concurrency,
            "global_concurrency": limits.concurrency,
            "limiter": {"limit": rate[0], "period": rate[1]} if rate else None,
        }
        per_tenant = limits.tenant_concurrency
        if per_tenant is not None and limits.concurrency is not None:
            per_tenant = min(per_tenant, limits.concurrency)
        register = dbos.DBOS.register_queue_async
        await register(QUEUE, **common, polling_interval_sec=QUEUE_SECONDS)
        await register(
            TENANT_QUEUE,
            **common,
            partition_concurrency=per_tenant,
            polling_interval_sec=TENANT_QUEUE_SECONDS,
        )
        self._watching = asyncio.create_task(self._watcher.run())
        return instance

    def close(self, drain: float = 0) -> None:
        if self._loop is not None and drain == 0:
            self._stop_executions(self._loop)
        database = None if self._dbos is None else self._dbos._sys_db
        if self._dbos is not None:
            _library().DBOS.destroy(workflow_completion_timeout_sec=int(drain))
            self._dbos = None
        if self._loop is not None:
            self._loop.stop()
            self._loop = None
        if database is not None:
            database.engine.dispose()  # once more: what ended after DBOS was destroyed has put its connections back
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        _working[:] = [entry for entry in _working if entry[0] is not self]
        if self._client is not None:
            self._client.destroy()
            self._client = self._timers = None

    def _stop_executions(self, loop: "_WorkerLoop") -> None:
        """Take no more workflows and cancel those that run, before DBOS is destroyed: they would log errors, and leave
        connections behind."""
        starting = threading.Thread(target=self._finish_starting, name="prompty stopping", daemon=True)
        starting.start()
        for _ in range(2):  # a workflow that was about to start has started meanwhile
            loop.run(cancel_tasks())
            loop.wait_for_queries()
            starting.join(QUERY_SECONDS)

    def _finish_starting(self) -> None:
        """Wait until DBOS has started what it took from the queue. It does not wait itself."""
        if self._dbos is None:
            return
        for event in self._dbos.background_thread_stop_events:
            event.set()
        for thread in self._dbos._background_threads:
            if "queue_thread" in thread.name:
                thread.join(QUERY_SECONDS)
        if (executor := self._dbos._executor_field) is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    async def run(self, workflow: Workflow, perform: Perform, record: Json) -> Json:
        """Execute a workflow as long as it is this execution's own."""
        context, lease = _context(), self._lease
        assert lease is not None  # noqa: S101  a worker has one
        worker_id = _claimed_by.get() or lease.id
        with self._watcher.watch(context.workflow_id, context.owner_xid):
            steps = _Steps(self, perform, lease, worker_id)
            return await self._run(workflow, steps, record, context.workflow_id, worker_id)

    async def _run(self, workflow: Workflow, steps: "_Steps", record: Json, id: str, worker_id: str) -> Json:
        if _claimed_by.get() is not None:  # it was started here, so no worker died of it
            return await workflow(steps, record)
        executor, deaths = await self._ask(lambda engine: find_claim(engine, id))
        if executor != worker_id:  # this process claimed it before it lost its lease
            raise asyncio.CancelledError("the worker lost its lease")
        if deaths == 0:
            return await workflow(steps, record)

        async def mark() -> None:
            await self._ask(lambda engine: mark_execution(engine, id, worker_id))

        async def clear() -> None:
            await self._ask(lambda engine: mark_execution(engine, id, None))

        async with self.probation.start(deaths, mark, clear) as steps.trial:
            output = await workflow(steps, record)
            await steps.trial.pass_step()
            return output

    async def _ask(self, query: Callable[[Any], T]) -> T:
        """Ask the database, and wait for it while it is away."""
        database = self.client._sys_db
        results: list[T] = []
        await asyncio.to_thread(_retry_on_disconnect(database, lambda: results.append(query(database.engine))))
        return results[-1]

    def _leave_lost_runs(self, worker_id: str) -> None:
        """Cancel what another worker has taken over, and claim workflows under the next id."""
        require("dbos._utils", extra="durable").GlobalParams.executor_id = worker_id
        if self._loop is not None:
            self._loop.call(self._watcher.cancel_all)

    def _find_owners(self, ids: Sequence[str]) -> dict[str, str | None]:
        sql = require("sqlalchemy", extra="durable")
        columns = _workflow_columns()
        query = sql.select(columns.workflow_uuid, columns.owner_xid).where(columns.workflow_uuid.in_(ids))
        with self.client._sys_db.engine.connect() as connection:
            return dict(connection.execute(query).all())

    # For the probes of an orchestrator.

    def check_live(self) -> str | None:
        """Return what is wrong with this process, so that only a restart helps."""
        if self._loop is None:  # it starts, or stops
            return None
        try:
            self._loop.submit(asyncio.sleep(0)).result(PROBE_SECONDS)
        except TimeoutError:
            return f"the event loop has not answered for {PROBE_SECONDS:g} seconds"
        return None

    def check_ready(self) -> str | None:
        """Return why this worker cannot execute runs at the moment."""
        if self._loop is None or self._dbos is None:
            return "the worker is starting or stopping"
        if (problem := self.check_live()) is not None:
            return problem
        query = asyncio.wait_for(asyncio.to_thread(self._ask_database), PROBE_SECONDS)
        try:
            self._loop.submit(query).result()
        except Exception as error:  # whatever the database driver raises
            return f"the database does not answer: {type(error).__name__}"
        if self._lease is None or not self._lease.is_held(self._lease.id):
            return "the worker has not renewed its lease"
        return None

    def _ask_database(self) -> None:
        with self.client._sys_db.engine.connect() as connection:
            connection.execute(require("sqlalchemy", extra="durable").text("SELECT 1"))

    def count_runs(self) -> list[RunCount]:
        """Return how many runs of each state need a worker or a person."""
        return count_runs(self.client._sys_db)

    # For workers and clients.

    @property
    def client(self) -> Any:
        with self._opening:
            if self._client is None:
                _refuse_pickles()
                with _lock_tables(self.url):
                    _prepare_database(self.url)
                    _library().DBOS.migrate(self.url)
                    self._client = _library().DBOSClient(
                        system_database_url=self.url,
                        serializer=_library().DBOSPortableJSONSerializer(),
                        application_name=APPLICATION,
                    )
                    create_tables(self._client._sys_db.engine)
            return self._client

    def migrate(self, role: str | None = None) -> None:
        """Create or update the tables. A `role` of PostgreSQL gets the rights to read and write their rows."""
        if role is not None and not self.url.startswith("postgresql"):
            raise RequestError("a SQLite database has no roles", "Leave the role out, or use PostgreSQL.")
        create_tables(self.client._sys_db.engine)
        if role is not None:  # now that all tables are there
            _library().DBOS.migrate(self.url, application_role=role)

    def enqueue(
        self, id: str, record: Json, /, *, prompt: str = "", priority: int | None = None, tenant: str | None = None
    ) -> None:
        if self._loop is not None and tenant is None:
            self.start(id, record, prompt=prompt)
        else:
            self.client.enqueue(_queue_options(id, prompt, tenant, priority), record)

    def start(self, id: str, record: Json, /, *, prompt: str = "") -> None:
        if self._loop is None:
            self.enqueue(id, record, prompt=prompt)
            return
        started = datetime.now(UTC)
        handle = self._loop.run(self._start_workflow(id, record, prompt))
        future = self._loop.submit(handle.get_result(polling_interval_sec=POLL_SECONDS))
        self._running[id] = (future, started)
        future.add_done_callback(lambda _: self._running.pop(id, None))

    async def _start_workflow(self, id: str, record: Json, prompt: str) -> Any:
        assert self._lease is not None  # noqa: S101  a worker has one
        _claimed_by.set(self._lease.id)  # before DBOS claims it
        with _library().SetWorkflowID(id), _library().SetWorkflowAttributes({PROMPT: prompt}):
            return await _library().DBOS.start_workflow_async(_register_workflow(), record)

    def submit(self, records: Mapping[str, Json], /, *, prompt: str = "", tenant: str | None = None) -> None:
        database = self.client._sys_db

        def enqueue_all() -> None:
            with database.engine.begin() as connection:
                for id, record in records.items():
                    self.client.enqueue_in_transaction(connection, _queue_options(id, prompt, tenant), record)

        _retry_on_disconnect(database, enqueue_all)()

    def status(self, id: str, /) -> Status | None:
        workflows = self.client.list_workflows(workflow_ids=[id])
        return _to_status(workflows[0]) if workflows else None

    def wait(self, id: str, seconds: float, /) -> Status:
        """Wait for the future of a workflow in this process, and poll the database for others."""
        until = time.monotonic() + seconds
        if (running := self._running.get(id)) is not None:
            future, started = running
            wait([future], seconds)
            if future.done() and not future.cancelled() and future.exception() is None:
                return Status(id=id, state="finished", output=future.result(), created=started, ended=datetime.now(UTC))
        while True:
            workflows = self.client.list_workflows(workflow_ids=[id], load_input=False)
            if not workflows:
                raise UnknownRun(id)
            status, left = _to_status(workflows[0]), until - time.monotonic()
            if status.ended is not None or left <= 0:
                return status
            time.sleep(min(POLL_SECONDS, left))

    def find(self, ids: Sequence[str], /, *, outputs: bool = False) -> list[Status]:
        if not ids:
            return []
        found = self.client.list_workflows(workflow_ids=list(ids), load_input=False, load_output=outputs)
        return [_to_status(workflow) for workflow in found]

    def select(
        self, selection: Selection, /, *, limit: int, after: Position | None = None, oldest_first: bool = False
    ) -> list[Position]:
        database = self.client._sys_db
        query = partial(select_runs, database, selection, limit=limit, after=after, oldest_first=oldest_first)
        return _retry_on_disconnect(database, query)()

    def count_versions(self) -> list[VersionCount]:
        database = self.client._sys_db
        counts = _retry_on_disconnect(database, partial(count_versions, database))()
        return [_to_version_count(version, states) for version, states in sorted(counts.items())]

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
        [workflow] = self.client.list_workflows(workflow_ids=[id], load_input=False, load_output=False)
        tenant = workflow.queue_partition_key
        queue = QUEUE if tenant is None else TENANT_QUEUE
        self.client.update_workflow_attributes(id, {ATTEMPT: 0}, merge=True)  # attempts are counted anew
        if status.state == "cancelled" or status.error is None:  # or it reached MAX_RECOVERIES
            self.client.resume_workflow(id, queue_name=queue)
        else:
            last = max(
                (step["function_id"] for step in self.client.list_workflow_steps(id, load_output=False)), default=0
            )
            self.client.rewind_workflow(
                id,
                start_step=last + 1,
                application_version=APPLICATION_VERSION,
                queue_name=queue,
                queue_partition_key=tenant,
            )

    def delete(self, ids: Sequence[str], /) -> None:
        database = self.client._sys_db
        _retry_on_disconnect(database, partial(delete_workflows, database, ids))()

    def is_taken_over(self, id: str, /) -> bool:
        return is_taken_over(self.client._sys_db.engine, id)

    def count_waiting(self, most: int | None = None, /) -> int:
        database = self.client._sys_db
        return _retry_on_disconnect(database, partial(count_waiting, database, QUEUES, most))()

    def raise_priorities(self, seconds: float, /) -> None:
        raise_priorities(self.client._sys_db, QUEUES, seconds)

    @property
    def timers(self) -> DbosTimers:
        if self._timers is None:
            self._timers = DbosTimers(self.client._sys_db)
        return self._timers


class _Steps:
    """The engine as a running workflow sees it. Its side effects need the lease under which it began."""

    def __init__(self, engine: DbosEngine, perform: Perform, lease: Lease, worker_id: str) -> None:
        self.execution: str = uuid4().hex
        self.trial: Trial | None = None
        self._engine, self._perform = engine, perform
        self._lease, self._worker_id = lease, worker_id

    async def step(self, name: str, effect: Json, /) -> Json:
        is_new = False

        async def run() -> Json:
            nonlocal is_new
            is_new = True
            async with self._engine.probation.step(self.trial):
                return await self._perform(_Attempt(self, name), effect)

        result: Json = await _library().DBOS.run_step_async({"name": name}, run)
        if is_new and self.trial is not None:
            await self.trial.pass_step()
        return result

    async def begin(self, name: str, /) -> bool:
        async def store() -> Json:
            await self.fence()
            return seal({"nonce": self.execution})

        stored = unseal(await _library().DBOS.run_step_async({"name": name}, store), f"the step '{name}'")
        return isinstance(stored, dict) and stored.get("nonce") == self.execution

    async def receive(self) -> list[str]:
        texts: list[str] = []
        while (text := await _library().DBOS.recv_async(TOPIC, timeout_seconds=0)) is not None:
            texts.append(str(text))
        return texts

    async def fence(self) -> None:
        await self._lease.fence(self._worker_id)

    async def label(self, outcome: Outcome, /) -> None:
        context, database = _context(), self._engine.client._sys_db
        store = partial(label_outcome, database, context.workflow_id, context.owner_xid, outcome)
        await asyncio.to_thread(_retry_on_disconnect(database, store))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt at a step, in the process of its workflow."""

    steps: _Steps
    name: str
    is_repeated: bool = False

    @property
    def execution(self) -> str:
        return self.steps.execution

    async def fence(self) -> None:
        await self.steps.fence()

    async def write(self, value: Json, /) -> None:
        with suppress(_library().error.DBOSWorkflowConflictIDError):  # the step itself fails with the same error
            await _library().DBOS.write_stream_async(STREAM, value)


# The lease under which the current execution was started in this process. One from the queue has none.
_claimed_by: ContextVar[str | None] = ContextVar("claimed_by", default=None)

# The worker of this process: the open engine and what it calls. DBOS allows one.
_working: list[tuple[DbosEngine, Workflow, Perform]] = []


@cache
def _library() -> Any:
    return require("dbos", extra="durable")


def _workflow_columns() -> Any:
    return require("dbos._schemas.system_database", extra="durable").SystemSchema.workflow_status.c


def _context() -> Any:
    """Return what DBOS knows of the current execution."""
    return require("dbos._context", extra="durable").get_local_dbos_context()


def _is_disconnect(error: BaseException) -> bool:
    """Return whether DBOS would ask again after this error."""
    return bool(require("dbos._utils", extra="durable").retriable_postgres_exception(error))


def _retry_on_disconnect(database: Any, query: Callable[[], T]) -> Callable[[], T]:
    """Return a query that waits while the database is away, as those of DBOS do."""
    retrying: Callable[[], T] = require("dbos._sys_db", extra="durable").db_retry(sys_db=database)(query)
    return retrying


@cache
def _register_workflow() -> Any:
    """Return the workflow function. Its registration survives the destruction of DBOS."""

    async def turn(record: Json) -> Json:
        [(engine, workflow, perform)] = _working
        return await engine.run(workflow, perform, record)

    return _library().DBOS.workflow(name=WORKFLOW, max_recovery_attempts=MAX_RECOVERIES)(turn)


def _queue_options(id: str, prompt: str, tenant: str | None = None, priority: int | None = None) -> dict[str, Any]:
    queue = {"queue_name": QUEUE} if tenant is None else {"queue_name": TENANT_QUEUE, "queue_partition_key": tenant}
    attributes: Json = {PROMPT: prompt} if priority is None else {PROMPT: prompt, PRIORITY: priority}
    return {
        **queue,
        **({} if priority is None else {"priority": priority}),
        "workflow_name": WORKFLOW,
        "workflow_id": id,
        "app_version": APPLICATION_VERSION,
        "attributes": attributes,
    }


@cache
def _refuse_pickles() -> None:
    """Disable the pickle reader of DBOS: a row chooses its own format, and a pickle can run any code."""
    serialization = require("dbos._serialization", extra="durable")

    def refuse(self: object, serialized_data: str) -> object:
        raise RunRefused("a row of the database", "it is a pickle, which can run any code when it is read")

    serialization.DefaultSerializer.deserialize = refuse


@contextmanager
def _lock_tables(url: str) -> Iterator[None]:
    """Let one process at a time create the tables of a SQLite file: DBOS fails if another one does so as well."""
    if not url.startswith("sqlite:"):
        yield
        return
    path = Path(url.partition("///")[2])
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + CREATION_SECONDS
    while True:
        try:
            lock = FileLock(path.with_name(f"{path.name}.tables.lock"), remove=True)
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(0.02)
    try:
        yield
    finally:
        lock.release()


def _prepare_database(url: str) -> None:
    """Create the file of a SQLite database: private, and with a write-ahead log, which syncs once per write."""
    if url.startswith("sqlite:"):
        path = Path(url.partition("///")[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # closing a file that SQLite has open would drop all locks of this process
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
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
        worker=None if workflow.executor_id is None else get_label(workflow.executor_id),
        recovered=max((workflow.recovery_attempts or 0) - 1, 0),  # the first execution is counted too
        created=_to_datetime(workflow.created_at),
        ended=None if ended is None else _to_datetime(ended),
        prompt=(workflow.attributes or {}).get(PROMPT),
        version=workflow.app_version or "",
        tenant=workflow.queue_partition_key,
    )


def _to_version_count(version: str, states: Mapping[str, int]) -> VersionCount:
    counts = {"waiting": 0, "running": 0, "ended": 0}
    for state, count in states.items():
        kind = _STATES.get(state, "broken")
        counts[kind if kind in ("waiting", "running") else "ended"] += count
    return VersionCount(version, **counts)


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


class _QueryThreads(ThreadPoolExecutor):
    """Threads for the queries of an event loop. `pending` are those that have not ended."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="prompty query")
        self.pending: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future = super().submit(fn, *args, **kwargs)
        self.pending.add(future)
        future.add_done_callback(self.pending.discard)
        return future


class _WorkerLoop(LoopThread):
    """The loop of a worker. Workflows that are cancelled when it stops stay unfinished in the database."""

    def __init__(self) -> None:
        super().__init__("prompty durable")
        self._queries = _QueryThreads()
        self._loop.set_default_executor(self._queries)

    def call(self, function: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(function)

    def wait_for_queries(self) -> None:
        """Wait for queries whose tasks were cancelled, but not for a database that is away."""
        wait(list(self._queries.pending), QUERY_SECONDS)
