"""Cases as tests of pytest: a plugin that `testing.pytest_plugin` adds if `prompty_collect = true` is set."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prompty.cases.comparison import get_baseline_path, read_baseline
from prompty.cases.evaluators import describe_report, load_checks
from prompty.cases.plan import Trial, plan_trials
from prompty.cases.reading import Suite, read_suite
from prompty.cases.results import TrialResult
from prompty.cases.runner import Runner, RunnerOptions, report_suite
from prompty.cases.trial import OFFLINE, Mode
from prompty.errors import LoadError, RequestError
from prompty.tools.function import load_functions

RECORD = Mode(level="live", live=True, record=True)


class CaseFailed(Exception):
    """A case did not pass. Its message says why."""


class CaseNotRun(Exception):
    """A case could not run, for example because it has no recording. A baseline does not accept this."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "PromptTestFile | None":
    is_suite = file_path.name.endswith((".test.yaml", ".test.yml"))
    return PromptTestFile.from_parent(parent, path=file_path) if is_suite else None


class PromptTestFile(pytest.File):
    """A test file. Each case with a model and a variant is a test, and so is the agreement of a judge."""

    def collect(self) -> Iterator[pytest.Item]:
        try:
            suite = read_suite(self.path)
            baseline = get_baseline_path(self.path, suite.name)
            accepted = read_baseline(baseline) if baseline.exists() else {}
        except (LoadError, RequestError) as error:
            raise self.CollectError(str(error)) from None
        for trial in plan_trials([suite]):
            name = trial.key.removeprefix(f"{suite.label}::")
            item = CaseItem.from_parent(self, name=name, trial=trial)
            if accepted.get(name) == "failed":
                reason = f"{baseline.name} accepts this failure"
                item.add_marker(pytest.mark.xfail(reason=reason, raises=CaseFailed, strict=False))
            yield item
        if suite.judge is not None:
            yield JudgeItem.from_parent(self, name="agreement", suite=suite)


class _Item(pytest.Item):
    def run_trials(self, trials: list[Trial]) -> list[TrialResult]:
        """Run trials with pytest's options. Functions in `prompty_checks` are allowed as checks, and models may call
        those in `prompty_tools`."""
        checks, tools = ([str(path) for path in self.config.getini(f"prompty_{name}")] for name in ("checks", "tools"))
        mode = RECORD if self.config.getoption("--prompty-live") else OFFLINE
        options = RunnerOptions(mode=mode, jobs=1, checks=load_checks(checks), tools=load_functions(tools))
        return Runner(options).run(trials)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailed | CaseNotRun):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.nodeid


class CaseItem(_Item):
    """One case with one model and one variant."""

    def __init__(self, *, trial: Trial, **settings: Any) -> None:
        super().__init__(**settings)
        self.trial = trial
        for tag in trial.case.tags:
            self.extra_keyword_matches.add(tag)

    def runtest(self) -> None:
        [result] = self.run_trials([self.trial])
        if result.status == "skipped":
            pytest.skip(result.note)
        if result.status != "passed":
            raise (CaseFailed if result.status == "failed" else CaseNotRun)("\n".join(result.reasons))


class JudgeItem(_Item):
    """The agreement of a judge with the labels of its cases, skipped with the reason if it is uncalibrated."""

    def __init__(self, *, suite: Suite, **settings: Any) -> None:
        super().__init__(**settings)
        self.suite = suite

    def runtest(self) -> None:
        report = report_suite(self.suite, self.run_trials(list(plan_trials([self.suite]))))
        if not report.trusted:
            pytest.skip(describe_report(report))
