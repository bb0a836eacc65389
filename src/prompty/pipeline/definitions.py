"""From plain data to a `PromptAgent`, or to problems with their places."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from prompty.errors import Problem
from prompty.model.agent import Frontmatter, PromptAgent
from prompty.pipeline.source_map import KeyPath, Source

KNOWN_KEYS = frozenset(field.alias or name for name, field in Frontmatter.model_fields.items())


def agent_from(data: Mapping[str, Any], instructions: str, path: Path | None) -> PromptAgent:
    """Validate what a file says. Keys the documents do not know are kept in `metadata` (§2.3)."""
    unknown = {key: value for key, value in data.items() if key not in KNOWN_KEYS}
    if unknown:
        known = {key: value for key, value in data.items() if key in KNOWN_KEYS}
        metadata = known.get("metadata")
        if metadata is None or isinstance(metadata, dict):
            known["metadata"] = {**unknown, **(metadata or {})}
        data = known
    return PromptAgent.model_validate({**data, "instructions": instructions, "path": path})


def problems_of(error: ValidationError, source: Source) -> list[Problem]:
    """One problem for each mistake pydantic found."""
    return [_problem(detail, source) for detail in error.errors(include_url=False, include_input=False)]


def _problem(detail: ErrorDetails, source: Source) -> Problem:
    keys = detail["loc"]
    last = str(keys[-1]) if keys else ""
    if detail["type"] == "missing":
        return source.at_key(keys[:-1], "missing-key", f"`{last}` is missing", f"Add `{last}: …` here.")
    if detail["type"] == "union_tag_invalid":
        keys = (*keys, "kind")
    written = source.written(keys)
    if detail["type"] in ("literal_error", "union_tag_invalid"):
        expected, fix = _one_of(detail, keys, source)
    else:
        expected, fix = _EXPECTED.get(detail["type"], (detail["msg"], "Correct the value of `{key}`."))
    return source.at_key(keys, "wrong-value", f"expected {expected}, found {written}", fix.format(key=last))


_EXPECTED = {
    "float_type": ("a number", "Write a number, for example `{key}: 0.7`."),
    "float_parsing": ("a number", "Write a number, for example `{key}: 0.7`."),
    "int_type": ("a whole number", "Write a whole number, for example `{key}: 100`."),
    "int_parsing": ("a whole number", "Write a whole number, for example `{key}: 100`."),
    "int_from_float": ("a whole number", "Write a whole number, for example `{key}: 100`."),
    "bool_type": ("true or false", "Write `{key}: true` or `{key}: false`."),
    "bool_parsing": ("true or false", "Write `{key}: true` or `{key}: false`."),
    "string_type": ("text", 'Put it in quotes: `{key}: "…"`.'),
    "dict_type": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "model_type": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "model_attributes_type": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "tuple_type": ("a list", "Write one `- …` for each entry below `{key}:`."),
    "tool_kind": ("a tool with a `kind`", "Add `kind: function` (or prompty, mcp, openapi, or your own)."),
    "union_tag_not_found": (
        "a connection with a `kind`",
        "Add `kind: key`, reference, remote, anonymous, foundry or oauth.",
    ),
}


# What people write for the kinds of a property when they think of JSON Schema or of Python.
_MEANT = {
    "number": "float",
    "double": "float",
    "int": "integer",
    "str": "string",
    "text": "string",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
}


def _one_of(detail: ErrorDetails, keys: KeyPath, source: Source) -> tuple[str, str]:
    context = detail.get("ctx", {})
    listed = str(context.get("expected") or context.get("expected_tags"))
    choices = [choice.strip(" '\"") for choice in listed.replace(" or ", ", ").split(",")]
    tag = context.get("tag")
    written = str(tag) if tag else source.written(keys).strip("`")
    meant = _MEANT.get(written.lower())
    near = [meant] if meant in choices else get_close_matches(written.lower(), choices, 1)
    return f"one of {', '.join(choices)}", f"Write `{(near or choices)[0]}`."


_MODEL_KEYS = {
    "api": "Write `apiType:` under `model:`.",
    "configuration": "Write `id:`, `provider:` and `connection:` under `model:`.",
    "parameters": "Write `options:` under `model:` (`max_tokens` is `maxOutputTokens` there).",
}


def version1_signs(data: Mapping[str, Any], source: Source) -> list[Problem]:
    """One warning for each part of a file that v1 had and v2 reads differently."""
    return [
        source.at_key(
            keys,
            "version-1",
            f"`{keys[-1]}` is Prompty v1 and has no effect",
            fix,
            severity="warning",
            on_key=True,
        )
        for keys, fix in _signs(data)
    ]


def _signs(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    model = data.get("model")
    if isinstance(model, dict):
        for key, fix in _MODEL_KEYS.items():
            if key in model:
                yield ("model", key), fix
    if "sample" in data:
        yield ("sample",), "Write a `default:` or an `example:` on each input."
    for group in ("inputs", "outputs"):
        entries = data.get(group)
        if isinstance(entries, dict):
            for name, entry in entries.items():
                if isinstance(entry, dict) and "type" in entry and "kind" not in entry:
                    yield (
                        (group, name, "type"),
                        "Write `kind:` instead of `type:` (`number` is `float` there).",
                    )
