"""Find forms that this runtime reads and Microsoft's runtime or its VS Code extension does not.

Each finding has the form that works everywhere. `definition_keys` finds the keys that only this runtime reads.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from prompty.model.property import PROPERTY_KEYS, kind_of_value
from prompty.model.tool import KNOWN_TOOL_KINDS, unwrap_properties
from prompty.pipeline.definitions import list_tools
from prompty.pipeline.references import split_references, walk_texts
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap

_OTHERS = "Microsoft's runtime"
_OWN_KINDS = ("skills", "web_search", "web_fetch", "file_search", "code_interpreter", "provider")


def find_unportable_forms(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each form that other runtimes refuse or read differently."""
    for group in ("inputs", "outputs"):
        yield from _check_properties(data.get(group), (group,), source_map)
    yield from _check_template(data.get("template"), source_map)
    for index, tool in list_tools(data):
        yield from _check_tool(tool, ("tools", index), source_map)
    yield from _find_inner_references(data, source_map)


def _warn(
    source_map: SourceMap, keys: KeyPath, message: str, fix: str, *, on_key: bool = True, edit: str | None = None
) -> Finding:
    return source_map.locate(
        keys, "not-portable", message, fix, severity="warning", on_key=on_key and edit is None, replacement=edit
    )


def _check_properties(value: Any, keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each property without a `kind`."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            if isinstance(entry, dict):
                yield from _check_property(str(entry.get("name")), entry, (*keys, index), source_map)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if isinstance(entry, dict) and not PROPERTY_KEYS.isdisjoint(entry):
                yield from _check_property(name, entry, (*keys, name), source_map)
            else:
                yield _check_default(name, entry, (*keys, name), source_map)


def _check_property(name: str, entry: Mapping[str, Any], keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    if "kind" not in entry:
        shape = "object" if "properties" in entry else "array" if "items" in entry else None
        kind = shape or kind_of_value(entry.get("default"))
        message = f"{_OTHERS} refuses the property `{name}` without a `kind`"
        yield _warn(source_map, keys, message, f"Add `kind: {kind}`.")
    yield from _check_properties(entry.get("properties"), (*keys, "properties"), source_map)
    if isinstance(items := entry.get("items"), dict):
        yield from _check_property("items", items, (*keys, "items"), source_map)


def _check_default(name: str, value: Any, keys: KeyPath, source_map: SourceMap) -> Finding:
    kind = kind_of_value(value)
    message = f"{_OTHERS} refuses a plain value in place of the property `{name}`, or reads it as an example"
    edit = None
    if isinstance(value, bool | int | float):
        edit = f"{{{{kind: {kind}, default: {{}}}}}}"
    elif isinstance(value, str) and not {'"', "\\"} & set(value):
        edit = '{{kind: string, default: "{}"}}'
    return _warn(source_map, keys, message, f"Write `{name}: {{kind: {kind}, default: …}}`.", edit=edit)


def _check_template(value: Any, source_map: SourceMap) -> Iterator[Finding]:
    full = "{format: {kind: ENGINE}, parser: {kind: prompty}}"
    if isinstance(value, str):
        message = f"{_OTHERS} refuses `template` as a text"
        edit = full.replace("{", "{{").replace("}", "}}").replace("ENGINE", "{}")
        yield _warn(
            source_map, ("template",), message, f"Write `template: {full.replace('ENGINE', value)}`.", edit=edit
        )
    elif isinstance(value, dict):
        for key, kind in (("format", "jinja2"), ("parser", "prompty")):
            if key not in value:
                message = f"the schema of VS Code refuses `template` without `{key}`"
                yield _warn(source_map, ("template",), message, f"Add `{key}: {{kind: {kind}}}`.")


def _check_tool(tool: Mapping[str, Any], keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    kind, parameters = tool.get("kind"), tool.get("parameters")
    if kind == "prompty":
        message = f"{_OTHERS} refuses files with a tool of `kind: prompty`"
        fix = "Declare a tool of `kind: function`, and call the other prompt in that function."
        yield _warn(source_map, (*keys, "kind"), message, fix)
    elif kind in _OWN_KINDS:
        message = f"{_OTHERS} has no tools of `kind: {kind}`"
        fix = "Declare a tool of `kind: function`, and do in that function what the tool does."
        yield _warn(source_map, (*keys, "kind"), message, fix)
    elif isinstance(kind, str) and kind not in KNOWN_TOOL_KINDS:
        for key, form in (("connection", "{kind: reference, name: …}"), ("options", "{}")):
            if key not in tool:
                message = f"{_OTHERS} refuses a custom kind of tool without `{key}`"
                yield _warn(source_map, (*keys, "kind"), message, f"Add `{key}: {form}`.")
    if parameters is not unwrap_properties(parameters):
        fix = "Write the list directly below `parameters:`."
        yield _warn(source_map, (*keys, "parameters", "properties"), f"{_OTHERS} refuses `properties` here", fix)
    yield from _check_properties(unwrap_properties(parameters), (*keys, "parameters"), source_map)
    yield from _check_bindings(tool.get("bindings"), (*keys, "bindings"), source_map)


def _check_bindings(value: Any, keys: KeyPath, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each `value` of a binding: other runtimes bind inputs."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        if isinstance(entry, dict) and entry.keys() in ({"value"}, {"name", "value"}):
            fix = "Declare an input with this `default:`, and bind it: `{input: …}`."
            yield _warn(source_map, (*keys, key, "value"), f"{_OTHERS} binds inputs, but no values", fix)


def _find_inner_references(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each reference that is part of a longer text."""
    for keys, text in walk_texts(data):
        pieces = split_references(text) if "${" in text else []
        if len(pieces) > 1 and any(piece.protocol in ("env", "file") for piece in pieces):
            message = f"{_OTHERS} reads a reference only if it is the whole value"
            fix = "Put the whole text into the variable or the file, and write only the reference."
            yield _warn(source_map, keys, message, fix, on_key=False)
