"""Results of cases as plain data, for the reports.

They are named tuples, because a run of ten thousand cases creates thirty thousand.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from prompty.cases.case_file import Level
from prompty.model.message import Json

Status = Literal["passed", "failed", "error", "skipped"]


class CheckResult(NamedTuple):
    """The outcome of one check. An advisory check is reported, but does not fail its case."""

    level: Level
    name: str
    passed: bool
    message: str = ""
    advisory: bool = False
    score: float | None = None


class CaseRun(NamedTuple):
    """One run of a case. `error` explains a missing verdict, `level` is the last level, `trace` its trace file.

    Tokens and `cost` include judges and embeddings. `paid` is the part that this run asked for, and the run that it
    continues: recorded answers were paid for earlier. `resumed` means that it only continued.
    """

    number: int = 1
    level: Level = "render"
    checks: tuple[CheckResult, ...] = ()
    error: str | None = None
    messages: tuple[Json, ...] = ()
    answer: Any = None
    calls: tuple[Json, ...] = ()
    rounds: int | None = None
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    embedding_tokens: int | None = None
    cost: float | None = None
    paid: float | None = None
    seconds: float | None = None
    resumed: bool = False
    trace: str | None = None

    @property
    def status(self) -> Status:
        if self.error is not None:
            return "error"
        return "passed" if all(check.passed or check.advisory for check in self.checks) else "failed"

    def to_json(self) -> Json:
        return {**self._asdict(), "checks": [check._asdict() for check in self.checks]}


class TrialResult(NamedTuple):
    """The outcome of a case with one model and one variant. `note` explains a skipped case, among others.

    `model` is the one that overrides the prompt's, which is `own_model`.
    """

    suite: str
    case: str
    status: Status
    variant: str | None = None
    model: str | None = None
    tags: tuple[str, ...] = ()
    runs: tuple[CaseRun, ...] = ()
    needed: int = 1
    note: str = ""
    own_model: str = ""

    @property
    def key(self) -> str:
        return format_key(self.suite, self.case, self.variant, self.model)

    @property
    def passes(self) -> int:
        return sum(run.status == "passed" for run in self.runs)

    @property
    def resumed(self) -> int:
        """The number of runs from an interrupted process."""
        return sum(run.resumed for run in self.runs)

    @property
    def cost(self) -> float | None:
        costs = [run.cost for run in self.runs if run.cost is not None]
        return sum(costs) if costs else None

    @property
    def paid(self) -> float:
        """The dollars that this run paid, without those for recorded answers."""
        return sum(run.paid for run in self.runs if run.paid is not None)

    @property
    def seconds(self) -> float | None:
        times = [run.seconds for run in self.runs if run.seconds is not None]
        return sum(times) if times else None

    @property
    def reasons(self) -> list[str]:
        """The distinct reasons why the case did not pass."""
        found = [self.note] if self.note else []
        for run in self.runs:
            if run.error is not None:
                found.append(run.error)
            found += [f"{check.level}: {check.message}" for check in run.checks if not check.passed]
        return list(dict.fromkeys(found))


def format_key(suite: str, case: str, variant: str | None, model: str | None) -> str:
    """Return the name of a case with one model and one variant: `answer::greets [short, openai:gpt-6-luna]`."""
    chosen = ", ".join(part for part in (variant, model) if part)
    return f"{suite}::{case} [{chosen}]" if chosen else f"{suite}::{case}"


def decide_status(passes: int, failures: int, repeat: int, needed: int) -> Status | None:
    """Return the status of a case as soon as it is certain, or None if another run is needed."""
    if passes >= needed:
        return "passed"
    if failures > repeat - needed:
        return "failed"
    return None


def count_statuses(results: Sequence[TrialResult]) -> dict[Status, int]:
    counts: dict[Status, int] = {"passed": 0, "failed": 0, "error": 0, "skipped": 0}
    for result in results:
        counts[result.status] += 1
    return counts
