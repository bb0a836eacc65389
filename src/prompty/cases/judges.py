"""Judges: prompts that score answers. A judge may fail a case only if it agrees with people on labelled cases."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prompty.cases.case_file import Check, JudgeRules
from prompty.cases.results import TrialResult
from prompty.cases.statistics import Agreement, compute_agreement
from prompty.errors import RequestError

Score = float | bool | str
_WORDS = {
    "pass": True,
    "passed": True,
    "true": True,
    "yes": True,
    "fail": False,
    "failed": False,
    "false": False,
    "no": False,
}
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
    if word in _WORDS:
        return _WORDS[word]
    if _NUMBER.match(word):
        return float(word)
    if text and len(text) <= 40 and "\n" not in text:
        return text
    raise ValueError(f"the judge's answer has no score: {text[:80]!r}")


def passes(score: Score, at_least: float | None) -> bool | str:
    """Return True or False for a score, or the score itself if it is a word."""
    if isinstance(score, str):
        return score
    if isinstance(score, bool):
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
    return f"{line}. It may fail cases." if report.trusted else f"{line}. It is advisory: {report.problem}."
