"""Read a `.prompt.yml` of GitHub Models: messages, model, test data and evaluators."""

from collections.abc import Iterator, Mapping
from typing import Any

from prompty.cases.imports.draft import BY_HAND, DraftCase, DraftCheck, DraftPrompt, Import, Note
from prompty.cases.imports.messages import convert_messages
from prompty.cases.imports.models import convert_github_model, convert_option
from prompty.cases.imports.templates import escape_pattern, find_variables, substitute

_TOP = frozenset({"name", "description", "model", "modelParameters", "messages", "testData", "evaluators"})
_SHAPE_FIX = "Declare the shape under `outputs:` in the prompt."
_JUDGE_FIX = "Write a judge prompt, and name it with `judge: FILE.prompty`."


def read_prompt_yml(data: Mapping[str, Any], name: str) -> Import:
    """Read a file. `name` is that of the prompt."""
    notes: list[Note] = []
    for key in sorted(data.keys() - _TOP):
        fix = _SHAPE_FIX if key in ("responseFormat", "jsonSchema") else BY_HAND
        notes.append(Note((key,), f"`{key}` has no counterpart", fix))
    messages = convert_messages(
        data.get("messages"), lambda message, fix: notes.append(Note(("messages",), message, fix))
    )
    if not messages:
        return Import([], notes)
    description = data.get("description")
    prompt = DraftPrompt(
        name=name,
        messages=messages,
        description=description if isinstance(description, str) else "",
        model=_read_model(data.get("model"), notes),
        options=dict(_read_options(data.get("modelParameters"), notes)),
    )
    used = set().union(*(find_variables(message.template) for message in messages))
    prompt.cases = list(_read_cases(data, used, notes))
    return Import([prompt], notes)


def _read_model(model: object, notes: list[Note]) -> str | None:
    found = convert_github_model(model) if isinstance(model, str) else None
    if found is None and model is not None:
        fix = "Write `provider:` and `id:` under `model:` in the prompt, or choose one with --model."
        notes.append(Note(("model",), "the model is of a provider that prompty does not know", fix))
    return found.name if found else None


def _read_options(options: object, notes: list[Note]) -> Iterator[tuple[str, object]]:
    for name, value in options.items() if isinstance(options, dict) else ():
        option = convert_option(name, value)
        if option:
            yield option
        else:
            notes.append(Note(("modelParameters", name), f"the option `{name}` has no counterpart"))


def _read_cases(data: Mapping[str, Any], used: set[str], notes: list[Note]) -> Iterator[DraftCase]:
    rows = data.get("testData")
    for index, row in enumerate(rows if isinstance(rows, list) else ()):
        if not isinstance(row, dict):
            notes.append(Note(("testData", index), "the row is not a mapping"))
            continue
        for name in sorted(row.keys() - used - {"expected"}):
            notes.append(Note(("testData", index, name), f"the messages have no variable `{name}`"))
        yield DraftCase(
            inputs={name: value for name, value in row.items() if name in used and value is not None},
            checks=list(_read_checks(data.get("evaluators"), row, notes)),
        )


def _read_checks(evaluators: object, row: Mapping[str, object], notes: list[Note]) -> Iterator[DraftCheck]:
    for index, evaluator in enumerate(evaluators if isinstance(evaluators, list) else ()):
        keys = ("evaluators", index)
        rules = evaluator.get("string") if isinstance(evaluator, dict) else None
        if not isinstance(rules, dict):
            is_judge = isinstance(evaluator, dict) and ("llm" in evaluator or "uses" in evaluator)
            reason = "the evaluator asks a model for its opinion" if is_judge else "the evaluator has no counterpart"
            _add(notes, Note(keys, reason, _JUDGE_FIX if is_judge else BY_HAND))
            continue
        for name, value in rules.items():
            text = substitute(value, row) if isinstance(value, str) else None
            check = _convert_rule(name, text) if text is not None else None
            if check:
                yield check
            else:
                _add(notes, Note((*keys, "string", name), f"the rule `{name}` has no counterpart"))


def _convert_rule(name: str, text: str) -> DraftCheck | None:
    match name:
        case "contains":
            return DraftCheck("replay", {"contains": [text]})
        case "equals":
            return DraftCheck("replay", {"equals": text})
        case "startsWith":
            return DraftCheck("replay", {"regex": rf"\A{escape_pattern(text)}"})
        case "endsWith":
            return DraftCheck("replay", {"regex": rf"{escape_pattern(text)}$"})
    return None


def _add(notes: list[Note], note: Note) -> None:
    """Add a note once, though every row meets the same evaluators."""
    if note not in notes:
        notes.append(note)
