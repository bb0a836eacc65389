"""Rows whose answers do not have the shape of the declared outputs, from Python and by `prompty batch`."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prompty import batch, batch_async
from prompty.errors import ResultError
from tests.batch.folder import Folder
from tests.drivers.unfit import ADA, OUTPUTS, TARGETS, UNFIT, Unfit, fitting
from tests.drivers.wires import Chat, Wire
from tests.loopback import Server

WAYS: dict[str, Callable[..., Any]] = {
    "batch": batch,
    "batch_async": lambda *arguments, **options: asyncio.run(batch_async(*arguments, **options)),
}
DECLARED = "outputs: {name: {kind: string}, age: {kind: integer}}\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.mark.parametrize("run_batch", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
def test_a_row_whose_answer_does_not_fit_fails_with_the_reason(
    server: Server, target: Wire, unfit: Unfit, run_batch: Callable[..., Any]
) -> None:
    agent = target.agent(server, outputs=OUTPUTS)
    server.answer(fitting(target, streamed=False), unfit.encode(target, streamed=False))
    first, second = run_batch(agent, [{}, {}], concurrency=1)
    assert first.value == ADA
    assert isinstance(second.error, ResultError)
    assert second.error.reason == unfit.reason_on(target)
    with pytest.raises(ResultError):
        assert second.value
    (lenient,) = run_batch(agent, [{}], outputs_mode="lenient")
    assert lenient.error is None


@pytest.mark.process
def test_the_command_writes_the_reason_and_the_answer_of_a_row_that_failed(server: Server, tmp_path: Path) -> None:
    folder = Folder(tmp_path, server.url, DECLARED)
    folder.write_rows([{"q": "who"}, {"q": "who else"}])
    wanted, unwanted = fitting(Chat(), streamed=False), UNFIT["shape"].encode(Chat(), streamed=False)
    server.answer(wanted, unwanted)
    said = folder.run("--concurrency", "1", code=1)
    assert (said.summary["done"], said.summary["failed"]) == (1, 1)
    assert [line["result"] for line in folder.results()] == [ADA]
    [failure] = folder.failures()
    error = failure["error"]
    assert (error["class"], error["reason"], error["answer"]) == ("ResultError", "shape", UNFIT["shape"].text)
    assert "`age` is missing" in error["message"]
    assert "--lenient-outputs" in error["message"]
    assert "outputs_mode" not in error["message"]
    server.answer(unwanted)
    folder.run("--retry-failed", "--lenient-outputs")
    assert folder.results()[-1]["result"] == {"name": "Ada", "years": 36}
