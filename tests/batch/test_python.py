"""`prompty.batch` and `prompty.batch_async`: rows from Python."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

import pytest

import prompty
from prompty import Result, batch, batch_async, loads
from prompty.batches import RowResult, batch_stream, batch_stream_async
from prompty.errors import InputError, ModelError, RequestError, ResultError, WrongArgument
from prompty.model.request import WireRequest
from prompty.testing import Script, call
from tests.watchdog import within

FILE = """---
model: gpt-4o
inputs: {n: {kind: integer, required: true}}
---
user:
{{n}}
"""


@dataclass
class Number:
    n: int


def echo(request: WireRequest) -> Any:
    """Answer with the number that was asked for."""
    messages: Any = request.body["messages"]
    return str(messages[-1]["content"])


def rows(count: int) -> list[dict[str, object]]:
    return [{"n": n} for n in range(count)]


async def collect_async(*arguments: Any, **options: Any) -> list[RowResult[Any]]:
    return [row async for row in batch_stream_async(*arguments, **options)]


def sort(results: Iterable[RowResult[Any]]) -> list[RowResult[Any]]:
    return sorted(results, key=lambda row: row.number)


WAYS: dict[str, Any] = {
    "batch": batch,
    "batch_async": lambda *arguments, **options: asyncio.run(batch_async(*arguments, **options)),
    "batch_stream": lambda *arguments, **options: sort(batch_stream(*arguments, **options)),
    "batch_stream_async": lambda *arguments, **options: sort(asyncio.run(collect_async(*arguments, **options))),
}


@pytest.fixture(params=list(WAYS))
def run_batch(request: pytest.FixtureRequest) -> Any:
    return WAYS[request.param]


def test_results_come_in_the_order_of_the_rows(run_batch: Any) -> None:
    with Script(*[echo] * 50):
        results = run_batch(loads(FILE), rows(50), concurrency=8)
    assert [row.value for row in results] == [str(n) for n in range(50)]
    assert [row.inputs for row in results] == rows(50)
    assert [row.number for row in results] == list(range(1, 51))
    assert isinstance(results[0].result, Result)
    assert results[0].result.usage.input_tokens == 10


def test_a_row_that_fails_does_not_end_the_others(run_batch: Any) -> None:
    def answer(request: WireRequest) -> Any:
        if echo(request) == "1":
            raise ModelError("away")
        return echo(request)

    with Script(*[answer] * 3):
        results = run_batch(loads(FILE), [*rows(3), {"m": 3}, "four"], max_retries=0)
    assert [type(row.error) for row in results] == [type(None), ModelError, type(None), InputError, InputError]
    assert [row.value for row in results if row.error is None] == ["0", "2"]
    with pytest.raises(ModelError, match="away"):
        assert results[1].value


def test_rows_have_the_output_type_and_the_model_of_the_caller(run_batch: Any) -> None:
    with Script('{"n": 1}', "no number", "still none") as script:
        first, second = run_batch(loads(FILE), rows(2), output_type=Number, model="ollama:tiny", concurrency=1)
    assert first.value == Number(1)
    assert isinstance(second.error, ResultError)
    assert {body["model"] for body in script.requests} == {"tiny"}


def test_rows_run_tools_and_a_row_that_needs_approval_is_paused(run_batch: Any) -> None:
    def look(at: str) -> str:
        """Look at something."""
        return f"seen {at}"

    with Script(call("look", at="a"), "Done."):
        assert [row.value for row in run_batch(loads(FILE), rows(1), tools=[look])] == ["Done."]
    with Script(call("look", at="a")):
        (row,) = run_batch(loads(FILE), rows(1), tools=[look], approval="always")
    assert row.paused.pending[0].name == "look"
    with pytest.raises(RequestError, match="needs approval"):
        assert row.value


def test_no_more_rows_run_at_once_than_allowed(run_batch: Any) -> None:
    running, most, lock = 0, 0, threading.Lock()

    async def slow() -> str:
        """Take a moment."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    with Script(*[lambda request: call("slow") if len(request.body["messages"]) == 1 else "Done."] * 40):
        results = run_batch(loads(FILE), rows(20), tools=[slow], concurrency=3)
    assert [row.value for row in results] == ["Done."] * 20
    assert 1 <= most <= 3


def test_rows_are_read_while_others_run_and_may_come_from_a_generator(run_batch: Any) -> None:
    with Script(*[echo] * 10):
        assert len(run_batch(loads(FILE), ({"n": n} for n in range(10)), concurrency=2)) == 10
    assert run_batch(loads(FILE), []) == []


def test_a_path_is_loaded_once(run_batch: Any, tmp_path: Path) -> None:
    file = tmp_path / "n.prompty"
    file.write_text(FILE)
    with Script(*[echo] * 2):
        assert [row.value for row in run_batch(file, rows(2))] == ["0", "1"]


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (({"n": 1},), {}, WrongArgument),
        (("rows.csv",), {}, WrongArgument),
        ((3,), {}, WrongArgument),
        ((rows(1),), {"concurrency": 0}, RequestError),
        ((rows(1),), {"session_id": "s"}, RequestError),
        ((rows(1),), {"tols": []}, TypeError),
        ((rows(1),), {"timeout": "long"}, WrongArgument),
    ],
)
def test_a_mistake_that_concerns_every_row_is_raised(
    run_batch: Any, arguments: Any, options: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        run_batch(loads(FILE), *arguments, **options)


def test_events_of_all_rows_are_heard(run_batch: Any) -> None:
    heard: list[Any] = []
    with Script(*[echo] * 2):
        run_batch(loads(FILE), rows(2), on_event=heard.append)
    assert len([event for event in heard if type(event).__name__ == "Done"]) == 2


def test_a_batch_runs_inside_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> list[RowResult[Any]]:
        return prompty.batch(loads(FILE), rows(2))

    with Script(*[echo] * 2):
        assert [row.value for row in asyncio.run(cell())] == ["0", "1"]


def test_cancelling_a_batch_cancels_its_rows() -> None:
    started, cancelled = asyncio.Event(), []

    async def wait() -> str:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return ""

    async def main() -> None:
        task = asyncio.create_task(batch_async(loads(FILE), rows(1), tools=[wait]))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not cancelled:
            await asyncio.sleep(0)

    with Script(call("wait")):
        asyncio.run(main())
    assert cancelled == [True]


async def types(agent: prompty.PromptAgent) -> None:
    """Never run: what is asserted here is what a checker says."""
    assert_type(batch(agent, [{"n": 1}]), list[RowResult[Any]])
    assert_type(batch("x.prompty", [{"n": 1}], output_type=Number, concurrency=2)[0].value, Number)
    assert_type(await batch_async(agent, [], output_type=Number), list[RowResult[Number]])
    assert_type(batch_stream(agent, [{"n": 1}]), Generator[RowResult[Any], None, None])
    assert_type(batch_stream_async(agent, [], output_type=Number), AsyncGenerator[RowResult[Number], None])


def test_rows_are_made_in_the_callers_thread(run_batch: Any) -> None:
    threads = []

    def make_rows() -> Any:
        for n in range(3):
            threads.append(threading.current_thread())
            yield {"n": n}

    with Script(*[echo] * 3):
        assert [row.value for row in run_batch(loads(FILE), make_rows())] == ["0", "1", "2"]
    assert set(threads) == {threading.current_thread()}


def test_rows_may_come_from_other_prompts_with_async_tools(run_batch: Any) -> None:
    @prompty.tool
    async def count() -> int:
        return 7

    def count_or_answer(request: WireRequest) -> Any:
        messages: Any = request.body["messages"]
        return messages[-1]["content"] if messages[-1]["role"] == "tool" else call("count")

    def make_rows() -> Any:
        for _ in range(2):
            with Script(*[count_or_answer] * 2):
                n = prompty.turn(loads(FILE), {"n": 0}, tools=[count])
            yield {"n": int(n)}

    def run() -> Any:
        with Script(*[echo] * 2):
            return run_batch(loads(FILE), make_rows())

    assert [row.value for row in within(run)] == ["7", "7"]


def test_an_error_of_the_rows_is_raised_and_ends_those_that_run() -> None:
    begun, ended = threading.Event(), threading.Event()

    @prompty.tool
    async def wait() -> str:
        try:
            begun.set()
            await asyncio.sleep(60)
            return "too late"
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    def make_rows() -> Any:
        yield {"n": 1}
        begun.wait(60)
        raise ValueError("no more")

    def run() -> None:
        with Script(call("wait")), pytest.raises(ValueError, match="no more"):
            batch(loads(FILE), make_rows(), tools=[wait])

    within(run)
    assert ended.is_set()


def test_columns_that_the_prompt_does_not_use_are_left_out(run_batch: Any) -> None:
    with Script(echo):
        assert [row.value for row in run_batch(loads(FILE), [{"n": 1, "note": "of the table"}])] == ["1"]


def test_results_are_yielded_while_other_rows_run() -> None:
    release = threading.Event()

    @prompty.tool
    async def wait() -> str:
        await asyncio.to_thread(release.wait, 60)
        return "done"

    def answer(request: WireRequest) -> Any:
        messages: Any = request.body["messages"]
        return call("wait") if [message["content"] for message in messages] == ["0"] else "Done."

    with Script(*[answer] * 4):
        results = batch_stream(loads(FILE), rows(3), tools=[wait], concurrency=2)
        assert [next(results).number, next(results).number] == [2, 3]
        release.set()
        assert [row.number for row in results] == [1]


def test_no_more_rows_are_read_than_may_run_while_results_wait() -> None:
    made = 0

    def make_rows() -> Iterator[dict[str, object]]:
        nonlocal made
        for made in range(1, 1001):
            yield {"n": made}

    with Script(*[echo] * 1000):
        for taken, _ in enumerate(batch_stream(loads(FILE), make_rows(), concurrency=4), 1):
            assert made <= taken + 2 * 4


def test_closing_a_stream_ends_the_running_rows() -> None:
    begun, ended = threading.Event(), threading.Event()

    @prompty.tool
    async def wait() -> str:
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "too late"

    def answer(request: WireRequest) -> Any:
        return call("wait") if "1" in str(request.body["messages"]) else "Done."

    with Script(*[answer] * 2):
        results: Any = batch_stream(loads(FILE), rows(2), tools=[wait])
        assert next(results).number == 1
        assert begun.wait(60)
        results.close()
    assert ended.is_set()


def test_rows_may_come_from_an_async_iterator_that_waits_for_a_result() -> None:
    async def main() -> list[int]:
        taken: list[int] = []
        arrived = asyncio.Event()

        async def make_rows() -> AsyncIterator[dict[str, object]]:
            yield {"n": 1}
            await arrived.wait()  # as a consumer of messages does that has none
            yield {"n": 2}

        async with aclosing(batch_stream_async(loads(FILE), make_rows())) as results:
            async for row in results:
                taken.append(row.number)
                arrived.set()
        return taken

    with Script(*[echo] * 2):
        assert asyncio.run(asyncio.wait_for(main(), 60)) == [1, 2]
