"""For random tools, defaults, guardrails, bindings and policies: what a person saw is what ran."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from prompty import Paused, resume, turn
from prompty.testing import Script
from tests.conversations.policies import Person, Scene, as_text, asks, expected, scenes
from tests.soak import SOAK, Keep

EXAMPLES = 5000 if SOAK else 150
HEALTH = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
relaxed = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=HEALTH)


@relaxed
@given(scene=scenes())
def test_a_gate_sees_the_arguments_that_run(scene: Scene) -> None:
    ran: list[dict[str, Any]] = []
    person = Person()
    options: dict[str, Any] = {"approval": scene.host_policy, "guardrails": scene.guardrails()}
    with Script(scene.answer(), "Done."):
        assert turn(scene.agent(), tools=[scene.tool(ran)], gate=person.decide, **options) == "Done."
    assert as_text(ran) == expected(scene, [one for one in person.seen if person.says(one)])
    for one in person.seen:
        known = one.arguments.keys() - set(one.bound)
        if {name for policy in _conditions(scene) for name in policy} <= known:
            assert one.needs_approval == asks(scene, one.arguments)


def _conditions(scene: Scene) -> Iterator[dict[str, Any]]:
    host = scene.host_policy.get("act", scene.host_policy) if isinstance(scene.host_policy, dict) else None
    for policy in (scene.file_policy, host):
        if isinstance(policy, dict):
            yield policy["when"]


def paused_turn(scene: Scene, ran: list[dict[str, Any]]) -> Any:
    options: dict[str, Any] = {"approval": scene.host_policy, "guardrails": scene.guardrails()}
    with Script(scene.answer(), "Done."):
        return turn(scene.agent(), tools=[scene.tool(ran)], **options)


def check_unasked(scene: Scene, ran: list[dict[str, Any]]) -> None:
    """Nobody had to be asked about what ran without a question."""
    assert not any(asks(scene, arguments) for arguments in ran)


@relaxed
@given(scene=scenes())
def test_a_person_who_is_asked_after_a_pause_has_seen_what_runs(scene: Scene) -> None:
    before: list[dict[str, Any]] = []
    paused = paused_turn(scene, before)
    if not isinstance(paused, Paused):
        check_unasked(scene, before)
        return
    assert before == []
    ran: list[dict[str, Any]] = []
    stored = Paused.from_json(json.loads(json.dumps(paused.to_json())))
    options: dict[str, Any] = {"tools": [scene.tool(ran)], "guardrails": scene.guardrails()}
    with Script("Done."):
        assert resume(scene.agent(), stored, [Person.says(one) for one in stored.pending], **options) == "Done."
    check_resumed(scene, paused, ran)


def check_resumed(scene: Scene, paused: Paused, ran: list[dict[str, Any]]) -> None:
    decided = [one for one in paused.calls if one.key in paused.decided]
    approved = [one for one in paused.pending if Person.says(one)]
    assert as_text(ran) == expected(scene, [*decided, *approved])
    assert not any(one.needs_approval for one in decided)


class Elsewhere:
    """Another process, which resumes turns."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.conversations.resumed_elsewhere"]
        self.process = subprocess.Popen(  # noqa: S603  our own code
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def resume(self, scene: Scene, paused: Paused) -> Any:
        verdicts = [Person.says(one) for one in paused.pending]
        value = {"scene": asdict(scene), "paused": paused.to_json(), "verdicts": verdicts}
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    other = Elsewhere()
    yield other
    other.close()


@pytest.mark.process
def test_another_process_runs_what_the_person_saw_in_this_one(elsewhere: Elsewhere, keep: Keep) -> None:
    counts = {"turns": 0, "paused": 0, "ran": 0}

    @relaxed
    @given(scene=scenes())
    def check(scene: Scene) -> None:
        counts["turns"] += 1
        before: list[dict[str, Any]] = []
        paused = paused_turn(scene, before)
        if isinstance(paused, Paused):
            found = elsewhere.resume(scene, paused)
            assert found["result"] == "Done."
            check_resumed(scene, paused, found["ran"])
            counts["paused"] += 1
            counts["ran"] += len(found["ran"])

    check()
    keep(**counts)
