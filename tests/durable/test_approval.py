"""Durable runs: a person approves what runs, whichever worker runs it, and once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from prompty import Guardrails, Paused, rewrite, tool
from prompty.durable import DurableRuntime
from prompty.errors import PromptyError
from tests.conversations.policies import Person, Scene, asks, scenes
from tests.conversations.test_approval_property import check_resumed
from tests.durable.runs import scripted, working
from tests.soak import SOAK, Keep

EXAMPLES = 5000 if SOAK else 25
SECONDS = 30.0


# Hypothesis sees that the worker uses `random`, on a thread of its own, while it draws the next scene.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
def test_a_person_has_seen_what_runs_in_a_durable_run(tmp_path: Path, keep: Keep) -> None:
    counts = {"runs": 0, "paused": 0, "ran": 0}
    with DurableRuntime(f"sqlite:///{tmp_path}/runs.db", name="worker") as runtime:

        def work(scene: Scene) -> list[dict[str, Any]]:
            """Let the worker be a new one, with functions of its own."""
            ran: list[dict[str, Any]] = []
            runtime.parts = replace(runtime.parts, tools=[scene.tool(ran)], guardrails=scene.guardrails())
            return ran

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(scene=scenes())
        def check(scene: Scene) -> None:
            counts["runs"] += 1
            before = work(scene)
            run = runtime.start(scene.durable_agent(), scene.inputs(), approval=scene.host_policy)
            paused = run.result(timeout=SECONDS)
            if not isinstance(paused, Paused):
                assert not any(asks(scene, arguments) for arguments in before)
                return
            assert before == []
            ran = work(scene)
            for _ in range(2):  # the same answer again changes nothing
                runtime.answer(paused, [Person.says(one) for one in paused.pending])
            assert run.result(timeout=SECONDS) == "Done."
            check_resumed(scene, paused, ran)
            counts["paused"] += 1
            counts["ran"] += len(ran)

        check()
    keep(**counts)


class Bank:
    """Pays, and remembers."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    @tool
    async def pay(self, amount: int) -> str:
        """Pay an amount."""
        self.paid.append(amount)
        return f"paid {amount}"


def test_a_worker_with_other_guardrails_does_not_go_on_with_a_paused_run(tmp_path: Path) -> None:
    url, bank = f"sqlite:///{tmp_path}/runs.db", Bank()
    guardrails = Guardrails(tool=lambda call: rewrite({"amount": 1}))
    agent = scripted([{"call": "pay", "arguments": {"amount": 500}}, "Done."])
    with working(url, bank.pay, guardrails=guardrails) as runtime:
        paused = runtime.start(agent, run_id="rent", approval="always").result(timeout=SECONDS)
        assert [call.arguments for call in paused.pending] == [{"amount": 1}]
    with working(url, bank.pay) as runtime:
        runtime.answer("rent", [True])
        with pytest.raises(PromptyError, match="guardrails"):
            runtime.result("rent", timeout=SECONDS)
    assert bank.paid == []
    with working(url, bank.pay, guardrails=guardrails) as runtime:
        runtime.retry("rent")
        assert runtime.result("rent", timeout=SECONDS) == "Done."
    assert bank.paid == [1]
