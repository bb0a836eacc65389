"""Checks that run code or models: functions from files that the user named, embedding prompts, and judges."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from prompty.api import invoke
from prompty.cases.case_file import Case, Check, Similarity
from prompty.cases.checks import CheckOutcome, Observation
from prompty.cases.judges import JudgeReport, build_judge_inputs, parse_score, passes
from prompty.cases.statistics import compute_cosine
from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.pipeline.load import load

Functions = Mapping[str, Callable[..., object]]
Trust = Callable[[Path], JudgeReport]


class CaseEvaluators:
    """The expensive checks of a case. `functions` has functions by `module:function`, `get_trust` a judge's report."""

    def __init__(self, case: Case, folder: Path, functions: Functions, get_trust: Trust) -> None:
        self._case, self._folder = case, folder
        self._functions, self._get_trust = functions, get_trust

    def run_function(self, name: str, observation: Observation) -> CheckOutcome:
        """Call a function with the answer and the inputs. It returns True or None, or the reason for a failure."""
        if name not in self._functions:
            module = name.partition(":")[0]
            raise RequestError(
                f"the check `python: {name}` runs code, which needs your permission",
                f"Add --checks {module.rpartition('.')[2]}.py to the command.",
            )
        try:
            said = self._functions[name](observation.read_value(), dict(self._case.inputs))
        except AssertionError as error:
            return CheckOutcome(False, f"{name}: {str(error) or 'an assertion failed'}")
        except Exception as error:
            raise RequestError(f"{name} failed: {type(error).__name__}: {error}", "Correct the function.") from error
        if said is None or said is True:
            return CheckOutcome(True)
        return CheckOutcome(False, f"{name}: {said}" if isinstance(said, str) else f"{name} returned {said!r}")

    def measure_similarity(self, similar: Similarity, observation: Observation) -> CheckOutcome:
        agent = load_prompt(self._folder / similar.prompt, self._folder)
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
        agent = load_prompt(self._folder / reference, self._folder)
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


def load_prompt(path: Path, folder: Path, variant: str | None = None) -> PromptAgent:
    """Load a prompt that a test file names. It must be below the test file's folder or the current folder."""
    if not any(path.resolve().is_relative_to(root.resolve()) for root in (folder, Path.cwd())):
        raise RequestError(
            f"{path} is neither below the test file's folder nor below the current folder",
            "Move it, or run the command in the project's folder.",
        )
    return load(path, variant=variant or "")  # not the environment's variant: recordings belong to one
