"""Checks that run code or models: functions, embedding prompts, and judges, which are prompts that score answers.

A judge may fail a case only if it agrees with people on labelled cases. A test file only names a function: its code
runs only if the user named the Python file on the command line, or in the settings of pytest, which runs the project's
code anyway.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompty.api import invoke
from prompty.cases.case_file import Case, Check, JudgeRules, Similarity
from prompty.cases.checks import CheckOutcome, Observation
from prompty.cases.project_file import find_project, override_in_project
from prompty.cases.results import TrialResult
from prompty.cases.statistics import Agreement, compute_agreement, compute_cosine
from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.pipeline.load import load
from prompty.tools.function import import_source

Score = float | bool | str
Functions = Mapping[str, Callable[..., object]]
_VERDICTS = {True: ("pass", "passed", "true", "yes"), False: ("fail", "failed", "false", "no")}
_SCORE_KEYS = ("score", "rating", "result", "verdict", "pass", "passed", "label")
_TAGGED = re.compile(r"<S2>\s*(-?\d+(?:\.\d+)?)")  # the format of azure-ai-evaluation's judges
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?\Z")
_INPUT = re.compile(r"\$\{inputs\.(\w+)\}")


def parse_score(answer: object) -> Score:
    """Return the score in a judge's answer: a number, True or False, or another word.

    It is the answer itself, or one of the keys `score`, `rating`, `result`, `verdict`, `pass` or `label`. Raise
    ValueError if there is none.
    """
    if isinstance(answer, bool | int | float):
        return answer
    if isinstance(answer, dict):
        for key in _SCORE_KEYS:
            if key in answer:
                return parse_score(answer[key])
        raise ValueError(f"the judge's answer is a mapping without {', '.join(_SCORE_KEYS[:3])} or another score")
    text = "" if answer is None else str(answer).strip()
    if tagged := _TAGGED.search(text):
        return float(tagged[1])
    if text[:1] in ("{", "[") or text.startswith("```"):
        try:
            return parse_score(json.loads(text.strip("`").removeprefix("json")))
        except (TypeError, json.JSONDecodeError):
            pass
    word = text.rstrip(".!").lower()
    for verdict, words in _VERDICTS.items():
        if word in words:
            return verdict
    if _NUMBER.match(word):
        return float(word)
    if text and len(text) <= 40 and "\n" not in text:
        return text
    raise ValueError(f"the judge's answer has no score: {text[:80]!r}")


def passes(score: Score, at_least: float | None) -> bool | str:
    """Return True or False for a score, or the score itself if it is a word."""
    if isinstance(score, str | bool):
        return score
    if at_least is None:
        raise ValueError(f"the judge answered {score:g}, but there is no `at_least` for the scores that pass")
    return score >= at_least


def build_judge_inputs(check: Check, inputs: Mapping[str, object], answer: str) -> dict[str, object]:
    """Return the inputs of a judge: those of the case, the answer as `answer` and `response`, and `judge_inputs`.

    A value `${inputs.NAME}` in `judge_inputs` is that input of the case.
    """
    given: dict[str, object] = {**inputs, "answer": answer, "response": answer}
    for name, value in check.judge_inputs.items():
        reference = _INPUT.fullmatch(value) if isinstance(value, str) else None
        if reference and reference[1] not in inputs:
            raise RequestError(
                f"`judge_inputs.{name}` refers to the input '{reference[1]}', which the case lacks",
                "Name an input of the case.",
            )
        given[name] = inputs[reference[1]] if reference else value
    return given


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeReport:
    """The agreement of a judge with the labels in its test file. It may fail a build if `problem` is empty."""

    judge: str
    agreement: Agreement
    rules: JudgeRules
    problem: str = ""

    @property
    def trusted(self) -> bool:
        return not self.problem


def report_judge(
    judge: Path, rules: JudgeRules, results: Sequence[TrialResult], labels: Mapping[str, Score]
) -> JudgeReport:
    """Compare a judge's verdicts with people's `labels`, by case key."""
    pairs: list[tuple[object, object]] = []
    problem = ""
    for result in results:
        label = labels[result.key]
        for run in result.runs:
            try:
                if run.error is not None:
                    raise ValueError(run.error.partition("\n")[0])
                pairs.append(
                    (passes(parse_score(label), rules.at_least), passes(parse_score(run.answer), rules.at_least))
                )
            except ValueError as error:
                problem = problem or f"{result.case}: {error}"
    agreement = compute_agreement(pairs)
    return JudgeReport(
        judge=judge.name, agreement=agreement, rules=rules, problem=problem or _find_problem(agreement, rules)
    )


def _find_problem(agreement: Agreement, rules: JudgeRules) -> str:
    """Return the reason why a judge may not fail a build, or ""."""
    if agreement.total < rules.min_labels:
        return f"it has {agreement.total} labelled cases, but needs {rules.min_labels}"
    if agreement.kappa is None:
        return "all labels are the same, so agreement means nothing"
    if agreement.kappa < rules.min_kappa:
        return f"kappa is {agreement.kappa:.2f}, but must be at least {rules.min_kappa:g}"
    return ""


def describe_report(report: JudgeReport) -> str:
    """Return one line: agreement, kappa and base rate."""
    agreement = report.agreement
    kappa = "undefined" if agreement.kappa is None else f"{agreement.kappa:.2f}"
    line = (
        f"{report.judge}: agrees with {agreement.agreed} of {agreement.total} labels ({agreement.share:.0%}), "
        f"kappa {kappa}, base rate {agreement.base_rate:.0%}"
    )
    if report.trusted:
        return f"{line}. It may fail cases."
    return f"{line}. It is uncalibrated, and fails no case and no run: {report.problem}."


def load_checks(sources: Sequence[str]) -> Functions:
    """Return the public functions of Python files or modules by `module:function`."""
    functions: dict[str, Callable[..., object]] = {}
    for source in sources:
        module = Path(source).stem if source.endswith(".py") else source
        for name, function in inspect.getmembers(import_source(source), inspect.isfunction):
            if not name.startswith("_"):
                functions[f"{module}:{name}"] = function
    return functions


class CaseEvaluators:
    """The expensive checks of a case. `functions` has functions by `module:function`, `get_trust` a judge's report."""

    def __init__(
        self,
        agent: PromptAgent,
        case: Case,
        folder: Path,
        functions: Functions,
        get_trust: Callable[[Path], JudgeReport],
        load: Callable[[Path, Path], PromptAgent],
    ) -> None:
        self._agent, self._case, self._folder, self._load = agent, case, folder, load
        self._functions, self._get_trust = functions, get_trust

    def _load_reader(self, path: str) -> PromptAgent:
        """Load a prompt that reads answers."""
        return self._load(self._folder / path, self._folder)

    def run_function(self, name: str, observation: Observation) -> CheckOutcome:
        """Call a function with the answer and the inputs. It returns True or None, or the reason for a failure."""
        if name not in self._functions:
            module = name.partition(":")[0]
            raise RequestError(
                f"the check `python: {name}` runs code, which needs your permission",
                f"Add --checks {module.rpartition('.')[2]}.py to the command.",
            )
        try:
            returned = self._functions[name](observation.read_value(), dict(self._case.inputs))
        except AssertionError as error:
            return CheckOutcome(False, f"{name}: {str(error) or 'an assertion failed'}")
        except Exception as error:
            raise RequestError(f"{name} failed: {type(error).__name__}: {error}", "Correct the function.") from error
        if returned is None or returned is True:
            return CheckOutcome(True)
        return CheckOutcome(
            False, f"{name}: {returned}" if isinstance(returned, str) else f"{name} returned {returned!r}"
        )

    def measure_similarity(self, similar: Similarity, observation: Observation) -> CheckOutcome:
        agent = self._load_reader(similar.prompt)
        required = [declared.name for declared in agent.inputs if declared.default is None]
        if len(required) != 1:
            raise RequestError(
                f"{similar.prompt} has {len(required)} inputs without a default", "Declare one, for the text."
            )
        vectors: list[Any] = [invoke(agent, {required[0]: text}) for text in (similar.to, observation.text)]
        try:
            cosine = compute_cosine(*(_flatten(vector) for vector in vectors))
        except (TypeError, ValueError) as error:
            raise RequestError(
                f"{similar.prompt} did not return comparable vectors: {error}", "Use `apiType: embedding`."
            ) from None
        message = "" if cosine >= similar.at_least else f"similarity {cosine:.3f} is below {similar.at_least:g}"
        return CheckOutcome(not message, message, score=cosine)

    def ask_judge(self, check: Check, observation: Observation) -> CheckOutcome:
        """Ask a judge. Its verdict is advisory unless it agrees with people on its labelled cases."""
        reference = str(check.judge)
        agent = self._load_reader(reference)
        inputs = build_judge_inputs(check, self._case.inputs, observation.text)
        answer = invoke(agent, inputs, extra_inputs="ignore")
        try:
            score = parse_score(answer)
            passed = passes(score, check.at_least)
        except ValueError as error:
            raise RequestError(str(error), "Have the judge answer with only a score, or add `at_least:`.") from None
        if isinstance(passed, str):
            raise RequestError(
                f"the judge answered {passed!r}, which is neither a score nor pass or fail",
                "Have it answer with a number, `pass` or `fail`.",
            )
        report = self._get_trust((self._folder / reference).resolve())
        number = float(score) if not isinstance(score, str) else None
        if passed:
            return CheckOutcome(True, score=number, advisory=not report.trusted)
        wanted = (
            f"{score:g} is below {check.at_least:g}" if check.at_least is not None and number is not None else "fail"
        )
        note = "" if report.trusted else f" (advisory: {report.problem})"
        return CheckOutcome(False, f"{report.judge} says {wanted}{note}", advisory=not report.trusted, score=number)


def _flatten(vector: Any) -> list[float]:
    """Return the numbers of a vector, or of a list with one vector."""
    return [float(number) for number in (vector[0] if vector and isinstance(vector[0], list) else vector)]


def load_prompt(
    path: Path,
    folder: Path,
    variant: str | None = None,
    model: str | None = None,
    *,
    roots: Sequence[Path] = (),
    env_allowed: Sequence[str] = (),
) -> PromptAgent:
    """Load a prompt that a test file names. It must be below the test file's folder or the current folder."""
    check_inside(path, folder)
    project = find_project(path)
    # Not the environment's variant: recordings belong to one.
    folders = (*project.roots, *roots)
    agent = load(path, variant=variant or "", allowed_roots=folders, env_allowed=env_allowed, missing_env="defer")
    return override_in_project(agent, project, model)


def check_inside(path: Path, folder: Path) -> None:
    """Raise RequestError if a path leads out of the test file's folder and of the current folder."""
    if not any(path.resolve().is_relative_to(root.resolve()) for root in (folder, Path.cwd())):
        raise RequestError(
            f"{path} is neither below the test file's folder nor below the current folder",
            "Move it, or run the command in the project's folder.",
        )
