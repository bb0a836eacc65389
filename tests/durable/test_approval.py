"""Durable turns: a person approves what runs, whichever process runs it, and once."""

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from dbos import DBOS
from hypothesis import HealthCheck, given, settings

from prompty import Guardrails, Paused, rewrite, tool
from prompty.durable.dbos import answer
from prompty.durable.steps import WrongWorker
from tests.conversations.policies import Person, Scene, asks, scenes
from tests.conversations.test_approval_property import check_resumed
from tests.durable.own import TURNS, launched
from tests.durable.runs import scripted
from tests.soak import SOAK, Keep

EXAMPLES = 5000 if SOAK else 25


# Hypothesis sees that DBOS uses `random`, on a thread of its own, while it draws the next scene.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
def test_a_person_has_seen_what_runs_in_a_durable_turn(tmp_path: Path, keep: Keep) -> None:
    counts, numbers = {"runs": 0, "paused": 0, "ran": 0}, count()
    with launched(f"sqlite:///{tmp_path}/own.db") as program:

        def run(scene: Scene, ran: list[dict[str, Any]], **more: Any) -> Any:
            """Run a turn with functions of its own, as another process would have."""
            parts = {"tools": [scene.tool(ran)], "guardrails": scene.guardrails(), "on_pause": "return", **more}
            return program.start_turn(
                scene.durable_agent(), scene.inputs(), id=f"{next(numbers)}", approval=scene.host_policy, **parts
            ).get_result()

        @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(scene=scenes())
        def check(scene: Scene) -> None:
            counts["runs"] += 1
            before: list[dict[str, Any]] = []
            paused = run(scene, before)
            if not isinstance(paused, Paused):
                assert not any(asks(scene, arguments) for arguments in before)
                return
            assert before == []
            ran: list[dict[str, Any]] = []
            verdicts = [Person.says(one) for one in paused.pending]
            assert run(scene, ran, paused=paused, verdicts=verdicts) == "Done."
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


def test_a_process_with_other_guardrails_does_not_go_on_with_a_paused_turn(tmp_path: Path) -> None:
    url, bank = f"sqlite:///{tmp_path}/own.db", Bank()
    guardrails = Guardrails(tool=lambda call: rewrite({"amount": 1}))
    agent = scripted([{"call": "pay", "arguments": {"amount": 500}}, "Done."])
    with launched(url) as program:
        program.start_turn(agent, tools=[bank.pay], guardrails=guardrails, approval="always")
        paused = program.pause()
        assert [call.arguments for call in paused.pending] == [{"amount": 1}]
    TURNS["mine"].options.pop("guardrails")
    with launched(url) as program:
        answer(DBOS, "mine", [True])
        with pytest.raises(WrongWorker, match="begun with a guardrail for tool, and this process has no functions"):
            program.result()
    assert bank.paid == []
    TURNS["mine"].options["guardrails"] = guardrails
    with launched(url) as program:
        last = max(step["function_id"] for step in DBOS.list_workflow_steps("mine"))
        DBOS.fork_workflow("mine", last + 1)
        [fork] = DBOS.list_workflows(forked_from="mine")
        assert program.pause(fork.workflow_id).pending == paused.pending
        answer(DBOS, fork.workflow_id, [True])
        assert program.result(fork.workflow_id) == "Done."
    assert bank.paid == [1]
