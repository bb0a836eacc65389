"""Drafts of prompts and cases as plain data, and the texts of their files, with what was left out as comments."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from prompty.cases.case_file import Level
from prompty.cases.imports.templates import Messages, find_variables
from prompty.cases.reading import find_file_reference, make_file_name, write_yaml
from prompty.model.message import Json
from prompty.model.property import kind_of_value
from prompty.safety.visible import visible

DraftCheck = tuple[Level, Json]
Keys = tuple[str | int, ...]
BY_HAND = "Write it by hand, if you need it."
_MAX_NAME = 80
_ALONE = frozenset({"any_of", "ignore_case", "json_schema"})


class Note(NamedTuple):
    """Something that was left out: its place in the file, why, and what to do."""

    keys: Keys
    message: str
    fix: str = BY_HAND


@dataclass(kw_only=True)
class DraftCase:
    """A case, and notes on the assertions that were left out. `inputs` may have more than the prompt uses."""

    name: str = ""
    inputs: dict[str, object] = field(default_factory=dict)
    checks: list[DraftCheck] = field(default_factory=list)
    lost: list[Note] = field(default_factory=list)


@dataclass(kw_only=True)
class DraftPrompt:
    """A prompt with its cases. `head` has the rest of the frontmatter, `defaults` those of the test file."""

    name: str
    messages: Messages
    head: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    cases: list[DraftCase] = field(default_factory=list)


class PromptFiles(NamedTuple):
    """The texts of a prompt and its tests, and the notes that are comments there. `unchecked` cases have no check."""

    name: str
    prompt: str
    tests: str | None
    cases: int
    unchecked: int
    notes: Sequence[Note]


def write_prompts(prompts: Sequence[DraftPrompt], notes: Sequence[Note] = ()) -> list[PromptFiles]:
    """Write drafts. Each gets a name of its own that can be the name of a file, and `notes` on the whole config."""
    taken: set[str] = set()
    names = [re.sub(r"[^\w-]+", "-", prompt.name, flags=re.ASCII).strip("-_")[:_MAX_NAME] for prompt in prompts]
    unique = [_make_unique(name or "prompt", taken, "-") for name in names]
    return list(map(_write, prompts, unique, [list(notes) for _ in prompts]))


def _make_unique(name: str, taken: set[str], separator: str) -> str:
    number, unique = 1, name
    while make_file_name(unique).lower() in taken:
        number += 1
        unique = f"{name}{separator}{number}"
    taken.add(make_file_name(unique).lower())
    return unique


def _write(draft: DraftPrompt, name: str, notes: list[Note]) -> PromptFiles:
    cases = [case for case in draft.cases if find_file_reference([case.name, case.inputs, case.checks]) is None]
    if left := len(draft.cases) - len(cases):
        message = f"{name}: {left} of the cases, with their checks, have a text that a test file takes for a file"
        notes.append(Note(("tests",), message, "Write them by hand, with the text in a file."))
    prompt = _write_prompt(draft, name, cases, notes)
    tests = _write_tests(draft, cases) if cases else None
    lost = dict.fromkeys(note for case in cases for note in case.lost)
    return PromptFiles(name, prompt, tests, len(cases), sum(not case.checks for case in cases), [*notes, *lost])


def _write_prompt(draft: DraftPrompt, name: str, cases: Sequence[DraftCase], notes: Sequence[Note]) -> str:
    """Write a prompt, and declare its inputs by the values in the cases."""
    inputs: dict[str, Any] = {}
    used = set[str]().union(*(find_variables(template) or () for _, template in draft.messages))
    for key in sorted(used):
        values = [case.inputs[key] for case in cases if key in case.inputs]
        kinds = {kind_of_value(value) for value in values}
        kind = "float" if kinds == {"integer", "float"} else kinds.pop() if len(kinds) == 1 else "string"
        is_optional = kind == "string" and not (cases and len(values) == len(cases))
        inputs[key] = {"kind": kind, **({"default": ""} if is_optional else {"required": True})}
    for case in cases:
        case.inputs = {key: case.inputs[key] for key in sorted(used & case.inputs.keys())}
        for key, value in case.inputs.items():
            if inputs[key]["kind"] == "string" and not isinstance(value, str):
                case.inputs[key] = json.dumps(value, ensure_ascii=False, default=str)
    head = {"name": name, **draft.head, **({"inputs": inputs} if inputs else {})}
    body = "\n\n".join(f"{role}:\n{template}" for role, template in draft.messages)
    return f"---\n{_comment(notes)}{write_yaml(head)}---\n{body}\n"


def _comment(lines: Sequence[Note | str], indent: str = "") -> str:
    texts = [line if isinstance(line, str) else f"not imported: {line.message}" for line in lines]
    return "".join(f"{indent}# {visible(' '.join(text.split()))}\n" for text in texts)


def _write_tests(draft: DraftPrompt, cases: Sequence[DraftCase]) -> str:
    """Write the cases. What all of them have in common stands once, above them."""
    checks, lost = _find_common([case.checks for case in cases]), _find_common([case.lost for case in cases])
    tools = {tool["name"]: "no result" for tool in draft.head.get("tools", ())}
    defaults = {**draft.defaults, "tools": tools, "expect": _build_expect(checks)}
    defaults = {name: value for name, value in defaults.items() if value}
    text = _comment([*lost, *(["Replace 'no result' with what each tool returns."] if tools else [])])
    text += (write_yaml({"defaults": defaults}) if defaults else "") + "cases:\n"
    taken: set[str] = set()
    for number, case in enumerate(cases, 1):
        name = " ".join(case.name.split())[:_MAX_NAME].strip() or f"case {number}"
        own = _build_expect(case.checks[len(checks) :])
        built = {"name": _make_unique(name, taken, " "), "inputs": case.inputs, **({"expect": own} if own else {})}
        unchecked = [] if case.checks else ["no check: this case passes if the prompt renders"]
        text += write_yaml([built]) + _comment([*case.lost[len(lost) :], *unchecked], "  ")
    return text


def _find_common(lists: Sequence[list[Any]]) -> list[Any]:
    """Return the entries that all of several lists begin with."""
    common = list(lists[0]) if len(lists) > 1 else []
    while any(entries[: len(common)] != common for entries in lists):
        common.pop()
    return common


def _build_expect(checks: Sequence[DraftCheck]) -> Json:
    """Return checks by level. Those with different keys become one, unless a key changes the meaning of others."""
    levels: dict[str, list[dict[str, Any]]] = {}
    for level, check in checks:
        merged = levels.setdefault(level, [])
        if not merged or merged[-1].keys() & check.keys() or _ALONE & (merged[-1].keys() | check.keys()):
            merged.append({})
        merged[-1].update(check)
    return {level: found[0] if len(found) == 1 else found for level, found in levels.items()}
