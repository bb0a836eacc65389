"""Run a prompt once for each row of a list, in this process: `prompty.batch` and `prompty.batch_async`."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, Unpack, overload

from prompty.api import make_settings, takes_options
from prompty.batches.calls import MAX_RETRIES
from prompty.batches.throttle import CallTimer, Throttle
from prompty.concurrency import LoopFuture, cancel_and_wait, in_event_loop, run_in_event_loop
from prompty.drivers.run import AgentOrPath, Invocation, Result, start_async
from prompty.errors import RequestError, WrongArgument
from prompty.loop.options import Listener, TurnOptions
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, Retry
from prompty.model.paused import Paused
from prompty.pipeline.load import StrPath, open_agent
from prompty.safety.html import write_table

T = TypeVar("T")
_END = object()  # in place of a row after the last one
CONCURRENCY = 16
_OF_ONE_CONVERSATION = ("memory", "messages", "paused_key", "session_id", "steering")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowResult(Generic[T]):
    """The outcome of one row: a `result`, an `error`, or a turn that is `paused` because a call needs approval."""

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


@overload
def batch(
    agent_or_path: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    *,
    concurrency: int = ...,
    provider_batch: bool = ...,
    output: StrPath | None = ...,
    **options: Unpack[TurnOptions],
) -> list[RowResult[Any]]: ...
@overload
def batch(
    agent_or_path: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    *,
    output_type: type[T],
    concurrency: int = ...,
    provider_batch: bool = ...,
    output: StrPath | None = ...,
    **options: Unpack[TurnOptions],
) -> list[RowResult[T]]: ...
@takes_options(TurnOptions)
def batch(
    agent_or_path: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    *,
    output_type: type[Any] | None = None,
    concurrency: int = CONCURRENCY,
    provider_batch: bool = False,
    output: StrPath | None = None,
    **options: Any,
) -> list[RowResult[Any]]:
    """Run one turn for each row of inputs. Return a `RowResult` for each, in the order of the rows.

    A failed row does not stop the others: its error is in its result. At most `concurrency` rows run at once, and fewer
    while the provider is overloaded. A budget applies to each row. Interrupt it to cancel the running rows. A generator
    of rows runs in the caller's thread, and may call prompty itself.

    With `provider_batch=True`, OpenAI or Anthropic run the rows within a day, at half of the price. Results are
    appended to the file `output`: after an interruption, the same call continues.
    """
    if provider_batch or output is not None:
        return _run_provider_batch("batch", agent_or_path, rows, output_type, provider_batch, output, options)
    turn_options = _check("batch", rows, concurrency, options)
    if isinstance(rows, list | tuple):
        return run_in_event_loop(_run_rows(agent_or_path, _read(rows), output_type, concurrency, turn_options))
    wanted: SimpleQueue[Future[Any] | None] = SimpleQueue()  # rows that the event loop asks this thread for

    async def next_row() -> Any:
        row: Future[Any] = Future()
        wanted.put(row)
        return await asyncio.wrap_future(row)

    iterator = iter(rows)
    future = in_event_loop(_run_rows(agent_or_path, next_row, output_type, concurrency, turn_options))
    future.add_done_callback(lambda _: wanted.put(None))
    try:
        while (row := _take_request(wanted, future)) is not None:
            row.set_result(next(iterator, _END))
        return future.result()
    finally:
        cancel_and_wait([future])


@overload
async def batch_async(
    agent_or_path: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    *,
    concurrency: int = ...,
    provider_batch: bool = ...,
    output: StrPath | None = ...,
    **options: Unpack[TurnOptions],
) -> list[RowResult[Any]]: ...
@overload
async def batch_async(
    agent_or_path: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    *,
    output_type: type[T],
    concurrency: int = ...,
    provider_batch: bool = ...,
    output: StrPath | None = ...,
    **options: Unpack[TurnOptions],
) -> list[RowResult[T]]: ...
@takes_options(TurnOptions)
async def batch_async(
    agent_or_path: AgentOrPath,
    rows: Iterable[Mapping[str, object]],
    *,
    output_type: type[Any] | None = None,
    concurrency: int = CONCURRENCY,
    provider_batch: bool = False,
    output: StrPath | None = None,
    **options: Any,
) -> list[RowResult[Any]]:
    """Run one turn for each row of inputs, like `batch`. Cancelling it cancels the running rows."""
    if provider_batch or output is not None:
        arguments = (agent_or_path, rows, output_type, provider_batch, output, options)
        return await asyncio.to_thread(_run_provider_batch, "batch_async", *arguments)
    turn_options = _check("batch_async", rows, concurrency, options)
    return await _run_rows(agent_or_path, _read(rows), output_type, concurrency, turn_options)


def _check(function: str, rows: object, concurrency: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of each turn. Raise for a mistake that would make every row fail."""
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise WrongArgument(f"{function}(rows)", rows, "a list of inputs", "Write [{'name': value}, …].")
    if concurrency < 1:
        raise RequestError(f"concurrency is {concurrency!r}", "Pass a whole number of at least 1.")
    make_settings(function, TurnOptions, options)
    for name in _OF_ONE_CONVERSATION:
        if options.get(name) is not None:
            raise RequestError(f"`{name}` belongs to one conversation, but a batch has many", "Remove it.")
    return {"max_retries": MAX_RETRIES, **options}


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
        RowResult(inputs=inputs, error=end) if isinstance(end, Exception) else RowResult(inputs=inputs, result=end)
        for inputs, end in run_rows(source, rows, Path(output), output_type, options)
    ]


def _read(rows: Iterable[Mapping[str, object]]) -> Callable[[], Awaitable[Any]]:
    """Return a function that returns the next row, or `_END`. It makes the row on the event loop."""
    iterator = iter(rows)

    async def next_row() -> Any:
        return next(iterator, _END)

    return next_row


def _take_request(wanted: "SimpleQueue[T]", future: LoopFuture[Any]) -> T:
    while True:
        with suppress(Empty):
            return wanted.get(timeout=None if future.is_started else future.START_SECONDS)
        future.start_elsewhere()


async def _run_rows(
    source: AgentOrPath,
    next_row: Callable[[], Awaitable[Any]],
    output_type: type[Any] | None,
    concurrency: int,
    options: Mapping[str, Any],
) -> list[RowResult[Any]]:
    agent = source if isinstance(source, PromptAgent) else await asyncio.to_thread(open_agent, source, "batch()")
    throttle = Throttle(concurrency)
    tasks: list[asyncio.Task[RowResult[Any]]] = []
    running: set[asyncio.Task[RowResult[Any]]] = set()
    try:
        while (inputs := await next_row()) is not _END:
            while not throttle.has_free_slot(len(running)):
                timeout = throttle.pause_seconds or None
                if running:
                    await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.sleep(timeout or 0)
            task = asyncio.create_task(_run_row(agent, inputs, output_type, options, throttle, running))
            tasks.append(task)
            running.add(task)
            task.add_done_callback(running.discard)
        return await asyncio.gather(*tasks)
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


async def _run_row(
    agent: PromptAgent,
    inputs: Mapping[str, object],
    output_type: type[Any] | None,
    options: Mapping[str, Any],
    throttle: Throttle,
    running: set[Any],
) -> RowResult[Any]:
    timer = throttle.start_call()
    listener = partial(_on_event, throttle, timer, options.get("on_event"))
    settings = make_settings("batch", TurnOptions, {**options, "on_event": listener})
    try:
        end: Result[Any] | Paused = await start_async(
            Invocation(
                operation="turn",
                source=agent,
                inputs=inputs,
                settings=settings,
                output_type=output_type,
                details=True,
                is_row=True,
            )
        )
    except Exception as error:
        throttle.on_failure(timer, error)
        return RowResult(inputs=inputs, error=error)
    throttle.on_success(timer, len(running))
    return RowResult(inputs=inputs, paused=end) if isinstance(end, Paused) else RowResult(inputs=inputs, result=end)


def _on_event(throttle: Throttle, timer: CallTimer, listener: Listener | None, event: Event) -> object:
    if isinstance(event, Retry):
        throttle.on_retry(timer, event)
    return listener(event) if listener else None
