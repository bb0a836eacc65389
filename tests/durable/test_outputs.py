"""Durable runs whose answers do not have the shape of the declared outputs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty.durable import DurableRuntime
from prompty.errors import ResultError
from prompty.events import OutputRejected, RunFailed
from tests.drivers.unfit import ADA, CORRECTABLE, OUTPUTS, TARGETS, UNFIT, Unfit, fitting
from tests.drivers.wires import KEY, Chat, Wire
from tests.durable.runs import working
from tests.loopback import Server

SECONDS = 30
every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
SECRETS = {"key": KEY}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@every_target
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_run_whose_answers_do_not_fit_ends_with_the_reason(
    url: str, server: Server, target: Wire, streamed: bool
) -> None:
    agent = target.agent(server, outputs=OUTPUTS)
    with working(url, secrets=SECRETS) as runtime:
        for unfit in UNFIT.values():
            server.answer(unfit.encode(target, streamed=streamed))
            run = runtime.start(agent, stream=streamed)
            with pytest.raises(ResultError) as caught:
                run.result(timeout=SECONDS)
            check(caught.value, unfit, target)
            with DurableRuntime(url, secrets=SECRETS) as reader:
                with pytest.raises(ResultError) as stored:
                    reader.attach(run.id).result(timeout=SECONDS)
                events = [event for _, event in reader.events(run.id)]
            assert (str(stored.value), vars(stored.value)) == (str(caught.value), vars(caught.value))
            rejected = [event.reason for event in events if isinstance(event, OutputRejected)]
            assert rejected == [unfit.reason] * (unfit in CORRECTABLE)
            assert isinstance(events[-1], RunFailed)


def check(error: ResultError, unfit: Unfit, target: Wire) -> None:
    assert error.reason == unfit.reason_on(target)
    assert error.text == (unfit.text if unfit.words else error.text)
    assert error.fix in str(error)
    assert error.for_command_line()


@every_target
def test_a_run_whose_answer_was_corrected_has_a_result(url: str, server: Server, target: Wire) -> None:
    agent = target.agent(server, outputs=OUTPUTS)

    async def start(runtime: DurableRuntime) -> object:
        server.answer(CORRECTABLE[0].encode(target, streamed=False), fitting(target, streamed=False))
        return await (await runtime.start_async(agent)).result_async(timeout=SECONDS)

    with working(url, secrets=SECRETS) as runtime:
        for unfit in CORRECTABLE:
            server.answer(unfit.encode(target, streamed=False), fitting(target, streamed=False))
            assert runtime.start(agent).result(timeout=SECONDS) == ADA
        assert asyncio.run(start(runtime)) == ADA


def test_a_lenient_run_returns_what_came(url: str, server: Server) -> None:
    server.answer(UNFIT["text"].encode(Chat(), streamed=False))
    with working(url, secrets=SECRETS) as runtime:
        run = runtime.start(Chat().agent(server, outputs=OUTPUTS), outputs_mode="lenient")
        assert run.result(timeout=SECONDS) == UNFIT["text"].text
    assert len(server.requests) == 1
