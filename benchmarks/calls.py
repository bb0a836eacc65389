"""What calls cost, measured in the same calls of the bare OpenAI SDK, to a provider that takes no time of its own."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.callers import Bare, Caller, Ours
from benchmarks.cost import Cost, Measure, best_of
from benchmarks.provider import TEXT, fake_provider

REPEATS = 30
CHUNKS = 2000

LIMITS = {
    "call, async": 0.45,
    "call, sync": 0.45,
    # The same commit measures 0.13 on one machine and 0.15 to 0.19 on another. About half of a chunk is h11's.
    "stream, async": 0.2,
    "stream, sync": 0.2,
    "64 calls at once": 0.5,
    "512 calls at once": 0.45,
}

Work = Callable[[Caller], object]


def call_costs(rounds: int) -> list[Cost]:
    """One call after the other, streams, and many calls at once."""
    with fake_provider() as provider, asyncio.Runner() as runner:
        return [
            *one_by_one(runner, f"{provider}/0/0/1", 6 * rounds),
            *streamed(runner, f"{provider}/0/{CHUNKS}/1", 2 * rounds),
            *together(runner, f"{provider}/50/0/1", rounds),
        ]


def one_by_one(runner: asyncio.Runner, url: str, rounds: int) -> list[Cost]:
    """The processor time of a call."""

    def run(caller: Caller) -> None:
        for _ in range(REPEATS):
            assert caller.call() == TEXT

    async def run_async(caller: Caller) -> None:
        for _ in range(REPEATS):
            assert await caller.call_async() == TEXT

    callers = callers_at(url)
    return [
        ratio_of(
            "call, async", least(rounds, callers, time.process_time, lambda caller: runner.run(run_async(caller)))
        ),
        ratio_of("call, sync", least(rounds, callers, time.process_time, run)),
    ]


def streamed(runner: asyncio.Runner, url: str, rounds: int) -> list[Cost]:
    """The processor time of a chunk."""

    def run(caller: Caller) -> None:
        assert caller.stream() == CHUNKS

    def run_async(caller: Caller) -> None:
        assert runner.run(caller.stream_async()) == CHUNKS

    callers = callers_at(url)
    return [
        ratio_of("stream, async", least(rounds, callers, time.process_time, run_async)),
        ratio_of("stream, sync", least(rounds, callers, time.process_time, run)),
    ]


def together(runner: asyncio.Runner, url: str, rounds: int) -> list[Cost]:
    """The processor time of many calls at once."""

    def many(calls: int) -> Work:
        return lambda caller: runner.run(at_once(calls, caller))

    callers = callers_at(url)
    return [
        ratio_of("64 calls at once", least(2 * rounds, callers, time.process_time, many(64))),
        ratio_of("512 calls at once", least(rounds, callers, time.process_time, many(512))),
    ]


def callers_at(url: str) -> dict[str, Caller]:
    return {"prompty": Ours(url), "openai": Bare(url)}


async def at_once(calls: int, caller: Caller) -> None:
    """So many calls in flight, and twice as many in all."""
    numbers = iter(range(2 * calls))

    async def worker() -> None:
        for _ in numbers:
            await caller.call_async()

    await asyncio.gather(*(worker() for _ in range(calls)))


def least(rounds: int, callers: Mapping[str, Caller], clock: Callable[[], float], work: Work) -> dict[str, float]:
    """The least time each caller takes for the same work."""
    measures: dict[str, Measure] = {
        name: partial(seconds_of, partial(work, caller), clock) for name, caller in callers.items()
    }
    return best_of(rounds, measures)


def seconds_of(action: Callable[[], object], clock: Callable[[], float]) -> float:
    gc.collect()  # the garbage of the others
    start = clock()
    action()
    return clock() - start


def ratio_of(name: str, seconds: Mapping[str, float]) -> Cost:
    """Our time over that of the bare SDK."""
    return ratio(name, LIMITS[name], seconds)


def ratio(name: str, limit: float, seconds: Mapping[str, float], side: str = "prompty") -> Cost:
    """A caller's time over that of the bare SDK."""
    used = {one: seconds[one] for one in (side, "openai")}
    return Cost(name=name, figure=used[side] / used["openai"], unit="times openai", limit=limit, seconds=used)
