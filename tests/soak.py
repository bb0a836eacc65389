"""Whether tests run at their full size (`make soak`), and what is kept of it in `benchmarks/results/soak/`."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pytest

SOAK = bool(os.environ.get("PROMPTY_SOAK"))
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "soak"
COUNTS = RESULTS / "counts.json"
Keep = Callable[..., None]


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Keep:
    """Keeps what a test has measured in a file of its own, if it ran at its full size."""

    def kept(**figures: object) -> None:
        print(figures)  # noqa: T201  for whoever looks
        if SOAK:
            name = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
            _write(RESULTS / f"{name}.json", {"test": request.node.nodeid, **figures})

    return kept


def keep_counts(reports: Mapping[str, Sequence[pytest.TestReport]]) -> None:
    """Keep how often each test has passed and failed, and how long that took; what ran another time stays."""
    found: dict[str, dict[str, object]] = {}
    for outcome in ("passed", "failed"):
        for test, same in groupby(sorted(reports.get(outcome, ()), key=_test), key=_test):
            durations = [report.duration for report in same]
            entry = found.setdefault(test, {"date": datetime.now(UTC).date().isoformat()})
            entry |= {outcome: len(durations), f"seconds {outcome}": round(sum(durations), 1)}
    known = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    _write(COUNTS, dict(sorted({**known, **found}.items())))


def _test(report: pytest.TestReport) -> str:
    return report.nodeid.partition("[")[0]


def _write(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
