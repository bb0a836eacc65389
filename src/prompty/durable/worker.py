"""A worker for durable runs: a DBOS application that executes what `Runs` submits, in as many processes as you like.

    Worker("postgresql://…", tools=[pay]).run()

Workers take over from each other: `durable.leases` says who may act, and `durable.poison` what happens to a run that
kills its process. A worker takes the DBOS of its process, and refuses pickles in it. One whose lease was lost ends its
DBOS and the event loop under it, with all that they execute, and goes on with new ones under another id.
"""

import asyncio
import math
import platform
import signal
import threading
import time
from collections.abc import Coroutine, Iterable, Set
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from logging import Logger, getLogger
from typing import Any, Self, TypeVar, Unpack, cast

from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer, PortableWorkflowError, WorkflowStatus, error
from sqlalchemy.exc import DBAPIError

from prompty.concurrency import in_thread
from prompty.durable.codec import error_to_json
from prompty.durable.database import RowState, RunRow
from prompty.durable.dbos import run_record
from prompty.durable.leases import LEASE_SECONDS, Lease, Leases
from prompty.durable.logs import add_run_fields, follow
from prompty.durable.metrics import WorkerMetrics
from prompty.durable.notices import Notices, Webhook
from prompty.durable.outcome import QUARANTINE_REASON, outcome_to_json
from prompty.durable.performer import RunDeadline
from prompty.durable.poison import QUARANTINE_DEATHS, Probation, Trial, count_deaths
from prompty.durable.record import Record, WorkerOptions, WorkerParts, record_from
from prompty.durable.runs import (
    ANSWER,
    APPLICATION,
    QUARANTINE,
    QUEUE,
    TENANTS,
    VERSION,
    WORKFLOW,
    Runs,
    add_answer,
    get_run_id,
    get_segment_number,
)
from prompty.errors import PromptyError, RequestError, RunBroken, RunRefused
from prompty.model.event import Done
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.safety.redaction import mask_secrets, masked_traceback

T = TypeVar("T")
QUEUE_SECONDS = 0.5  # a look at the queue costs about as much as a step
TENANT_QUEUE_SECONDS = 1.0
WATCH_SECONDS = 1.0
DRAIN_SECONDS = 30.0
END_SECONDS = 5.0  # that a cancelled execution has for its `finally`
PROBE_SECONDS = 5.0
LAUNCHES = 3  # the database ends the session of a process that is suspended in a transaction, also while it starts
RELAUNCH_SECONDS = 1.0
POOL_SIZE = 8  # connections of DBOS: a worker is one core
logger: Logger = getLogger("prompty")
_bare: Any = {"load_input": False, "load_output": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits on runs: at once in one worker (`worker_concurrency`), in all workers (`concurrency`) and per tenant
    (`tenant_concurrency`), and how many start in a number of seconds (`rate`). Runs with and without tenants are
    counted apart."""

    worker_concurrency: int | None = None
    concurrency: int | None = None
    rate: tuple[int, float] | None = None
    tenant_concurrency: int | None = None

    def __post_init__(self) -> None:
        for name in ("worker_concurrency", "concurrency", "tenant_concurrency"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise RequestError(f"{name}={value} lets no run execute", "Use a number from 1 on, or leave it out.")
        if self.concurrency is not None and (self.worker_concurrency or 0) > self.concurrency:
            raise RequestError(
                f"one worker may execute {self.worker_concurrency} runs, and all of them {self.concurrency}",
                "Use a `worker_concurrency` that is not larger than `concurrency`.",
            )
        if self.rate is not None and (self.rate[0] < 1 or not 0 < self.rate[1] < math.inf):
            raise RequestError(f"the rate {self.rate} lets no run start", "Use for example rate=(100, 60.0).")


class Worker:
    """Executes runs, from `open` to `close`, or with `run` until the process is told to end.

    The `name` is a label for people, and need not be unique. A worker that has not renewed its `lease` for that many
    seconds loses its runs to the others. `notify` is told when a run pauses, fails or is quarantined. Tools, gate,
    guardrails and the like are the worker's: functions are not stored.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        lease: float = LEASE_SECONDS,
        limits: Limits | None = None,
        notify: Webhook | None = None,
        **parts: Unpack[WorkerOptions],
    ) -> None:
        if not 0 < lease < math.inf:
            raise RequestError(f"a lease of {lease:g} seconds never holds", "Use a few seconds, for example lease=10.")
        self.url: str = url
        self.name: str = name or platform.node() or "worker"
        self.lease_seconds: float = lease
        self.limits: Limits = limits or Limits()
        self.parts: WorkerParts = WorkerParts(**parts)
        self.runs: Runs = Runs(url, secrets=self.parts.secrets)
        self.metrics: WorkerMetrics = WorkerMetrics()
        self._notices = None if notify is None else Notices(notify, self.runs)
        self.life: _Life | None = None
        self._changing = threading.Lock()
        self._closing = threading.Event()

    def open(self) -> None:
        """Begin to work."""
        with self._changing:
            if _working:
                raise RequestError("this process already has a worker", "Close it first: DBOS allows one per process.")
            _working.append(self)
            self._closing.clear()
            add_run_fields()
            _pickles.deserialize = _refuse_pickle
            _load_common_parts()
            try:
                if self._notices is not None:
                    self._notices.start()
                self._begin_life()
            except BaseException:
                self._leave()
                raise

    def close(self, drain: float = 0.0) -> None:
        """Stop. Runs that are under way have `drain` seconds to end; then they continue elsewhere or later."""
        self._closing.set()
        with self._changing:
            if self.life is not None:
                self.life.end(drain)
                self.life = None
            self._leave()
        self.runs.close()

    def _leave(self) -> None:
        if self in _working:
            if self._notices is not None:
                self._notices.stop()
            _working.remove(self)
            _pickles.deserialize = _read_pickle

    def run(self, drain: float = DRAIN_SECONDS) -> None:
        """Work until SIGTERM or SIGINT. Then runs have `drain` seconds to end."""
        stopping = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopping.set())
        self.open()
        stopping.wait()
        self.close(drain)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check_live(self) -> str | None:
        """Return what is wrong with this process, so that only a restart helps."""
        life = self.life
        return None if life is None else life.check_live()  # it starts, or stops

    def check_ready(self) -> str | None:
        """Return why this worker cannot execute runs at the moment."""
        life = self.life
        return "the worker is starting or stopping" if life is None else life.check_live() or life.check_database()

    def _begin_life(self) -> None:
        for attempts_left in reversed(range(LAUNCHES)):
            try:
                _Life(self).begin()
                return
            except DBAPIError:
                if attempts_left == 0:
                    raise
            time.sleep(RELAUNCH_SECONDS)

    def come_back(self, lost: "_Life") -> None:
        """Go on as a new worker, after the lease of a life was lost."""
        is_over = False
        while not self._closing.wait(RELAUNCH_SECONDS if is_over else 0):
            with self._changing:
                if self._closing.is_set() or self.life is not (None if is_over else lost):
                    return
                try:
                    lost.end()
                    self.life, is_over = None, True
                    self._begin_life()
                except Exception as problem:  # whatever the database driver raises
                    logger.warning("The worker '%s' cannot start again: %s", self.name, type(problem).__name__)
                else:
                    return


@dataclass(eq=False, slots=True)
class _Execution:
    """A workflow under way, and when it was taken from the queue: another time is another execution's."""

    id: str
    task: "asyncio.Task[Any]"
    dequeued: int | None = None


class _Life:
    """One life of a worker, which a lost lease ends: an event loop, an instance of DBOS, and the executions on them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.executions: set[_Execution] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="prompty worker", daemon=True)
        self._is_launched = self._is_stopping = False
        self.probation: Probation = Probation()
        # It does not wait for an unreachable database: the lease could not be renewed in that time.
        self.client: DBOSClient = DBOSClient(
            system_database_url=worker.url,
            serializer=DBOSPortableJSONSerializer(),
            application_name=APPLICATION,
            system_database_pool_size=2,
            retry_connection_errors=False,
            sys_db_idle_transaction_timeout_sec=worker.lease_seconds / 2,
        )
        self._leases = Leases(worker.url, worker.lease_seconds)
        self.lease: Lease = Lease(
            self._leases,
            worker.name,
            worker.lease_seconds,
            worker.metrics,
            find_owners=self._find_owners,
            take_over=self._take_over,
            on_lost=lambda: worker.come_back(self),
        )

    def begin(self) -> None:
        try:
            self.lease.start()
            self._thread.start()
            self._register_queues()
            self._run(self._launch())
        except BaseException:
            self._worker.life = None
            self.end()
            raise

    async def _launch(self) -> None:
        """Launch DBOS on the loop that it will use."""
        DBOS(
            config={
                "name": APPLICATION,
                "system_database_url": self._worker.url,
                "application_version": VERSION,
                "executor_id": self.lease.id,
                "run_migrations": False,  # the client has run them
                "db_engine_kwargs": {"pool_pre_ping": False},  # DBOS tries again; half of its work was pings
                "sys_db_pool_size": POOL_SIZE,
                "sys_db_idle_transaction_timeout_sec": self._worker.lease_seconds / 2,  # one that hangs keeps its locks
                "serializer": DBOSPortableJSONSerializer(),
                "log_level": "CRITICAL",
            }
        )
        if DBOS.executor_id != self.lease.id:
            raise RequestError("this process has a DBOS of its own", "Start the worker in another process.")
        self._is_launched = True
        _register_workflow()
        DBOS.listen_queues([QUEUE, TENANTS])
        self._worker.life = self  # DBOS begins to take runs
        DBOS.launch()
        self._watching = asyncio.create_task(self._watch())

    def _register_queues(self) -> None:
        """Register the queues before DBOS looks for them, which it does once a second."""
        limits = self._worker.limits
        common: dict[str, Any] = {
            "worker_concurrency": limits.worker_concurrency,
            "global_concurrency": limits.concurrency,
            "limiter": {"limit": limits.rate[0], "period": limits.rate[1]} if limits.rate else None,
        }
        tenant = limits.tenant_concurrency
        if tenant is not None and limits.concurrency is not None:
            tenant = min(tenant, limits.concurrency)
        self.client.register_queue(QUEUE, **common, polling_interval_sec=QUEUE_SECONDS)
        self.client.register_queue(
            TENANTS, **common, partition_concurrency=tenant, polling_interval_sec=TENANT_QUEUE_SECONDS
        )

    def end(self, drain: float = 0.0) -> None:
        """End what this life executes, and DBOS. Nothing of it acts afterwards; what it lets go continues elsewhere."""
        if self._loop.is_closed():
            return
        self._is_stopping = True
        if self._is_launched and drain > 0:
            # DBOS takes no more runs from now on, and waits for ours. It counts in seconds, so it waits too long.
            destroying = in_thread(lambda: DBOS.destroy(workflow_completion_timeout_sec=math.ceil(drain) + 2))
            self._run(self._finish(drain))
            destroying.result()
        elif self._is_launched:
            self._run(self._finish(0))
            DBOS.destroy()
        self._run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.lease.stop()
        if not self.lease.is_lost:
            self._give_back()
        self._leases.close()
        self.client.destroy()

    async def _finish(self, drain: float) -> None:
        """Wait for the executions, and cancel those that take longer."""
        if drain > 0 and self.executions:
            await asyncio.wait({execution.task for execution in self.executions}, timeout=drain)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)

    def _give_back(self) -> None:
        """Queue what was not finished. Without a database, it waits for the end of the lease."""
        try:
            self._queue_again(self._find_running(self.lease.id))
            self._leases.remove(self.lease.id)
        except Exception as problem:  # whatever the database driver raises
            logger.warning("The worker '%s' could not return its lease: %s", self._worker.name, type(problem).__name__)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    # The workflow.

    async def execute(self, stored: Json) -> Json:
        """Execute a segment of a run. It is the workflow."""
        id, task = DBOS.workflow_id, asyncio.current_task()
        assert id is not None  # noqa: S101  it is a workflow
        assert task is not None  # noqa: S101  the same
        if self._is_stopping or asyncio.get_running_loop() is not self._loop:
            raise asyncio.CancelledError("the worker stops")
        execution = _Execution(id, task)
        for stale in [other for other in self.executions if other.id == id]:
            stale.task.cancel()
        self.executions.add(execution)
        try:
            with follow(run_id=get_run_id(id)):
                return await self._execute(id, stored)
        except (error.DBOSWorkflowConflictIDError, error.DBOSWorkflowCancelledError):
            raise asyncio.CancelledError("the run is another execution's") from None
        finally:
            self.executions.discard(execution)

    async def _execute(self, id: str, stored: Json) -> Json:
        await self.lease.fence()
        row = await asyncio.to_thread(self._begin, id)
        if row is None or row.state == "cancelled":  # while it was taken over, which made it wait again
            await self.client.cancel_workflow_async(id)
            raise asyncio.CancelledError("the run was cancelled")
        logger.info("The run begins.")
        try:
            outcome = await self._run_segment(row, record_from(stored, f"the record of the run '{id}'"))
        except PromptyError as problem:
            await self._note(row, "failed", id, reason=str(problem))
            raise PortableWorkflowError(
                str(problem), type(problem).__name__, data=cast(Any, error_to_json(problem))
            ) from None
        if isinstance(outcome, Done):
            tokens = (outcome.usage.input_tokens or 0) + (outcome.usage.output_tokens or 0)
            await self._note(row, "done", id, tokens=tokens, cost=outcome.cost)
        return outcome_to_json(outcome)

    def _begin(self, id: str) -> RunRow | None:
        """Note that a run goes on after a pause, before its answer is received: no answer is accepted later."""
        table, run_id, segment = self._worker.runs.table, get_run_id(id), get_segment_number(id)
        if segment > 0:
            table.change(run_id, "open", segment=segment)
        return table.get(run_id)

    async def _run_segment(self, row: RunRow, record: Record) -> Done | Paused:
        if record.paused is not None:
            record = add_answer(record, await DBOS.recv_async(ANSWER, timeout_seconds=0))
        update = partial(asyncio.to_thread, self._worker.runs.table.update, row.id)
        mark, clear = partial(update, marked_by=self.lease.id), partial(update, marked_by=None, deaths=0)
        trial = Trial(self.probation, row.deaths, mark, clear)

        async def fence() -> None:
            await trial.begin()
            await self.lease.fence()

        try:
            outcome = await run_record(
                record,
                self._worker.parts,
                fence=fence,
                around=trial.step,
                on_progress=trial.pass_step,
                metrics=self._worker.metrics,
                deadline=RunDeadline(record.deadline, self.lease.read_time),
            )
            await trial.pass_step()
        except PromptyError:
            raise
        except Exception as problem:  # the run breaks, and can be retried
            if self._is_stopping or self.lease.is_lost:
                raise asyncio.CancelledError("the worker stops") from problem
            logger.error("The run broke.\n%s", masked_traceback(problem))
            raise RunBroken(mask_secrets(f"{type(problem).__name__}: {problem}")) from problem
        finally:
            await trial.end()
        if isinstance(outcome, Paused):
            await self.lease.fence()
            await asyncio.to_thread(self._worker.runs.park, record, outcome)
            logger.info("The run is paused.")
        return outcome

    async def _note(self, row: RunRow, state: RowState, id: str, **figures: Any) -> None:
        """Note the end of a run, and count it if nobody has."""
        await self.lease.fence()
        await asyncio.to_thread(self._change, row, state, id, **figures)
        logger.info("The run is %s.", state)

    def _change(self, row: RunRow, state: RowState, id: str, **figures: Any) -> None:
        if self._worker.runs.table.change(row.id, state, segment=get_segment_number(id), **figures):
            self._worker.metrics.count_end(state, self.lease.read_time() - row.created / 1000)

    # The watcher.

    async def _watch(self) -> None:
        """Cancel executions whose run was cancelled or taken over: one question a second for all."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._cancel_stale()
            except Exception as problem:  # whatever the database driver raises
                logger.debug("The worker cannot ask which runs were cancelled: %s", type(problem).__name__)

    async def _cancel_stale(self) -> None:
        watched = list(self.executions)
        if not watched:
            return
        ids = [execution.id for execution in watched]
        found = await asyncio.to_thread(self.client.list_workflows, workflow_ids=ids, **_bare)
        statuses = {status.workflow_id: status for status in found}
        for execution in watched:
            status = statuses.get(execution.id)
            if execution in self.executions and not self._is_own(execution, status):
                is_first = execution.task.cancelling() == 0
                execution.task.cancel()
                if is_first and status is not None and status.status == "CANCELLED":
                    await self._count_cancelled(get_run_id(execution.id))

    async def _count_cancelled(self, run_id: str) -> None:
        """Count a run that somebody has cancelled while this worker executed it."""
        row = await asyncio.to_thread(self._worker.runs.table.get, run_id)
        if row is not None:
            self._worker.metrics.count_end("cancelled", self.lease.read_time() - row.created / 1000)

    def _is_own(self, execution: _Execution, status: WorkflowStatus | None) -> bool:
        if status is None or status.status != "PENDING" or status.executor_id != self.lease.id:
            return False
        if execution.dequeued is None:
            execution.dequeued = status.dequeued_at
        return execution.dequeued == status.dequeued_at

    # In the thread of the lease.

    def _find_running(self, owner: str | None = None) -> list[WorkflowStatus]:
        """Return the workflows that DBOS says are running. Those of other versions are for other workers."""
        return self.client.list_workflows(
            name=WORKFLOW, status="PENDING", app_version=VERSION, executor_id=owner, **_bare
        )

    def _find_owners(self) -> Set[str]:
        """Return who executes workflows. What DBOS took for this worker, and did not start, is queued again."""
        executed = {execution.id for execution in tuple(self.executions)}
        running = self._find_running()
        long_ago = (self.lease.read_time() - self._worker.lease_seconds) * 1000
        self._queue_again(
            status
            for status in running
            if status.executor_id == self.lease.id
            and status.workflow_id not in executed
            and (status.dequeued_at or math.inf) < long_ago
        )
        return {status.executor_id for status in running if status.executor_id}

    def _take_over(self, lost: str) -> int:
        """Queue the runs of a lost worker, but those that have killed too many."""
        left = self._find_running(lost)
        table, now = self._worker.runs.table, self.lease.read_time()
        found = ((status.workflow_id, table.get(get_run_id(status.workflow_id))) for status in left)
        rows = {id: row for id, row in found if row is not None}
        deaths = count_deaths(rows, lost, now)
        self._check_lease()
        for id, count in deaths.items():
            table.update(get_run_id(id), deaths=count, marked_by=None, taken_over=table.now)
        poison = {id for id, count in deaths.items() if count >= QUARANTINE_DEATHS}
        for id in poison:
            logger.error("The run is quarantined: %s.", QUARANTINE_REASON, extra={"run_id": get_run_id(id)})
            self._change(rows[id], "quarantined", id, reason=QUARANTINE_REASON)
        self._check_lease()
        if poison:
            self.client.resume_workflows(sorted(poison), queue_name=QUARANTINE)
        self._queue_again(status for status in left if status.workflow_id not in poison)
        return len(left)

    def _check_lease(self) -> None:
        """Raise if this process hung: another worker may have done meanwhile what it was about to do."""
        if not self.lease.is_held():
            raise TimeoutError("the worker has not renewed its lease")

    def _queue_again(self, left: Iterable[WorkflowStatus]) -> None:
        """Queue workflows. DBOS accepts nothing more that their last execution writes."""
        queues: dict[str, list[str]] = {}
        for status in left:
            queues.setdefault(status.queue_name or QUEUE, []).append(status.workflow_id)
        for queue, ids in queues.items():
            self.client.resume_workflows(ids, queue_name=queue)

    # For the probes of an orchestrator.

    def check_live(self) -> str | None:
        try:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop).result(PROBE_SECONDS)
        except TimeoutError:
            return f"the event loop has not answered for {PROBE_SECONDS:g} seconds"
        except RuntimeError:  # it was closed meanwhile
            return None
        return None

    def check_database(self) -> str | None:
        try:
            in_thread(self.client.check_connection).result(PROBE_SECONDS)
        except Exception as problem:  # whatever the database driver raises
            return f"the database does not answer: {type(problem).__name__}"
        return None if self.lease.is_held() else "the worker has not renewed its lease"


def _load_common_parts() -> None:
    """Load what most runs need: the first one would, while all others of the worker wait."""
    import prompty.providers.http.client  # as late as possible: a program may import `Worker` and not open one
    import prompty.renderers.jinja2  # noqa: F401  the same


_working: list[Worker] = []  # the worker of this process: DBOS allows one


def _register_workflow() -> None:
    """Register the workflow function in every life: a program may have destroyed what it had registered."""
    DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)(_execute)


async def _execute(record: Json) -> Json:
    life = _working[0].life if _working else None
    if life is None:
        raise asyncio.CancelledError("the worker stops")
    return await life.execute(record)


# A row of the database chooses its own format, and DBOS reads pickles whatever serializer is set. A pickle can run any
# code when it is read. Nothing public of DBOS says no to them.
_pickles: Any = import_module("dbos._serialization").DefaultSerializer
_read_pickle: Any = _pickles.deserialize


def _refuse_pickle(self: object, serialized_data: str) -> object:
    raise RunRefused("a row of the database", "it is a pickle, which can run any code when it is read")
