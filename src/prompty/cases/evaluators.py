"""Checks that run something: functions that a person named, embedding prompts, and judges."""

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
    """The dear checks of one case. `functions` are by `module:function`; `get_trust` tells about a judge."""

    def __init__(self, case: Case, folder: Path, functions: Functions, get_trust: Trust) -> None:
        self._case, self._folder = case, folder
        self._functions, self._get_trust = functions, get_trust

    def run_function(self, name: str, observation: Observation) -> CheckOutcome:
        """Call a function with the answer and the inputs. It returns True or None, or the reason for a failure."""
        if name not in self._functions:
            module = name.partition(":")[0]
            raise RequestError(
                f"the check `python: {name}` names code, and code runs only if you name its file",
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
                f"{similar.prompt} has {len(required)} inputs without a default", "Give it one, for the text to embed."
            )
        vectors: list[Any] = [invoke(agent, {required[0]: text}) for text in (similar.to, observation.text)]
        try:
            cosine = compute_cosine(*(_flatten(vector) for vector in vectors))
        except (TypeError, ValueError) as error:
            raise RequestError(
                f"{similar.prompt} gave no vectors to compare: {error}", "Use `apiType: embedding`."
            ) from None
        message = "" if cosine >= similar.at_least else f"similarity {cosine:.3f} is below {similar.at_least:g}"
        return CheckOutcome(not message, message, score=cosine)

    def ask_judge(self, check: Check, observation: Observation) -> CheckOutcome:
        """Ask a judge. Its verdict counts if it agrees with people on its own labelled cases, else it is advice."""
        reference = str(check.judge)
        agent = load_prompt(self._folder / reference, self._folder)
        inputs = build_judge_inputs(check, self._case.inputs, observation.text)
        answer = invoke(agent, inputs, extra_inputs="ignore")
        try:
            score = parse_score(answer)
            passed = passes(score, check.at_least)
        except ValueError as error:
            raise RequestError(str(error), "Let the judge answer with a score alone, or write `at_least:`.") from None
        if isinstance(passed, str):
            raise RequestError(
                f"the judge answered {passed!r}, which is neither a score nor pass or fail",
                "Let it answer with a number, `pass` or `fail`.",
            )
        report = self._get_trust((self._folder / reference).resolve())
        number = float(score) if not isinstance(score, str) else None
        if passed:
            return CheckOutcome(True, score=number, advisory=not report.trusted)
        wanted = (
            f"{score:g} is below {check.at_least:g}" if check.at_least is not None and number is not None else "fail"
        )
        note = "" if report.trusted else f" (only reported: {report.problem})"
        return CheckOutcome(False, f"{report.judge} says {wanted}{note}", advisory=not report.trusted, score=number)


def _flatten(vector: Any) -> list[float]:
    """Return the numbers of a vector, also of a list that holds only one."""
    return [float(number) for number in (vector[0] if vector and isinstance(vector[0], list) else vector)]


def load_prompt(path: Path, folder: Path, variant: str | None = None) -> PromptAgent:
    """Load a prompt that a test file names. It must be below the folder of that file, or below the current one."""
    if not any(path.resolve().is_relative_to(root.resolve()) for root in (folder, Path.cwd())):
        raise RequestError(
            f"{path} is neither below the folder of the test file nor below the current folder",
            "Move it, or run the command from the folder of the project.",
        )
    return load(path, variant=variant or "")  # not that of the environment: recordings belong to one
