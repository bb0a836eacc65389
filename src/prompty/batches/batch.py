"""Run a prompt once for each row of an iterator, in this process.

`batch_stream` and `batch_stream_async` yield results as rows complete; `batch` and `batch_async` sort them into a list.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, Unpack

from typing_extensions import TypeVar

from prompty.api import describe_call, make_settings, takes_options
from prompty.batches.calls import MAX_RETRIES
from prompty.batches.throttle import CONCURRENCY, CallTimer, Throttle
from prompty.concurrency import LoopFuture, cancel_and_wait, in_event_loop
from prompty.drivers.run import AgentOrPath, Result, start_async
from prompty.errors import RequestError, WrongArgument
from prompty.loop.options import Listener, TurnOptions
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, Retry
from prompty.model.paused import Paused
from prompty.pipeline.load import StrPath, open_agent
from prompty.safety.html import write_table

T = TypeVar("T", default=Any)  # of a result without `output_type`
_END = object()  # in place of a row after the last one
Rows = Iterable[Mapping[str, object]]
_OF_ONE_CONVERSATION = ("memory", "messages", "paused_key", "session_id", "steering")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowResult(Generic[T]):
    """The outcome of one row: a `result`, an `error`, or a turn that is `paused` because a call needs approval.

    `number` is the row's place among the rows, from 1.
    """

    number: int
    inputs: Mapping[str, object] = field(repr=False)  # some may be sensitive
    result: Result[T] | None = None
    error: Exception | None = None
    paused: Paused | None = None

    @property
    def value(self) -> T:
        """The value of the row. Raises the row's error if it has none."""
        if self.result is not None:
            return self.result.value
        if self.error is not None:
            raise self.error
        raise RequestError("the row needs approval", "Pass `paused` to `resume`, or a gate= to the batch.")

    def _repr_html_(self) -> str:
        """Return a table for notebooks. Inputs are left out, because some may be sensitive."""
        if (outcome := self.result or self.paused) is not None:
            return outcome._repr_html_()
        return write_table([(type(self.error).__name__, str(self.error))])


@takes_options(TurnOptions)
def batch(
    agent_or_path: AgentOrPath,
    rows: Rows,
    *,
    output_type: type[T] | None = None,
    concurrency: int = CONCURRENCY,
    provider_batch: bool = False,
    output: StrPath | None = None,
    **options: Unpack[TurnOptions],
) -> list[RowResult[T]]:
    """Run one turn for each row of inputs. Return a `RowResult` for each, in the order of the rows.

    A failed row does not stop the others: its error is in its result. At most `concurrency` rows run at once, and fewer
    while the provider is overloaded. A budget applies to each row. A row may have columns that the prompt does not use.
    Interrupt it to cancel the running rows. A generator of rows runs in the caller's thread, and may call prompty
    itself.

    With `provider_batch=True`, OpenAI or Anthropic run the rows within a day, at half of the price. Results are
    appended to the file `output`: after an interruption, the same call continues.
    """
    if provider_batch or output is not None:
        return _run_provider_batch("batch", agent_or_path, rows, output_type, provider_batch, output, options)
    turn_options = _check("batch", rows, concurrency, options)
    return _sort(_iterate(agent_or_path, iter(rows), output_type, concurrency, turn_options))


@takes_options(TurnOptions)
async def batch_async(
    agent_or_path: AgentOrPath,
    rows: Rows,
    *,
    output_type: type[T] | None = None,
    concurrency: int = CONCURRENCY,
    provider_batch: bool = False,
    output: StrPath | None = None,
    **options: Unpack[TurnOptions],
) -> list[RowResult[T]]:
    """Run one turn for each row of inputs, like `batch`. Cancelling it cancels the running rows."""
    if provider_batch or output is not None:
        arguments = (agent_or_path, rows, output_type, provider_batch, output, options)
        return await asyncio.to_thread(_run_provider_batch, "batch_async", *arguments)
    turn_options = _check("batch_async", rows, concurrency, options)
    stream = _run_rows(agent_or_path, _read(rows), output_type, concurrency, turn_options)
    async with aclosing(stream):
        return _sort([row async for row in stream])


@takes_options(TurnOptions)
def batch_stream(
    agent_or_path: AgentOrPath,
    rows: Rows,
    *,
    output_type: type[T] | None = None,
    concurrency: int = CONCURRENCY,
    **options: Unpack[TurnOptions],
) -> Generator[RowResult[T], None, None]:
    """Run one turn for each row of inputs, like `batch`. Yield each `RowResult` as its row completes.

    It reads rows as it can start them, and waits while you handle a result, so a million rows take no more memory than
    `concurrency` of them. Closing the iterator cancels the running rows.
    """
    turn_options = _check("batch_stream", rows, concurrency, options)
    return _iterate(agent_or_path, iter(rows), output_type, concurrency, turn_options)


@takes_options(TurnOptions)
def batch_stream_async(
    agent_or_path: AgentOrPath,
    rows: Rows | AsyncIterable[Mapping[str, object]],
    *,
    output_type: type[T] | None = None,
    concurrency: int = CONCURRENCY,
    **options: Unpack[TurnOptions],
) -> AsyncGenerator[RowResult[T], None]:
    """Run one turn for each row of inputs, like `batch_stream`. The rows may come from an async iterator.

    To stop early, close it: `async with contextlib.aclosing(batch_stream_async(…)) as results`.
    """
    turn_options = _check("batch_stream_async", rows, concurrency, options)
    return _run_rows(agent_or_path, _read(rows), output_type, concurrency, turn_options)


def _check(function: str, rows: object, concurrency: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of each turn. Raise for a mistake that would make every row fail."""
    is_iterable = isinstance(rows, Iterable) or (function == "batch_stream_async" and isinstance(rows, AsyncIterable))
    if isinstance(rows, str | bytes | Mapping) or not is_iterable:
        raise WrongArgument(f"{function}(rows)", rows, "a list of inputs", "Write [{'name': value}, …].")
    if concurrency < 1:
        raise RequestError(f"concurrency is {concurrency!r}", "Pass a whole number of at least 1.")
    make_settings(function, TurnOptions, options)
    for name in _OF_ONE_CONVERSATION:
        if options.get(name) is not None:
            raise RequestError(f"`{name}` belongs to one conversation, but a batch has many", "Remove it.")
    return {"max_retries": MAX_RETRIES, "extra_inputs": "ignore", **options}


def _run_provider_batch(
    function: str,
    source: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    output_type: type[Any] | None,
    provider_batch: bool,
    output: StrPath | None,
    options: Mapping[str, Any],
) -> list[RowResult[Any]]:
    from prompty.batches.provider.from_python import run_rows  # it needs what rows in memory do without

    if not provider_batch or output is None:
        missing = "provider_batch=True" if output is not None else "output='answers.jsonl'"
        raise RequestError(f"{function}() got only one of `provider_batch` and `output`", f"Also pass {missing}.")
    _check(function, rows, 1, options)
    return [
        _make_result(number, inputs, end)
        for number, (inputs, end) in enumerate(run_rows(source, rows, Path(output), output_type, options), 1)
    ]


def _sort(results: Iterable[RowResult[Any]]) -> list[RowResult[Any]]:
    return sorted(results, key=attrgetter("number"))


def _read(rows: Rows | AsyncIterable[Mapping[str, object]]) -> Callable[[], Awaitable[Any]]:
    """Return a function that returns the next row, or `_END`. It makes the row on the event loop."""
    if isinstance(rows, AsyncIterable):
        asynchronous = aiter(rows)
        return lambda: anext(asynchronous, _END)
    iterator = iter(rows)

    async def next_row() -> Any:
        return next(iterator, _END)

    return next_row


def _iterate(
    source: AgentOrPath,
    rows: Iterator[Mapping[str, object]],
    output_type: type[Any] | None,
    concurrency: int,
    options: Mapping[str, Any],
) -> Generator[RowResult[Any], None, None]:
    """Yield the results of rows that run on another thread's event loop. The rows are made in this one."""
    messages: SimpleQueue[Future[Any] | RowResult[Any] | None] = (
        SimpleQueue()
    )  # a row that is wanted, a result, the end

    async def next_row() -> Any:
        row: Future[Any] = Future()
        messages.put(row)
        return await asyncio.wrap_future(row)

    async def run() -> None:
        async with aclosing(_run_rows(source, next_row, output_type, concurrency, options)) as results:
            async for result in results:
                messages.put(result)

    future = in_event_loop(run())
    future.add_done_callback(lambda _: messages.put(None))
    try:
        while (message := _take(messages, future)) is not None:
            if isinstance(message, RowResult):
                yield message
            else:
                message.set_result(next(rows, _END))
        future.result()
    finally:
        cancel_and_wait([future])


def _take(messages: "SimpleQueue[T]", future: LoopFuture[Any]) -> T:
    while True:
        with suppress(Empty):
            return messages.get(timeout=None if future.is_started else future.START_SECONDS)
        future.start_elsewhere()


async def _run_rows(
    source: AgentOrPath,
    next_row: Callable[[], Awaitable[Any]],
    output_type: type[Any] | None,
    concurrency: int,
    options: Mapping[str, Any],
) -> AsyncGenerator[RowResult[Any], None]:
    """Start a row whenever one may start, and yield results as rows complete. A result that has not been taken keeps
    its place. An error of the rows' iterator ends the running rows."""
    agent = source if isinstance(source, PromptAgent) else await asyncio.to_thread(open_agent, source, "batch()")
    throttle = Throttle(concurrency)
    running: set[asyncio.Task[RowResult[Any]]] = set()
    ended: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()
    is_free = asyncio.Event()

    def end(task: asyncio.Task[RowResult[Any]]) -> None:
        running.discard(task)
        ended.put_nowait(task)

    async def start_rows() -> None:
        number = 0
        while (inputs := await next_row()) is not _END:
            number += 1
            while not throttle.has_free_slot(len(running) + ended.qsize()):
                is_free.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(is_free.wait(), throttle.pause_seconds or None)
            row = _run_row(agent, number, inputs, output_type, options, throttle, running)
            running.add(task := asyncio.create_task(row))
            task.add_done_callback(end)

    starting = asyncio.create_task(start_rows())
    starting.add_done_callback(ended.put_nowait)
    try:
        while running or not ended.empty() or not starting.done():
            task = await ended.get()
            if task is starting:
                starting.result()
            else:
                is_free.set()
                yield task.result()
        starting.result()
    finally:
        left = {starting, *running}
        for task in left:
            task.cancel()
        await asyncio.wait(left)


async def _run_row(
    agent: PromptAgent,
    number: int,
    inputs: Mapping[str, object],
    output_type: type[Any] | None,
    options: Mapping[str, Any],
    throttle: Throttle,
    running: set[Any],
) -> RowResult[Any]:
    timer = throttle.start_call()
    listener = partial(_on_event, throttle, timer, options.get("on_event"))
    call = describe_call("turn", agent, inputs, output_type, False, True, {**options, "on_event": listener})
    try:
        end: Result[Any] | Paused = await start_async(call._replace(is_row=True))
    except Exception as error:
        throttle.on_failure(timer, error)
        return _make_result(number, inputs, error)
    throttle.on_success(len(running))
    return _make_result(number, inputs, end)


def _make_result(number: int, inputs: Mapping[str, object], end: Result[Any] | Paused | Exception) -> RowResult[Any]:
    match end:
        case Exception():
            return RowResult(number=number, inputs=inputs, error=end)
        case Paused():
            return RowResult(number=number, inputs=inputs, paused=end)
        case _:
            return RowResult(number=number, inputs=inputs, result=end)


def _on_event(throttle: Throttle, timer: CallTimer, listener: Listener | None, event: Event) -> object:
    if isinstance(event, Retry):
        throttle.on_retry(timer, event)
    return listener(event) if listener else None
