"""Validate inputs against the prompt's declarations (§2.7), and convert them to plain data for the template.

The inputs that a prompt uses are declared, in its template, or bound to tools.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from prompty.errors import InputError, InputProblem, InvalidMessage, RenderError, did_you_mean, nearest
from prompty.model.agent import PromptAgent
from prompty.model.content import MediaPart, parse_media
from prompty.model.message import parse_messages
from prompty.model.property import RICH_KINDS, Property
from prompty.model.structure import read_template
from prompty.renderers import RENDERERS
from prompty.safety.json import copy_json, read_json
from prompty.safety.redaction import is_credential_name

_TAG = re.compile(r"\{[{%][^{}]*")
_WORD = re.compile(r"\w+")


def find_input_names(agent: PromptAgent) -> frozenset[str] | None:
    """Return the names of all inputs that a prompt uses, or None if its template engine cannot tell."""
    used = _find_template_names(agent)
    return None if used is None else used | {entry.name for entry in agent.inputs} | find_bound_names(agent)


def can_show_inputs(agent: PromptAgent) -> bool:
    """Return False if no input can be in a prompt's text: it declares none, and its template uses none."""
    return bool(agent.inputs) or _find_template_names(agent) != frozenset()


def find_bound_names(agent: PromptAgent) -> frozenset[str]:
    """Return the names of the inputs that tools bind."""
    return frozenset(binding.input for tool in agent.tools for binding in tool.bindings.values() if binding.input)


def find_plain_names(agent: PromptAgent) -> frozenset[str]:
    """Return the plain texts in bindings. A caller may pass an input of such a name."""
    bindings = (binding for tool in agent.tools for binding in tool.bindings.values())
    return frozenset(text for binding in bindings if (text := binding.plain_text) is not None)


def _find_template_names(agent: PromptAgent) -> frozenset[str] | None:
    """Return the names in a template's tags, or None if its engine cannot tell."""
    engine = agent.registry[RENDERERS].get(agent.template.format.kind)
    find_variables: Callable[[str], Mapping[str, int]] | None = getattr(engine, "variables", None)
    if find_variables is None:
        return None
    template = agent.instructions
    known = read_template(template)
    if find_variables not in known.names:
        try:
            names = frozenset(find_variables(known.marked))
            # An engine may omit names that can belong to a section's value, so every word of a tag also counts.
            known.names[find_variables] = names.union(*(_WORD.findall(tag) for tag in _TAG.findall(template)))
        except RenderError:
            known.names[find_variables] = None  # reported when it is rendered
    return known.names[find_variables]


MAX_INPUT_DEPTH = 64
ExtraInputs = Literal["error", "ignore"]

_PLAIN = frozenset({str, int, float, bool, type(None)})
# Also for a subclass: a template must not reach the methods that it adds.
_CONVERSIONS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    *((kind, kind) for kind in (str, int, float)),
    ((date, datetime, time, Decimal, PurePath, UUID), str),
)
_EXACT_TYPES = {"string": str, "integer": int, "float": float, "boolean": bool}
_ARRAYS = (list, tuple, set, frozenset)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str, date, datetime, time, Decimal, PurePath, UUID),
    "integer": (int,),
    "float": (int, float, Decimal),
    "boolean": (bool,),
    "array": _ARRAYS,
    "object": (Mapping, BaseModel),
}
_KIND_NAMES = {"string": "text", "boolean": "true or false"}


def validate_run_inputs(
    agent: PromptAgent, inputs: Mapping[str, object] | None, *, extra_inputs: ExtraInputs, has_messages: bool = False
) -> dict[str, object]:
    """Return a prompt's input values, with defaults. Raise `InputError` with every problem.

    If the run already has its messages, only tool bindings need inputs.
    """
    required = find_bound_names(agent) if has_messages else _find_required_names(agent)
    return _validate(agent, inputs, extra_inputs, required)


def _find_required_names(agent: PromptAgent) -> frozenset[str]:
    return frozenset(entry.name for entry in agent.inputs if entry.required)


def fill_defaults(agent: PromptAgent, inputs: Mapping[str, object] | None) -> dict[str, object]:
    """Add defaults to inputs that are already valid."""
    nullable = {entry.name for entry in agent.inputs if accepts_null(entry)}
    values = {name: value for name, value in (inputs or {}).items() if value is not None or name in nullable}
    defaults = {entry.name: copy_json(entry.default) for entry in agent.inputs if entry.default is not None}
    return {**defaults, **values}


def _validate(
    agent: PromptAgent, inputs: Mapping[str, object] | None, extra_inputs: ExtraInputs, required: frozenset[str]
) -> dict[str, object]:
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InputError("", f"inputs is {_describe(inputs)}, not a mapping", "Pass inputs={'name': value}.")
    values = dict(inputs or {})
    declared_names = 0
    problems: list[InputProblem] = []
    for declared in agent.inputs:
        name = declared.name
        declared_names += name in values
        value = values.get(name)
        if value is None:
            if name in values and accepts_null(declared):
                continue
            if declared.default is not None:
                values[name] = copy_json(declared.default)
            else:
                values.pop(name, None)
                if name in required:
                    problems.append(_missing(declared))
        elif type(value) is not _EXACT_TYPES.get(declared.kind) or declared.enum_values is not None:
            problems += find_misfits(declared, value)
    if inputs and declared_names < len(inputs) and extra_inputs == "error":
        problems += _find_unknown(agent, values)
    if problems:
        raise InputError(*problems[0], others=problems[1:])
    return values


def _missing(declared: Property) -> InputProblem:
    about = f" ({declared.description})" if declared.description else ""
    fix = "or add a `default:` to it in the file."
    name = declared.name
    return InputProblem(
        name,
        f"Missing required input '{name}'{about}",
        f"Pass inputs={{'{name}': …}}, {fix}",
        f"Pass -i {name}=…, {fix}",
    )


def _find_unknown(agent: PromptAgent, values: Mapping[str, object]) -> Iterator[InputProblem]:
    declared = [entry.name for entry in agent.inputs]
    known = find_input_names(agent)
    if known is None:
        return
    for name in values.keys() - known - find_plain_names(agent):
        question = did_you_mean(nearest(str(name), known)).rstrip()
        names = ", ".join(f"'{entry}'" for entry in declared) if declared else "no inputs"
        cause = f"Unknown input '{name}': the prompt has {names}"
        fix = question or "Remove it, declare it under `inputs:`, or pass extra_inputs='ignore'."
        command_fix = question or "Remove it, or declare it under `inputs:` in the file."
        yield InputProblem(str(name), cause, fix, command_fix)


def accepts_null(declared: Property) -> bool:
    """Return True if a property accepts null as its value. Otherwise null means that the value is missing."""
    if declared.nullable or not declared.branches:
        return declared.nullable
    fitting = sum(map(accepts_null, declared.branches))
    return fitting == 1 if declared.one_of else fitting > 0


def find_misfits(
    declared: Property, value: object, path: str = "", depth: int = 0, *, hidden: bool = False
) -> list[InputProblem]:
    """Return the mismatches between a value and its declaration: its kind, `enumValues`, and nested values.

    No message shows a sensitive value, or one inside it (`hidden`).
    """
    name, kind = path or declared.name, declared.kind
    if value is None and accepts_null(declared):
        return []
    if kind in RICH_KINDS or isinstance(value, Secret | SecretStr | SecretBytes) or depth > MAX_INPUT_DEPTH:
        return []  # checked elsewhere
    if isinstance(value, MediaPart) and kind != "union":
        return []  # checked elsewhere
    if isinstance(value, Enum):
        value = value.value
    hidden = hidden or declared.sensitive or is_credential_name(declared.name)
    shown = "another value" if hidden else _describe(value)
    if kind == "union":
        if problems := _find_union_misfits(declared, value, name, depth, hidden=hidden):
            return problems
    elif not _has_kind(kind, value):
        return [_misfit(name, f"must be {_name_kind(kind)}, not {shown}", kind)]
    if declared.enum_values is not None and not any(_is_same(value, option) for option in declared.enum_values):
        choices = ", ".join(map(_show, declared.enum_values))
        return [_misfit(name, f"must be one of {choices}, not {shown}", kind)]
    if declared.items is not None and isinstance(value, _ARRAYS):
        return [
            one
            for at, entry in enumerate(value)
            for one in find_misfits(declared.items, entry, f"{name}[{at}]", depth + 1, hidden=hidden)
        ]
    return _find_misfits_inside(declared.properties, value, name, depth, hidden=hidden) if declared.properties else []


def _find_union_misfits(
    declared: Property, value: object, name: str, depth: int, *, hidden: bool
) -> list[InputProblem]:
    found = [_find_branch_misfits(branch, value, name, depth, hidden=hidden) for branch in declared.branches]
    shown = "another value" if hidden else _describe(value)
    fitting = found.count([])
    if fitting == 1 or (fitting and declared.any_of):
        return []
    kinds = " or ".join(dict.fromkeys(_name_branch(branch) for branch in declared.branches))
    if fitting:
        return [_misfit(name, f"must fit exactly one branch of `oneOf` ({kinds}), but {shown} fits {fitting}", "union")]
    similar = [problems for branch, problems in zip(declared.branches, found, strict=True) if _is_like(branch, value)]
    if len(similar) == 1:
        return similar[0]
    return [_misfit(name, f"must be {kinds}, not {shown}", "union")]


def _find_branch_misfits(
    branch: Property, value: object, name: str, depth: int = 0, *, hidden: bool = False
) -> list[InputProblem]:
    """Return the mismatches between a value and a branch. Media and threads are checked too, because their kind decides
    which branch applies."""
    is_media = isinstance(value, MediaPart) and branch.kind != "union"
    if branch.kind in RICH_KINDS or is_media:
        if (value is None and branch.nullable) or _is_rich(branch.kind, value):
            return []
        shown = "another value" if hidden else _describe(value)
        return [_misfit(name, f"must be {_name_kind(branch.kind)}, not {shown}", branch.kind)]
    return find_misfits(branch, value, name, depth, hidden=hidden)


def _is_rich(kind: str, value: object) -> bool:
    try:
        parse_messages(value) if kind == "thread" else parse_media(kind, value)
    except InvalidMessage:
        return False
    return True


def _is_like(branch: Property, value: object) -> bool:
    """Return True if a value has the kind of a branch, so that its problems are inside the value."""
    return branch.kind in _TYPES and not isinstance(value, MediaPart) and _has_kind(branch.kind, value)


def _name_branch(branch: Property) -> str:
    if branch.enum_values is not None:
        return f"one of {', '.join(map(_show, branch.enum_values))}"
    if branch.branches:
        return " or ".join(map(_name_branch, branch.branches))
    return _name_kind(branch.kind)


def resolve_kind(declared: Property, value: object) -> str:
    """Return the kind of an input's value: for a union, that of the first branch that the value fits."""
    for branch in declared.branches:
        if not _find_branch_misfits(branch, value, declared.name):
            return resolve_kind(branch, value)
    return declared.kind


def read_union(declared: Property, text: str) -> object:
    """Return the value of a union that is written as text: as JSON if that fits a branch, else as text if a branch
    takes text. Raise ValueError if the text is neither."""
    try:
        value = read_json(text)
    except ValueError:
        if find_misfits(declared, text):
            raise
        return text
    return text if find_misfits(declared, value) and not find_misfits(declared, text) else value


def _find_misfits_inside(
    properties: Sequence[Property], value: object, name: str, depth: int, *, hidden: bool
) -> list[InputProblem]:
    fields = _fields_of(value)
    problems: list[InputProblem] = []
    for entry in properties:
        path = f"{name}.{entry.name}"
        inner = fields.get(entry.name)
        if inner is None and entry.name in fields and accepts_null(entry):
            continue
        if inner is not None:
            problems += find_misfits(entry, inner, path, depth + 1, hidden=hidden)
        elif entry.required and entry.default is None:
            problems.append(_misfit(path, "is required but has no value", entry.kind))
    return problems


def _fields_of(value: object) -> Mapping[str, object]:
    if isinstance(value, BaseModel):
        return value.model_dump()
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value  # type: ignore[return-value]  # a mapping, by its kind


def _misfit(name: str, cause: str, kind: str) -> InputProblem:
    top = name.partition(".")[0].partition("[")[0]
    if kind == "union":
        fix, written = "Pass a value that fits a branch, or add one to the union in the file.", "JSON of a branch"
    else:
        fix = f"Pass a value of kind `{kind}`, or declare another `kind:` in the file."
        written = "text of that kind" if kind == "string" else "JSON of that kind"
    return InputProblem(top, f"Input '{name}' {cause}", fix, f"Write -i {top}=… with {written}.")


def _has_kind(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "object" and is_dataclass(value) and not isinstance(value, type):
        return True
    return isinstance(value, _TYPES[kind])


def _name_kind(kind: str) -> str:
    return _KIND_NAMES.get(kind) or f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _is_same(value: object, option: object) -> bool:
    """Compare like JSON: true is not 1."""
    return value == option and isinstance(value, bool) == isinstance(option, bool)


def _describe(value: object) -> str:
    return _show(value) if type(value) in _PLAIN else f"a value of type {type(value).__name__}"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def to_plain_inputs(agent: PromptAgent, values: Mapping[str, object]) -> dict[str, object]:
    """Convert inputs to plain data, so that a template cannot call methods of the host's objects."""
    rich = {
        declared.name
        for declared in agent.inputs
        if declared.kind in RICH_KINDS
        or (declared.branches and resolve_kind(declared, values.get(declared.name)) in RICH_KINDS)
    }
    return {
        name: value if type(value) in _PLAIN or name in rich else _to_plain(value, name, 0)
        for name, value in values.items()
    }


def _to_plain(value: object, name: str, depth: int) -> object:
    if type(value) in _PLAIN:
        return value
    if depth > MAX_INPUT_DEPTH:
        raise InputError(
            name, f"Input '{name}' is nested more than {MAX_INPUT_DEPTH} levels deep", "Pass flatter data."
        )
    if isinstance(value, Mapping):
        return {str(key): _to_plain(entry, name, depth + 1) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_plain(entry, name, depth + 1) for entry in value]
    if isinstance(value, Enum):
        return _to_plain(value.value, name, depth + 1)
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    if isinstance(value, BaseModel):
        return _to_plain(value.model_dump(), name, depth + 1)
    if is_dataclass(value) and not isinstance(value, type | MediaPart):
        return _to_plain(asdict(value), name, depth + 1)
    raise _unusable(value, name)


def _unusable(value: object, name: str) -> InputError:
    if isinstance(value, Secret | SecretStr | SecretBytes):
        cause = f"Input '{name}' is a secret and must not be rendered into a prompt"
        return InputError(name, cause, "Use it in a connection or a tool binding.")
    if isinstance(value, MediaPart):
        cause = f"Input '{name}' has {value.kind} data but is not declared with that kind"
        return InputError(name, cause, f"Declare it: `inputs: {{{name}: {{kind: {value.kind}}}}}`.")
    cause = f"Input '{name}' has a value of type {type(value).__name__}, which is not plain data"
    fix = "Pass text, numbers, true or false, lists, dicts, a dataclass or a pydantic model."
    return InputError(name, cause, fix)
