"""What failed in the last run of each test file, for `prompty test --failed`. Kept in the user's state directory."""

import json
import os
from collections.abc import Container, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from prompty.cases.plan import Trial
from prompty.cli.options import get_state_path
from prompty.safety.write_files import create_folder, replace_file


def select_failed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that failed or could not run when they last ran."""
    failed = {path: _read_failures(path) for path in {trial.suite.path for trial in trials}}
    return [trial for trial in trials if _name_in_file(trial) in failed[trial.suite.path]]


def store_failures(trials: Sequence[Trial], failing: Container[str]) -> None:
    """Keep which of these trials fail, by key. What is known of others stays."""
    with suppress(OSError):  # a run does not fail because its home directory is read-only
        for path, group in groupby(trials, key=lambda trial: trial.suite.path):
            ran = {_name_in_file(trial): trial.key in failing for trial in group}
            failures = (_read_failures(path) - ran.keys()) | {name for name, fails in ran.items() if fails}
            _write_failures(path, failures)


def _name_in_file(trial: Trial) -> str:
    return trial.key.removeprefix(f"{trial.suite.label}::")


def _get_failures_path(test_file: Path) -> Path:
    return get_state_path("tests") / f"{sha256(os.fsencode(test_file.resolve())).hexdigest()[:16]}.failed.json"


def _read_failures(test_file: Path) -> set[str]:
    try:
        names = json.loads(_get_failures_path(test_file).read_text(encoding="utf-8"))["failed"]
        return {name for name in names if isinstance(name, str)}
    except (OSError, ValueError, LookupError, TypeError):
        return set()


def _write_failures(test_file: Path, failures: set[str]) -> None:
    path = _get_failures_path(test_file)
    if not failures:
        path.unlink(missing_ok=True)
        return
    create_folder(path.parent)
    replace_file(path, json.dumps({"file": str(test_file.resolve()), "failed": sorted(failures)}).encode())
