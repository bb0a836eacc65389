"""What calls cost, measured in the same calls of the bare OpenAI SDK, to a provider that takes no time of its own."""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from openai import AsyncOpenAI, DefaultAioHttpClient

from benchmarks.callers import KEY, Bare, Caller, Ours, agent_at
from benchmarks.cost import Cost, Measure, best_of
from benchmarks.prompts import CHAT
from benchmarks.provider import TEXT, fake_provider
from prompty import load
from prompty.providers import register_connection

REPEATS = 30
CHUNKS = 2000
SCHEDULE = Path("/proc/self/schedstat")

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
    asynchronous = least(rounds, callers, time.process_time, lambda caller: runner.run(run_async(caller)))
    return [
        ratio("call, async", 0.75, asynchronous),
        ratio("call, sync", 0.75, least(rounds, callers, time.process_time, run)),
    ]


def streamed(runner: asyncio.Runner, url: str, rounds: int) -> list[Cost]:
    """The processor time of a chunk."""

    def run(caller: Caller) -> None:
        assert caller.stream() == CHUNKS

    def run_async(caller: Caller) -> None:
        assert runner.run(caller.stream_async()) == CHUNKS

    callers = callers_at(url)
    return [
        ratio("stream, async", 0.2, least(rounds, callers, time.process_time, run_async)),
        ratio("stream, sync", 0.2, least(rounds, callers, time.process_time, run)),
    ]


def together(runner: asyncio.Runner, url: str, rounds: int) -> list[Cost]:
    """The time in which many calls at once are answered."""

    def many(calls: int) -> Work:
        return lambda caller: runner.run(at_once(calls, caller))

    callers = callers_at(url)
    few = least(2 * rounds, callers, own_time, many(64))
    with fast_caller(runner, url) as fast:
        seconds = least(rounds, {**callers, **fast}, own_time, many(512))
    costs = [ratio("64 calls at once", 1 / 1.3, few), ratio("512 calls at once", 1 / 1.2, seconds)]
    return costs + [ratio("512 calls at once, aiohttp", 1 / 2.5, seconds, name) for name in fast]


def callers_at(url: str) -> dict[str, Caller]:
    return {"prompty": Ours(agent_at(url)), "openai": Bare(url)}


async def at_once(calls: int, caller: Caller) -> None:
    """So many calls in flight, and twice as many in all."""
    numbers = iter(range(2 * calls))

    async def worker() -> None:
        for _ in numbers:
            await caller.call_async()

    await asyncio.gather(*(worker() for _ in range(calls)))


@contextmanager
def fast_caller(runner: asyncio.Runner, url: str) -> Iterator[dict[str, Caller]]:
    """A prompt whose host has registered a client that sends with aiohttp, where that is installed."""
    if not find_spec("aiohttp"):
        yield {}
        return

    async def client() -> AsyncOpenAI:
        return AsyncOpenAI(base_url=url, api_key=KEY, http_client=DefaultAioHttpClient())

    registered = runner.run(client())
    register_connection("shop", registered)
    yield {"prompty with aiohttp": Ours(load(CHAT))}
    runner.run(registered.close())


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


def own_time() -> float:
    """The time, less what this process has waited for a processor that others had; that is known on Linux only."""
    waited = int(SCHEDULE.read_text().split()[1]) if SCHEDULE.exists() else 0
    return time.perf_counter() - waited / 1e9


def ratio(name: str, limit: float, seconds: Mapping[str, float], side: str = "prompty") -> Cost:
    """A caller's time over that of the bare SDK."""
    used = {one: seconds[one] for one in (side, "openai")}
    return Cost(name=name, figure=used[side] / used["openai"], unit="times openai", limit=limit, seconds=used)
