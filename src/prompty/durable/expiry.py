"""Ends runs at their deadline, and denies the calls of pauses that nobody answered in time.

A worker that executes a run keeps its deadline itself (`durable.deadline`). Here are the runs that nobody executes:
those that wait in the queue or for a person. Any worker may do it, also two at the same time: the database ends a
waiting workflow once, and the segment after a pause has one id, whoever starts it.
Used by `durable.runtime`, which looks once a second (`durable.housekeeping`).
"""

import time
from collections.abc import Callable
from datetime import timedelta
from logging import Logger, getLogger

from prompty.drivers.run import parse_decisions
from prompty.durable.deadline import RunDeadline
from prompty.durable.engine import Batches, Engine, Status
from prompty.durable.outcome import get_outcome, outcome_to_json
from prompty.durable.record import Record, record_from
from prompty.durable.runs import get_run_id, get_segment_ids, segment_id
from prompty.durable.timers import Timer, Timers, get_timers
from prompty.errors import RequestError, RunRefused
from prompty.loop.policy import deny
from prompty.model.paused import Paused

CLAIM_LIMIT = 100
logger: Logger = getLogger("prompty")


class Expiry:
    """The limits of time of the runs of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def _timers(self) -> Timers:
        return get_timers(self._engine)

    def get_moment(self, duration: timedelta | None) -> float | None:
        """Return when a duration from now is over, by the clock of the database."""
        seconds = get_seconds(duration, "deadline")
        return None if seconds is None else self._timers.read_clock() + seconds

    def get_deadline(self, record: Record) -> RunDeadline:
        return RunDeadline(record.deadline, time.time if record.deadline is None else self._timers.read_clock)

    def watch_deadline(self, record: Record) -> None:
        """Set the timer of a run that is about to start."""
        if record.deadline is not None:
            self._timers.set(Timer(record.run_id, "deadline"), record.deadline)

    def watch_pause(self, record: Record) -> None:
        """Set the timer of a segment that is about to end in a pause."""
        if record.pause_timeout is not None:
            id = segment_id(record.run_id, record.segment)
            self._timers.set(Timer(id, "pause"), self._timers.read_clock() + record.pause_timeout)

    def expire(self) -> None:
        """End what is due."""
        timers = self._timers
        for timer, _ in timers.claim(("deadline", "pause"), CLAIM_LIMIT):
            end: Callable[[str], bool] = self._end_run if timer.kind == "deadline" else self._deny_calls
            try:
                is_settled = end(timer.id)
            except RunRefused as error:  # a worker of another release may be able to read it
                logger.debug("The timer of the run '%s' (%s) is left alone: %s", timer.id, timer.kind, error.cause)
                is_settled = False
            if is_settled:
                timers.drop(timer)

    def _end_run(self, run_id: str) -> bool:
        """End a run whose deadline has passed. Return False to look again: a worker executes it, or is about to."""
        ids = get_segment_ids(self._engine, run_id)
        status = self._engine.status(ids[-1]) if ids else None
        if status is None:
            return True
        record = _read_record(status)
        deadline = self.get_deadline(record)
        if not deadline.has_passed():
            return False
        if status.state == "waiting":
            self._timers.end_waiting(status.id, outcome_to_json(deadline.error()))
            return False
        if isinstance(outcome := get_outcome(status), Paused):
            self._submit(record.after(outcome, {}, overdue=True))
            return False
        return outcome is not None

    def _deny_calls(self, id: str) -> bool:
        """Answer a pause for the people who have not. Return False to look again: the workflow has not ended yet."""
        status = self._engine.status(id)
        if status is None:
            return True
        outcome = get_outcome(status)
        if not isinstance(outcome, Paused):
            return outcome is not None
        record = _read_record(status)
        reason = f"nobody answered within {timedelta(seconds=record.pause_timeout or 0)}"
        self._submit(record.after(outcome, parse_decisions(outcome, [deny(reason)] * len(outcome.pending))))
        return True

    def _submit(self, record: Record) -> None:
        """Queue the segment after a pause, unless there is one."""
        assert isinstance(self._engine, Batches)  # noqa: S101  an engine with timers has queues, too
        records = {segment_id(record.run_id, record.segment): record.to_json()}
        self._engine.submit(records, prompt=record.prompt, tenant=record.tenant)


def get_seconds(duration: timedelta | None, name: str) -> float | None:
    """Return the seconds of an option of `start`. Raise RequestError if there are none."""
    if duration is None:
        return None
    if duration <= timedelta(0):
        cause = f"the {name} of {duration} is over before the run begins"
        raise RequestError(cause, "Give it some time.", f"Give --{name.replace('_', '-')} some time.")
    return duration.total_seconds()


def _read_record(status: Status) -> Record:
    return record_from(status.record, f"the record of the run '{get_run_id(status.id)}'")
