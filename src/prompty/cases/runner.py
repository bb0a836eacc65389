"""Run many trials: offline sequentially, live concurrently.

Each call of a model is written to a ledger. If the process is killed, the next one takes the answers from it, runs the
checks again, and reports which calls may be paid for twice.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path

from prompty.cases.answers import CallLedger, Spending
from prompty.cases.case_file import JudgeRules
from prompty.cases.evaluators import CaseEvaluators, Functions, JudgeReport, load_prompt, report_judge
from prompty.cases.file_names import SUFFIXES, find_test_file
from prompty.cases.plan import Trial, plan_trials
from prompty.cases.reading import Suite, read_suite
from prompty.cases.results import CaseRun, Status, TrialResult, decide_status
from prompty.cases.statistics import compute_agreement
from prompty.cases.trial import OFFLINE, Mode, TrialContext, has_work, run_case
from prompty.errors import LoadError, PromptyError, RequestError
from prompty.model.agent import PromptAgent
from prompty.pricing import get_pricer

JOBS = 8
NEEDS_LIVE = "needs --live"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerOptions:
    """Options of a runner. `tools` are functions that models may call, `checks` those of `python:` checks by name.

    `keep_messages` adds the messages of each case to its result, for reports. Prompts may also read files in `roots`,
    and send the values of the variables `env_allowed`.
    """

    mode: Mode = OFFLINE
    jobs: int = JOBS
    max_cost: Decimal | None = None
    ledger: Path | None = None
    tools: Sequence[object] = ()
    checks: Functions = field(default_factory=dict)
    keep_messages: bool = False
    roots: Sequence[Path] = ()
    env_allowed: Sequence[str] = ()


class Runner:
    """Runs trials."""

    def __init__(self, options: RunnerOptions) -> None:
        self.options = options
        self.complete: bool = True
        self._agents: dict[tuple[Path, str | None, str | None], PromptAgent | PromptyError] = {}
        self._trust: dict[Path, JudgeReport] = {}
        self._lock, self._trust_lock = threading.RLock(), threading.RLock()
        self._stopping = threading.Event()
        self._ledger: CallLedger | None = None
        self._spending = Spending(options.max_cost)

    def stop(self) -> None:
        """Start no more runs. Wait for the running ones."""
        self._stopping.set()

    def run(
        self,
        trials: Sequence[Trial],
        on_result: Callable[[TrialResult], None] = lambda _: None,
        on_interrupted: Callable[[list[str]], None] = lambda _: None,
    ) -> list[TrialResult]:
        """Run the trials and return their results in order, without those that `stop` skipped.

        Before anything runs, `on_interrupted` gets the names of the runs with a call that earlier processes started
        and did not end, once per call.
        """
        with self._open_ledger() as interrupted:
            on_interrupted(interrupted)
            self._check_prices(trials)
            if self.options.mode.asks and self.options.jobs > 1:
                results = self._run_parallel(trials, on_result)
            else:
                results = self._run_in_order(trials, on_result)
            self.complete = len(results) == len(trials)
        return results

    def _run_in_order(self, trials: Sequence[Trial], on_result: Callable[[TrialResult], None]) -> list[TrialResult]:
        results = []
        for trial in trials:
            result = self._run_trial(trial)
            if result is not None:
                results.append(result)
                on_result(result)
        return results

    def _run_parallel(self, trials: Sequence[Trial], on_result: Callable[[TrialResult], None]) -> list[TrialResult]:
        def report(future: "Future[TrialResult | None]") -> None:
            if not future.cancelled() and future.exception() is None and (result := future.result()):
                with self._lock:
                    on_result(result)

        with ThreadPoolExecutor(self.options.jobs, thread_name_prefix="prompty-test") as pool:
            futures = [pool.submit(copy_context().run, self._run_trial, trial) for trial in trials]
            for future in futures:
                future.add_done_callback(report)
            return [result for future in futures if (result := future.result()) is not None]

    def _run_trial(self, trial: Trial) -> TrialResult | None:
        """Run the runs of a trial until its status is certain. Return None if the runner stops before."""
        if not has_work(trial.case, self.options.mode):
            return _build_result(
                trial, "skipped", note=NEEDS_LIVE if trial.case.expect.live else "needs a higher --level"
            )
        agent = self._get_agent(trial)
        if isinstance(agent, PromptyError):
            return _build_result(trial, "error", (CaseRun(error=agent.for_command_line()),))
        runs: tuple[CaseRun, ...] = ()
        passed = failed = 0
        status: Status | None = None
        repeat, needed = trial.repeat, trial.needed
        for number in range(1, repeat + 1):
            if self._stopping.is_set():
                return None
            run = run_case(self._get_context(trial, number, agent))
            runs += (run,)
            outcome = run.status
            passed += outcome == "passed"
            failed += outcome == "failed"
            status = decide_status(passed, failed, repeat, needed)
            if status and not self.options.mode.record:  # all runs are recorded
                break
            if outcome == "error" and number - passed > repeat - needed:
                break
        if status is None:  # too many runs had an error
            return _build_result(trial, "error", runs, model=agent.model.id)
        note = NEEDS_LIVE if trial.case.expect.live and not self.options.mode.live else ""
        note = f"skipped the checks in `live`: {note}" if note else ""
        return _build_result(trial, status, runs, note=note, model=agent.model.id)

    def _get_context(self, trial: Trial, number: int, agent: PromptAgent) -> TrialContext:
        options = self.options
        folder = trial.suite.folder
        load = partial(load_prompt, roots=options.roots, env_allowed=options.env_allowed)
        make = partial(CaseEvaluators, agent, trial.case, folder, options.checks, self.get_trust, load)
        kept = options.keep_messages
        return TrialContext(agent, options.mode, make, trial, number, options.tools, kept, self._spending, self._ledger)

    def _get_agent(self, trial: Trial) -> PromptAgent | PromptyError:
        """Return the agent of a trial, or the error from loading it. Cached."""
        suite, key = trial.suite, (trial.suite.prompt, trial.variant, trial.model)
        if (known := self._agents.get(key)) is not None:
            return known
        # The folder of a revision has no links, so what is in it leads nowhere else.
        return self._load(key, suite.prompt.parent if suite.earlier else suite.folder)

    def _load(self, key: tuple[Path, str | None, str | None], folder: Path) -> PromptAgent | PromptyError:
        with self._lock:
            if key not in self._agents:
                try:
                    path, variant, model = key
                    roots, allowed = self.options.roots, self.options.env_allowed
                    self._agents[key] = load_prompt(path, folder, variant, model, roots=roots, env_allowed=allowed)
                except PromptyError as error:
                    self._agents[key] = error
            return self._agents[key]

    def _check_prices(self, trials: Sequence[Trial]) -> None:
        """Raise if a price is unknown, also of a judge or an embedding prompt: a budget would have no effect."""
        for trial in trials if self.options.max_cost is not None and self.options.mode.asks else ():
            agents = [self._get_agent(trial), *self._load_evaluators(trial)]
            for agent in agents:
                try:
                    if not isinstance(agent, PromptyError):
                        get_pricer(agent, required=True)
                except RequestError as error:
                    raise RequestError(error.cause, "Name a model with a known price, or omit --max-cost.") from None

    def _load_evaluators(self, trial: Trial) -> Iterator[PromptAgent | PromptyError]:
        """Yield the judges and embedding prompts of a case."""
        for check in (*trial.case.expect.replay, *trial.case.expect.live):
            folder, similar = trial.suite.folder, check.similar
            for name in (check.judge, similar.prompt if similar else None):
                if name is not None:
                    yield self._load((folder / name, None, None), folder)

    @contextmanager
    def _open_ledger(self) -> Iterator[list[str]]:
        if self.options.ledger is None or not self.options.mode.asks:
            yield []
            return
        ledger = self._ledger = CallLedger(self.options.ledger)
        try:
            self._spending = Spending(self.options.max_cost, ledger.spent)
            yield ledger.interrupted
            ledger.complete = self.complete and not self._stopping.is_set() and not self._spending.is_over
        finally:
            ledger.close()
            self._ledger = None

    def get_trust(self, judge: Path) -> JudgeReport:
        """Return a judge's report on its labelled cases, from their recordings at no cost."""
        with self._trust_lock:
            if judge not in self._trust:
                self._trust[judge] = _test_judge(judge)
            return self._trust[judge]


def _build_result(
    trial: Trial, status: Status, runs: tuple[CaseRun, ...] = (), note: str = "", model: str | None = None
) -> TrialResult:
    name, own = str(trial.case.name), model or ""
    return TrialResult(
        trial.suite.label, name, status, trial.variant, trial.model, trial.case.tags, runs, trial.needed, note, own
    )


def _test_judge(judge: Path) -> JudgeReport:
    file = find_test_file(judge)
    if file is None:
        return _untested(judge, f"it has no test file {judge.stem}{SUFFIXES[0]}")
    try:
        suite = read_suite(file)
    except LoadError as error:
        return _untested(judge, f"its test file has mistakes: {error.problems[0].message}")
    if suite.judge is None:
        return _untested(judge, f"{file.name} has no `judge:` and no labels")
    results = Runner(RunnerOptions()).run(list(plan_trials([suite])))
    return report_suite(suite, results)


def _untested(judge: Path, problem: str) -> JudgeReport:
    return JudgeReport(judge=judge.name, agreement=compute_agreement([]), rules=JudgeRules(), problem=problem)


def report_suite(suite: Suite, results: Sequence[TrialResult]) -> JudgeReport:
    """Return the report of a suite whose prompt is a judge. `results` may include those of other suites."""
    labels = {str(case.name): case.label for case in suite.cases}
    own = [result for result in results if result.suite == suite.label]
    by_key = {result.key: label for result in own if (label := labels.get(result.case)) is not None}
    return report_judge(
        suite.prompt, suite.judge or JudgeRules(), [result for result in own if result.key in by_key], by_key
    )
