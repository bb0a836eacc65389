"""Durable runs in a database: submit, follow, answer, steer, cancel, retry, list and prune them, from any process.

A run is a chain of workflows of DBOS: `id`, then `id#1`, … after each pause. The one after a pause is delayed, and
begins when it is answered or when its time is up. The row of a run (`durable.database`) says what people ask for; DBOS
is the truth about what executes, and is believed where the two differ: a process can die between two writes.
`durable.worker` executes runs.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count, islice
from logging import Logger, getLogger
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, Self, TypeVar, Unpack
from uuid import uuid4

import sqlalchemy as sa
from dbos import DBOSClient, DBOSPortableJSONSerializer, EnqueueOptions, StepInfo, WorkflowStatus, error

from prompty.drivers.run import load_agent, parse_decisions
from prompty.durable.codec import decision_to_json
from prompty.durable.database import (
    RowState,
    RunFilter,
    RunRow,
    RunTable,
    create_engine,
    ensure_tables,
    is_postgres,
)
from prompty.durable.dbos import STEERING, STREAM, YEAR
from prompty.durable.delta_stream import DeltaLog
from prompty.durable.envelope import SCHEMA, digest, unseal
from prompty.durable.metrics import RunCount
from prompty.durable.outcome import QUARANTINE as QUARANTINE, RunOutcome, get_final_event, get_outcome, read_record
from prompty.durable.record import DurableOptions, Record, new_record
from prompty.durable.replay import Replay
from prompty.durable.secrets import Secrets
from prompty.errors import Cancelled, PromptyError, QueueFull, RequestError, RunRefused, UnknownRun
from prompty.loop.options import Settings
from prompty.loop.policy import deny
from prompty.model.agent import PromptAgent
from prompty.model.event import Event
from prompty.model.message import Json, Message
from prompty.model.paused import Paused
from prompty.pipeline.load import StrPath
from prompty.wire.structured import cast

T = TypeVar("T")
APPLICATION, VERSION, WORKFLOW = "prompty", f"prompty-{SCHEMA}", "prompty.turn"
QUEUE, TENANTS = "prompty", "prompty-tenants"
ANSWER = "prompty.answer"
RunState = Literal["waiting", "running", "paused", "done", "failed", "cancelled", "quarantined"]
ENDED: tuple[RowState, ...] = ("done", "failed", "cancelled")
RETRIED: tuple[RowState, ...] = ("failed", "cancelled", "quarantined")
POLL_SECONDS = 0.1
DOUBT_SECONDS = 2.0  # after which DBOS is asked about a run that is open according to its row
WARN_SECONDS = 20.0  # after a takeover: two leases
PAGE = 500
CHUNK = 1000  # workflows to delete in one transaction
_FULL = 7166020282  # the lock of submitters that count what waits
_STATES: dict[str, RunState] = {"PENDING": "running", "CANCELLED": "cancelled", "SUCCESS": "done", "ERROR": "failed"}
_ANSWERED_BADLY = ("ResultError", "GuardrailError")  # errors about the last answer of a model
_bare: Any = {"load_input": False, "load_output": False}
logger: Logger = getLogger("prompty")


def segment_id(run_id: str, segment: int) -> str:
    """Return the workflow id of a segment."""
    return run_id if segment == 0 else f"{run_id}#{segment}"


def get_run_id(workflow_id: str) -> str:
    """Return the run that a workflow belongs to."""
    return workflow_id.partition("#")[0]


def get_segment_number(workflow_id: str) -> int:
    return int(workflow_id.partition("#")[2] or 0)


def add_answer(record: Record, answer: Json | None) -> Record:
    """Return a segment after a pause with its answer. Without one its time is up, and the calls are denied."""
    if answer is not None:
        return replace(record, answers=answer)
    paused = Paused.from_json(record.paused)
    reason = f"there was no answer within {timedelta(seconds=record.pause_timeout or 0)}"
    denied = parse_decisions(paused, [deny(reason)] * len(paused.pending))
    return replace(record, answers={key: decision_to_json(decision) for key, decision in denied.items()})


class RunEvent(NamedTuple):
    """An event of a run. `position` counts stored events; a delta has the position of the stored event before it."""

    position: int
    event: Event


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """State of a run. It is in this state since `since`. `reason` says why it failed, cannot be read, or gets no worker
    of this release. Tokens and cost are known of runs that are done."""

    id: str
    state: RunState
    prompt: str
    segments: int
    worker: str | None
    created: datetime
    since: datetime
    tokens: int | None = None
    cost: Decimal | None = None
    reason: str | None = None
    tenant: str | None = None


Summaries = list[RunSummary]  # `list` is a method of `Runs`
Counts = list[RunCount]
Outcomes = list[tuple[RunRow, RunOutcome]]
Steps = list[StepInfo]
Values = list[object]


class Runs:
    """Durable runs in a database: `sqlite:///runs.db` for one machine, `postgresql://…` for a set of workers.

    It submits, reads, answers and steers runs; a `Worker` executes them. A DBOS program in the same process is not
    affected. While the database is unreachable, a call waits for it. `secrets` are values by names that all workers
    know; a run keeps the name. Close it, or use it as a context manager.
    """

    def __init__(self, url: str, *, secrets: Secrets | None = None, max_waiting: int | None = None) -> None:
        ensure_tables(url)
        self._secrets, self._max_waiting = secrets or {}, max_waiting
        # To count takes a second connection: threads that have one each would wait for another forever.
        self._submitting = nullcontext() if max_waiting is None else threading.Lock()
        self._engine = create_engine(url)
        self.table: RunTable = RunTable(self._engine)
        serializer = DBOSPortableJSONSerializer()
        self.client: DBOSClient = DBOSClient(
            system_database_engine=self._engine, serializer=serializer, application_name=APPLICATION
        )

    def close(self) -> None:
        self.client.destroy()
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Start.

    def submit(
        self,
        source: PromptAgent | StrPath,
        inputs: Mapping[str, object] | None = None,
        *,
        run_id: str | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        deadline: timedelta | None = None,
        pause_timeout: timedelta | None = None,
        **options: Unpack[DurableOptions],
    ) -> str:
        """Submit a run, and return its id. One of the same id is not started again.

        Of those that wait for a worker, the smallest `priority` goes first. Of a `tenant`,
        `Limits.tenant_concurrency` runs execute at once. Raise QueueFull if `max_waiting` runs wait already.

        If it has not ended after `deadline`, it fails with DeadlineExceeded. If a pause has no answer within
        `pause_timeout`, its calls are denied and the run continues."""
        # The agent of the record has the model it runs with, whatever the environment of a worker says.
        chosen = Settings(model=options.pop("model", None), options=options.pop("options", None))
        run_id = uuid4().hex if run_id is None else run_id
        if "#" in run_id or not run_id:
            raise RequestError(f"the run id {run_id!r} is empty or has a '#' in it", "Leave it out: it parts segments.")
        record = new_record(run_id, load_agent(source, chosen), inputs, options, self._secrets)
        seconds, until = _get_seconds(pause_timeout, "pause_timeout"), _get_seconds(deadline, "deadline")
        if until is not None:
            until += self.table.read_clock()
        record = replace(record, deadline=until, pause_timeout=seconds, tenant=tenant)
        self.submit_records([record], priority=priority)
        return run_id

    def submit_records(self, records: Sequence[Record], *, priority: int | None = None) -> None:
        """Queue first segments in one transaction, except those of runs that exist."""

        def store(connection: sa.Connection) -> None:
            if self._max_waiting is not None and is_postgres(self._engine):  # SQLite has one writer anyway
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_FULL)))
            is_new = False
            for record in records:
                if self.table.insert(record.run_id, record.prompt, record.tenant, connection):
                    is_new = True
                    self._enqueue(connection, record, priority=priority)
            if is_new and self._max_waiting is not None:
                self._check_room(connection, self._max_waiting, len(records))

        try:
            with self._submitting:
                self.table.transact(store)
        except error.DBOSWorkflowIDInUseError as problem:
            cause = f"the database has a workflow of another program with the id '{problem.workflow_id}'"
            raise RequestError(cause, "Pass another run_id.") from None

    def _check_room(self, connection: sa.Connection, most: int, new: int) -> None:
        """Raise QueueFull if runs that are new now are too many."""
        if self.table.count("open", most + new, connection) <= most:
            return
        waiting = self.table.count("open", None, connection) - len(self._find_running())
        if waiting > most:
            raise QueueFull(waiting - new, most)

    def _enqueue(
        self, connection: sa.Connection, record: Record, *, priority: int | None = None, delay: float | None = None
    ) -> None:
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": QUEUE if record.tenant is None else TENANTS,
            "workflow_id": segment_id(record.run_id, record.segment),
            "workflow_id_reuse_policy": "reject",
            "app_version": VERSION,
        }
        if delay is not None:
            options["delay_seconds"] = delay
        if priority is not None:
            options["priority"] = priority
        if record.tenant is not None:
            options["queue_partition_key"] = record.tenant
        self.client.enqueue_in_transaction(connection, options, record.to_json())

    def park(self, record: Record, paused: Paused) -> bool:
        """Pause a run, for the worker that executes it: queue the segment that follows, which begins when it is
        answered or when its time is up. Return False if that was done before. Raise CancelledError if it was
        cancelled."""
        tokens: Any = [paused.usage.get("input_tokens"), paused.usage.get("output_tokens")]
        return self._park(record.after(paused, {}), ("open",), tokens=sum(filter(None, tokens)) or None)

    def _park(self, following: Record, was: Sequence[RowState], tokens: int | None = None) -> bool:
        left = YEAR if following.deadline is None else max(following.deadline - self.table.read_clock(), 0.0)
        delay = min(left, following.pause_timeout or YEAR)

        def store(connection: sa.Connection) -> bool:
            id, segment = following.run_id, following.segment
            if self.table.change(id, "paused", segment=segment, was=was, tokens=tokens, connection=connection):
                self._enqueue(connection, following, delay=delay)
                return True
            row = self.table.get(id, connection)
            if row is None or row.segments <= segment:
                raise asyncio.CancelledError(f"the run '{id}' was cancelled")
            return False

        return self.table.transact(store)

    # Read.

    def result(self, run_id: str, *, timeout: float | None = None, output_type: type[Any] | None = None) -> Any:
        """Wait for a run. Return its result, or the `Paused` value if it waits for a person. Raise the error that ended
        it, with the messages so far, or TimeoutError if it has not ended in time."""
        until = None if timeout is None else time.monotonic() + timeout
        asked = -DOUBT_SECONDS
        while True:
            row = self._find(run_id)
            if row.state != "open" or time.monotonic() - asked >= DOUBT_SECONDS:
                asked = time.monotonic()
                end = self.get_outcome(row)
                if isinstance(end, PromptyError):
                    raise end
                if isinstance(end, Paused):
                    return end
                if end is not None:
                    return end.result if output_type is None else cast(end.result, output_type)
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"the run '{run_id}' has not ended within {timeout} s")
            time.sleep(POLL_SECONDS)

    def get_outcome(self, row: RunRow) -> RunOutcome | None:
        """Return what a run came to, or None while it waits for a worker or runs."""
        row, status = self._load_last(row)
        if get_state(row, status) == "paused":
            return Paused.from_json(read_record(status).paused)
        end = get_outcome(status)
        if isinstance(end, Cancelled) and status.status == "CANCELLED":
            end.messages = self._read_messages(status)
        return end

    def _read_messages(self, status: WorkflowStatus) -> tuple[Any, ...]:
        """Return the conversation of a run that was cancelled. DBOS ends it where it stands; the steps say where."""
        waiting, stored = read_record(status), self._read_steps(status.workflow_id)
        record = _read_begun(waiting, stored)
        if record is None:  # it was paused: the conversation is that before the calls that waited
            return tuple(Message.from_json(message) for message in Paused.from_json(waiting.paused).messages)
        replay = Replay(record)
        list(replay.advance(_name_steps(stored, record), is_cancelled=True))
        return replay.error.messages if replay.error else ()

    def events(self, run_id: str, after: int = 0) -> Iterator[RunEvent]:
        """What happens in a run, from its first event or after a position, until it ends or waits for a person. It can
        be read again at any time and by any reader; the words of a call that had to be made again are told once."""
        position = 0
        for segment in count():
            if segment >= self._find(run_id).segments:
                return
            for event, kept in self._segment_events(segment_id(run_id, segment)):
                position += kept
                if position > after or (not kept and position == after):
                    yield RunEvent(position, event)

    def _segment_events(self, id: str) -> Iterator[tuple[Event, bool]]:
        """The events of a segment, and of each whether it is kept."""
        replay: Replay | None = None
        deltas = DeltaLog()
        while True:
            status = self._load(id)  # before the steps: none is added after the end
            if status.status == "DELAYED":
                return
            stored = self._read_steps(id)
            if replay is None and (record := _read_begun(read_record(status), stored)) is not None:
                replay = Replay(record)
            if replay is not None:
                steps = _name_steps(stored, replay.record)
                if replay.record.options.get("stream"):
                    deltas.add(self._read_stream(id, deltas.count), id)
                for told in replay.advance(steps, is_cancelled=status.status == "CANCELLED"):
                    if isinstance(told, str):  # a step in which the model answers
                        words = deltas.read_new(told, _get_attempt(steps.get(told)))
                        yield from ((word, False) for word in words)
                    else:
                        yield told, True
                if replay.ended:
                    return
            if (end := get_outcome(status)) is not None:
                yield get_final_event(end), True
                return
            time.sleep(POLL_SECONDS)

    def get(self, run_id: str) -> RunSummary:
        """Return the state of one run."""
        row, status = self._load_last(self._find(run_id))
        run = _summarize(row, status)
        try:
            read_record(status)
            get_outcome(status)
        except RunRefused as refused:
            return replace(run, reason=run.reason or refused.cause)
        return run

    def list(
        self,
        state: RunState | None = None,
        *,
        prompt: str | None = None,
        tenant: str | None = None,
        prefix: str | None = None,
        older_than: timedelta | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Summaries:
        """Return runs, the newest first: all, or those of a state, of a prompt, of a tenant, whose id begins with a
        `prefix`, or that are so long in their state. `limit` and `after`, the id of a run, select a page. It reads
        no stored conversation."""
        wanted = self._select(state, prompt, tenant, older_than)._replace(prefix=prefix)
        last = self._find(after) if after is not None else None
        return list(islice(self._summaries(state, wanted, last, limit), limit))

    def _select(
        self, state: RunState | None, prompt: str | None, tenant: str | None, older_than: timedelta | None
    ) -> RunFilter:
        name = PurePath(prompt or "").name
        return RunFilter(
            states=() if state is None or state == "running" else ("open",) if state == "waiting" else (state,),
            prompts=() if prompt is None else (name, f"{name}.prompty"),
            tenant=tenant,
            before=None if older_than is None else int((self.table.read_clock() - older_than.total_seconds()) * 1000),
            ids=[get_run_id(id) for id in self._find_running()] if state == "running" else None,
        )

    def _summaries(
        self, state: RunState | None, wanted: RunFilter, after: RunRow | None, limit: int | None
    ) -> Iterator[RunSummary]:
        size = min(limit or PAGE, PAGE)
        while page := self.table.find(wanted, limit=size, after=after):
            ids = [segment_id(row.id, row.segments - 1) for row in page]
            found = self._load_all(ids, **_bare)
            for row, id in zip(page, ids, strict=True):
                if status := found.get(id):  # or it was deleted meanwhile
                    run = _summarize(self._agree(row, status), status)
                    if state is None or run.state == state:
                        yield run
            if len(page) < size:
                return
            after = page[-1]

    def count_runs(self) -> Counts:
        """Return how many runs wait for a worker, run, are paused or quarantined, and since when the oldest does."""
        running = self._find_running()
        now = self.table.read_clock()
        begun = [status.dequeued_at for status in running.values() if status.dequeued_at]
        return [
            RunCount("waiting", *self.table.measure("open", [get_run_id(id) for id in running])),
            RunCount("running", len(running), max(0.0, now - min(begun) / 1000) if begun else 0.0),
            RunCount("paused", *self.table.measure("paused")),
            RunCount("quarantined", *self.table.measure("quarantined")),
        ]

    def find_ended(self, run_ids: Sequence[str]) -> Outcomes:
        """Return those of these runs that have ended or are paused."""
        wanted = RunFilter(ids=run_ids, states=("paused", "quarantined", *ENDED))
        rows = self.table.find(wanted, limit=len(run_ids)) if run_ids else []
        found = self._load_all([segment_id(row.id, row.segments - 1) for row in rows])
        ended = []
        for row in rows:
            status = found.get(segment_id(row.id, row.segments - 1))
            if status is None:
                continue
            try:
                is_paused = get_state(row, status) == "paused"
                end = Paused.from_json(read_record(status).paused) if is_paused else get_outcome(status)
            except RunRefused as refused:
                end = refused
            if end is not None:
                ended.append((row, end))
        return ended

    # Change.

    def answer(self, run: str | Paused, verdicts: object) -> None:
        """Continue a paused run: a verdict for each pending call, in order, or some by their keys. True runs a call,
        `deny("why")` does not; of a call that is `unknown`, True runs it again, `use_result(value)` gives its result,
        and `deny` has it fail. Giving the same answer again does nothing. With a `Paused` value the answer is to that
        very pause, and to no later one."""
        row = self._find(run if isinstance(run, str) else run.run_id)
        segment = row.segments - 1
        if isinstance(run, Paused):
            segment = self._find_segment_after(run, row)
        record = None if segment == 0 else read_record(self._load(segment_id(row.id, segment)))
        if record is None or record.paused is None:
            raise _not_paused(row.id)
        paused = Paused.from_json(record.paused)
        decisions: Json = {key: decision_to_json(one) for key, one in parse_decisions(paused, verdicts).items()}
        self._warn_of_takeover(row, paused)
        self._give_answer(row.id, segment, decisions)

    def _find_segment_after(self, paused: Paused, row: RunRow) -> int:
        """Return the segment that waits, or waited, for the answer to a pause."""
        for segment in range(row.segments - 1, 0, -1):
            record = read_record(self._load(segment_id(row.id, segment)))
            if record.paused is not None and Paused.from_json(record.paused) == paused:
                return segment
        raise _not_paused(row.id)

    def _give_answer(self, run_id: str, segment: int, decisions: Json) -> None:
        id, given = segment_id(run_id, segment), f"{segment}:{digest(decisions)}"

        def store(connection: sa.Connection) -> bool:
            if self.table.change(run_id, "open", segment=segment, connection=connection):
                self.table.update(run_id, connection, answer=given)
                self.client.send_in_transaction(connection, id, decisions, ANSWER, idempotency_key=id)
                return True
            row = self.table.get(run_id, connection)
            return row is not None and row.answer == given

        if not self.table.transact(store):
            known = _get_received(self._read_steps(id))[:1]
            if known == [decisions]:
                return
            if not known and self.get(run_id).state == "cancelled":
                raise _not_paused(run_id)
            raise RequestError(f"the run '{run_id}' was answered otherwise", "See `prompty runs show`.")
        self._wake(id)

    def _wake(self, id: str) -> None:
        """Let a delayed workflow begin. Nothing happens to one that has begun, unlike with `resume_workflow`."""
        self.client.set_workflow_delay(id, delay_until_epoch_ms=0)

    def _warn_of_takeover(self, row: RunRow, paused: Paused) -> None:
        """Warn that the process which began an interrupted call may hang, and finish it after this answer."""
        unknown = [call.name for call in paused.pending if call.unknown]
        if unknown and row.taken_over and self.table.read_clock() - row.taken_over / 1000 < WARN_SECONDS:
            logger.warning(
                "The run '%s' was taken over a moment ago. If its last worker hangs and was not killed, it may still "
                "finish '%s' after your answer. Make sure that it is gone.",
                paused.run_id,
                "', '".join(unknown),
            )

    def steer(self, run_id: str, text: str) -> None:
        """Tell the model something before it is asked again. The run must have been submitted with `steering=True`."""
        row, status = self._load_last(self._find(run_id))
        if get_state(row, status) not in ("waiting", "running"):
            raise RequestError(f"the run '{run_id}' is not under way", "Start a new one, or answer the one that waits.")
        if not read_record(status).options.get("steering"):
            raise RequestError(f"the run '{run_id}' does not listen", "Submit it with steering=True.")
        self.client.send(status.workflow_id, text, STEERING)

    def cancel(self, run_id: str) -> None:
        """End a run that is under way, waits or is paused. One that has ended stays unchanged."""
        while (row := self._find(run_id)).state in ("open", "paused", "quarantined", "cancelled"):
            # Noted first: a worker that takes the run over at this moment would queue it again, and then sees the note.
            was: Sequence[RowState] = ("open", "paused", "quarantined")
            if row.state == "cancelled" or self.table.change(run_id, "cancelled", segment=row.segments - 1, was=was):
                id = segment_id(run_id, row.segments - 1)
                self.client.cancel_workflow(id)
                found = self._load_all([id], **_bare)
                if status := found.get(id):
                    self._agree(self._find(run_id), status)  # it may have ended before
                return

    def retry(self, run_id: str) -> None:
        """Let a run that failed, was cancelled or is quarantined continue after its last good step."""
        row, status = self._load_last(self._find(run_id))
        state, id, segment = get_state(row, status), status.workflow_id, row.segments - 1
        if state not in RETRIED:
            raise RequestError(f"the run '{run_id}' is {state}", "Retry what failed, was cancelled or quarantined.")
        queue = QUEUE if row.tenant is None else TENANTS
        steps = self._read_steps(id)
        # A pause that was not answered, or whose answer was not received: to rewind a workflow deletes its messages.
        if segment > 0 and not steps and (status.status == "ERROR" or (state == "cancelled" and row.answer is None)):
            self._park(replace(read_record(status), segment=segment + 1), RETRIED)
            return
        values = {"deaths": 0, "marked_by": None, "taken_over": None}

        def note(connection: sa.Connection) -> bool:
            self.table.update(run_id, connection, **values)
            return self.table.change(run_id, "open", segment=segment, was=RETRIED, connection=connection)

        self.table.transact(note)
        if status.status != "ERROR":
            self.client.resume_workflow(id, queue_name=queue)
            return
        self.client.rewind_workflow(
            id,
            start_step=_find_start(steps, status),
            application_version=VERSION,
            queue_name=queue,
            queue_partition_key=row.tenant,
        )

    def delete(self, run_id: str) -> None:
        """Delete a run that has ended or is quarantined."""
        row = self._find(run_id)
        try:
            state = self.get(run_id).state
        except UnknownRun:  # its workflows are gone
            state = "done"
        if state in ("waiting", "running", "paused"):
            raise RequestError(f"the run '{run_id}' is {state}", "Cancel it first.")
        self._delete([row])

    def prune(
        self,
        older_than: timedelta,
        *,
        state: RunState | None = None,
        prompt: str | None = None,
        tenant: str | None = None,
    ) -> int:
        """Delete runs that ended so long ago, and return how many: all of them, or those of a state. A paused run has
        not ended, and a quarantined one is deleted by its state only. Chunks are deleted one by one, while workers keep
        running."""
        if state is not None and state not in (*ENDED, "quarantined"):
            raise RequestError(f"a run that is {state} has not ended", "Cancel it first.")
        wanted = self._select(state, prompt, tenant, older_than)
        if state is None:
            wanted = wanted._replace(states=ENDED)
        after, total = None, 0
        while rows := self.table.find(wanted, limit=CHUNK // 2, after=after, oldest_first=True):
            after = rows[-1]
            last = [segment_id(row.id, row.segments - 1) for row in rows]
            active: Any = {"status": ["PENDING", "DELAYED"] if state else ["PENDING", "DELAYED", "ENQUEUED"]}
            under_way = self._load_all(last, **active, **_bare)  # their rows were ahead of them
            ended = [row for row, id in zip(rows, last, strict=True) if id not in under_way]
            self._delete(ended)
            total += len(ended)
        return total

    def _delete(self, rows: Sequence[RunRow]) -> None:
        """Delete runs. Their rows go last, so that they are found again if this process dies."""
        ids = [segment_id(row.id, number) for row in rows for number in range(row.segments)]
        for start in range(0, len(ids), CHUNK):
            self.client.delete_workflows(ids[start : start + CHUNK])
        if rows:
            self.table.delete([row.id for row in rows])

    # Rows and workflows.

    def _find(self, run_id: str) -> RunRow:
        row = self.table.get(run_id)
        if row is None:
            raise UnknownRun(run_id)
        return row

    def _find_running(self) -> dict[str, WorkflowStatus]:
        if is_postgres(self._engine):
            found = self.client.list_workflows(name=WORKFLOW, status="PENDING", **_bare)
            return {status.workflow_id: status for status in found}
        ids = [segment_id(row.id, row.segments - 1) for row in self.table.find(RunFilter(states=("open",)), limit=-1)]
        return self._load_all(ids, status="PENDING", **_bare)  # SQLite does not use the index of DBOS

    def _load_last(self, row: RunRow) -> tuple[RunRow, WorkflowStatus]:
        """Return the last workflow of a run with what it stored, and the row of that moment."""
        while True:
            status = self._load(segment_id(row.id, row.segments - 1))
            agreed = self._agree(row, status)
            if agreed.segments == row.segments:
                return agreed, status
            row = agreed

    def _load(self, id: str) -> WorkflowStatus:
        found = self._load_all([id])
        if id not in found:
            raise UnknownRun(get_run_id(id))
        return found[id]

    def _load_all(self, ids: Sequence[str], **options: Any) -> dict[str, WorkflowStatus]:
        found: dict[str, WorkflowStatus] = {}
        for start in range(0, len(ids), CHUNK):
            chunk = list(ids[start : start + CHUNK])
            if options.get("load_input", True) or options.get("load_output", True):
                self.table.check_format("workflow_status", chunk)
            statuses = self.client.list_workflows(workflow_ids=chunk, **options)
            found |= {status.workflow_id: status for status in statuses}
        return found

    def _agree(self, row: RunRow, status: WorkflowStatus) -> RunRow:
        """Return the row of a run as DBOS says it is: its own, or corrected if a process died before it wrote it."""
        state = get_state(row, status)
        if state == "waiting" and status.status == "DELAYED":
            self._wake(status.workflow_id)  # whoever answered died before this
        if state in (row.state, "waiting", "running", "paused"):
            return row
        current = self.table.get(row.id)
        if current is None or current.segments != row.segments or current.state != row.state:
            return current or row  # it is newer than the workflow that was read
        known: Any = state
        self.table.change(row.id, known, segment=row.segments - 1, was=(row.state,), reason=row.reason)
        return current._replace(state=known)

    def _read_steps(self, id: str) -> Steps:
        self.table.check_format("operation_outputs", [id])
        return self.client.list_workflow_steps(id)

    def _read_stream(self, id: str, offset: int) -> Values:
        """Return what was written to the stream of a workflow since an offset."""
        self.table.check_format("streams", [id])
        values: Values = []
        try:
            for value in self.client.read_stream(id, STREAM, offset=offset, timeout_seconds=0):
                values.append(value)
        except error.DBOSStreamTimeoutError:
            pass
        return values


def get_state(row: RunRow, status: WorkflowStatus) -> RunState:
    """Return the state of a run. DBOS is believed if its row says something else."""
    match status.status:
        case "ENQUEUED":
            return "quarantined" if status.queue_name == QUARANTINE else "waiting"
        case "DELAYED":
            return "paused" if row.answer is None else "waiting"
    return _STATES.get(status.status, "quarantined")


def _summarize(row: RunRow, status: WorkflowStatus) -> RunSummary:
    state = get_state(row, status)
    reason = row.reason
    if state in ("waiting", "running") and status.app_version != VERSION:
        reason = f"needs a worker of the version {status.app_version!r}; this one is {VERSION!r}"
    return RunSummary(
        id=row.id,
        state=state,
        prompt=row.prompt,
        segments=row.segments,
        worker=status.executor_id.rpartition("~")[0] or status.executor_id if status.executor_id else None,
        created=_to_datetime(row.created),
        since=_to_datetime(row.since),
        tokens=row.tokens,
        cost=None if row.cost is None else Decimal(row.cost),
        reason=reason,
        tenant=row.tenant,
    )


def _find_start(steps: Sequence[StepInfo], status: WorkflowStatus) -> int:
    """Return the step at which a failed workflow goes on. Everything before it is kept.

    That is the first error that no later answer of a model made up for. If the last answer itself was the reason, the
    model is asked again, unless calls of its tools have begun. Otherwise all steps are kept: then the reason was the
    worker, or the run fails for the same reason again.
    """
    failed = None
    last_answer = None
    for step in steps:
        kind = step["function_name"].partition(":")[0]
        if kind.startswith("DBOS.") or kind == "intent":
            last_answer = last_answer if kind.startswith("DBOS.") else None
            continue
        value: Any = unseal(step["output"], f"the step '{step['function_name']}'")
        if isinstance(value, dict) and "error" in value:
            failed = failed or step["function_id"]
        elif kind == "model":
            failed, last_answer = None, step["function_id"]
        elif kind == "tool":
            last_answer = None
    data: Any = getattr(status.error, "data", None)
    if failed is None and isinstance(data, dict) and data.get("class") in _ANSWERED_BADLY:
        failed = last_answer
    return failed or max((step["function_id"] for step in steps), default=0) + 1


def _read_begun(record: Record, steps: Sequence[StepInfo]) -> Record | None:
    """Return the record of a segment with the answer that it began with, or None if it has not begun."""
    if record.paused is None:
        return record
    received = _get_received(steps)
    return add_answer(record, received[0]) if received else None


def _get_received(steps: Sequence[StepInfo]) -> list[Any]:
    """Return the messages that a segment has received, the answer to its pause first."""
    return [step["output"] for step in steps if step["function_name"] == "DBOS.recv"]


def _name_steps(steps: Sequence[StepInfo], record: Record) -> dict[str, object]:
    """Return the results of steps by our names. DBOS stores each message that was received, and None for an empty
    queue."""
    named = {step["function_name"]: step["output"] for step in steps if not step["function_name"].startswith("DBOS.")}
    texts: list[object] = []
    drains = count(1)
    for text in _get_received(steps)[record.paused is not None :]:
        if text is None:
            named[f"received:{next(drains)}"], texts = texts, []
        else:
            texts.append(text)
    return named


def _get_attempt(stored: object) -> str | None:
    """Which execution made the call of a step that has ended."""
    if stored is None:
        return None
    value: Any = unseal(stored, "a step of the run")
    return value.get("attempt") if isinstance(value, dict) else None


def _get_seconds(duration: timedelta | None, name: str) -> float | None:
    if duration is None:
        return None
    if duration <= timedelta(0):
        cause = f"the {name} of {duration} is over before the run begins"
        raise RequestError(cause, "Give it some time.", f"Give --{name.replace('_', '-')} some time.")
    return duration.total_seconds()


def _not_paused(run_id: str) -> RequestError:
    return RequestError(f"the run '{run_id}' does not wait for this answer", "See `prompty runs show`.")


def _to_datetime(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
