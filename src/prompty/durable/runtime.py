"""Turns that survive their process: started anywhere, gone on with by any worker, read and answered by anybody."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, islice
from logging import Logger, getLogger
from typing import Any, Self, TypeVar, Unpack
from uuid import uuid4

from prompty.concurrency import in_thread
from prompty.drivers.run import load_agent, parse_decisions
from prompty.drivers.run_spans import open_run_spans
from prompty.durable.deadline import RunDeadline
from prompty.durable.delta_stream import DeltaLog
from prompty.durable.driver import CANCELLED, DurableDriver
from prompty.durable.engine import (
    Attempt,
    Batches,
    Catalog,
    Engine,
    Limits,
    RemoteAttempt,
    Retries,
    Status,
    Steps,
    Streams,
    Takeovers,
    lacks,
)
from prompty.durable.engines import create_engine
from prompty.durable.envelope import unseal
from prompty.durable.expiry import Expiry, get_seconds
from prompty.durable.housekeeping import Housekeeper
from prompty.durable.leases import LEASE_SECONDS
from prompty.durable.logs import add_run_fields, follow_run
from prompty.durable.metrics import WorkerMetrics
from prompty.durable.outcome import RunOutcome, get_final_event, get_outcome, outcome_to_json
from prompty.durable.performer import Follower, Performer
from prompty.durable.queueing import AGEING_SECONDS, LOOK_SECONDS, HasQueue, check_room
from prompty.durable.record import (
    DurableOptions,
    Record,
    WorkerOptions,
    WorkerParts,
    new_record,
    record_from,
    stored_run,
)
from prompty.durable.replay import Replay
from prompty.durable.runs import (
    Ids,
    RunEvent,
    RunSummary,
    Segments,
    Summaries,
    find_paused_segment,
    get_label,
    get_run_id,
    get_segment_ids,
    get_segment_number,
    get_state,
    segment_id,
    summarize_run,
)
from prompty.durable.selection import ENDED, Position, RunState, Selection
from prompty.durable.timers import HasTimers, get_timers
from prompty.durable.webhook import NOTICE_SECONDS, PauseNotices
from prompty.errors import Cancelled, PromptyError, RequestError, RunBroken, RunRefused, UnknownRun
from prompty.loop.options import Settings
from prompty.model.agent import PromptAgent
from prompty.model.event import Done, Event
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.pipeline.load import StrPath
from prompty.tools.toolbox import handlers_of
from prompty.tracing import names
from prompty.tracing.spans import NULL_SPAN, is_tracing
from prompty.wire.structured import cast

logger: Logger = getLogger("prompty")
T = TypeVar("T")
POLL = 0.1
EXPIRY_SECONDS = 1.0
FOREVER = 3_000_000.0
PAGE = 500  # runs whose outcomes are in memory at a time
CHUNK = 1000  # runs to delete in one transaction
_END = object()
Inputs = Mapping[str, object] | None


class DurableRuntime:
    """Durable runs in a database: `sqlite:///runs.db` for one machine, `postgresql://…` for a set of workers. Those of
    `temporal://host:port/namespace` are on a Temporal server.

    With a `name` it works: it runs what it starts, what others have left for workers, and what workers left behind when
    they died. The name is a label for people. A worker that has not renewed its `lease` for that many seconds loses its
    runs to the others. Without a name it starts, reads, answers and steers, and runs nothing. Use it as a context
    manager, or `open` and `close` it.

    Tools, gate, guardrails and the like are the worker's: functions are not stored. `secrets` are values by names that
    all workers know; a run keeps the name. Every model call goes through `pace`, which may make it wait.
    """

    def __init__(
        self,
        url: str | Engine,
        *,
        name: str | None = None,
        limits: Limits | None = None,
        lease: float = LEASE_SECONDS,
        **parts: Unpack[WorkerOptions],
    ) -> None:
        self.metrics: WorkerMetrics = WorkerMetrics()
        self.engine: Engine = create_engine(url, name, limits, lease, self.metrics) if isinstance(url, str) else url
        self.parts: WorkerParts = WorkerParts(**parts)
        self._max_waiting = None if limits is None else limits.max_waiting
        self._expiry = Expiry(self.engine)
        self._notices: PauseNotices | None = None
        self._housekeepers: list[Housekeeper] = []
        self._performers: dict[str, Performer] = {}  # by execution

    def open(self) -> None:
        """Begin to work. Does nothing without a name."""
        if self._is_worker:
            add_run_fields()
        if self._is_worker and self.parts.on_pause is not None:
            self._notices = PauseNotices(self.parts.on_pause, self.engine, get_timers(self.engine))
        self.engine.open(self._segment, self._perform)
        chores: dict[Callable[[], None], float] = {}
        if self._is_worker and isinstance(self.engine, HasTimers):
            chores[self._expiry.expire] = EXPIRY_SECONDS
        if self._is_worker and isinstance(self.engine, HasQueue):
            chores[partial(self.engine.raise_priorities, AGEING_SECONDS)] = LOOK_SECONDS
        if chores:
            self._housekeepers.append(Housekeeper(chores))
        if self._notices is not None:  # on a thread of its own: the service may be slow
            self._housekeepers.append(Housekeeper({self._notices.deliver: NOTICE_SECONDS}))

    @property
    def _is_worker(self) -> bool:
        return getattr(self.engine, "name", None) is not None

    def close(self, drain: float = 0) -> None:
        """Stop; runs that are under way have so many seconds to end, and go on elsewhere or later."""
        while self._housekeepers:
            self._housekeepers.pop().stop()
        self.engine.close(drain)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await _elsewhere(self.open)
        return self

    async def __aexit__(self, *_: object) -> None:
        await _elsewhere(self.close)

    async def _segment(self, steps: Steps, stored: Json) -> Json:
        """Run one segment, from its start or a pause to its end or the next pause. It is a workflow of the engine."""
        outcome: RunOutcome
        try:
            record = record_from(stored, "the record of a run")
        except PromptyError as error:
            outcome = error
        else:
            outcome = await self._run_record(steps, record)
        if label := get_label(outcome):
            await steps.label(label)
        return outcome_to_json(outcome)

    async def _run_record(self, steps: Steps, record: Record) -> RunOutcome:
        with follow_run(record.run_id):
            logger.info("The run begins.")
            outcome = await self._run_segment(steps, record)
            if isinstance(outcome, Paused) and (record.pause_timeout is not None or self._notices is not None):
                await asyncio.to_thread(self._note_pause, record)
            reason = f": {type(outcome).__name__}" if isinstance(outcome, PromptyError) else ""
            logger.info("The run is %s%s.", get_state(outcome), reason)
        return outcome

    def _note_pause(self, record: Record) -> None:
        """Note what follows from a pause, before it is stored: after that, nothing of this run is executed."""
        self._expiry.watch_pause(record)
        if self._notices is not None:
            self._notices.note(segment_id(record.run_id, record.segment))

    async def _run_segment(self, steps: Steps, record: Record) -> RunOutcome:
        try:
            is_traced = is_tracing() and self.engine.runs_steps_locally
            spans = open_run_spans("turn", record.path or "run") if is_traced else None
            with spans or NULL_SPAN:
                if spans:
                    spans.span.set_attributes({names.RUN_ID: record.run_id})
                with spans.inside() if spans else NULL_SPAN:
                    run = stored_run(record, self.parts, spans)
                    deadline = self._expiry.get_deadline(record)
                    driver = run.async_driver()
                    performer = Performer(
                        driver,
                        record.run_id,
                        self.parts.hooks(),
                        run.settings.memory,
                        self.metrics,
                        self.parts.pace,
                        deadline,
                    )
                    self._performers[steps.execution] = performer
                    return await DurableDriver(steps, performer, _get_end(record, deadline)).drive(run.loop(driver))
        except PromptyError as error:
            return error
        finally:
            self._performers.pop(steps.execution, None)

    async def _perform(self, attempt: Attempt, reference: Json) -> Json:
        """Perform the effect of a step, which this process or another one has decided on."""
        performer = self._performers.get(attempt.execution)
        effect = None if performer is None else performer.expected.get(attempt.name)
        if performer is not None and effect is not None:
            with follow_run(performer.run_id):
                return await performer.perform(attempt, effect, reference)
        assert isinstance(attempt, RemoteAttempt)  # noqa: S101  or the step would run where it was decided on
        stored = await attempt.load()
        follower = Follower(dict(stored.steps), attempt.name)
        record = record_from(stored.record, "the record of a run")
        following = asyncio.create_task(self._run_segment(follower, record))
        reached = asyncio.create_task(follower.reached.wait())
        try:
            await asyncio.wait({following, reached}, return_when=asyncio.FIRST_COMPLETED)
            if not reached.done():
                raise RunBroken(f"the stored steps of the run do not lead to the step '{attempt.name}'")
            performer = self._performers[follower.execution]
            with follow_run(record.run_id):
                return await performer.perform(attempt, performer.expected[attempt.name], reference)
        finally:
            following.cancel()
            reached.cancel()
            await asyncio.gather(following, reached, return_exceptions=True)

    def start(
        self,
        agent_or_path: PromptAgent | StrPath,
        inputs: Inputs = None,
        *,
        run_id: str | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        deadline: timedelta | None = None,
        pause_timeout: timedelta | None = None,
        **options: Unpack[DurableOptions],
    ) -> "DurableRun":
        """Start a run: here, if this runtime works, else on any worker. One of the same id is not started again.

        Of those that wait for a worker, the smallest `priority` goes first. It falls by one for each minute of waiting.
        Runs of a `tenant` always wait in a queue, and `Limits.tenant_concurrency` of them run at once. Raise QueueFull
        if `Limits.max_waiting` runs wait already.

        If it has not ended after `deadline`, it fails with DeadlineExceeded, wherever it is. If nobody answers a pause
        within `pause_timeout`, its calls are denied and the run goes on."""
        # The agent of the record has the model it runs with, whatever the environment of a worker says.
        chosen = Settings(model=options.pop("model", None), options=options.pop("options", None))
        agent = load_agent(agent_or_path, chosen)
        if options.get("tools") is None and self.parts.tools:
            options["tools"] = list(handlers_of(self.parts.tools))
        record = replace(
            new_record(run_id or uuid4().hex, agent, inputs, options, self.parts.secrets),
            deadline=self._expiry.get_moment(deadline),
            pause_timeout=get_seconds(pause_timeout, "pause_timeout"),
            tenant=tenant,
        )
        if "#" in record.run_id:
            raise RequestError(f"the run id {record.run_id!r} has a '#' in it", "Leave it out: it parts segments.")
        self._check_capabilities(options)
        if self._max_waiting is not None and (tenant is not None or not self._is_worker):
            check_room(self.engine, self._max_waiting, record.run_id)
        if pause_timeout is not None:
            get_timers(self.engine)  # which raises if there are none
        self._expiry.watch_deadline(record)
        self._start(record.run_id, record, priority)
        return DurableRun(self, record.run_id)

    def _start(self, id: str, record: Record, priority: int | None = None) -> None:
        """Start a segment, with a place in the queue if it has one."""
        if priority is None and record.tenant is None:
            self.engine.start(id, record.to_json(), prompt=record.prompt)
        elif isinstance(self.engine, HasQueue):
            self.engine.enqueue(id, record.to_json(), prompt=record.prompt, priority=priority, tenant=record.tenant)
        else:
            raise lacks(self.engine, "order the runs that wait", "Leave `priority` and `tenant` out.")

    def _check_capabilities(self, options: DurableOptions) -> None:
        """Refuse options that the engine cannot keep."""
        if options.get("stream") and not isinstance(self.engine, Streams):
            raise lacks(self.engine, "store the deltas of answers", "Leave `stream` out.")
        if options.get("session_id") is not None and not self.engine.runs_steps_locally:
            raise lacks(self.engine, "lock a session during a run", "Pass the conversation as `messages`.")

    @property
    def batches(self) -> Batches:
        """The engine, if it can run batches."""
        if not isinstance(self.engine, Batches):
            raise lacks(self.engine, "run batches", "Use a database: sqlite:///runs.db or postgresql://…")
        return self.engine

    @property
    def catalog(self) -> Catalog:
        """The engine, if it can list runs."""
        if not isinstance(self.engine, Catalog):
            raise lacks(self.engine, "list, count or delete runs", "Use the tools of its server.")
        return self.engine

    def attach(self, run_id: str) -> "DurableRun":
        """A run that was started before, here or elsewhere."""
        if self.engine.status(run_id) is None:
            raise UnknownRun(run_id)
        return DurableRun(self, run_id)

    def result(self, run_id: str, *, timeout: float | None = None, output_type: type[Any] | None = None) -> Any:
        """Wait for a run. Return its result, or the `Paused` value if it waits for a person. Raise the error that ended
        it, with the messages so far, or TimeoutError if it has not ended in time."""
        until = time.monotonic() + (FOREVER if timeout is None else timeout)
        status = self.engine.wait(run_id, until - time.monotonic())
        if status.ended is not None and not _is_done(status):  # there may be a segment after a pause
            status = self.engine.wait(self._last_id(run_id), max(until - time.monotonic(), 0))
        end = self._end(status)
        if end is None:
            raise TimeoutError(f"the run '{run_id}' has not ended within {timeout} s")
        if isinstance(end, PromptyError):
            raise end
        if isinstance(end, Paused):
            return end
        return end.result if output_type is None else cast(end.result, output_type)

    def _end(self, status: Status) -> RunOutcome | None:
        """What a segment came to. The engine ends a run that is cancelled where it stands; the steps say where."""
        end = get_outcome(status)
        if isinstance(end, Cancelled) and status.state == "cancelled":
            record, steps = self._record(status.id), dict(self.engine.steps(status.id))
            replay = Replay(record)
            while replay.next(steps) is not None:
                pass
            list(replay.cancel(steps))
            end.messages = replay.error.messages if replay.error else ()
        return end

    def events(self, run_id: str, after: int = 0) -> Iterator[RunEvent]:
        """What happens in a run, from its first event or after a position, until it ends or waits for a person. It can
        be read again at any time, by anybody; the words of a call that had to be made again are told once."""
        position = 0
        for segment in count():
            status = self.engine.status(segment_id(run_id, segment))
            if status is None and segment == 0:
                raise UnknownRun(run_id)
            if status is None:
                return
            for event, kept in self._segment_events(status):
                position += kept
                if position > after or (not kept and position == after):
                    yield RunEvent(position, event)

    def _segment_events(self, status: Status) -> Iterator[tuple[Event, bool]]:
        """The events of a segment, and of each whether it is kept."""
        record = record_from(status.record, f"the record of the run '{status.id}'")
        replay, told = Replay(record), DeltaLog()
        while True:
            status = self.engine.wait(status.id, 0)  # before the steps: none is added after the end
            steps = dict(self.engine.steps(status.id))
            if record.options.get("stream") and isinstance(self.engine, Streams):
                told.add(self.engine.read_stream(status.id, told.count), record.run_id)
            yield from _advanced(replay, steps, told)
            if replay.ended:
                return
            if status.state == "cancelled":
                yield from ((event, True) for event in replay.cancel(steps))
                return
            if (end := get_outcome(status)) is not None:
                yield get_final_event(end), True
                return
            time.sleep(POLL)

    def answer(self, run: str | Paused, verdicts: object) -> None:
        """Let a paused run go on: a verdict for each pending call, in order, or some by their keys. True runs a call,
        `deny("why")` does not; of a call that is `unknown`, True runs it again, `use_result(value)` gives its result,
        and `deny` has it fail. Giving the same answer again does nothing. With a `Paused` value the answer is to that
        very pause, and to no later one."""
        run_id = run if isinstance(run, str) else run.run_id
        segments = self._segments(run_id)
        at = find_paused_segment(segments, None if isinstance(run, str) else run)
        if at is None:
            raise RequestError(f"the run '{run_id}' does not wait for an answer", "See `prompty runs show`.")
        paused = get_outcome(segments[at])
        assert isinstance(paused, Paused)  # noqa: S101  it was chosen for that
        self._warn_of_takeover(segments[at].id, paused)
        self._follow(segments[at].id, paused, lambda record: record.after(paused, parse_decisions(paused, verdicts)))

    def _warn_of_takeover(self, id: str, paused: Paused) -> None:
        """Warn that the process which began an interrupted call may hang, and finish it after this answer."""
        unknown = [call.name for call in paused.pending if call.unknown]
        if unknown and isinstance(self.engine, Takeovers) and self.engine.is_taken_over(id):
            logger.warning(
                "The run '%s' was taken over a moment ago. If its last worker hangs and was not killed, it may still "
                "finish '%s' after your answer. Make sure that it is gone.",
                paused.run_id,
                "', '".join(unknown),
            )

    def _follow(self, id: str, paused: Paused, following: Callable[[Record], Record]) -> None:
        """Start the segment after a pause; one that is there already must be the same."""
        record = following(self._record(id))
        next_id = segment_id(record.run_id, record.segment)
        self._start(next_id, record)
        if self._record(next_id).answers != record.answers:
            raise RequestError(f"the run '{record.run_id}' was answered otherwise", "See `prompty runs show`.")

    def steer(self, run_id: str, text: str) -> None:
        """Tell the model something before it is asked again. The run must have been started with `steering=True`."""
        last = self._last(run_id)
        if last.state not in ("waiting", "running"):
            raise RequestError(f"the run '{run_id}' is not under way", "Start a new one, or answer the one that waits.")
        if not self._record(last.id).options.get("steering"):
            raise RequestError(f"the run '{run_id}' does not listen", "Start it with steering=True.")
        self.engine.send(last.id, text)

    def cancel(self, run_id: str) -> None:
        """End a run that is under way. One that has ended stays unchanged."""
        last = self._last(run_id)
        end = get_outcome(last)
        if isinstance(end, Paused):
            self._follow(last.id, end, lambda record: record.after(end, {}, cancelled=True))
        else:
            self.engine.cancel(last.id)

    def retry(self, run_id: str) -> None:
        """Let a run that was cancelled while it ran, or broke, go on from its last step."""
        last = self._last(run_id)
        if last.state not in ("broken", "cancelled", "quarantined"):
            raise RequestError(f"the run '{run_id}' was neither cancelled nor broken", "Start a new one.")
        if not isinstance(self.engine, Retries):
            raise lacks(self.engine, "continue a run that has ended", "Start a new one.")
        self.engine.retry(last.id)

    def list(
        self,
        state: RunState | None = None,
        *,
        prompt: str | None = None,
        older_than: timedelta | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Summaries:
        """Return runs, the newest first: all, or those of a state, of a prompt, or so long in their state. `limit` and
        `after`, the cursor of a run, select a page. A run that cannot be read is listed as `refused`, with the reason,
        whatever its state was. To find all of those with `state="refused"`, everything that ended is read."""
        position = Position.from_cursor(after) if after is not None else None
        wanted = _select(() if state in (None, "refused") else (state,), prompt, older_than)
        runs = (run for run in self._summaries(wanted, position, limit) if state != "refused" or run.state == "refused")
        return list(islice(runs, limit))

    def summary(self, run_id: str) -> RunSummary:
        """Return the state of one run."""
        ids = self._segment_ids(run_id)
        found = {status.id: status for status in self.engine.find([run_id, ids[-1]], outputs=True)}
        return summarize_run(found[ids[-1]], found[run_id].created, self.engine.version)

    def prune(self, older_than: timedelta, *, state: RunState | None = None, prompt: str | None = None) -> int:
        """Delete runs that ended so long ago, and return how many: all of them, or those that are `done`, `failed`,
        `cancelled` or `refused`. A paused run has not ended. Chunks are deleted one by one, and work goes on beside."""
        if state is not None and state not in (*ENDED, "refused"):
            raise RequestError(f"a run that is {state} has not ended", "Cancel it first.")
        if state == "refused":
            refused = self.list(state, prompt=prompt, older_than=older_than)
            for start in range(0, len(refused), CHUNK):
                self._delete([Position.from_cursor(run.cursor).id for run in refused[start : start + CHUNK]])
            return len(refused)
        selection, last, count = _select((state,) if state else ENDED, prompt, older_than), None, 0
        while found := self.catalog.select(selection, limit=CHUNK, after=last, oldest_first=True):
            self._delete([position.id for position in found])
            last, count = found[-1], count + len(found)
        return count

    def delete(self, run_id: str) -> None:
        """Delete a run that has ended, or cannot be read."""
        run = self.summary(run_id)
        if run.state not in (*ENDED, "refused"):
            raise RequestError(f"the run '{run_id}' is {run.state}", "Cancel it first.")
        self.catalog.delete(self._segment_ids(run_id))

    def _delete(self, last_ids: Sequence[str]) -> None:
        """Delete runs by the ids of their last segments."""
        numbers = {id: range(get_segment_number(id) + 1) for id in last_ids}
        self.catalog.delete([segment_id(get_run_id(id), number) for id in last_ids for number in numbers[id]])

    def _summaries(self, selection: Selection, after: Position | None, limit: int | None) -> Iterator[RunSummary]:
        """Yield runs, the newest first. The outcomes of one page at a time are in memory."""
        size = min(limit or PAGE, PAGE)
        while True:
            page = self.catalog.select(selection, limit=size, after=after)
            last = {status.id: status for status in self.engine.find([position.id for position in page], outputs=True)}
            continued = [get_run_id(id) for id in last if get_segment_number(id) > 0]
            created = {status.id: status.created for status in self.engine.find(continued)}
            for position in page:
                if status := last.get(position.id):  # or it was deleted meanwhile
                    start = created.get(get_run_id(status.id), status.created)
                    yield summarize_run(status, start, self.engine.version)
            if len(page) < size:
                return
            after = page[-1]

    def _segments(self, run_id: str) -> Segments:
        return [self.engine.wait(id, 0) for id in self._segment_ids(run_id)]

    def _segment_ids(self, run_id: str) -> Ids:
        ids = get_segment_ids(self.engine, run_id)
        if not ids:
            raise UnknownRun(run_id)
        return ids

    def _last_id(self, run_id: str) -> str:
        return self._segment_ids(run_id)[-1]

    def _last(self, run_id: str) -> Status:
        return self.engine.wait(self._last_id(run_id), 0)

    def _record(self, id: str) -> Record:
        status = self.engine.status(id)
        if status is None:
            raise UnknownRun(get_run_id(id))
        return record_from(status.record, f"the record of the run '{id}'")

    async def start_async(
        self,
        agent_or_path: PromptAgent | StrPath,
        inputs: Inputs = None,
        *,
        run_id: str | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        deadline: timedelta | None = None,
        pause_timeout: timedelta | None = None,
        **options: Unpack[DurableOptions],
    ) -> "DurableRun":
        """Like `start`."""
        start = partial(self.start, agent_or_path, inputs, run_id=run_id, priority=priority, tenant=tenant)
        return await _elsewhere(lambda: start(deadline=deadline, pause_timeout=pause_timeout, **options))

    async def attach_async(self, run_id: str) -> "DurableRun":
        """Like `attach`."""
        return await _elsewhere(lambda: self.attach(run_id))

    async def result_async(
        self, run_id: str, *, timeout: float | None = None, output_type: type[Any] | None = None
    ) -> Any:
        """Like `result`."""
        return await _elsewhere(lambda: self.result(run_id, timeout=timeout, output_type=output_type))

    async def events_async(self, run_id: str, after: int = 0) -> AsyncIterator[RunEvent]:
        """Like `events`."""
        events = self.events(run_id, after)
        while (event := await _elsewhere(lambda: next(events, _END))) is not _END:
            assert isinstance(event, RunEvent)  # noqa: S101  there is nothing else in it
            yield event

    async def answer_async(self, run: str | Paused, verdicts: object) -> None:
        """Like `answer`."""
        await _elsewhere(lambda: self.answer(run, verdicts))

    async def steer_async(self, run_id: str, text: str) -> None:
        """Like `steer`."""
        await _elsewhere(lambda: self.steer(run_id, text))

    async def cancel_async(self, run_id: str) -> None:
        """Like `cancel`."""
        await _elsewhere(lambda: self.cancel(run_id))

    async def retry_async(self, run_id: str) -> None:
        """Like `retry`."""
        await _elsewhere(lambda: self.retry(run_id))

    async def list_async(
        self,
        state: RunState | None = None,
        *,
        prompt: str | None = None,
        older_than: timedelta | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Summaries:
        """Like `list`."""
        return await _elsewhere(
            lambda: self.list(state, prompt=prompt, older_than=older_than, limit=limit, after=after)
        )

    async def summary_async(self, run_id: str) -> RunSummary:
        """Like `summary`."""
        return await _elsewhere(lambda: self.summary(run_id))

    async def delete_async(self, run_id: str) -> None:
        """Like `delete`."""
        await _elsewhere(lambda: self.delete(run_id))

    async def prune_async(
        self, older_than: timedelta, *, state: RunState | None = None, prompt: str | None = None
    ) -> int:
        """Like `prune`."""
        return await _elsewhere(lambda: self.prune(older_than, state=state, prompt=prompt))


@dataclass(frozen=True, slots=True)
class DurableRun:
    """A run, wherever it runs. `DurableRuntime` describes its methods."""

    runtime: DurableRuntime
    id: str

    def result(self, *, timeout: float | None = None, output_type: type[Any] | None = None) -> Any:
        return self.runtime.result(self.id, timeout=timeout, output_type=output_type)

    def events(self, after: int = 0) -> Iterator[RunEvent]:
        return self.runtime.events(self.id, after)

    async def result_async(self, *, timeout: float | None = None, output_type: type[Any] | None = None) -> Any:
        return await self.runtime.result_async(self.id, timeout=timeout, output_type=output_type)

    def events_async(self, after: int = 0) -> AsyncIterator[RunEvent]:
        return self.runtime.events_async(self.id, after)


def _advanced(replay: Replay, steps: Mapping[str, object], told: DeltaLog) -> Iterator[tuple[Event, bool]]:
    """What happens as far as the steps go, and the words of a model before its answer."""
    while True:
        if step := replay.model_step:
            yield from ((event, False) for event in told.read_new(step, _attempt(steps.get(step))))
        events = replay.next(steps)
        if events is None:
            return
        yield from ((event, True) for event in events)


def _get_end(record: Record, deadline: RunDeadline) -> PromptyError | None:
    """Return why a segment is to end at once."""
    if record.cancelled:
        return Cancelled(CANCELLED)
    return deadline.error() if record.overdue else None


def _select(states: tuple[RunState, ...], prompt: str | None, older_than: timedelta | None) -> Selection:
    before = None if older_than is None else datetime.now(UTC) - older_than
    return Selection(states=states, prompt=prompt, before=before)


def _is_done(status: Status) -> bool:
    try:
        return isinstance(get_outcome(status), Done)
    except RunRefused:
        return False


def _attempt(stored: object) -> str | None:
    """Which execution made the call of a step that has ended."""
    if stored is None:
        return None
    value: Any = unseal(stored, "a step of the run")
    return value.get("attempt") if isinstance(value, dict) else None


async def _elsewhere(function: Callable[[], T]) -> T:
    """The engine blocks, and DBOS must not find an event loop of ours."""
    return await asyncio.wrap_future(in_thread(function))
