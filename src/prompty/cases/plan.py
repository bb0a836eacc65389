"""Expand cases into trials, one for each model and variant, and select them with `-k`."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prompty.cases.case_file import Case
from prompty.cases.reading import Suite, make_file_name
from prompty.cases.results import format_key
from prompty.errors import RequestError

_MAX_NAME_BYTES = 200  # a file system allows 255, with a suffix
_WORD = re.compile(r"\s*(\(|\)|\"[^\"]*\"|'[^']*'|[^\s()\"']+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A case with one model and one variant. None means the file's own."""

    suite: Suite
    case: Case
    model: str | None = None
    variant: str | None = None

    @property
    def key(self) -> str:
        return format_key(self.suite.label, str(self.case.name), self.variant, self.model)

    @property
    def repeat(self) -> int:
        return self.case.repeat or 1

    @property
    def needed(self) -> int:
        """The number of runs that must pass."""
        return self.case.passes or self.repeat


CaseSelection = Callable[[Trial], bool]


def plan_trials(
    suites: Iterable[Suite], *, models: Sequence[str] = (), variants: Sequence[str] = (), repeat: int | None = None
) -> Iterator[Trial]:
    """Yield the trials of all cases. `models`, `variants` and `repeat` override the files."""
    for suite in suites:
        for case in suite.cases:
            chosen = _repeat_case(case, repeat)
            for variant in variants or case.variants or (None,):
                for model in models or case.models or (None,):
                    yield Trial(suite=suite, case=chosen, model=model, variant=variant or None)


def _repeat_case(case: Case, repeat: int | None) -> Case:
    """Return a case with another number of runs. The share that must pass stays the same."""
    if repeat is None or case.repeat == repeat:
        return case
    passes = None if case.passes is None else max(1, round(case.passes / (case.repeat or 1) * repeat))
    return case.model_copy(update={"repeat": repeat, "passes": passes})


def get_recording_path(trial: Trial, number: int = 1, folder: Path | None = None) -> Path:
    """Return the path of a run's recording: `recordings/<prompt>/<case>[.<variant>][.<model>][.2].jsonl`."""
    chosen = [make_file_name(part) for part in (trial.variant, trial.model) if part]
    repeated = [str(number)] if number > 1 else []
    name = ".".join([make_file_name(str(trial.case.name)), *chosen])
    if len(name.encode()) > _MAX_NAME_BYTES:
        name = make_file_name(name)
    name = ".".join([name, *repeated])
    return (folder or trial.suite.folder) / "recordings" / trial.suite.name / f"{name}.jsonl"


def parse_selection(expression: str) -> CaseSelection:
    """Parse `-k`: words in a case's key or tags, with `and`, `or`, `not` and parentheses."""
    words = _WORD.findall(expression)
    position = 0

    def peek() -> str | None:
        return words[position] if position < len(words) else None

    def take() -> str:
        nonlocal position
        word = peek()
        if word is None:
            raise _unreadable(expression, "it ends too early")
        position += 1
        return word

    def parse_or() -> CaseSelection:
        return parse_chain("or", lambda: parse_chain("and", parse_not, all), any)

    def parse_chain(
        joint: str, parse: Callable[[], CaseSelection], combine: Callable[[Iterable[bool]], bool]
    ) -> CaseSelection:
        tests = [parse()]
        while peek() == joint:
            take()
            tests.append(parse())
        return lambda trial: combine(test(trial) for test in tests)

    def parse_not() -> CaseSelection:
        word = take()
        if word == "not":
            inner = parse_not()
            return lambda trial: not inner(trial)
        if word == "(":
            inner = parse_or()
            if take() != ")":
                raise _unreadable(expression, "a parenthesis is not closed")
            return inner
        if word in (")", "and", "or"):
            raise _unreadable(expression, f"expected a word, found `{word}`")
        word = word.strip("\"'").lower()
        return lambda trial: word in trial.key.lower() or word in map(str.lower, trial.case.tags)

    selection = parse_or()
    if peek() is not None:
        raise _unreadable(expression, f"expected `and` or `or`, found `{peek()}`")
    return selection


def _unreadable(expression: str, cause: str) -> RequestError:
    return RequestError(f"-k '{expression}' is invalid: {cause}", "Write words with and, or, not and parentheses.")
