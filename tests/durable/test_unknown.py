"""Calls that had begun when their process ended: nobody knows what they did, and nobody guesses."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbos import DBOS

from prompty import Paused, PromptAgent, deny, tool
from prompty.durable import use_result
from prompty.durable.dbos import answer
from prompty.errors import RequestError
from prompty.testing import Script, call, register_script
from tests.durable.own import Program, launched, until


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


CALLS = [call("pay", to="Ada"), call("note"), call("read"), call("pay", to="Bob")]
AGENT = PromptAgent.model_validate({"model": {"id": "unknown", "provider": "scripted"}, "instructions": "user:\nGo."})


@pytest.fixture
def script() -> Script:
    script = Script(CALLS, "Done.")
    register_script("unknown", script)
    return script


@pytest.fixture
def cut(tmp_path: Path, script: Script) -> Iterator[tuple[Program, Counter, Paused]]:
    """A turn whose process ended in the middle of four calls and was started again."""
    counter = Counter()
    url = f"sqlite:///{tmp_path}/own.db"
    with launched(url) as program:
        program.start_turn(AGENT, tools=counter.tools)
        until(lambda: len(counter.ran) == 4 and "tool:1:1" in program.steps())
    counter.quick_now = True
    with launched(url) as program:
        yield program, counter, program.pause()


Cut = tuple[Program, Counter, Paused]


def results(program: Program, script: Script) -> list[str]:
    """What the model was told."""
    assert program.result() == "Done."
    return [message["content"] for message in script.requests[-1]["messages"] if message["role"] == "tool"]


def test_a_person_is_asked_about_what_must_not_be_repeated_and_only_that(cut: Cut) -> None:
    _, counter, paused = cut
    assert [(call.name, call.arguments, call.unknown) for call in paused.pending] == [
        ("pay", {"to": "Ada"}, True),
        ("pay", {"to": "Bob"}, True),
    ]
    assert counter.ran.count("read") == 2, "what may be repeated is repeated"
    assert counter.ran.count("note") == 1, "what had left its result is not"
    assert counter.ran.count("pay Ada") == 1


def test_it_is_run_again_or_given_its_result(cut: Cut, script: Script) -> None:
    program, counter, _ = cut
    answer(DBOS, "mine", [True, use_result({"paid": "by hand"})])
    assert results(program, script) == ["pay Ada done", "noted", "read done", '{"paid":"by hand"}']
    assert counter.ran.count("pay Ada") == 2
    assert counter.ran.count("pay Bob") == 1
    assert counter.ran.count("note") == 1


def test_it_counts_as_failed(cut: Cut, script: Script) -> None:
    program, counter, _ = cut
    answer(DBOS, "mine", [deny("the bank has refused it"), deny()])
    first, _, _, last = results(program, script)
    assert first == "Error: Tool 'pay' failed: the bank has refused it"
    assert last == "Error: Tool 'pay' failed: it was interrupted; it may or may not have taken effect"
    assert counter.ran.count("pay Ada") == 1


def test_what_was_not_answered_is_asked_again_and_nothing_runs_meanwhile(cut: Cut, script: Script) -> None:
    program, counter, paused = cut
    answer(DBOS, "mine", {paused.pending[1].key: use_result("paid")})
    until(lambda: program.pause().pauses > paused.pauses)
    assert [(call.arguments, call.unknown) for call in program.pause().pending] == [({"to": "Ada"}, True)]
    assert counter.ran.count("pay Ada") == 1
    answer(DBOS, "mine", [True])
    assert results(program, script) == ["pay Ada done", "noted", "read done", "paid"]


def test_what_is_no_verdict_is_an_error_and_the_turn_still_waits(cut: Cut) -> None:
    program, counter, paused = cut
    with pytest.raises(RequestError, match="the verdict on 'pay' is 'retry'"):
        answer(DBOS, "mine", ["retry", None])
    assert program.pause() == paused
    assert counter.ran.count("pay Ada") == 1


CHILD = """\
---
model:
  id: m
  provider: scripted
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


def test_tools_of_other_kinds_are_found_again_by_the_process_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text(CHILD)
    (tmp_path / "parent.prompty").write_text(PARENT)
    going_on: list[bool] = []

    @tool(idempotent=True)
    async def wait() -> str:
        while not going_on:
            await asyncio.sleep(0.02)
        return "waited"

    url = f"sqlite:///{tmp_path}/own.db"
    with launched(url) as program:
        program.start_turn(tmp_path / "parent.prompty", tools=[wait])
        until(lambda: "model:2" in program.steps())
    going_on.append(True)
    with launched(url) as program:
        assert program.result() == "Done."
        told = [str(step["output"]) for step in DBOS.list_workflow_steps("mine") if "tool:" in step["function_name"]]
    assert ["waited" in told[0], "The child says hello." in told[1]] == [True, True]
