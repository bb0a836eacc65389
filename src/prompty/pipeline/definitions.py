"""Build a `PromptAgent` from frontmatter data, with findings for invalid or outdated keys."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from prompty.model import agent as model
from prompty.model.agent import PromptAgent
from prompty.model.conditions import Callee, find_condition_problem, get_conditions
from prompty.model.property import PROPERTY_KEYS, Kind, Property
from prompty.model.synonyms import KIND_SYNONYMS
from prompty.model.tool import FunctionTool, ToolDefinition
from prompty.pipeline.frontmatter import ParsedFrontmatter
from prompty.pipeline.model_override import name_server
from prompty.pipeline.references import References
from prompty.pipeline.source_map import MAX_PROBLEMS, Finding, KeyPath, SourceMap, first_findings
from prompty.pipeline.validate import find_misfits
from prompty.registry import DEFAULT, Registry


def check_function_conditions(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each wrong name in the conditions of declared function tools."""
    for index, tool in enumerate(agent.tools):
        if isinstance(tool, FunctionTool) and tool.approval_mode is not None:
            yield from check_tool_conditions(index, tool, [entry.name for entry in tool.parameters], source_map)


def check_tool_conditions(
    index: int, tool: ToolDefinition, parameters: Collection[str], source_map: SourceMap
) -> Iterator[Finding]:
    """Yield a finding for each wrong name in the conditions of the tool at this index."""
    callee = Callee(tool.name, sorted(parameters), tool.bindings)
    for name, schema in (get_conditions(tool.approval_mode) or {}).items():
        problem = find_condition_problem({"when": {name: schema}}, [callee])
        if problem:
            keys = ("tools", index, "approvalMode", "when", name)
            yield source_map.locate(
                keys, "approval-parameter", problem.cause, problem.fix, on_key=True, replacement=problem.nearest
            )


_KNOWN_KEYS = frozenset(field.alias or name for name, field in model.Frontmatter.model_fields.items())


class Built(NamedTuple):
    """An agent, the mistakes in its file, and the top-level keys that were dropped as invalid."""

    agent: PromptAgent
    findings: list[Finding]
    invalid: frozenset[str]


def build_agent(
    frontmatter: ParsedFrontmatter,
    body: str,
    references: References,
    path: Path | None = None,
    registry: Registry = DEFAULT,
) -> Built:
    """Resolve a file's references and validate it. Unknown keys are kept in `metadata` (§2.3)."""
    findings = list(frontmatter.findings)
    data = cast(dict[str, Any], references.resolve(frontmatter.data or {}))
    schemas = dict(_find_json_schemas(data, frontmatter.source_map))
    findings += first_findings(schemas.values())
    for keys, failure in references.failures[: MAX_PROBLEMS + 1]:
        findings.append(frontmatter.source_map.locate(keys, failure.code, failure.message, failure.fix))
    unknown = {key: data.pop(key) for key in list(data) if key not in _KNOWN_KEYS}
    metadata = data.get("metadata")
    if unknown and (metadata is None or isinstance(metadata, dict)):
        data["metadata"] = {**unknown, **(metadata or {})}
    data |= {"instructions": body, "path": path, "base_dir": references.base_dir, "trust": references.build_trust(data)}
    if references.allowed_roots:
        data["allowed_roots"] = [Path(root).absolute() for root in references.allowed_roots]
    try:
        agent = _name_server(PromptAgent.model_validate(data), data, registry)
        findings += first_findings(_find_mistakes(agent, frontmatter.source_map))
        return Built(agent, findings, frozenset(schemas))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    # An unresolved value would also fail validation: report it once.
    located = {finding.start for finding in findings}
    invalid_values = first_findings(_locate(detail, frontmatter.source_map, data) for detail in details)
    findings += [finding for finding in invalid_values if finding.start not in located]
    invalid = frozenset(schemas) | {str(detail["loc"][0]) for detail in details}
    valid = {key: value for key, value in data.items() if key not in invalid}
    agent = _name_server(PromptAgent.model_validate(valid), valid, registry)
    findings += first_findings(_find_mistakes(agent, frontmatter.source_map))
    return Built(agent, findings, invalid)


def _name_server(agent: PromptAgent, data: Mapping[str, object], registry: Registry) -> PromptAgent:
    return name_server(agent, registry, is_text=isinstance(data.get("model"), str))


def _find_mistakes(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each mistake that is not in one value, but between several."""
    yield from check_function_conditions(agent, source_map)
    yield from _find_wrong_defaults(agent, source_map)
    yield from _find_duplicates(agent, source_map)
    yield from _find_misspelt_inputs(agent, source_map)


def _find_json_schemas(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[tuple[str, Finding]]:
    """Yield the top-level key and an error for each JSON Schema in place of a map of properties."""
    places: list[tuple[KeyPath, Any]] = [((group,), data.get(group)) for group in ("inputs", "outputs")]
    places += [(("tools", index, "parameters"), tool.get("parameters")) for index, tool in list_tools(data)]
    for keys, value in places:
        if _is_json_schema(value, takes_list=keys[-1] == "parameters"):
            message = f"`{keys[-1]}` is a JSON Schema, but must be a map from names to properties"
            fix = f"Write the entries of `properties:` directly below `{keys[-1]}:`, with `kind:` instead of `type:`."
            yield str(keys[0]), source_map.locate((*keys, "properties"), "json-schema", message, fix, on_key=True)


def _is_json_schema(value: object, *, takes_list: bool) -> bool:
    """Return True for an object schema. `takes_list` allows `{properties: […]}`, a form of §2.9.1 for parameters."""
    match value:
        case {"type": "object", "properties": dict() | list()}:
            return True
        case {"properties": dict(entries), **others} if entries and not others and PROPERTY_KEYS.isdisjoint(entries):
            return all(map(_has_kind, entries.values()))
        case {"properties": list(listed), **others} if listed and not others and not takes_list:
            return all(_has_kind(entry) and "name" in entry for entry in listed)
    return False


def _has_kind(entry: object) -> bool:
    return isinstance(entry, dict) and ("kind" in entry or "type" in entry)


def list_tools(data: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the index and the data of each tool in a frontmatter."""
    tools = data.get("tools")
    entries = list(tools.values()) if isinstance(tools, dict) else tools
    for index, tool in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(tool, dict):
            yield index, tool


def _find_wrong_defaults(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each default that does not match its own declaration."""
    for keys, properties in _list_properties(agent):
        for index, declared in enumerate(properties if keys != ("outputs",) else ()):
            for misfit in find_misfits(declared, declared.default) if declared.default is not None else ():
                message = misfit.cause.replace("Input", "the default of", 1)
                fix = "Change the default, or its `kind:`."
                yield source_map.locate((*keys, index, "default"), "wrong-default", message, fix)


def _list_properties(agent: PromptAgent) -> Iterator[tuple[KeyPath, Sequence[Property]]]:
    """Yield the path and the properties of each group: inputs, outputs, and the parameters of tools."""
    yield ("inputs",), agent.inputs
    yield ("outputs",), agent.outputs
    for index, tool in enumerate(agent.tools):
        yield ("tools", index, "parameters"), getattr(tool, "parameters", ())


def _find_duplicates(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for each tool, input, output and parameter with the name of an earlier one."""
    groups: list[tuple[KeyPath, Sequence[Property | ToolDefinition]]] = [*_list_properties(agent)]
    for keys, entries in [*groups, (("tools",), agent.tools)]:
        names = set[str]()
        for index, entry in enumerate(entries):
            if entry.name in names:
                message = f"`{entry.name}` is already the name of another entry of `{keys[-1]}`"
                place = (*keys, index, "name")
                yield source_map.locate(place, "duplicate-name", message, "Rename one of them, or remove it.")
            names.add(entry.name)


_CUTOFF = 0.8  # a fixed text that resembles an input less is not a misspelt input


def _find_misspelt_inputs(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for each plain text in `bindings` that is nearly the name of an input."""
    declared = {entry.name.lower().replace("_", ""): entry.name for entry in agent.inputs}
    for index, tool in enumerate(agent.tools):
        for parameter, binding in tool.bindings.items():
            text = binding.plain_text or ""
            near = get_close_matches(text.lower().replace("_", ""), declared, 1, _CUTOFF)
            if near and not any(map(str.isspace, text)):
                name = declared[near[0]]
                message = f"this text is nearly the name of the input `{name}`"
                fix = f"Write `{parameter}: {{input: {name}}}`, or `{parameter}: {{value: …}}` for a fixed text."
                keys = ("tools", index, "bindings", parameter)
                yield source_map.locate(keys, "misspelt-input", message, fix, replacement=f"{{{{input: {name}}}}}")


def _locate(detail: ErrorDetails, source_map: SourceMap, data: Mapping[str, Any]) -> Finding:
    keys = detail["loc"]
    last = str(keys[-1])
    if detail["type"] == "tool_kind" and (fix := _find_tool_fix(dict(list_tools(data)).get(int(keys[1])))):
        return source_map.locate(keys, "wrong-value", "this is OpenAI's form of a tool", fix)
    if detail["type"] == "missing":
        return source_map.locate(keys[:-1], "missing-key", f"`{last}` is missing", f"Add `{last}: …` here.")
    if detail["type"] == "branches":
        return source_map.locate(keys, "wrong-union", detail["msg"], detail["ctx"]["fix"])
    if detail["type"] == "union_tag_invalid":
        keys = (*keys, "kind")
    written = source_map.describe(keys)
    replacement = '"{}"' if detail["type"] == "string_type" else None
    if detail["type"] in ("literal_error", "union_tag_invalid"):
        expected, fix, replacement = _choose(detail, written.strip("`"))
    else:
        expected, fix = _EXPECTED.get(
            detail["type"].partition("_")[0], (detail["msg"], "Correct the value of `{key}`.")
        )
    if detail["type"] == "model_type" and keys[-2:-1] in (("oneOf",), ("anyOf",)):
        fix = "Write a branch as a property, for example `{{kind: string}}`."
    message = f"expected {expected}, found {written}"
    return source_map.locate(keys, "wrong-value", message, fix.format(key=last), replacement=replacement)


def _find_tool_fix(tool: object) -> str | None:
    """Return a tool in OpenAI's form as one of this format, or None for any other value."""
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict):
        return None
    name = str(function.get("name") or "name")
    return f"Write `- {{name: {name}, kind: function, parameters: …}}`, with one `name: {{kind: …}}` per parameter."


# By the first word of pydantic's error type.
_EXPECTED = {
    "float": ("a number", "Write a number, for example `{key}: 0.7`."),
    "int": ("a whole number", "Write a whole number, for example `{key}: 100`."),
    "bool": ("true or false", "Write `{key}: true` or `{key}: false`."),
    "string": ("text", 'Put it in quotes: `{key}: "…"`.'),
    "dict": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "model": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "tuple": ("a list", "Write one `- …` for each entry below `{key}:`."),
    "binding": (
        "a new `name`, and an `input` or a `value`",
        "Write `- {{name: …, input: …}}` or `- {{name: …, value: …}}`, once for each parameter.",
    ),
    "tool": ("a tool with a `kind`", "Add `kind: function` (or prompty, mcp, openapi, or your own)."),
    "union": ("a connection with a `kind`", "Add `kind: key`, reference, remote, anonymous, foundry or oauth."),
}


def _choose(detail: ErrorDetails, written: str) -> tuple[str, str, str | None]:
    """Return the choices for a value, the fix, and the most similar choice."""
    context = detail.get("ctx", {})
    listed = str(context.get("expected") or context.get("expected_tags"))
    choices = [choice.strip(" '\"") for choice in listed.replace(" or ", ", ").split(",")]
    written = str(context.get("tag") or written).lower()
    synonym = KIND_SYNONYMS.get(written)
    near = synonym if synonym in choices else next(iter(get_close_matches(written, choices, 1, 0.65)), None)
    return f"one of {', '.join(choices)}", f"Write `{near}`." if near else f"Write one of {', '.join(choices)}.", near


_V1_MODEL_KEYS = ("api", "configuration", "parameters")
_V1_TYPES = frozenset({*get_args(Kind), *KIND_SYNONYMS})


def find_v1_key(data: Mapping[str, Any]) -> KeyPath | None:
    """Return the first key that exists only in Prompty v1, or None for a v2 file."""
    model = data.get("model")
    if isinstance(model, dict):
        for key in _V1_MODEL_KEYS:
            if key in model:
                return ("model", key)
        connection = model.get("connection")
        if isinstance(connection, str) and not connection.lower().startswith("${file:"):
            return ("model", "connection")
    if "sample" in data:
        return ("sample",)
    for group in ("inputs", "outputs"):
        entries = data.get(group)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if isinstance(entry, dict) and "type" in entry and "kind" not in entry and _is_v1_type(entry["type"]):
                return (group, name, "type")
    template = data.get("template")
    if isinstance(template, dict) and isinstance(template.get("type"), str) and "format" not in template:
        return ("template", "type")
    return ("base",) if str(data.get("base")).endswith(".prompty") else None


def _is_v1_type(value: object) -> bool:
    return isinstance(value, str) and value.lower() in _V1_TYPES
