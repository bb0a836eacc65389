"""Test tiers: marks for tests that need more than this process and the CPU it happens to get, or much of it.

`make test` runs the tests without any of these marks. The marks come from three places: `pytestmark` or a decorator in
the test's module, a folder all of whose tests need the same thing, and a fixture that starts it. A test without a mark
that starts a process fails, so that a forgotten mark does not slow everybody down.

`.ci/run` leaves `browser`, `real` and `nightly` to `make nightly`: tests that kill processes at random, and those that
repeat on PostgreSQL or Temporal what others show on SQLite. In `.ci/run`, tests of the tier `timing` have no limits
(`tests/machine.py`).
"""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
TIERS = frozenset({"process", "database", "browser", "real", "slow", "timing", "nightly"})
MAY_START_PROCESSES = TIERS - {"slow", "timing", "nightly"}
FOLDERS = {"tests/durable": "database", "tests/real": "real"}
ALONE = ("durable/test_codec.py", "durable/test_stored_agents.py", "durable/test_verdicts.py")  # need no database
FIXTURES = {
    "databases": "database",
    "browser": "browser",
    "pytester": "process",
    "watched": "process",
    "temporal": "nightly",
}
SECOND_DATABASES = ("postgres", "temporal")  # in the id of a test

_STARTING = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"})
_HARMLESS = frozenset({"uname", "lsb_release", "file"})  # what the standard library asks about the machine, once
_started: list[str] = []  # commands that the current test has started


def mark_tiers(items: Iterable[pytest.Item]) -> None:
    """Mark tests by their folder and by the fixtures they use."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        names = {tier for folder, tier in FOLDERS.items() if path.startswith(f"{folder}/") and not path.endswith(ALONE)}
        names |= {FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES}
        if any(database in item.nodeid.partition("::")[2].lower() for database in SECOND_DATABASES):
            names.add("nightly")
        for name in sorted(names):
            item.add_marker(name)


def forget_processes() -> None:
    """Start a test: processes of the one before are not its own."""
    _started.clear()


def fail_if_unmarked(item: pytest.Item) -> None:
    """Fail a test that has started a process and has no mark that allows it."""
    if _started and not any(item.get_closest_marker(name) for name in MAY_START_PROCESSES):
        pytest.fail(
            f"the test starts a process ({_started[0]}) but is in the tier that starts none. "
            "Mark it with @pytest.mark.process, or see tests/tiers.py for the other tiers.",
            pytrace=False,
        )


def _note_start(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTING:
        command = str(arguments[0]) if arguments else event
        if Path(command).name not in _HARMLESS:
            _started.append(command)


_settrace = sys.settrace


def _settrace_again(function: Any) -> None:
    """Install a trace function in a thread, after those that other threads install at the moment.

    CPython refuses to install two at once, and an audit hook in Python lets another thread run in between. While
    coverage is measured, a new thread would die before it has begun, and whoever waits for it would wait for ever.
    """
    while True:
        try:
            return _settrace(function)
        except RuntimeError:
            time.sleep(0.001)


sys.settrace = _settrace_again
sys.addaudithook(_note_start)
