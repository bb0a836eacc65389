"""Calls that had begun when their worker ended: nobody knows what they did, and nobody guesses."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty import Paused, deny, load, tool
from prompty.durable import DurableRuntime, use_result
from prompty.errors import RequestError
from prompty.events import Done
from tests.durable.runs import scripted, working
from tests.durable.suite import wait_until

SECONDS = 30


class Counter:
    """A slow tool that must not run twice, one that may, and a quick one."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.quick_now = False

    async def _slowly(self, name: str) -> str:
        self.ran.append(name)
        while not self.quick_now:
            await asyncio.sleep(0.02)
        return f"{name} done"

    @tool
    async def pay(self, to: str) -> str:
        return await self._slowly(f"pay {to}")

    @tool(idempotent=True)
    async def read(self) -> str:
        return await self._slowly("read")

    @tool
    async def note(self) -> str:
        self.ran.append("note")
        return "noted"

    @property
    def tools(self) -> list[object]:
        return [self.pay, self.read, self.note]


CALLS = [
    {"call": "pay", "arguments": {"to": "Ada"}},
    {"call": "note"},
    {"call": "read"},
    {"call": "pay", "arguments": {"to": "Bob"}},
]


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[tuple[DurableRuntime, Counter, Paused]]:
    """A run whose worker ended in the middle of four calls and was started again."""
    counter = Counter()
    url = f"sqlite:///{tmp_path}/runs.db"
    with working(url, *counter.tools) as runtime:
        runtime.start(scripted([CALLS, "Done."]), run_id="mine")
        wait_until(lambda: len(counter.ran) == 4 and "tool:mine:1:1" in dict(runtime.engine.steps("mine")))
    counter.quick_now = True
    with working(url, *counter.tools) as runtime:
        paused = runtime.result("mine", timeout=SECONDS)
        assert isinstance(paused, Paused)
        yield runtime, counter, paused


Cut = tuple[DurableRuntime, Counter, Paused]


def results(runtime: DurableRuntime) -> list[str]:
    assert runtime.result("mine", timeout=SECONDS) == "Done."
    *_, last = runtime.events("mine")
    assert isinstance(last.event, Done)
    return [message.text for message in last.event.messages if message.role == "tool"]


def test_a_person_is_asked_about_what_must_not_be_repeated_and_only_that(cut: Cut) -> None:
    _, counter, paused = cut
    assert [(call.name, call.arguments, call.unknown) for call in paused.pending] == [
        ("pay", {"to": "Ada"}, True),
        ("pay", {"to": "Bob"}, True),
    ]
    assert counter.ran.count("read") == 2, "what may be repeated is repeated"
    assert counter.ran.count("note") == 1, "what had left its result is not"
    assert counter.ran.count("pay Ada") == 1


def test_it_is_run_again_or_given_its_result(cut: Cut) -> None:
    runtime, counter, paused = cut
    runtime.answer(paused, [True, use_result({"paid": "by hand"})])
    assert results(runtime) == ["pay Ada done", "noted", "read done", '{"paid":"by hand"}']
    assert counter.ran.count("pay Ada") == 2
    assert counter.ran.count("pay Bob") == 1
    assert counter.ran.count("note") == 1


def test_it_counts_as_failed(cut: Cut) -> None:
    runtime, counter, paused = cut
    runtime.answer(paused, [deny("the bank has refused it"), deny()])
    first, _, _, last = results(runtime)
    assert first == "Error: Tool 'pay' failed: the bank has refused it"
    assert last == "Error: Tool 'pay' failed: it was interrupted; it may or may not have taken effect"
    assert counter.ran.count("pay Ada") == 1


def test_what_was_not_answered_is_asked_again_and_nothing_runs_meanwhile(cut: Cut) -> None:
    runtime, counter, paused = cut
    runtime.answer(paused, {paused.pending[1].key: use_result("paid")})
    again = runtime.result("mine", timeout=SECONDS)
    assert isinstance(again, Paused)
    assert [(call.arguments, call.unknown) for call in again.pending] == [({"to": "Ada"}, True)]
    assert counter.ran.count("pay Ada") == 1
    runtime.answer(again, [True])
    assert results(runtime) == ["pay Ada done", "noted", "read done", "paid"]


def test_what_is_no_verdict_is_an_error_and_the_run_still_waits(cut: Cut) -> None:
    runtime, counter, paused = cut
    with pytest.raises(RequestError, match="the verdict on 'pay' is 'retry'"):
        runtime.answer(paused, ["retry", None])
    assert runtime.result("mine", timeout=SECONDS) == paused
    assert counter.ran.count("pay Ada") == 1


CHILD = """\
---
model:
  id: m
  provider: scripted
  options:
    additionalProperties:
      script: [The child says hello.]
---
user:
Hello?
"""
PARENT = """\
---
model:
  id: m
  provider: scripted
  options:
    additionalProperties:
      script:
        - [{call: wait}]
        - [{call: child}]
        - Done.
tools:
  - name: child
    kind: prompty
    path: child.prompty
  - name: wait
    kind: function
---
user:
Go on.
"""


def test_tools_of_other_kinds_are_found_again_by_the_worker_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text(CHILD)
    (tmp_path / "parent.prompty").write_text(PARENT)
    going_on: list[bool] = []

    @tool(idempotent=True)
    async def wait() -> str:
        while not going_on:
            await asyncio.sleep(0.02)
        return "waited"

    url = f"sqlite:///{tmp_path}/runs.db"
    with working(url, wait) as runtime:
        runtime.start(load(tmp_path / "parent.prompty"), run_id="mine")
        wait_until(lambda: "model:2" in dict(runtime.engine.steps("mine")))
    going_on.append(True)
    with working(url, wait) as runtime:
        assert results(runtime) == ["waited", "The child says hello."]
