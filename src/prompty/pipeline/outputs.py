"""Check that an answer has the shape of the file's `outputs`.

The answer is checked against the schema that the model was given. A property that may be null may also be missing,
because servers without strict mode omit it. An integer is an `int`: `3.0` is not one.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from prompty.errors import ResultError, ResultReason
from prompty.model.message import Json, Reply
from prompty.safety.json import repair_text
from prompty.wire.structured import parse_structured

Problems = Sequence[tuple[str, str]]  # paths and causes
ShapeCheck = Callable[[object], Problems]
STOPPED = "stopped"  # the finish reason of a turn that a stop condition ended
_MAX_PROBLEMS = 5
_MAX_SHOWN = 60  # characters of a value in a message
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_WORDS = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


class _Fix(NamedTuple):
    python: str
    command: str = ""


_AS_IT_IS = _Fix(
    "Describe the JSON in the prompt, or use a model that supports structured output. To get the answer as it is, "
    "pass outputs_mode='lenient'.",
    "Describe the JSON in the prompt, or use a model that supports structured output. To print the answer as it is, "
    "add --lenient-outputs.",
)
CUT = _Fix("Raise `maxOutputTokens`.", "Add --option maxOutputTokens=N.")
_FIXES: dict[ResultReason, _Fix] = {
    "text": _AS_IT_IS,
    "shape": _AS_IT_IS,
    "cut": CUT,
    "filtered": _Fix("Change the prompt or its inputs, or use another model."),
    "empty": _Fix("Run it again, or use another model."),
    "refusal": _Fix("Change the prompt or its inputs, or use another model."),
    "stopped": _Fix("Let the turn continue until the model answers, or pass outputs_mode='lenient'."),
}
CUT_ANSWER = "the model reached its token limit before the answer was complete"
FILTERED_ANSWER = "the provider's content filter blocked the answer"


def check_outputs(schema: Json, reply: Reply, result: object) -> None:
    """Raise ResultError if the result of an answer does not have the shape of the file's `outputs`: their schema.

    Tool calls, and what the host's processor made of an answer unless that is a dict, are not checked.
    """
    if reply.tool_calls or (reply.value is not None and not isinstance(result, dict)):
        return
    if reply.refusal:
        raise _build_error("refusal", f"the model refused: {reply.refusal}", reply.refusal)
    if reply.finish_reason == "content_filter":
        raise _build_error("filtered", FILTERED_ANSWER, reply.text)
    if problems := _compile_text(json.dumps(schema))(result):
        reason = find_reason(reply)
        raise _build_error(reason, _describe(reason, reply.text, problems), reply.text)


def find_reason(reply: Reply) -> ResultReason:
    """Return why an answer does not have the shape that was asked for."""
    if reply.finish_reason == "length":
        return "cut"
    if reply.finish_reason == "content_filter":
        return "filtered"
    if reply.finish_reason == STOPPED:
        return "stopped"
    if reply.value is not None:
        return "shape"
    if not reply.text.strip():
        return "empty"
    return "text" if parse_structured(reply.text) is reply.text else "shape"


def _describe(reason: ResultReason, text: str, problems: Problems) -> str:
    match reason:
        case "cut":
            return CUT_ANSWER
        case "stopped":
            return "a stop condition ended the turn before the model answered"
        case "empty":
            return "the answer is empty"
        case "text":
            return "the answer is text, not JSON of the declared `outputs`"
    causes = [_describe_problem(path, cause) for path, cause in problems[:_MAX_PROBLEMS]]
    return f"the answer does not fit the declared `outputs`: {'; '.join(causes)}"


def _build_error(reason: ResultReason, cause: str, text: str) -> ResultError:
    fix = _FIXES[reason]
    return ResultError(None, cause, reason=reason, text=text, fix=fix.python, command_fix=fix.command)


@lru_cache(maxsize=128)
def _compile_text(schema: str) -> ShapeCheck:
    return compile_check(json.loads(schema))


def compile_check(schema: Mapping[str, Any]) -> ShapeCheck:
    """Compile a schema as `build_schema` writes it to a function that returns the problems of a value."""
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return _compile_union([compile_check(choice) for choice in choices], only_one="oneOf" in schema)
    names = schema.get("type", tuple(_TYPES))
    names = (names,) if isinstance(names, str) else tuple(names)
    types = tuple({kind for name in names for kind in _TYPES[name]})
    check_entries = _compile_entries(schema)
    allowed = schema.get("enum")

    def check(value: object) -> Problems:
        kind = type(value)
        if kind not in types and (kind is bool or not isinstance(value, types)):
            return [("", f"is {_name_kind(value)}, not {' or '.join(_WORDS[name] for name in names)}")]
        if allowed is not None and not any(_is_same(value, one) for one in allowed):
            return [("", f"is not one of {', '.join(map(_show, allowed))}")]
        return check_entries(value) if isinstance(value, dict | list) else ()

    return check


def _compile_union(choices: Sequence[ShapeCheck], *, only_one: bool) -> ShapeCheck:
    def check(value: object) -> Problems:
        fitting = sum(not choice(value) for choice in choices)
        if fitting == 1 or (fitting and not only_one):
            return ()
        return [("", f"is {_name_kind(value)}, which {'several' if fitting else 'none'} of its branches allow")]

    return check


def _compile_entries(schema: Mapping[str, Any]) -> ShapeCheck:
    """Compile the check of an object's properties and of a list's items."""
    declared = {name: compile_check(entry) for name, entry in (schema.get("properties") or {}).items()}
    required = [name for name in schema.get("required") or () if name not in declared or declared[name](None)]
    is_closed = schema.get("additionalProperties") is False
    check_item = compile_check(schema.get("items") or {}) if "items" in schema else None

    def check(value: Any) -> Problems:
        found: list[tuple[str, str]] = []
        if isinstance(value, list):
            for position, item in enumerate(value if check_item else ()):
                if check_item and (problems := check_item(item)):
                    found += [(f"[{position}]{path}", cause) for path, cause in problems]
                if len(found) >= _MAX_PROBLEMS:
                    break
            return found
        found += [(f".{name}", "is missing") for name in required if name not in value]
        for name, entry in value.items():
            if name in declared:
                if problems := declared[name](entry):
                    found += [(f".{name}{path}", cause) for path, cause in problems]
            elif is_closed:
                found.append((f".{name}", "is not declared"))
        return found

    return check


def _is_same(value: object, other: object) -> bool:
    """Compare JSON values: 1 and true are equal in Python."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _describe_problem(path: str, cause: str) -> str:
    return f"`{path.removeprefix('.')}` {cause}" if path else f"it {cause}"


def _name_kind(value: object) -> str:
    """Return the kind of a value. Messages have no value of an answer: errors go to traces, which have no content."""
    if isinstance(value, int | float):
        return "a boolean" if isinstance(value, bool) else "a number"
    return next((_WORDS[name] for name, types in _TYPES.items() if isinstance(value, types)), type(value).__name__)


def _show(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    text = repair_text(json.dumps(value, ensure_ascii=False, default=lambda other: type(other).__name__))
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
