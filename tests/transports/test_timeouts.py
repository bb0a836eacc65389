"""A call takes no longer than its timeout, at whatever stage the server falls silent."""

import time

import pytest

from prompty import invoke, invoke_async
from prompty.errors import ModelError
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
