"""Run rows in a provider's batches: submit them in chunks, poll the chunks, and write each result to the ledger.

Rules that keep paid work: an intent is on disk before a create, and no create is repeated because its answer is
unknown. Its chunk is looked for instead, and counts as not made only if it has not shown up for ten minutes. Results
are on disk before their chunk is over.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta
from logging import Logger, getLogger
from threading import Event

from prompty.batches.job import Batch, BatchJob
from prompty.batches.ledger import Ledger
from prompty.batches.provider.anthropic import AnthropicBatches
from prompty.batches.provider.batch_api import BatchState, Client, RowOutcome, Spool, make_custom_id
from prompty.batches.provider.journal import Chunk, Journal
from prompty.batches.provider.openai import OpenAIBatches
from prompty.batches.provider.row_calls import RowCalls
from prompty.batches.provider.store import RowStore, StoredRow
from prompty.batches.records import PlannedRow, RowUsage, build_result, describe_error, encode_record
from prompty.batches.row_index import FinishedRow, mask_sensitive
from prompty.batches.rows import Row
from prompty.errors import ModelError, PromptyError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.message import Reply
from prompty.model.request import WireRequest
from prompty.pricing import get_pricer
from prompty.wire.json_bytes import parse_reply

GRACE_SECONDS = 600.0  # after which a create that cannot be found was not made
POLL_SECONDS, MAX_POLL_SECONDS = 1.0, 30.0
MAX_BACKOFF_SECONDS = 600.0
MAX_TRIES = 5  # of a row that the provider fails to answer
_REFUSED = frozenset({400, 401, 402, 403, 404, 405, 413, 415, 422, 429})  # statuses that say that nothing was made
logger: Logger = getLogger("prompty")


class ProviderBatch(Batch):
    """The rows of a job, and the chunks in which a provider runs them.

    After `deadline`, counted from the first start, chunks are cancelled: `run` collects the rows that have an answer,
    and returns False if others are left. `stopping` ends `run` early; the chunks stay with the provider.
    """

    def __init__(
        self, job: BatchJob, ledger: Ledger, *, deadline: timedelta | None = None, stopping: Event | None = None
    ) -> None:
        super().__init__(job, ledger)
        self.stopping: Event = stopping or Event()
        self._calls = RowCalls(job)
        self._price = get_pricer(job.agent, required=False, batch=True)
        self._deadline = deadline
        self._submit_after = 0.0
        self._backoff = POLL_SECONDS
        self._changed = time.monotonic()
        with ExitStack() as resources:
            self._journal = resources.enter_context(
                closing(Journal(ledger.out.with_name(f"{ledger.out.stem}.batches")))
            )
            self._store = resources.enter_context(closing(RowStore()))
            self._api = _open_api(self._calls)
            self._max_rows = self._api.max_rows
            self._check_account()
            self._resources = resources.pop_all()

    @property
    def is_past_deadline(self) -> bool:
        return self._deadline is not None and time.time() >= self._journal.started + self._deadline.total_seconds()

    def run(self) -> bool:
        """Submit and collect until no row is left, or until `stopping`. Return True if none is left."""
        with self._resources:
            self._load_rows()
            while not self.stopping.is_set():
                self._work()
                is_over = not self._journal.chunks and (self.is_past_deadline or not self._store.count())
                if is_over or self.stopping.wait(self._get_pause()):
                    break
            is_complete = not self._store.count() and not self._journal.chunks and not self.progress.left
        if is_complete:
            self.forget()
        return is_complete

    def forget(self) -> None:
        """Delete the journal, unless the provider has rows of it, or rows are left that may be paid for already."""
        if not self._journal.chunks and not (self.progress.left and self._journal.lost):
            self._journal.path.unlink(missing_ok=True)

    def _load_rows(self) -> None:
        """Store the rows without a result. Those in chunks of an earlier process stay there."""
        for planned in self.rows:
            if isinstance(planned, FinishedRow):
                self._skip(planned)
            elif planned.row.problem is not None:
                self._fail(planned, describe_error(planned.row.problem, self.job.agent, {}), RowUsage(attempts=0))
            else:
                self._store.add(planned)
        for rows in self._journal.lost:
            self._store.count_interruption(rows)
        for chunk in self._journal.chunks.values():
            self._store.assign(chunk.rows, chunk.nonce)

    def _work(self) -> None:
        """Look after each chunk, then submit the rows that are ready."""
        for chunk in tuple(self._journal.chunks.values()):
            self._try(lambda: self._look_after(chunk))  # noqa: B023  it is called here
            if self.stopping.is_set():
                return
        while self._may_submit() and self._try(self._submit):
            pass

    def _try(self, work: Callable[[], None]) -> bool:
        """Do something that costs nothing and is done again later if the provider fails. Return False if it did."""
        try:
            work()
        except ModelError as error:
            if not error.retryable:
                raise
            logger.warning("The provider's batch API failed, and is asked again: %s", error.cause)
            self._delay_submits(error)
            return False
        return True

    def _delay_submits(self, error: ModelError | None = None) -> None:
        seconds = self._backoff if error is None or error.retry_after is None else error.retry_after
        self._submit_after = time.monotonic() + min(seconds, MAX_BACKOFF_SECONDS)
        self._backoff = min(self._backoff * 2, MAX_BACKOFF_SECONDS)

    def _get_pause(self) -> float:
        """Return the seconds until the next poll: the longer nothing has changed, the more."""
        idle = time.monotonic() - self._changed
        return min(max(POLL_SECONDS, idle / 10), MAX_POLL_SECONDS)

    # Submit.

    def _may_submit(self) -> bool:
        is_paused = self.stopping.is_set() or self.is_past_deadline or time.monotonic() < self._submit_after
        return not is_paused and self._store.count_ready() > 0

    def _submit(self) -> None:
        """Send a chunk of ready rows. Its create happens at most once."""
        nonce = secrets.token_hex(5)
        with closing(self._api.open_spool(nonce)) as spool:
            request = self._fill(spool, nonce)
            if request is None:
                return
            file = self._api.upload(nonce, spool)
            chunk = self._journal.begin(spool.rows, file, nonce)
            self._store.assign(chunk.rows, nonce)
            try:
                self._journal.add_batch(chunk, self._api.create(chunk, spool, request))
            except ModelError as error:
                self._on_failed_create(chunk, error)
            else:
                self._changed = time.monotonic()

    def _fill(self, spool: Spool, nonce: str) -> WireRequest | None:
        """Write ready rows to the spool, up to the provider's limits. Return the last request."""
        request = None
        limit = self._max_rows
        if self._store.count_ready() > limit > 1:  # numbers that differ tell chunks apart in a list without names
            limit -= secrets.randbelow(limit // 5 + 1)
        for row in self._store.list_ready():
            try:
                built = self._calls.build_request(row.inputs)
                line = self._api.write_line(make_custom_id(nonce, row.id), built)
            except PromptyError as error:
                self._fail_row(row, error, RowUsage(attempts=0))
                continue
            if spool.rows and len(spool) + len(line) > self._api.max_bytes:
                break
            spool.add(row.id, line)
            request = built
            if len(spool.rows) >= limit:
                break
        return request

    def _on_failed_create(self, chunk: Chunk, error: ModelError) -> None:
        """A refused create was not made. After any other failure its batch may exist, so look for it."""
        if error.status not in _REFUSED:
            logger.warning("The batch %s may have been created (%s): looking for it.", chunk.nonce, error.cause)
            self._delay_submits(error)
            return
        self._journal.end(chunk, "refused")
        self._store.release(chunk.nonce)
        self._discard(chunk)
        if error.status != 429:
            raise error
        self._delay_submits(error)

    # Find, poll and collect.

    def _look_after(self, chunk: Chunk) -> None:
        if chunk.batch is None:
            self._search(chunk)
        if chunk.batch is None:
            return
        state = self._api.get(chunk.batch)
        if state is not None:
            self._collect(chunk, state)
        elif self.is_past_deadline and not chunk.is_cancelled:
            self._cancel(chunk, chunk.batch)

    def _search(self, chunk: Chunk) -> None:
        """Look for a chunk whose create has no known end. After the grace its rows are ready again."""
        is_late = time.time() > chunk.at + GRACE_SECONDS  # before the search, which may take long
        found = self._api.find(chunk, self._journal.batches)
        if found.batch is None and is_late and not found.is_open:
            self._api.discard(chunk)  # from now on, a create that is still under way finds no file
            found = self._api.find(chunk, self._journal.batches)
            if found.batch is None and not found.is_open:
                self._journal.end(chunk, "lost")
                self._store.count_interruption(chunk.rows)
                self._store.release(chunk.nonce)
        if found.batch is not None:
            self._journal.add_batch(chunk, found.batch)

    def _collect(self, chunk: Chunk, state: BatchState) -> None:
        """Write the results of a chunk. Rows that were not run are ready again."""
        for outcome in self._api.read(chunk, state):
            row = self._store.get(outcome.row)
            if row is not None:  # otherwise it was collected before a process died
                self._settle(row, outcome)
        self.ledger.sync()
        self._journal.end(chunk, "collected")
        self._store.release(chunk.nonce)
        self._discard(chunk)
        self._changed = time.monotonic()
        if state.is_limited:
            self._max_rows = max(len(chunk.rows) // 2, 1)
            self._delay_submits()
        else:
            self._backoff = POLL_SECONDS

    def _settle(self, row: StoredRow, outcome: RowOutcome) -> None:
        if outcome.payload is not None:
            self._settle_answer(row, outcome.payload)
        elif outcome.error is not None and outcome.error.retryable and row.tries + 1 < MAX_TRIES:
            self._store.retry(row.id)
        elif outcome.error is not None:
            self._end(row, outcome.error, RowUsage(attempts=row.tries + 1))

    def _settle_answer(self, row: StoredRow, payload: dict[str, object]) -> None:
        used = RowUsage(attempts=row.tries + 1)
        try:
            reply = parse_reply(self._calls.target.api.reply, payload)
        except ModelError as error:
            self._end(row, error, used)
            return
        used = replace(
            used,
            usage=reply.usage,
            cost=self._price(reply),
            model=reply.model or self.job.agent.model.id,
            citations=reply.citations,
            provider_calls=reply.provider_calls,
        )
        self._end(row, reply, used)

    def _end(self, row: StoredRow, answer: Reply | ModelError, used: RowUsage) -> None:
        """Write the record that a live row would have."""
        planned = _plan(row, self.job.agent)
        try:
            done = self._calls.make_result(row.inputs, answer)
            line = encode_record(build_result(planned, done.result, used))
        except PromptyError as error:
            self._fail_row(row, error, used)
        else:
            self._finish(line, used)
            self._store.remove(row.id)

    def _fail_row(self, row: StoredRow, error: PromptyError, used: RowUsage) -> None:
        agent = self.job.agent
        self._fail(_plan(row, agent), describe_error(error, agent, row.inputs), used)
        self._store.remove(row.id)

    # Cancel and clean up.

    def _cancel(self, chunk: Chunk, batch: str) -> None:
        try:
            self._api.cancel(batch)
        except ModelError as error:
            if error.retryable:
                raise
            logger.warning("The batch %s cannot be cancelled: %s", batch, error.cause)
        chunk.is_cancelled = True

    def _discard(self, chunk: Chunk) -> None:
        try:
            self._api.discard(chunk)
        except ModelError as error:
            logger.warning("The file %s was not deleted: %s", chunk.file, error.cause)

    def _check_account(self) -> None:
        """Raise RequestError if the chunks belong to another account. A new key of the same one sees its batches."""
        endpoint = self._calls.endpoint
        if self._journal.account is not None and not self._journal.is_bound_to(endpoint):
            if self._journal.chunks and not self._sees_batches():
                raise RequestError(
                    f"the rows of '{self._journal.path.name}' were submitted with another key, or to another server",
                    "Continue with that key: these batches are paid for there, and this account cannot see them.",
                )
            self._journal.account = None
        if self._journal.account is None:
            self._journal.bind(endpoint)

    def _sees_batches(self) -> bool:
        try:
            self._api.get(self._journal.batches[-1])
        except (IndexError, ModelError):
            return False
        return True


def _plan(row: StoredRow, agent: PromptAgent) -> PlannedRow:
    masked = mask_sensitive(agent, row.inputs)
    read = Row(number=row.number, inputs=row.inputs)
    return PlannedRow(row=read, id=row.id, masked_inputs=masked, interrupted=row.interrupted)


def _open_api(calls: RowCalls) -> OpenAIBatches | AnthropicBatches:
    client = Client(calls.target.transport)
    if calls.target.provider.key == "anthropic":
        return AnthropicBatches(client)
    return OpenAIBatches(client, calls.target.api.path)
