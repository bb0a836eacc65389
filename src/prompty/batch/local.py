"""A batch in one process: rows are started while there is room, and what comes of them is written at once."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial

from prompty.batch.books import Books, encoded
from prompty.batch.calls import Call, Price
from prompty.batch.lines import Failure, NamedRow, Spent, failed_line, failure_of, failure_of_pause, result_line
from prompty.batch.pace import Pace
from prompty.batch.tally import Tally
from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.model.paused import Paused

ROWS_BEFORE_OTHERS = 256  # finished rows that are passed by before those under way are looked after
HOW_TO_ANSWER = "Run such rows with --database, and answer them with `prompty runs answer`."


class LocalBatch:
    """Rows under way in this process. `stop` may be called from a signal handler of the event loop."""

    def __init__(
        self,
        agent: PromptAgent,
        rows: Iterator[NamedRow | None],
        books: Books,
        *,
        tally: Tally,
        price: Price,
        tools: list[object],
        most: int,
        budget: Decimal | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agent, self.rows, self.books, self.price, self.tools = agent, rows, books, price, tools
        self.pace = Pace(most, clock)
        self.tally, self.budget = tally, budget
        self.stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._broken: OSError | None = None

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and self.books.spent >= self.budget

    async def run(self) -> bool:
        """Run the rows; whether none is left."""
        try:
            complete = await self._start_rows()
            while self._tasks:
                await self._change()
        finally:
            self._cancel()
        if self._broken is not None:
            raise self._broken
        return complete and not self.tally.left

    def stop(self) -> None:
        """Start no more rows; when told so again, end those that are under way."""
        if self.stopping:
            self._cancel()
        self.stopping = True
        self._woken.set()

    async def _start_rows(self) -> bool:
        for passed, named in enumerate(self.rows):
            if named is None:
                self.tally = self.tally.skipped()
                if passed % ROWS_BEFORE_OTHERS == 0:
                    await asyncio.sleep(0)
            elif named.row.problem is not None:
                self._fail(named, failure_of(named.row.problem, self.agent, {}), Spent(attempts=0))
            elif await self._may_start():
                self._start(named)
            else:
                return False
        return True

    async def _may_start(self) -> bool:
        """Wait until there is room; False if nothing is to be started any more."""
        while not (self.stopping or self.spent or self._broken):
            if self.pace.has_room(len(self._tasks)):
                return True
            await self._change(self.pace.pause)
        return False

    async def _change(self, seconds: float = 0.0) -> None:
        """Wait until something has ended, or for so many seconds if there are any."""
        timer = asyncio.get_running_loop().call_later(seconds, self._woken.set) if seconds > 0 else None
        await self._woken.wait()
        self._woken.clear()
        if timer is not None:
            timer.cancel()

    def _start(self, named: NamedRow) -> None:
        self.books.begin(named.id)
        task = asyncio.create_task(self._row(named))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._woken.set()
        if not task.cancelled() and isinstance(error := task.exception(), OSError):
            self._broken = error  # nothing can be written: there is no use in paying for more

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _row(self, named: NamedRow) -> None:
        timed = self.pace.begin()
        call = Call(self.agent, self.tools, self.price, partial(self.pace.retried, timed))
        try:
            result = await call.result(named.row.inputs)
            line = None if isinstance(result, Paused) else encoded(result_line(named, result, call.spent))
        except Exception as error:
            self.pace.failed(timed, error)
            self._fail(named, failure_of(error, self.agent, named.row.inputs), self._with_last_attempt(call, error))
            return
        if line is None:
            self._fail(named, failure_of_pause(result, HOW_TO_ANSWER), call.spent)
            return
        self.books.finish(line, call.spent.cost)
        self.tally = self.tally.counted(call.spent)
        self.pace.succeeded(timed, len(self._tasks))

    @staticmethod
    def _with_last_attempt(call: Call, error: Exception) -> Spent:
        """A call that is not made again is told of by its error alone."""
        made = (call.spent.attempts or 0) + isinstance(error, ModelError)
        return replace(call.spent, attempts=made)

    def _fail(self, named: NamedRow, failure: Failure, spent: Spent) -> None:
        self.books.fail(encoded(failed_line(named, failure, spent)), spent.cost)
        self.tally = self.tally.counted(spent, failed=True)
