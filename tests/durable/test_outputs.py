"""Durable turns whose answers do not have the shape of the declared outputs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty.errors import ResultError
from tests.drivers.unfit import ADA, CORRECTABLE, OUTPUTS, TARGETS, UNFIT, Unfit, fitting
from tests.drivers.wires import KEY, Chat, Wire
from tests.durable.own import launched
from tests.loopback import Server

every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
SECRETS = {"key": KEY}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/own.db"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@every_target
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_turn_whose_answers_do_not_fit_ends_with_the_reason(
    url: str, server: Server, target: Wire, streamed: bool
) -> None:
    agent = target.agent(server, outputs=OUTPUTS)
    caught: dict[str, ResultError] = {}
    with launched(url) as program:
        for name, unfit in UNFIT.items():
            server.answer(unfit.encode(target, streamed=streamed))
            with pytest.raises(ResultError) as raised:
                program.start_turn(agent, id=name, stream=streamed, secrets=SECRETS).get_result()
            check(raised.value, unfit, target)
            caught[name] = raised.value
            assert sum("model:" in step for step in program.steps(name)) == 1 + (unfit in CORRECTABLE)
    with launched(url) as program:
        for name, error in caught.items():
            with pytest.raises(ResultError) as stored:
                program.result(name)
            assert (str(stored.value), vars(stored.value)) == (str(error), vars(error))


def check(error: ResultError, unfit: Unfit, target: Wire) -> None:
    assert error.reason == unfit.reason_on(target)
    assert error.text == (unfit.text if unfit.words else error.text)
    assert error.fix in str(error)
    assert error.for_command_line()


@every_target
def test_a_turn_whose_answer_was_corrected_has_a_result(url: str, server: Server, target: Wire) -> None:
    agent = target.agent(server, outputs=OUTPUTS)
    with launched(url) as program:
        for number, unfit in enumerate(CORRECTABLE):
            server.answer(unfit.encode(target, streamed=False), fitting(target, streamed=False))
            assert program.start_turn(agent, id=f"{number}", secrets=SECRETS).get_result() == ADA


def test_a_lenient_turn_returns_what_came(url: str, server: Server) -> None:
    server.answer(UNFIT["text"].encode(Chat(), streamed=False))
    with launched(url) as program:
        agent = Chat().agent(server, outputs=OUTPUTS)
        run = program.start_turn(agent, outputs_mode="lenient", secrets=SECRETS)
        assert run.get_result() == UNFIT["text"].text
    assert len(server.requests) == 1
