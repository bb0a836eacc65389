"""Write drafts as the text of a `.prompty` file and of a test file."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from prompty.cases.imports.draft import DraftCase, DraftCheck, DraftPrompt, Note
from prompty.cases.imports.templates import find_variables
from prompty.cases.reading import find_file_reference, make_file_name, write_yaml
from prompty.model.message import Json
from prompty.model.property import kind_of_value

_UNSAFE = re.compile(r"[^\w-]+", re.ASCII)
_MAX_NAME = 80


class PromptFiles(NamedTuple):
    """The texts of a prompt and its test file. `prompt` is None if the prompt exists, `tests` if there are no cases."""

    name: str
    prompt: str | None
    tests: str | None
    cases: int
    notes: Sequence[Note]


def write_prompts(prompts: Sequence[DraftPrompt]) -> list[PromptFiles]:
    """Write drafts. Each gets a name of its own that can be the name of a file."""
    taken: set[str] = set()
    return [_write(prompt, _make_unique(_make_name(prompt.name), taken)) for prompt in prompts]


def _make_name(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-_")[:_MAX_NAME] or "prompt"


def _make_unique(name: str, taken: set[str]) -> str:
    number, unique = 1, name
    while unique.lower() in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique.lower())
    return unique


def _write(draft: DraftPrompt, name: str) -> PromptFiles:
    notes: list[Note] = []
    used = set().union(*(find_variables(message.template) for message in draft.messages))
    cases = draft.cases
    if draft.messages:
        for unused in sorted({key for case in cases for key in case.inputs} - used):
            notes.append(
                Note(("tests",), f"{name}: the prompt has no variable `{unused}`, so its cases have no such input")
            )
        cases = [_choose_inputs(case, used) for case in cases]
    cases = [case for case in cases if not _has_reference(case, name, notes)]
    kinds = {key: _find_kind([case.inputs[key] for case in cases if key in case.inputs]) for key in sorted(used)}
    for case in cases:
        case.inputs = {
            key: _to_text(value) if kinds.get(key) == "string" else value for key, value in case.inputs.items()
        }
    prompt = _write_prompt(draft, name, kinds, notes) if draft.messages else None
    tests = write_yaml(_build_tests(draft, cases)) if cases else None
    return PromptFiles(name, prompt, tests, len(cases), notes)


def _choose_inputs(case: DraftCase, used: set[str]) -> DraftCase:
    inputs = {key: value for key, value in case.inputs.items() if key in used}
    return DraftCase(name=case.name, inputs=inputs, checks=case.checks, models=case.models)


def _has_reference(case: DraftCase, name: str, notes: list[Note]) -> bool:
    """Return True, and note it, if a text of a case would be taken for a file by a test file."""
    text = find_file_reference([case.name, case.inputs, [check.check for check in case.checks]])
    if text is not None:
        message = f"{name}: a case has the text {text!r}, which a test file would take for a file"
        notes.append(Note(("tests",), message, "Write the case by hand, with the text in a file of its own."))
    return text is not None


def _find_kind(values: Sequence[object]) -> str:
    """Return the kind that all values have, and `string` if they differ: then each is written as text."""
    kinds = {kind_of_value(value) for value in values}
    if kinds == {"integer", "float"}:
        return "float"
    return kinds.pop() if len(kinds) == 1 else "string"


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _write_prompt(draft: DraftPrompt, name: str, kinds: Mapping[str, str], notes: list[Note]) -> str:
    head: dict[str, Any] = {"name": name}
    if draft.description and "${" in draft.description:
        notes.append(Note(("description",), "the description looks like a reference, and is left out"))
    elif draft.description:
        head["description"] = draft.description
    if draft.model or draft.options:
        head["model"] = _build_model(draft)
    every = {key for key in kinds if draft.cases and all(key in case.inputs for case in draft.cases)}
    if kinds:
        head["inputs"] = {
            key: {"kind": kind, "required": True} if key in every or kind != "string" else {"kind": kind, "default": ""}
            for key, kind in kinds.items()
        }
    body = "\n\n".join(f"{message.role}:\n{message.template}" for message in draft.messages)
    return f"---\n{write_yaml(head)}---\n{body}\n"


def _build_model(draft: DraftPrompt) -> Json:
    provider, _, id = (draft.model or "").partition(":")
    model: Json = {"provider": provider, "id": id} if draft.model else {}
    if draft.api_type:
        model["apiType"] = draft.api_type
    if draft.options:
        model["options"] = dict(draft.options)
    return model


def _build_tests(draft: DraftPrompt, cases: Sequence[DraftCase]) -> Json:
    common = _find_common_checks(cases)
    defaults: dict[str, Any] = {}
    if draft.models:
        defaults["models"] = list(draft.models)
    if draft.repeat:
        defaults["repeat"] = draft.repeat
    if common:
        defaults["expect"] = _build_expect(common)
    taken: set[str] = set()
    listed = [_build_case(case, number, len(common), taken) for number, case in enumerate(cases, 1)]
    return {**({"defaults": defaults} if defaults else {}), "cases": listed}


def _find_common_checks(cases: Sequence[DraftCase]) -> list[DraftCheck]:
    """Return the checks that all of several cases begin with."""
    if len(cases) < 2:
        return []
    common = list(cases[0].checks)
    for case in cases[1:]:
        while common and case.checks[: len(common)] != common:
            common.pop()
    return common


def _build_case(case: DraftCase, number: int, common: int, taken: set[str]) -> Json:
    name = " ".join(case.name.split())[:_MAX_NAME].strip() or f"case {number}"
    unique, count = name, 1
    while make_file_name(unique).lower() in taken:
        count += 1
        unique = f"{name} {count}"
    taken.add(make_file_name(unique).lower())
    built: dict[str, Any] = {"name": unique, "inputs": dict(case.inputs)}
    if case.models:
        built["models"] = list(case.models)
    if case.checks[common:]:
        built["expect"] = _build_expect(case.checks[common:])
    return built


def _build_expect(checks: Sequence[DraftCheck]) -> Json:
    """Return checks by level. Those with different keys become one."""
    levels: dict[str, list[dict[str, Any]]] = {}
    for level, check in checks:
        merged = levels.setdefault(level, [{}])
        if merged[-1].keys() & check.keys():
            merged.append({})
        merged[-1].update({key: _shorten(value) for key, value in check.items()})
    return {level: found[0] if len(found) == 1 else found for level, found in levels.items()}


def _shorten(value: Any) -> Any:
    """Return a list of one text as the text."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str) else value
