"""A call that is cancelled ends at once, at whatever stage it is, and its connection ends at the server."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from socket import socket

import pytest

from prompty import CancelToken, PromptAgent, invoke, invoke_async
from prompty.errors import Cancelled
from tests.loopback import Hold, Reply, Server, event, stream
from tests.machine import time_factor
from tests.transports.subject import Subject
from tests.transports.tls import serve_tls

pytestmark = pytest.mark.timing
LIMIT = 0.5  # seconds from the cancellation to the end of the call
TIMEOUT = 1.5  # of a call whose connection may stay until then
WORD = event({"choices": [{"index": 0, "delta": {"content": "ha"}}]})


def held(stage: str, hold: Hold) -> Reply:
    """An answer that stops at a stage."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    stages: dict[str, Reply] = {
        "before headers": [hold],
        "between headers and body": [head, hold],
        "in the body": stream(WORD, hold),
    }
    return stages[stage]


STAGES = ("before headers", "between headers and body", "in the body")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_cancelled_call_of_a_thread_ends_and_closes_its_connection(
    subject: Subject, server: Server, stage: str, *, streamed: bool
) -> None:
    hold, cancel = Hold(), CancelToken()
    server.answer(held(stage, hold))
    agent = subject.agent(server.url)
    cancelled_at: list[float] = []

    def give_up() -> None:
        assert hold.reached.wait(5)
        time.sleep(0.05)  # until the call waits
        cancelled_at.append(time.monotonic())
        cancel.cancel()

    thread = threading.Thread(target=give_up)
    thread.start()
    with pytest.raises(Cancelled):
        call(agent, cancel, streamed=streamed)
    seconds = time.monotonic() - cancelled_at[0]
    thread.join()
    assert seconds < LIMIT * time_factor()
    assert server.wait_until(lambda: server.busy == 0)
    # Nothing wakes a thread that waits for headers: it is left behind, until its deadline at the latest.
    late = LIMIT + (TIMEOUT if stage == "before headers" else 0)
    assert time.monotonic() - cancelled_at[0] < late * time_factor()


def call(agent: PromptAgent, cancel: CancelToken, *, streamed: bool) -> None:
    if streamed:
        with invoke(agent, stream=True, cancel=cancel, timeout=TIMEOUT, max_retries=0) as answer:
            list(answer)
    else:
        invoke(agent, cancel=cancel, timeout=TIMEOUT, max_retries=0)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_cancelled_task_ends_and_closes_its_connection(
    subject: Subject, server: Server, stage: str, *, streamed: bool
) -> None:
    hold = Hold()
    server.answer(held(stage, hold))
    agent = subject.agent(server.url)

    async def work() -> None:
        if streamed:
            async with await invoke_async(agent, stream=True, timeout=TIMEOUT, max_retries=0) as answer:
                _ = [text async for text in answer]
        else:
            await invoke_async(agent, timeout=TIMEOUT, max_retries=0)

    async def main() -> tuple[float, float]:
        task = asyncio.create_task(work())
        assert await asyncio.to_thread(hold.reached.wait, 5)
        await asyncio.sleep(0.05)  # until the call waits
        start = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ended = time.monotonic() - start
        assert await asyncio.to_thread(server.wait_until, lambda: server.busy == 0)
        return ended, time.monotonic() - start

    ended, closed = subject.run(main())
    assert ended < LIMIT * time_factor()
    assert closed < LIMIT * time_factor()


def test_a_call_is_cancelled_while_it_connects(subject: Subject) -> None:
    with ExitStack() as stack:
        agent = subject.agent(stack.enter_context(Deaf()).url)

        async def main() -> float:
            task = asyncio.create_task(invoke_async(agent, timeout=5, max_retries=0))
            await asyncio.sleep(0.2)
            start = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return time.monotonic() - start

        assert subject.run(main()) < LIMIT * time_factor()
        cancel = CancelToken()
        threading.Timer(0.2, cancel.cancel).start()
        start = time.monotonic()
        with pytest.raises(Cancelled):
            invoke(agent, cancel=cancel, timeout=1, max_retries=0)
        assert time.monotonic() - start < (0.2 + LIMIT) * time_factor()


class Deaf(ExitStack):
    """A port whose queue is full, so that connecting to it takes for ever."""

    def __enter__(self) -> "Deaf":
        listening = self.enter_context(socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(2):
            waiting = self.enter_context(socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        return self


def test_a_call_over_tls_is_cancelled_while_it_waits_for_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    with serve_tls(tmp_path, [[head, b"%x\r\n%b\r\n" % (len(WORD), WORD)]]) as (url, certificate, _):
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        cancel = CancelToken()
        with invoke(Subject("httpx2").agent(url), stream=True, cancel=cancel, timeout=20, max_retries=0) as answer:
            words = iter(answer)
            assert next(words) == "ha"
            threading.Timer(0.05, cancel.cancel).start()
            start = time.monotonic()
            with pytest.raises(Cancelled):
                next(words)
            assert time.monotonic() - start < LIMIT * time_factor()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_stream_that_is_closed_early_ends_at_the_server_within_a_tenth_of_a_second(
    subject: Subject, server: Server, way: str
) -> None:
    server.answer(stream(WORD, Hold()))

    def close() -> float:
        with invoke(subject.agent(server.url), stream=True) as answer:
            assert next(iter(answer)) == "ha"
            start = time.monotonic()
        assert server.wait_until(lambda: server.open == 0)
        return time.monotonic() - start

    async def close_async() -> float:
        async with await invoke_async(subject.agent(server.url), stream=True) as answer:
            assert await anext(aiter(answer)) == "ha"
            start = time.monotonic()
        assert await asyncio.to_thread(server.wait_until, lambda: server.open == 0)
        return time.monotonic() - start

    ways: dict[str, Callable[[], float]] = {"sync": close, "async": lambda: subject.run(close_async())}
    assert min(ways[way]() for _ in range(3)) < 0.1 * time_factor()
