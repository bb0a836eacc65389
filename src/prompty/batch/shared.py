"""A batch on the workers of a database: rows are left for them as durable runs, and what comes of them is collected."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import islice
from pathlib import Path

from prompty.batch.books import Books, encoded
from prompty.batch.calls import MAX_RETRIES, Price
from prompty.batch.ids import prompt_hash
from prompty.batch.lines import Failure, NamedRow, Spent, failed_line, failure_of, failure_of_pause, result_line
from prompty.batch.tally import Tally
from prompty.durable.ends import End, end_of
from prompty.durable.engine import Engine, Status
from prompty.durable.record import Record, RunArguments, new_record
from prompty.durable.runs import number_of, run_of
from prompty.errors import PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.event import Done
from prompty.model.message import Json
from prompty.model.paused import Paused
from prompty.model.reply import Reply
from prompty.tools.toolbox import handlers_of

WINDOW = 1000  # rows that wait or run at once: enough for many workers, and little to hold
SUBMITTED_AT_ONCE = 50  # before results are looked at again
POLL = 0.1


class SharedBatch:
    """The side of a batch that submits and collects. Runs stay in the database until they are pruned: another process
    that takes its place finds their results there and pays for nothing again."""

    def __init__(
        self,
        agent: PromptAgent,
        rows: Iterator[NamedRow | None],
        books: Books,
        engine: Engine,
        *,
        tally: Tally,
        price: Price,
        tools: list[object],
        most: int,
        budget: Decimal | None = None,
        retry_failed: bool = False,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self.agent, self.rows, self.books, self.engine, self.price = agent, rows, books, engine, price
        self.tally, self.budget, self.retry_failed, self.ended = tally, budget, retry_failed, ended
        self.window = WINDOW if budget is None else most  # what is under way when a budget is spent is paid for
        self._prefix = batch_name(agent, books.out)
        self._options: RunArguments = {"max_retries": MAX_RETRIES, "tools": list(handlers_of(tools)) or None}
        self._first: Record | None = None
        self._left: dict[str, NamedRow] = {}
        self._complete = False

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and self.books.spent >= self.budget

    def run(self) -> bool:
        """Submit and collect the rows until none is left, or until somebody ends it; whether none is left."""
        while not self.ended():
            if not self.spent:
                self._submit_some()
            collected = self._collect()
            if not self._left and (self._complete or self.spent):
                break
            if not collected:
                time.sleep(POLL)
        return self._complete and not self.tally.left

    def _submit_some(self) -> None:
        most = min(self.window - len(self._left), SUBMITTED_AT_ONCE)
        if most <= 0 or self._complete:
            return
        given = list(islice(self.rows, most))
        self._complete = len(given) < most
        records: dict[str, Json] = {}
        for named in given:
            if named is None:
                self.tally = self.tally.skipped()
            else:
                records |= self._submitted(named)
        if self.retry_failed:
            self.engine.delete(
                [one.id for one in self.engine.ended(list(records)) if isinstance(_end(one), PromptyError)]
            )
        self.engine.submit(records)

    def _submitted(self, named: NamedRow) -> dict[str, Json]:
        """The run of a row, by its id; none of a row that cannot be run."""
        run_id = f"{self._prefix}-{named.id}"
        try:
            if named.row.problem is not None:
                raise named.row.problem
            record = self._record(run_id, named).to_json()
        except PromptyError as error:
            self._fail(named, failure_of(error, self.agent, named.row.inputs), Spent())
            return {}
        self._left[run_id] = named
        return {run_id: record}

    def _record(self, run_id: str, named: NamedRow) -> Record:
        """The run of a row. What is the same for all rows is made once; a sensitive input needs a closer look."""
        inputs = named.row.inputs
        if any(one.sensitive for one in self.agent.inputs):
            return new_record(run_id, self.agent, inputs, self._options, {})
        if self._first is None:
            self._first = new_record(run_id, self.agent, {}, self._options, {})
        return replace(self._first, run_id=run_id, inputs=inputs)

    def _collect(self) -> int:
        """Write what has come of rows; of how many."""
        found = self.engine.ended(list(self._left))
        for status in found:
            named = replace(self._left.pop(status.id), interrupted=status.recovered)
            self._write(named, status, _end(status))
        return len(found)

    def _write(self, named: NamedRow, status: Status, end: End | None) -> None:
        match end:
            case Done():
                spent = self._spent(end)
                self.books.finish(encoded(result_line(named, end.result, spent)), spent.cost)
                self.tally = self.tally.counted(spent)
            case Paused():
                self._paused(named, status, end)
            case PromptyError():
                self._fail(named, failure_of(end, self.agent, named.row.inputs), Spent())
            case None:
                raise AssertionError("a run that has ended has an end")

    def _paused(self, named: NamedRow, status: Status, paused: Paused) -> None:
        """A run that was answered goes on in another workflow."""
        run_id = run_of(status.id)
        segments = [one for one in self.engine.find(run_id, outputs=False) if run_of(one.id) == run_id]
        last = max(segments, key=number_of).id
        if last != status.id:
            self._left[last] = named
            return
        how = f"Answer it: prompty runs answer {run_id} …; then collect it with --retry-failed."
        self._fail(named, failure_of_pause(paused, how), Spent())

    def _spent(self, done: Done) -> Spent:
        cost = self.price(Reply(usage=done.usage)) if done.cost is None else done.cost
        return Spent(usage=done.usage, cost=cost, model=self.agent.model.id)

    def _fail(self, named: NamedRow, failure: Failure, spent: Spent) -> None:
        line: Json = failed_line(named, failure, spent)
        self.books.fail(encoded(line), spent.cost)
        self.tally = self.tally.counted(spent, failed=True)


def batch_name(agent: PromptAgent, out: Path) -> str:
    """What a batch is called in a database: by its prompt and by the name of its output."""
    return f"{out.stem}-{prompt_hash(agent)[:8]}".replace("#", "")


def _end(status: Status) -> End | None:
    """What a run came to; one that cannot be read has failed."""
    try:
        return end_of(status)
    except PromptyError as error:
        return error
