"""Connections that are shared: by threads, by one event loop after the other, and by no child of a fork."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prompty import invoke, invoke_async
from prompty.providers.http.client import MAX_IDLE
from tests.loopback import CLOSE, Hold, Server, event, json_reply, stream
from tests.tiers import ROOT
from tests.transports.subject import ANSWER, Subject, create_agent
from tests.transports.test_exchanges import skip_if_exempt

THREADS, CALLS = 32, 8


def test_threads_share_connections(subject: Subject, server: Server) -> None:
    server.answer(json_reply(ANSWER))
    agent = subject.agent(server.url)
    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(lambda _: invoke(agent), range(THREADS * CALLS)))
    assert answers == ["Fine."] * (THREADS * CALLS)
    assert len(server.requests) == THREADS * CALLS
    assert server.accepted <= 2 * THREADS


def test_event_loops_follow_each_other(subject: Subject, server: Server) -> None:
    agent = subject.agent(server.url)
    done = event({"choices": [{"index": 0, "delta": {"content": "Fine."}, "finish_reason": "stop"}]})

    async def several() -> list[object]:
        server.answer(json_reply(ANSWER))
        answers: list[object] = list(await asyncio.gather(*(invoke_async(agent) for _ in range(4))))
        server.answer(stream(done, event("[DONE]")))
        async with await invoke_async(agent, stream=True) as texts:
            return [*answers, *[text async for text in texts]]

    for _ in range(3):
        assert subject.run(several()) == ["Fine."] * 5
        if not subject.is_exempt("closes with the loop"):
            assert server.wait_until(lambda: server.open == 0), f"{server.open} connections outlive their event loop"
        else:
            agent = subject.agent(server.url)


def test_a_connection_that_the_server_closed_while_the_loop_rested_is_not_used_again(
    subject: Subject, server: Server
) -> None:
    server.answer([*json_reply(ANSWER), CLOSE])
    agent = subject.agent(server.url)

    async def twice() -> list[object]:
        first = await invoke_async(agent, max_retries=0)
        assert server.wait_until(lambda: server.open == 0)  # the loop stands still meanwhile
        return [first, await invoke_async(agent, max_retries=0)]

    assert subject.run(twice()) == ["Fine."] * 2


def test_a_call_from_inside_an_event_loop_works(subject: Subject, server: Server) -> None:
    """A function that is called in async code may make a synchronous call; the loop around it goes on afterwards."""
    server.answer(json_reply(ANSWER))
    agent = subject.agent(server.url)

    async def main() -> list[object]:
        answers: list[object] = [invoke(agent)]
        await asyncio.sleep(0)
        return [*answers, await invoke_async(agent), invoke(agent)]

    assert subject.run(main()) == ["Fine."] * 3


def test_a_burst_of_calls_leaves_few_connections_open(server: Server) -> None:
    holds = [Hold() for _ in range(2 * MAX_IDLE)]
    content = json_reply(ANSWER)
    server.answer(*([hold, *content] for hold in holds))
    agent = create_agent(server.url, "sk-planted")

    async def burst() -> None:
        calls = [asyncio.create_task(invoke_async(agent)) for _ in holds]
        for hold in holds:
            await asyncio.to_thread(hold.reached.wait)
        assert server.open == len(holds)
        for hold in holds:
            hold.release()
        assert await asyncio.gather(*calls) == ["Fine."] * len(holds)
        assert await asyncio.to_thread(server.wait_until, lambda: server.open == MAX_IDLE)

    asyncio.run(burst())


@pytest.mark.process
def test_a_forked_child_uses_connections_of_its_own(subject: Subject, server: Server) -> None:
    skip_if_exempt(subject, "fork")
    server.answer(json_reply(ANSWER))
    command = [sys.executable, str(Path(__file__).with_name("forked.py")), server.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own program
    assert done.stdout.split() == ["Fine."] * 6, done.stderr
    assert server.wait_until(lambda: server.open == 0)


@pytest.mark.process
@pytest.mark.parametrize("stage", ["headers", "body"])
def test_an_interrupt_ends_a_synchronous_call(subject: Subject, stage: str) -> None:
    command = [sys.executable, "-m", "tests.transports.interrupted", subject.name, stage]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own program
    assert done.stdout == "interrupted in time\n", done.stderr
