"""Runs that failed, were cancelled or are quarantined go on after their last good step, and nothing is done twice."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from prompty import PromptAgent, deny, tool
from prompty.durable import Runs
from prompty.durable.runs import QUARANTINE
from prompty.errors import (
    IterationsExceeded,
    ModelError,
    PromptyError,
    RequestError,
    ResultError,
    RunBroken,
    RunRefused,
)
from tests.durable.databases import Databases
from tests.durable.runs import rounds, scripted, working
from tests.loopback import Reply, Request, Server, json_reply

SECONDS = 30
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.database)]
KEY = "sk-of-the-retries-0001"


class Provider(Server):
    """Asks for two payments, one after the other, and then says that it is done. What it answers when it is `down` is a
    status. `answered` counts the requests that would have to be paid for, by their round."""

    def __init__(self) -> None:
        super().__init__()
        self.down: int | None = None
        self.last = "Done."
        self.answered: Counter[int] = Counter()

    def next_reply(self, request: Request) -> Reply:
        if self.down is not None:
            return json_reply({"error": {"message": "no"}}, self.down, {"retry-after": "0.01"})
        round = sum(message["role"] == "tool" for message in request.body["messages"])
        self.answered[round] += 1
        message: dict[str, Any] = {"role": "assistant", "content": self.last}
        if round < 2:
            call = {"name": "pay", "arguments": f'{{"at": "{round}"}}'}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{round}", "type": "function", "function": call}],
            }
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if round < 2 else "stop"}
        return json_reply({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    def agent(self, **parts: Any) -> PromptAgent:
        connection = {"kind": "key", "apiKey": KEY, "endpoint": f"{self.url}/v1"}
        model = {"id": "gpt-4o-mini", "provider": "openai", "connection": connection}
        return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", **parts})


class Till:
    """A tool that must not run twice. It can take the provider down."""

    def __init__(self, provider: Provider | None = None, status: int = 503) -> None:
        self.paid: list[str] = []
        self._provider, self._status = provider, status

    @tool
    async def pay(self, at: str) -> str:
        """Pay."""
        self.paid.append(at)
        if self._provider is not None and at == "1":
            self._provider.down = self._status
        return "paid"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        yield server


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.parametrize("kind", DATABASES)
@pytest.mark.parametrize("status", [503, 401])
def test_a_run_that_failed_because_the_provider_was_down_goes_on_after_it(
    kind: str, status: int, databases: Databases, provider: Provider
) -> None:
    till = Till(provider, status)
    with working(databases.new(kind), till.pay, secrets={"key": KEY}) as worker:
        runs = worker.runs
        run_id = runs.submit(provider.agent(), tools=["pay"], max_retries=1)
        with pytest.raises(ModelError):
            runs.result(run_id, timeout=SECONDS)
        [failed] = runs.list("failed")
        assert failed.id == run_id
        assert failed.reason is not None
        runs.retry(run_id)
        with pytest.raises(ModelError):
            runs.result(run_id, timeout=SECONDS)
        provider.down = None
        runs.retry(run_id)
        assert runs.result(run_id, timeout=SECONDS) == "Done."
        assert runs.list("failed") == []
    assert till.paid == ["0", "1"]
    assert provider.answered == {0: 1, 1: 1, 2: 1}, "no answer was paid for twice"


def test_a_failure_in_the_first_step_and_one_before_it_are_retried(url: str, provider: Provider) -> None:
    till = Till()
    with Runs(url, secrets={"key": KEY}) as runs:
        run_id = runs.submit(provider.agent(), tools=["pay"], max_retries=0)
        with working(url, secrets={"key": KEY}), pytest.raises(RequestError, match="no tool 'pay'"):
            runs.result(run_id, timeout=SECONDS)
        runs.retry(run_id)
        with working(url, till.pay), pytest.raises(PromptyError, match="secret"):
            runs.result(run_id, timeout=SECONDS)
        runs.retry(run_id)
        provider.down = 503
        with working(url, till.pay, secrets={"key": KEY}):
            with pytest.raises(ModelError):
                runs.result(run_id, timeout=SECONDS)
            provider.down = None
            runs.retry(run_id)
            assert runs.result(run_id, timeout=SECONDS) == "Done."
    assert till.paid == ["0", "1"]


def test_a_run_that_failed_after_an_answer_keeps_the_answer(url: str, provider: Provider) -> None:
    till = Till(provider)
    with working(url, till.pay, secrets={"key": KEY}) as worker:
        runs = worker.runs
        run_id = runs.submit(provider.agent(), tools=["pay"], max_retries=0, approval="always")
        runs.answer(runs.result(run_id, timeout=SECONDS), [deny("too much")])
        runs.answer(runs.result(run_id, timeout=SECONDS), [True])
        with pytest.raises(ModelError):
            runs.result(run_id, timeout=SECONDS)
        provider.down = None
        runs.retry(run_id)
        assert runs.result(run_id, timeout=SECONDS) == "Done."
    assert till.paid == ["1"]
    assert provider.answered == {0: 1, 1: 1, 2: 1}


def test_a_bad_last_answer_is_asked_for_again_and_nothing_else(url: str, provider: Provider) -> None:
    till = Till()
    provider.last = "no number"
    agent = provider.agent(outputs=[{"name": "total", "kind": "integer", "required": True}])
    with working(url, till.pay, secrets={"key": KEY}) as worker:
        run_id = worker.runs.submit(agent, tools=["pay"])
        with pytest.raises(ResultError):
            worker.runs.result(run_id, timeout=SECONDS)
        provider.last = '{"total": 3}'
        asked = provider.answered.total()
        worker.runs.retry(run_id)
        assert worker.runs.result(run_id, timeout=SECONDS) == {"total": 3}
    assert provider.answered.total() == asked + 1
    assert till.paid == ["0", "1"]


def test_a_limit_that_was_reached_is_reached_again_without_paying(url: str, provider: Provider) -> None:
    till = Till()
    with working(url, till.pay, secrets={"key": KEY}) as worker:
        run_id = worker.runs.submit(provider.agent(), tools=["pay"], max_iterations=1)
        for _ in range(2):
            with pytest.raises(IterationsExceeded):
                worker.runs.result(run_id, timeout=SECONDS)
            worker.runs.retry(run_id)
        with pytest.raises(IterationsExceeded):
            worker.runs.result(run_id, timeout=SECONDS)
    assert provider.answered == {0: 1, 1: 1}
    assert till.paid == ["0"]


@pytest.mark.parametrize("kind", DATABASES)
def test_a_run_that_was_cancelled_in_the_queue_goes_on(kind: str, databases: Databases) -> None:
    url, till = databases.new(kind), Till()
    with Runs(url) as runs:
        for tenant in (None, "acme"):
            runs.submit(scripted(rounds("pay", 1, 1)), run_id=f"of {tenant}", tools=["pay"], tenant=tenant)
            runs.cancel(f"of {tenant}")
            runs.retry(f"of {tenant}")
        assert len(runs.list("waiting")) == 2
        with working(url, till.pay):
            for tenant in (None, "acme"):
                assert runs.result(f"of {tenant}", timeout=SECONDS) == "Done."
    assert till.paid == ["0/0", "0/0"]


def test_a_quarantined_run_goes_on_with_no_deaths_counted(url: str) -> None:
    till = Till()
    with Runs(url) as runs:
        run_id = runs.submit(scripted(rounds("pay", 1, 1)), tools=["pay"])
        runs.table.update(run_id, deaths=4)
        assert runs.table.change(run_id, "quarantined", segment=0, reason="its workers died")
        runs.client.resume_workflow(run_id, queue_name=QUARANTINE)
        assert [run.id for run in runs.list("quarantined")] == [run_id]
        with pytest.raises(RunBroken, match="quarantined"):
            runs.result(run_id)
        runs.retry(run_id)
        row = runs.table.get(run_id)
        assert row is not None
        assert (row.state, row.deaths, row.reason) == ("open", 0, None)
        with working(url, till.pay):
            assert runs.result(run_id, timeout=SECONDS) == "Done."


def test_a_run_that_did_not_fail_is_not_retried(url: str) -> None:
    with working(url) as worker:
        run_id = worker.runs.submit(scripted(["Done."]))
        worker.runs.result(run_id, timeout=SECONDS)
        with pytest.raises(RequestError, match=f"the run '{run_id}' is done"):
            worker.runs.retry(run_id)


def test_a_run_whose_answer_nobody_could_read_is_paused_again(url: str) -> None:
    """A worker of another release refused it, and its answer would get lost."""
    till = Till()

    def edit(old: str, new: str) -> None:
        with closing(sqlite3.connect(url.partition("///")[2])) as connection, connection:
            change = "UPDATE workflow_input SET inputs = replace(inputs, ?, ?) WHERE workflow_uuid = 'mine#1'"
            assert connection.execute(change, (old, new)).rowcount == 1

    with Runs(url) as runs:
        with working(url, till.pay):
            runs.submit(scripted(rounds("pay", 1, 1)), run_id="mine", tools=["pay"], approval="always")
            paused = runs.result("mine", timeout=SECONDS)
        runs.answer(paused, [True])
        edit("brief", "Brief")
        with working(url, till.pay), pytest.raises(RunRefused):
            runs.result("mine", timeout=SECONDS)
        edit("Brief", "brief")
        runs.retry("mine")
        assert runs.result("mine", timeout=SECONDS) == paused
        runs.answer(paused, [True])
        with working(url, till.pay):
            assert runs.result("mine", timeout=SECONDS) == "Done."
    assert till.paid == ["0/0"]
