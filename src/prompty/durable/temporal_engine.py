"""Engine on Temporal, for teams that run its server already: `temporal://host:port/namespace`.

A run is a workflow, and each of its steps is an activity, which any worker performs. An activity gets the name of its
step and a reference to its effect, so that the history grows with what is new. An attempt that its worker did not
finish is another activity, which knows that it is repeated: Temporal itself retries nothing.

The server takes an attempt from its worker when no heartbeat has come for the time of a lease. Before the first side
effect, and when the last confirmed heartbeat is too old, the worker asks the server whether the attempt is still its
own. So a process that was suspended begins nothing, even if it was given the step just before.

Only `durable.temporal_engine`, `durable.temporal_history` and `durable.temporal_connection` know Temporal.
"""

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from logging import Logger, getLogger
from typing import Any, TypeVar

from temporalio import activity, workflow
from temporalio.api.enums.v1 import PendingWorkflowTaskState
from temporalio.client import (
    AsyncActivityCancelledError,
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistoryEventFilterType,
)
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ApplicationErrorCategory,
    TimeoutError as TemporalTimeout,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import (
    Interceptor,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from prompty.durable.engine import Limits, Perform, State, Status, StoredExecution, StoredStep, Workflow
from prompty.durable.envelope import SCHEMA
from prompty.durable.leases import FENCE_SECONDS, LEASE_SECONDS, SAFE_SHARE, read_clock
from prompty.durable.loop_thread import LoopThread
from prompty.durable.selection import Outcome
from prompty.durable.temporal_connection import Address, connect, parse_address
from prompty.durable.temporal_history import (
    CANCELLED,
    EFFECT,
    RECEIVED,
    REPEATED,
    STEP,
    Ending,
    encode,
    read_ending,
    read_execution,
    read_head,
    read_memo,
)
from prompty.errors import RequestError, RunBroken, UnknownRun
from prompty.model.message import Json

T = TypeVar("T")
VERSION = f"prompty-{SCHEMA}"  # also the name of the task queue: workers of another version have another one
ID_PREFIX = "prompty/"  # workflows of others in the namespace are never touched
WORKFLOW = "prompty.run"
ACTIVITY = "prompty.step"
SIGNAL = "prompty.message"
EXECUTE = "prompty.execute"
PROMPT, OUTCOME = "prompt", "outcome"  # keys of the memo
STOPPED, RAISED = "prompty.stopped", "prompty.raised"  # types of failures of an activity
BEATS = 4  # in a lease
MAX_STEPS = 1000  # at once in a worker
MAX_DEATHS = 10  # of workers in one step
MAX_BYTES = 2_000_000  # of a value; the server refuses more than 2 MiB
FOREVER = timedelta(days=3650)
HEAD_EVENTS = 10
logger: Logger = getLogger("prompty")


class TemporalEngine:
    """Workflows in a namespace of a Temporal server."""

    def __init__(
        self, url: str, name: str | None = None, limits: Limits | None = None, lease: float = LEASE_SECONDS
    ) -> None:
        self.address: Address = parse_address(url)
        self.name = name
        self.limits: Limits = limits or Limits()
        if self.limits != Limits(worker_concurrency=self.limits.worker_concurrency):
            raise RequestError(
                "TemporalEngine cannot limit or count the runs of all workers together",
                "Limit the steps of each worker: Limits(worker_concurrency=…).",
                "Use --concurrency alone, which limits the steps of each worker.",
            )
        self._lease = lease
        self._opening = threading.Lock()
        self._loop: LoopThread | None = None
        self._client: Client | None = None
        self._worker: _Worker | None = None

    @property
    def version(self) -> str:
        return VERSION

    @property
    def runs_steps_locally(self) -> bool:
        return False

    def open(self, workflow: Workflow, perform: Perform, /) -> None:
        if self.name is None:
            return
        if self._worker is not None:
            raise RequestError("this engine is already open", "Close it first.")

        async def start(client: Client) -> _Worker:
            worker = _Worker(client, self.name or "", workflow, perform, self.limits, self._lease)
            await worker.start()
            return worker

        try:
            self._worker = self._run(start)
        except BaseException:
            self.close()
            raise

    def close(self, drain: float = 0) -> None:
        """Stop the worker. Steps under way have `drain` seconds to end, and their runs continue elsewhere."""
        if self._loop is None:
            return
        if self._worker is not None:
            self._loop.run(self._worker.stop(drain))
            self._worker = None
        self._loop.stop()
        self._loop = self._client = None

    def start(self, id: str, record: Json, /, *, prompt: str = "") -> None:
        payload = encode(record)
        if payload.ByteSize() > MAX_BYTES:
            raise RequestError(
                f"the run '{id}' has {payload.ByteSize():,} bytes, and Temporal stores at most {MAX_BYTES:,}",
                "Give large inputs as references that a tool reads.",
            )

        async def start(client: Client) -> None:
            with suppress(WorkflowAlreadyStartedError):
                await client.start_workflow(
                    WORKFLOW,
                    record,
                    id=ID_PREFIX + id,
                    task_queue=VERSION,
                    id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    memo={PROMPT: prompt},
                    task_timeout=timedelta(seconds=self._lease),
                )

        self._run(start)

    def status(self, id: str, /) -> Status | None:
        async def read(client: Client) -> Status | None:
            status = await _read_status(client, id)
            if status is None:
                return None
            record, worker = await read_head(_handle(client, id).fetch_history_events(page_size=HEAD_EVENTS))
            return replace(status, record=record, worker=status.worker or worker)

        return self._run(read)

    def wait(self, id: str, seconds: float, /) -> Status:
        async def wait(client: Client) -> Status | None:
            if seconds > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(_wait_for_end(client, id), seconds)
            return await _read_status(client, id)

        status = self._run(wait)
        if status is None:
            raise UnknownRun(id)
        return status

    def find(self, ids: Sequence[str], /, *, outputs: bool = False) -> list[Status]:
        """The list of workflows on the server lags behind, so each is asked for by its id."""

        async def find(client: Client) -> list[Status | None]:
            return await asyncio.gather(*(_read_status(client, id, output=outputs) for id in ids))

        found = [status for status in self._run(find) if status is not None]
        return sorted(found, key=lambda status: status.created)

    def steps(self, id: str, /) -> list[StoredStep]:
        async def read(client: Client) -> list[StoredStep]:
            try:
                return list((await read_execution(_handle(client, id).fetch_history_events())).steps)
            except RPCError as error:
                _raise_unless_missing(error)
                return []

        return self._run(read)

    def send(self, id: str, text: str, /) -> None:
        async def send(client: Client) -> None:
            try:
                await _handle(client, id).signal(SIGNAL, text)
            except RPCError as error:
                _raise_unless_missing(error)
                await self._check_exists(client, id)
                raise RequestError(f"the run '{id}' has ended", "Start a new one.") from None

        self._run(send)

    def cancel(self, id: str, /) -> None:
        """Terminate the workflow: that needs no worker. Its activities end at their next heartbeat."""

        async def cancel(client: Client) -> None:
            try:
                await _handle(client, id).terminate(reason=CANCELLED)
            except RPCError as error:
                _raise_unless_missing(error)
                await self._check_exists(client, id)

        self._run(cancel)

    async def _check_exists(self, client: Client, id: str) -> None:
        if await _describe(client, id) is None:
            raise UnknownRun(id)

    def _run(self, action: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Have something done on the event loop of this engine, with the client that belongs to it."""
        with self._opening:
            if self._loop is None:
                self._loop = LoopThread("prompty temporal")
            if self._client is None:
                self._client = self._loop.run(connect(self.address, self.name or "prompty"))
        return self._loop.run(action(self._client))


class _Worker:
    """Takes workflows and steps from the server. Several can work in one process."""

    def __init__(
        self, client: Client, name: str, workflow: Workflow, perform: Perform, limits: Limits, lease: float
    ) -> None:
        self._client, self._perform = client, perform
        self._tasks: set[asyncio.Task[Any]] = set()
        self._running: asyncio.Task[None] | None = None
        self._worker = Worker(
            client,
            task_queue=VERSION,
            identity=name,
            workflows=[RunWorkflow],
            workflow_runner=UnsandboxedWorkflowRunner(),
            interceptors=[_PassWorkflow(lambda steps, record: workflow(steps, record), lease)],
            activities=[self._run_step],
            max_concurrent_activities=limits.worker_concurrency or MAX_STEPS,
            max_heartbeat_throttle_interval=timedelta(seconds=lease / BEATS),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=lease),
            graceful_shutdown_timeout=FOREVER,  # `stop` cancels the steps itself, after as long as it is told
        )

    async def start(self) -> None:
        self._running = asyncio.create_task(self._worker.run())
        await asyncio.sleep(0)
        if self._running.done():
            await self._running
        self._running.add_done_callback(_report_failure)

    async def stop(self, drain: float) -> None:
        stopping = asyncio.create_task(self._worker.shutdown())
        await asyncio.wait({stopping}, timeout=drain)
        while not stopping.done():  # a step may have started meanwhile
            for task in self._tasks:
                task.cancel()
            await asyncio.wait({stopping}, timeout=FENCE_SECONDS)

    @activity.defn(name=ACTIVITY)
    async def _run_step(self, call: Json) -> Json:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  an activity is a task
        self._tasks.add(task)
        attempt = _Attempt(self._client, str(call[STEP]), bool(call[REPEATED]))
        beating = asyncio.create_task(attempt.beat())
        try:
            result = await self._perform(attempt, call[EFFECT])  # type: ignore[arg-type]  # what `_Steps` has written
            return _check_size(attempt.name, result)
        except asyncio.CancelledError:  # the worker stops, or the attempt is no longer its own
            raise ApplicationError(
                "the worker stopped", type=STOPPED, category=ApplicationErrorCategory.BENIGN
            ) from None
        except Exception as error:
            raise ApplicationError(f"{type(error).__name__}: {error}", type=RAISED) from None
        finally:
            beating.cancel()
            self._tasks.discard(task)


class _Attempt:
    """An attempt at a step, in any worker."""

    def __init__(self, client: Client, name: str, is_repeated: bool) -> None:
        info = activity.info()
        assert info.workflow_id is not None  # noqa: S101  a workflow has scheduled it
        assert info.workflow_run_id is not None  # noqa: S101  and this execution of it
        assert info.heartbeat_timeout is not None  # noqa: S101  which has always one
        self.name = name
        self.is_repeated = is_repeated
        self.execution: str = info.workflow_run_id
        self._lease = info.heartbeat_timeout.total_seconds()
        self._history = client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
        self._server = client.get_async_activity_handle(task_token=info.task_token)
        self._confirmed = -math.inf  # when the last confirmed heartbeat began

    async def beat(self) -> None:
        """Send heartbeats. If the server has taken the attempt back, the library cancels it."""
        while True:
            await asyncio.sleep(self._lease / BEATS)
            activity.heartbeat()

    async def fence(self) -> None:
        while not self._is_confirmed():
            await self._confirm()
            if not self._is_confirmed():
                await asyncio.sleep(FENCE_SECONDS)

    def _is_confirmed(self) -> bool:
        return read_clock() - self._confirmed < SAFE_SHARE * self._lease

    async def _confirm(self) -> None:
        begun = read_clock()
        try:
            await self._server.heartbeat(rpc_timeout=timedelta(seconds=self._lease))
        except AsyncActivityCancelledError:
            raise asyncio.CancelledError("the step was cancelled") from None
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise asyncio.CancelledError("the server has taken the step from this worker") from None
            logger.debug("Temporal does not confirm that a step belongs to this worker: %s", error.status.name)
        else:
            self._confirmed = begun

    async def load(self) -> StoredExecution:
        return await read_execution(self._history.fetch_history_events())


@workflow.defn(name=WORKFLOW, sandboxed=False, failure_exception_types=[Exception])
class RunWorkflow:
    """A run. It is deterministic, so it needs no sandbox. Whatever it raises breaks it: by default Temporal would try
    it again for ever."""

    def __init__(self) -> None:
        self._inbox: list[str] = []

    @workflow.signal(name=SIGNAL)
    def take(self, text: str) -> None:
        self._inbox.append(str(text))

    @workflow.run
    async def execute(self, record: Json) -> Json:
        output: Json = await workflow.extern_functions()[EXECUTE](self._inbox, record)
        return output


class _PassWorkflow(Interceptor):
    """Gives the workflow of a worker to its executions: Temporal creates those from a class."""

    def __init__(self, workflow: Workflow, lease: float) -> None:
        self._workflow, self._lease = workflow, timedelta(seconds=lease)

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        input.unsafe_extern_functions[EXECUTE] = self._execute
        return None

    async def _execute(self, inbox: list[str], record: Json) -> Json:
        return await self._workflow(_Steps(inbox, self._lease), record)


class _Steps:
    """Temporal as a running workflow sees it. An execution is never repeated, but attempts at its steps are."""

    def __init__(self, inbox: list[str], lease: timedelta) -> None:
        self.execution: str = workflow.info().run_id
        self._inbox, self._lease = inbox, lease

    async def step(self, name: str, effect: Json, /) -> Json:
        deaths = 0
        for attempt in count():
            call: Json = {STEP: name, EFFECT: effect, REPEATED: attempt > 0}
            try:
                return await self._schedule(call)
            except ActivityError as error:
                deaths += _is_death(error)
                if deaths > MAX_DEATHS:
                    raise RunBroken(f"{deaths} workers died while they performed the step '{name}'") from None
        raise AssertionError("unreachable")

    async def _schedule(self, call: Json) -> Json:
        result: Json = await workflow.execute_activity(
            ACTIVITY,
            call,
            start_to_close_timeout=FOREVER,
            heartbeat_timeout=self._lease,
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        return result

    async def begin(self, name: str, /) -> bool:
        return True

    async def receive(self) -> list[str]:
        texts, self._inbox[:] = list(self._inbox), []
        workflow.upsert_memo({RECEIVED: len(texts)})
        return texts

    async def label(self, outcome: Outcome, /) -> None:
        workflow.upsert_memo({OUTCOME: outcome})


def _is_death(error: ActivityError) -> bool:
    """Return True if the worker of an attempt died, and False if it stopped. Raise whatever else ended it."""
    if is_cancelled_exception(error):
        raise asyncio.CancelledError("the run was cancelled") from error
    cause = error.cause
    if isinstance(cause, TemporalTimeout):
        return True
    if isinstance(cause, ApplicationError) and cause.type == STOPPED:
        return False
    raise ApplicationError(cause.message if isinstance(cause, ApplicationError) else str(cause)) from None


def _check_size(name: str, result: Json) -> Json:
    size = encode(result).ByteSize()
    if size > MAX_BYTES:
        raise RequestError(
            f"the result of the step '{name}' has {size:,} bytes, and Temporal stores at most {MAX_BYTES:,}",
            "Let the tool store it, and return a reference.",
        )
    return result


def _report_failure(running: "asyncio.Task[None]") -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.error("The worker on Temporal has stopped: %s", error)


def _handle(client: Client, id: str) -> WorkflowHandle[Any, Any]:
    return client.get_workflow_handle(ID_PREFIX + id)


def _raise_unless_missing(error: RPCError) -> None:
    if error.status != RPCStatusCode.NOT_FOUND:
        raise error


async def _describe(client: Client, id: str) -> WorkflowExecutionDescription | None:
    try:
        return await _handle(client, id).describe()
    except RPCError as error:
        _raise_unless_missing(error)
        return None


async def _wait_for_end(client: Client, id: str) -> None:
    events = _handle(client, id).fetch_history_events(
        wait_new_event=True, event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT
    )
    try:
        async for _ in events:
            return
    except RPCError as error:
        _raise_unless_missing(error)


async def _read_status(client: Client, id: str, *, output: bool = True) -> Status | None:
    """Return the status without the record."""
    described = await _describe(client, id)
    if described is None:
        return None
    ending = Ending()
    if described.status == WorkflowExecutionStatus.TERMINATED or (output and described.close_time is not None):
        ending = await _read_ending(client, id)
    raw = described.raw_description
    return Status(
        id=id,
        state=await _get_state(client, id, described, ending),
        output=ending.output,
        error=ending.error,
        worker=next((step.last_worker_identity for step in raw.pending_activities if step.last_worker_identity), None),
        created=described.start_time,
        ended=described.close_time,
        prompt=_to_text(read_memo(raw.workflow_execution_info.memo.fields, PROMPT)),
        version=described.task_queue,
    )


async def _read_ending(client: Client, id: str) -> Ending:
    events = _handle(client, id).fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT)
    async for event in events:
        return read_ending(event)
    return Ending()


async def _get_state(client: Client, id: str, described: WorkflowExecutionDescription, ending: Ending) -> State:
    match described.status:
        case WorkflowExecutionStatus.RUNNING:
            return "running" if await _is_taken(client, id, described) else "waiting"
        case WorkflowExecutionStatus.COMPLETED:
            return "finished"
        case WorkflowExecutionStatus.CANCELED:
            return "cancelled"
    return "cancelled" if ending.is_cancelled else "broken"


async def _is_taken(client: Client, id: str, described: WorkflowExecutionDescription) -> bool:
    """Return True if a worker has taken the workflow. Its history says so, but is rarely needed."""
    raw = described.raw_description
    if raw.pending_activities or not raw.HasField("pending_workflow_task"):
        return True
    if raw.pending_workflow_task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED:
        return True
    head = await read_head(_handle(client, id).fetch_history_events(page_size=HEAD_EVENTS))
    return head.worker is not None


def _to_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
