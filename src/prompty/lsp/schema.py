"""The place of the cursor in YAML, which is rarely valid while you type, and what fits there."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

_KEY_LINE = re.compile(r"([ ]*(?:-[ ]+)*)([\"']?)([^\s\"':#{\[-][^\"':]*)\2[ ]*:(?:[ ]|$)")
_INDENT = re.compile(r"[ ]*(?:-[ ]+)*")
_OPEN, _CLOSE = "{[", "}]"


class YamlPlace(NamedTuple):
    """The keys around the cursor, the key whose value it is in, if any, and the text that is already written there."""

    keys: tuple[str, ...]
    key: str | None
    written: str


def find_place(lines: Sequence[str], row: int, before: str) -> YamlPlace:
    """Return the place of a cursor behind the text `before` of a line, from the indentation of the lines above."""
    indent = _INDENT.match(before)
    start = indent.end() if indent else 0
    inner, key, written = _read_line(before[start:])
    return YamlPlace((*_list_parents(lines[:row], start), *inner), key, written)


def _read_line(text: str) -> tuple[list[str], str | None, str]:
    """Return the keys that are open at the end of a line, the key whose value is not complete, and its text."""
    open_keys, key, written, quote = list[tuple[str | None, str]](), None, "", ""
    for at, character in enumerate(text):
        if quote or character in "'\"":
            quote = "" if character == quote else quote or character
            written += character
        elif character in _OPEN and (not written.strip()):
            open_keys.append((key, character))
            key, written = None, ""
        elif character in _CLOSE and open_keys and not written.rstrip().endswith("$"):
            key, written = open_keys.pop()[0], ""
        elif character == "," and open_keys:
            key, written = None, ""
        elif character == ":" and key is None and text[at + 1 : at + 2] in ("", " ") and written.strip():
            key, written = written.strip(" '\""), ""
        else:
            written += character
    if open_keys and open_keys[-1][1] == "[" and key is None:
        key = open_keys.pop()[0]
    return [one for one, _ in open_keys if one], key, written.lstrip()


def _list_parents(lines: Sequence[str], indent: int) -> list[str]:
    keys: list[str] = []
    for line in reversed(lines):
        if indent == 0 or line.startswith(("---", "+++")):
            break
        if (found := _KEY_LINE.match(line)) and len(found[1]) < indent:
            keys.insert(0, found[3].strip())
            indent = len(found[1])
    return keys


@cache
def read_schema(is_test: bool) -> dict[str, Any]:
    """Return the JSON Schema of a frontmatter or of a test file."""
    if is_test:
        from prompty.cases.case_file import CaseFile  # whichever is open

        return CaseFile.model_json_schema(by_alias=True)
    from prompty.model.agent import Frontmatter  # as above

    return Frontmatter.model_json_schema(by_alias=True)


def find_schemas(keys: Sequence[str], schema: dict[str, Any], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas of the value at a path of keys. Indices of lists are not part of it."""
    if "$ref" in schema:
        yield from find_schemas(keys, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
        return
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from find_schemas(keys, part, root)
    if isinstance(schema.get("items"), dict):
        yield from find_schemas(keys, schema["items"], root)
    if not keys:
        yield schema
        return
    properties, other = schema.get("properties", {}), schema.get("additionalProperties")
    if keys[0] in properties:
        yield from find_schemas(keys[1:], properties[keys[0]], root)
    elif isinstance(other, dict):
        yield from find_schemas(keys[1:], other, root)


def list_fitting_keys(keys: Sequence[str], *, is_test: bool, kind: str = "") -> dict[str, str]:
    """Return the keys that fit below a path of keys, with their descriptions. `kind` selects one of several forms."""
    root = read_schema(is_test)
    schemas = list(find_schemas(keys, root, root))
    chosen = [
        schema for schema in schemas if kind and schema.get("properties", {}).get("kind", {}).get("const") == kind
    ]
    return {
        key: str(about.get("description") or "")
        for schema in chosen or schemas
        for key, about in schema.get("properties", {}).items()
    }


def list_values(keys: Sequence[str], *, is_test: bool) -> list[str]:
    """Return the words that are allowed at a path of keys."""
    root = read_schema(is_test)
    found = dict[str, None]()
    for schema in find_schemas(keys, root, root):
        words = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
        words += ["true", "false"] if schema.get("type") == "boolean" else []
        found |= dict.fromkeys(word for word in words if isinstance(word, str))
    return list(found)
