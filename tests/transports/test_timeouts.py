"""A call takes no longer than its timeout, at whatever stage the server falls silent."""

import asyncio
import time
from socket import create_server

import pytest

from prompty import invoke, invoke_async
from prompty.errors import ModelError
from prompty.model.request import WireRequest
from prompty.providers import endpoint as endpoints
from prompty.providers.endpoint import create_endpoint
from prompty.providers.http.client import AsyncHttpTransport, AsyncPool, HttpTransport, Pool
from tests.loopback import Hold, Server
from tests.machine import time_factor
from tests.transports.subject import Subject
from tests.transports.test_cancellation import STAGES, Deaf, held

pytestmark = pytest.mark.timing
TIMEOUT = 0.4
LATE = 0.5


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("stage", ["connecting", *STAGES])
def test_a_silent_server_costs_no_more_than_the_timeout(
    subject: Subject, server: Server, stage: str, way: str, *, streamed: bool
) -> None:
    with Deaf() as deaf:
        if stage == "connecting":
            agent = subject.agent(deaf.url)
        else:
            server.answer(held(stage, Hold()))
            agent = subject.agent(server.url)

        def work() -> None:
            if streamed:
                list(invoke(agent, stream=True, timeout=TIMEOUT, max_retries=0))
            else:
                invoke(agent, timeout=TIMEOUT, max_retries=0)

        async def work_async() -> None:
            if streamed:
                answer = await invoke_async(agent, stream=True, timeout=TIMEOUT, max_retries=0)
                _ = [text async for text in answer]
            else:
                await invoke_async(agent, timeout=TIMEOUT, max_retries=0)

        start = time.monotonic()
        with pytest.raises(ModelError) as raised:
            work() if way == "sync" else subject.run(work_async())
        assert time.monotonic() - start < (TIMEOUT + LATE) * time_factor()
    assert raised.value.retryable != (streamed and stage == "in the body")  # never once words went out
    assert server.wait_until(lambda: server.busy == 0)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_server_that_reads_nothing_costs_no_more_than_the_timeout(way: str) -> None:
    with create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        endpoint = create_endpoint(url, {})
        large = WireRequest(path="/", body={"text": "x" * 30_000_000}, headers={}, timeout=TIMEOUT)

        async def send() -> bytes:
            return await AsyncHttpTransport(endpoint, AsyncPool(endpoints.Server(url)), lambda: asyncio.sleep(0)).send(
                large
            )

        start = time.monotonic()
        with pytest.raises(ModelError, match="in time"):
            HttpTransport(endpoint, Pool(endpoints.Server(url))).send(large) if way == "sync" else asyncio.run(send())
        assert time.monotonic() - start < (TIMEOUT + LATE) * time_factor()
