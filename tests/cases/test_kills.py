"""The example project with its sixty cases, killed at random moments while its models answer, and continued."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from prompty.cases.plan import get_recording_path, plan_trials
from prompty.cases.reading import read_suite
from prompty.cli.test import find_test_files
from tests.batch.folder import until
from tests.loopback import Pause, Reply, Request, Server, json_reply
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.nightly]

EXAMPLE = Path(__file__).parents[2] / "examples" / "test-matrix"
KILLS = 50 if SOAK else 5
TOLD = re.compile(r"(.+) was interrupted.*, and may be paid for (?:twice|(\d+) times)")
RESULTS, ANSWERED = 360, 264  # the other 96 end before a model is asked


class CountingProvider(Server):
    """Answers every request after `seconds`, and counts the answers by model and messages."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.answered: Counter[str] = Counter()

    def next_reply(self, request: Request) -> Reply:
        self.answered[get_request_key(request.body)] += 1
        self.has_changed()
        message = {"role": "assistant", "content": '{"team": "billing"}'}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return [Pause(self.seconds), *json_reply({"id": "1", "object": "chat.completion", "choices": [choice]})]


def get_request_key(body: dict[str, Any]) -> str:
    return json.dumps([body["model"], body["messages"]], sort_keys=True)


def start(folder: Path, url: str, *words: str) -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "XDG_STATE_HOME": str(folder.parent / "state"),
        "COLUMNS": "300",
        "PYTHONIOENCODING": "utf-8",
    }
    return subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-m", "prompty.cli", "test", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_at_random(folder: Path, provider: CountingProvider, chance: random.Random) -> None:
    """Kill a run: mostly while cases run, sometimes while it starts."""
    process, answered = start(folder, provider.url, "--record", "-j", "4"), provider.answered.total()
    if chance.random() < 0.8:
        until(lambda: provider.answered.total() > answered)
    time.sleep(chance.random() * 0.4)
    process.kill()
    process.communicate()


def list_names_by_request(folder: Path) -> dict[str, list[str]]:
    """Return the names of the runs by the request that their recording has."""
    names: dict[str, list[str]] = defaultdict(list)
    suites = [read_suite(file) for file in find_test_files([folder])]
    for trial in plan_trials(suites):
        if trial.case.expect.replay:
            [line] = get_recording_path(trial).read_text(encoding="utf-8").splitlines()
            key = trial.key.removeprefix(f"{folder.as_posix()}/")
            names[get_request_key(json.loads(line)["request"]["body"])].append(f"{key}, run 1")
    return names


def test_the_example_project_is_killed_at_random_and_loses_no_case_and_pays_none_twice_unsaid(
    tmp_path: Path, keep: Keep
) -> None:
    chance = random.Random(9)  # noqa: S311  not for secrets
    leave = shutil.ignore_patterns("recordings", "*.baseline.json")
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "project", ignore=leave))
    with CountingProvider(seconds=0.3) as provider:
        for _ in range(KILLS):
            kill_at_random(folder, provider, chance)
        provider.seconds = 0.01
        process = start(folder, provider.url, "--record", "-j", "4", "--json")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err  # this provider says the same about every letter
    results = json.loads(out)["results"]
    assert len(results) == RESULTS
    assert {result["status"] for result in results} == {"passed", "failed"}

    told = {name: int(times or 2) for name, times in TOLD.findall(err)}
    names = list_names_by_request(folder)
    assert sum(map(len, names.values())) == ANSWERED
    for request, count in provider.answered.items():
        allowed = sum(told.get(name, 1) for name in names[request])
        assert len(names[request]) <= count <= allowed, names[request]
    offline, _ = start(folder, "http://127.0.0.1:9", "--json").communicate(timeout=120)
    assert [one["status"] for one in json.loads(offline)["results"]] == [one["status"] for one in results]
    assert not list((tmp_path / "state").rglob("*.jsonl"))
    again, said = provider.answered.total() - ANSWERED, sum(times - 1 for times in told.values())
    keep(kills=KILLS, results=RESULTS, calls=ANSWERED, paid_again=again, told_as_interrupted=said)
