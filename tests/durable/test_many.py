"""Many ended runs: pages, one run and one state are found quickly in little memory, and pruning lets work go on."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from prompty.durable import DurableRuntime
from tests.durable.databases import Databases
from tests.durable.many import fill
from tests.durable.runs import Desk, rounds, scripted, working
from tests.soak import SOAK, Keep

pytestmark = [pytest.mark.process, pytest.mark.timing, pytest.mark.nightly]

RUNS = 100_000 if SOAK else 10_000
LIMITS = {"seconds": 0.5, "megabytes": 100, "pruned_per_second": 5000}
QUERIES = """
import json, sys, time
from pathlib import Path
from prompty.durable import DurableRuntime

runtime = DurableRuntime(sys.argv[1])
runtime.list("running", limit=1)  # connect
queries = {
    "list": lambda: len(runtime.list(limit=100)) == 100,
    "list_paused": lambda: {run.state for run in runtime.list("paused", limit=100)} == {"paused"},
    "show": lambda: runtime.summary("run-000100").state == "paused" and list(runtime.events("run-000100")),
}
seconds = {}
for name, query in queries.items():
    begun = time.perf_counter()
    assert query(), name
    seconds[name] = round(time.perf_counter() - begun, 3)
memory = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({"seconds": seconds, "megabytes": int(memory["VmHWM"].split()[0]) // 1024}))
runtime.close()
"""
PRUNE = """
import json, sys, time
from datetime import timedelta
from prompty.durable import DurableRuntime

runtime = DurableRuntime(sys.argv[1])
runtime.list("running", limit=1)  # connect
begun = time.perf_counter()
count = runtime.prune(timedelta(minutes=1))
print(json.dumps({"pruned": count, "pruned_per_second": round(count / (time.perf_counter() - begun))}))
runtime.close()
"""
COMMANDS = {"list": ["list"], "list_paused": ["list", "--state", "paused"], "show": ["show", "run-000100"]}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_many_ended_runs_are_listed_shown_and_pruned(kind: str, databases: Databases, keep: Keep) -> None:
    url = databases.new(kind)
    fill(url, RUNS)
    found = json.loads(finish(start("-c", QUERIES, url)))
    commands: dict[str, float] = {}
    for name, words in COMMANDS.items():
        begun = time.perf_counter()
        finish(start("-m", "prompty", "runs", *words, "--database", url))
        commands[name] = round(time.perf_counter() - begun, 2)
    pruning = prune_beside_work(url)
    keep(database=kind, runs=RUNS, **found, command_seconds=commands, **pruning)
    assert max(found["seconds"].values()) < LIMITS["seconds"]
    assert found["megabytes"] < LIMITS["megabytes"]
    assert pruning["pruned_per_second"] > LIMITS["pruned_per_second"] / (1 if SOAK else 2)  # CI measures 10,000 runs


def prune_beside_work(url: str) -> dict[str, Any]:
    """Prune while a worker runs one turn after the other. Return the rate, and the slowest turns."""
    with working(url, Desk().look) as runtime:
        alone = run_turns(runtime, "alone", lambda turns: turns == 10)
        process = start("-c", PRUNE, url)
        beside = run_turns(runtime, "beside", lambda _: process.poll() is not None)
        figures = json.loads(finish(process))
        assert len(runtime.list("paused")) == RUNS // 100 + 1, "paused runs stay"
    slowest = {"slowest_turn_alone": round(max(alone), 2), "slowest_turn_beside_pruning": round(max(beside), 2)}
    return {**figures, "turns_beside_pruning": len(beside), **slowest}


def run_turns(runtime: DurableRuntime, name: str, is_enough: Callable[[int], bool]) -> list[float]:
    """Run turns until there are enough, and return the seconds of each."""
    seconds: list[float] = []
    while not is_enough(len(seconds)):
        begun = time.perf_counter()
        run = runtime.start(scripted(rounds("look", 1, 1)), run_id=f"{name}{len(seconds)}")
        assert run.result(timeout=60) == "Done."
        seconds.append(time.perf_counter() - begun)
    return seconds


def start(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)  # noqa: S603  our own code


def finish(process: "subprocess.Popen[str]") -> str:
    """Return what a process has printed. It must have succeeded."""
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return printed
