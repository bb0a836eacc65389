"""Model calls of a worker wait for a free slot, and their outcomes raise or lower the limit."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as some

from prompty.batches.throttle import MAX_PAUSE_SECONDS, Throttle, ThrottledCalls
from prompty.drivers.aio import Outcome, drain_async
from prompty.errors import ModelError
from prompty.events import Event

Events = AsyncGenerator[Event | Outcome[str], None]


class Provider:
    """Counts who is with it at once."""

    def __init__(self) -> None:
        self.now = self.most = self.asked = 0

    async def call(self, ending: str) -> Events:
        self.now += 1
        self.asked += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
            if ending == "refused":
                raise ModelError("busy", status=429)
            if ending == "left alone":
                raise ModelError("busy", status=429, retry_after=0.3)
            if ending == "broken":
                raise ModelError("oh", status=500)
            yield Outcome("fine")
        finally:
            self.now -= 1


async def ended(calls: ThrottledCalls, provider: Provider, ending: str) -> object:
    running = asyncio.create_task(drain_async(calls(provider.call(ending))))
    if ending == "cancelled":
        await asyncio.sleep(0)
        running.cancel()
    return (await asyncio.gather(running, return_exceptions=True))[0]


@settings(deadline=None)
@given(
    most=some.integers(1, 20),
    endings=some.lists(some.sampled_from(["fine", "refused", "broken", "cancelled"]), max_size=60),
)
def test_calls_all_end_and_never_more_are_under_way_than_the_limit_was(most: int, endings: list[str]) -> None:
    async def all_calls() -> list[object]:
        return await asyncio.gather(*(ended(calls, provider, ending) for ending in endings))

    calls, provider = ThrottledCalls(Throttle(most)), Provider()
    results: list[Any] = asyncio.run(all_calls())
    assert provider.most <= most
    assert provider.now == 0
    assert [result == "fine" for result in results] == [ending == "fine" for ending in endings]
    assert calls.throttle.has_free_slot(0)


def test_calls_begin_few_and_become_more() -> None:
    async def rounds() -> list[int]:
        seen = []
        for _ in range(4):
            provider.most = 0
            await asyncio.gather(*(ended(calls, provider, "fine") for _ in range(100)))
            seen.append(provider.most)
        return seen

    calls, provider = ThrottledCalls(Throttle(64, clock=lambda: 0.0)), Provider()
    seen = asyncio.run(rounds())
    assert seen == sorted(seen)
    assert seen[-1] == 64


def test_nobody_begins_while_the_provider_wants_to_be_left_alone() -> None:
    async def calls_after_a_refusal() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(ModelError):
            await drain_async(calls(provider.call("left alone")))
        begun = loop.time()
        await asyncio.gather(*(ended(calls, provider, "fine") for _ in range(5)))
        return loop.time() - begun

    calls, provider = ThrottledCalls(Throttle(64)), Provider()
    assert 0.25 <= asyncio.run(calls_after_a_refusal()) < MAX_PAUSE_SECONDS
    assert provider.asked == 6
