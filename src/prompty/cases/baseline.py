"""Baselines: the results of an earlier run in a file beside the tests, in a stable order and without times."""

import json
from collections.abc import Mapping
from pathlib import Path

from prompty.cases.results import Status, TrialResult
from prompty.errors import RequestError

VERSION = 1
_STATUSES: frozenset[str] = frozenset({"passed", "failed", "error", "skipped"})


def get_baseline_path(test_file: Path, name: str) -> Path:
    """Return the path of the baseline beside a test file: `answer.baseline.json`."""
    return test_file.with_name(f"{name}.baseline.json")


def read_baseline(path: Path) -> dict[str, Status]:
    """Read the statuses of a baseline by case. Raise RequestError for a file that is none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise ValueError(f"it has version {data['version']}, and this release reads version {VERSION}")
        cases: dict[str, Status] = data["cases"]
        unknown = {str(status) for status in cases.values()} - _STATUSES
        if unknown:
            raise ValueError(f"'{min(unknown)}' is not a status")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RequestError(f"the baseline '{path}' cannot be read: {error}", "Write it again with --update.") from None
    return cases


def write_baseline(path: Path, statuses: Mapping[str, Status]) -> None:
    """Write the statuses of cases, sorted by case."""
    text = json.dumps({"version": VERSION, "cases": dict(sorted(statuses.items()))}, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8", newline="\n")


def get_case_key(result: TrialResult) -> str:
    """Return the key of a result within its file: `greets by name [openai:gpt-5-mini]`."""
    return result.key.removeprefix(f"{result.suite}::")
