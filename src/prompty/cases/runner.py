"""Run many trials: offline sequentially, live concurrently.

Each live run of a case is written to a ledger before it starts and when it ends. If the process is killed, the next one
takes the finished runs from the ledger, and reports which runs may be paid for twice.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from prompty.batches.ledger import Ledger
from prompty.batches.row_index import hash_prompt
from prompty.cases.case_file import JudgeRules
from prompty.cases.evaluators import CaseEvaluators, Functions, JudgeReport, load_prompt, report_judge
from prompty.cases.plan import Trial, plan_trials
from prompty.cases.reading import SUFFIXES, Suite, find_test_file, read_suite
from prompty.cases.results import CaseRun, Status, TrialResult, decide_status, run_from_json
from prompty.cases.statistics import compute_agreement
from prompty.cases.trial import OFFLINE, Mode, TrialContext, has_work, run_case
from prompty.errors import LoadError, PromptyError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json
from prompty.pricing import get_pricer

JOBS = 8
NEEDS_LIVE = "needs --live"
BUDGET_SPENT = "the budget of --max-cost is spent"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunnerOptions:
    """Options of a runner. `tools` are functions that models may call, `checks` those of `python:` checks by name.

    `keep_messages` adds the messages of each case to its result, for reports. Prompts may also read files in `roots`.
    """

    mode: Mode = OFFLINE
    jobs: int = JOBS
    max_cost: Decimal | None = None
    ledger: Path | None = None
    tools: Sequence[object] = ()
    checks: Functions = field(default_factory=dict)
    keep_messages: bool = False
    roots: Sequence[Path] = ()


class Runner:
    """Runs trials."""

    def __init__(self, options: RunnerOptions) -> None:
        self.options = options
        self.complete: bool = True
        self._agents: dict[tuple[Path, str | None, str | None], PromptAgent | PromptyError] = {}
        self._trust: dict[Path, JudgeReport] = {}
        self._lock, self._trust_lock = threading.RLock(), threading.RLock()
        self._stopping = threading.Event()
        self._ledger: _RunLedger | None = None
        self._is_budget_spent = False

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

        Before anything runs, `on_interrupted` gets the names of the runs that earlier processes started and did not
        end, once per start.
        """
        with self._open_ledger() as interrupted:
            on_interrupted(interrupted)
            self._check_prices(trials)
            if self.options.mode.live and self.options.jobs > 1:
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
            return _build_result(trial, "error", [CaseRun(error=agent.for_command_line())])
        runs: list[CaseRun] = []
        resumed = passed = 0
        status: Status | None = None
        for number in range(1, trial.repeat + 1):
            if self._stopping.is_set():
                return None
            if self._is_budget_spent:
                return _build_result(trial, "error", runs, note=BUDGET_SPENT)
            run, was_known = self._run_once(trial, number, agent)
            resumed += was_known
            runs.append(run)
            outcome = run.status
            if outcome == "error":
                return _build_result(trial, "error", runs, resumed=resumed)
            passed += outcome == "passed"
            status = decide_status(passed, number - passed, trial.repeat, trial.needed)
            if status is not None and not self.options.mode.record:  # all runs are recorded
                break
        note = NEEDS_LIVE if trial.case.expect.live and not self.options.mode.live else ""
        note = f"skipped the checks in `live`: {note}" if note else ""
        return _build_result(trial, status or "failed", runs, note=note, resumed=resumed)

    def _run_once(self, trial: Trial, number: int, agent: PromptAgent) -> tuple[CaseRun, bool]:
        """Run a case once, or return the run from the ledger of an earlier process, and True."""
        ledger = self._ledger
        if ledger is None or (trial.case.expect.level in ("render", "wire") and trial.case.label is None):
            return run_case(self._get_context(trial, number, agent)), False
        id = _hash_run(trial, number, agent, self.options.mode)
        if (known := ledger.find(id)) is not None:
            return known, True
        ledger.begin(id, f"{trial.key}, run {number}")
        run = run_case(self._get_context(trial, number, agent))
        ledger.finish(id, run)
        self._is_budget_spent = self.options.max_cost is not None and ledger.spent >= self.options.max_cost
        return run, False

    def _get_context(self, trial: Trial, number: int, agent: PromptAgent) -> TrialContext:
        options = self.options
        make = partial(CaseEvaluators, trial.case, trial.suite.folder, options.checks, self.get_trust, options.roots)
        return TrialContext(agent, options.mode, make, trial, number, options.tools, options.keep_messages)

    def _get_agent(self, trial: Trial) -> PromptAgent | PromptyError:
        """Return the agent of a trial, or the error from loading it. Cached."""
        suite, key = trial.suite, (trial.suite.prompt, trial.variant, trial.model)
        with self._lock:
            if key not in self._agents:
                try:
                    self._agents[key] = load_prompt(
                        suite.prompt,
                        suite.earlier or suite.folder,
                        trial.variant,
                        trial.model,
                        roots=self.options.roots,
                        beside=suite.path if suite.earlier else None,
                    )
                except PromptyError as error:
                    self._agents[key] = error
            return self._agents[key]

    def _check_prices(self, trials: Sequence[Trial]) -> None:
        """Raise if a price is unknown, because a budget would have no effect."""
        for trial in trials if self.options.max_cost is not None and self.options.mode.live else ():
            agent = self._get_agent(trial)
            if not isinstance(agent, PromptyError):
                get_pricer(agent, required=True)

    @contextmanager
    def _open_ledger(self) -> Iterator[list[str]]:
        if self.options.ledger is None or not self.options.mode.live:
            yield []
            return
        with _RunLedger(self.options.ledger) as self._ledger:
            yield self._ledger.list_interrupted()
            self._ledger.complete = self.complete and not self._stopping.is_set() and not self._is_budget_spent
        self._ledger = None

    def get_trust(self, judge: Path) -> JudgeReport:
        """Return a judge's report on its labelled cases, from their recordings at no cost."""
        with self._trust_lock:
            if judge not in self._trust:
                self._trust[judge] = _test_judge(judge)
            return self._trust[judge]


def _build_result(
    trial: Trial, status: Status, runs: Sequence[CaseRun] = (), note: str = "", resumed: int = 0
) -> TrialResult:
    return TrialResult(
        suite=trial.suite.label,
        case=str(trial.case.name),
        variant=trial.variant,
        model=trial.model,
        tags=trial.case.tags,
        status=status,
        runs=tuple(runs),
        needed=trial.needed,
        note=note,
        resumed=resumed,
    )


def _hash_run(trial: Trial, number: int, agent: PromptAgent, mode: Mode) -> str:
    case = trial.case.model_dump_json(exclude={"tags"})
    parts = [hash_prompt(agent), trial.key, case, str(number), str(mode.record)]
    return sha256("\0".join(parts).encode()).hexdigest()[:32]


_LOCKED_FIX = "Another `prompty test --live` runs these files. Wait for it, test other files, or leave out --live."


class _RunLedger:
    """A batch ledger with runs of cases as rows. When nothing is left to run, its files are removed.

    A separate journal has the names of runs, and which of them ended. It keeps interruptions until everything has run,
    because the process that repeats an interrupted run can be killed before it reports it.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.complete = False
        self._path, self._names = path, path.with_name(f"{path.stem}.names")
        self._ledger = Ledger(path, retry_failed=True, locked_fix=_LOCKED_FIX)
        self._lock = threading.Lock()
        self._known: dict[str, CaseRun] = {
            record["id"]: run_from_json(record["result"]) for record in _read_lines(path)
        }

    @property
    def spent(self) -> Decimal:
        return self._ledger.spent

    def find(self, id: str) -> CaseRun | None:
        return self._known.get(id)

    def list_interrupted(self) -> list[str]:
        """Return the names of runs that started and did not end, once per start: they may be paid for again."""
        started: dict[str, list[str]] = {}
        ended: Counter[str] = Counter()
        for record in _read_lines(self._names):
            if "name" in record:
                started.setdefault(record["id"], []).append(str(record["name"]))
            else:
                ended[record["id"]] += 1
        # A process can be killed between writing a result and writing that the run has ended.
        return [name for id, names in started.items() for name in names[max(ended[id], int(id in self._known)) :]]

    def begin(self, id: str, name: str) -> None:
        with self._lock:
            self._note({"id": id, "name": name})
            self._ledger.begin(id)

    def finish(self, id: str, run: CaseRun) -> None:
        """Write a run to the ledger. The next process repeats a run with an error."""
        cost = None if run.cost is None else Decimal(str(run.cost))
        outcome: Json = {"result": run.to_json()} if run.error is None else {"error": run.error}
        line = json.dumps({"id": id, **outcome, "cost": run.cost}).encode() + b"\n"
        with self._lock:
            (self._ledger.finish if run.error is None else self._ledger.fail)(line, cost)
            self._note({"id": id})

    def _note(self, record: Json) -> None:
        with self._names.open("a", encoding="utf-8") as names:
            names.write(f"\n{json.dumps(record)}")  # newline first, so that a truncated line does not join the next

    def __enter__(self) -> "_RunLedger":
        return self

    def __exit__(self, *_: object) -> None:
        self._ledger.complete = self.complete
        self._ledger.close()
        if self.complete:
            for path in (self._path, self._names, self._ledger.failures_path):
                path.unlink(missing_ok=True)


def _read_lines(path: Path) -> Iterator[Any]:
    """Yield the records in a file, without truncated lines."""
    for line in path.read_bytes().split(b"\n") if path.exists() else ():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        yield record


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
