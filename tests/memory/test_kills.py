"""Two processes on one session, killed at random: nothing is lost, and turns do not mix."""

import os
import random
import signal
import subprocess
import sys
import time
from itertools import count, groupby
from pathlib import Path

import pytest

from prompty import Message, turn
from prompty.memory import SqliteMemory
from prompty.testing import Script
from tests.conversations.turns import assert_history_is_legal, scripted

pytestmark = [pytest.mark.process, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
TURNS = 200 if os.environ.get("PROMPTY_SOAK") else 20


def test_two_processes_share_a_session_and_are_killed_at_random(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    chance = random.Random(7)  # noqa: S311  not for secrets
    done: list[str] = []
    for cycle in count():
        workers = [start(path, f"{side}{cycle}") for side in "ab"]
        done += [first_turn(worker) for worker in workers]
        time.sleep(chance.random() * 0.3)  # so that they are killed anywhere in a turn
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            done += worker.communicate()[0].splitlines()
        if len(done) >= TURNS:
            break
    check(path, done)


def start(path: Path, name: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.memory.worker", str(path), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)  # noqa: S603  our own code


def first_turn(worker: "subprocess.Popen[str]") -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline().strip()
    assert line, "the worker has ended by itself"
    return line


def check(path: Path, done: list[str]) -> None:
    store = SqliteMemory(path)
    stored = [Message.from_json(message) for message in store.load("shared")]
    turns = parts(stored)
    finished = [label for label, messages in turns if messages[-1].text == f"answer {label}"]
    assert set(done) <= set(finished)
    assert len(finished) == len(set(finished))
    for label, messages in turns:
        assert_one_turn(label, messages)
    assert_history_is_legal(stored)
    with Script("Still here."):
        assert turn(scripted(), memory=store, session_id="shared") == "Still here."


def parts(stored: list[Message]) -> list[tuple[str, list[Message]]]:
    """The turns of a session, each with the label of its question."""
    numbers, turn_number = [], 0
    for message in stored:
        turn_number += message.role == "user"
        numbers.append(turn_number)
    groups = groupby(zip(numbers, stored, strict=True), key=lambda pair: pair[0])
    turns = [[message for _, message in group] for _, group in groups]
    return [(messages[0].text, messages) for messages in turns]


def assert_one_turn(label: str, messages: list[Message]) -> None:
    """A turn as far as it came: whole rounds, its own results, in order."""
    roles = ["user", *["assistant", "tool", "tool"] * 2, "assistant"]
    assert [message.role for message in messages] == roles[: len(messages)]
    assert len(messages) in (4, 7, 8)
    seen = [message.text for message in messages if message.role == "tool"]
    assert seen == [f"seen {label}/{step}/{place}" for step in range(2) for place in range(2)][: len(seen)]
