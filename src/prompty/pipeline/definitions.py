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
from prompty.model.property import KIND_SYNONYMS, Kind, Property
from prompty.model.tool import FunctionTool, ToolDefinition
from prompty.pipeline.frontmatter import ParsedFrontmatter
from prompty.pipeline.references import References
from prompty.pipeline.source_map import MAX_PROBLEMS, Finding, KeyPath, SourceMap, first_findings
from prompty.pipeline.validate import find_misfits


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


def build_agent(frontmatter: ParsedFrontmatter, body: str, references: References, path: Path | None = None) -> Built:
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
    data |= {"instructions": body, "path": path, "base_dir": references.base_dir, "provenance": references.provenance}
    if references.allowed_roots:
        data["allowed_roots"] = [Path(root).absolute() for root in references.allowed_roots]
    try:
        agent = PromptAgent.model_validate(data)
        findings += first_findings(check_function_conditions(agent, frontmatter.source_map))
        findings += first_findings(_find_wrong_defaults(agent, frontmatter.source_map))
        return Built(agent, findings, frozenset(schemas))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    # An unresolved value would also fail validation: report it once.
    located = {finding.start for finding in findings}
    invalid_values = first_findings(_locate(detail, frontmatter.source_map) for detail in details)
    findings += [finding for finding in invalid_values if finding.start not in located]
    invalid = frozenset(schemas) | {str(detail["loc"][0]) for detail in details}
    valid = {key: value for key, value in data.items() if key not in invalid}
    agent = PromptAgent.model_validate(valid)
    findings += first_findings(check_function_conditions(agent, frontmatter.source_map))
    return Built(agent, findings, invalid)


def _find_json_schemas(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[tuple[str, Finding]]:
    """Yield the top-level key and an error for each JSON Schema in place of a map of properties."""
    places: list[tuple[KeyPath, Any]] = [((group,), data.get(group)) for group in ("inputs", "outputs")]
    tools = data.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict):
            places.append((("tools", index, "parameters"), tool.get("parameters")))
    for keys, value in places:
        if isinstance(value, dict) and value.get("type") == "object" and isinstance(value.get("properties"), dict):
            message = f"`{keys[-1]}` is a JSON Schema, but must be a map from names to properties"
            fix = f"Write the entries of `properties:` directly below `{keys[-1]}:`, with `kind:` instead of `type:`."
            yield str(keys[0]), source_map.locate((*keys, "properties"), "json-schema", message, fix, on_key=True)


def _find_wrong_defaults(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each default that does not match its own declaration."""
    groups: list[tuple[KeyPath, Sequence[Property]]] = [(("inputs",), agent.inputs)]
    for index, tool in enumerate(agent.tools):
        if isinstance(tool, FunctionTool):
            groups.append((("tools", index, "parameters"), tool.parameters))
    for keys, properties in groups:
        for index, declared in enumerate(properties):
            for misfit in find_misfits(declared, declared.default) if declared.default is not None else ():
                message = misfit.cause.replace("Input", "the default of", 1)
                fix = "Change the default, or its `kind:`."
                yield source_map.locate((*keys, index, "default"), "wrong-default", message, fix)


def _locate(detail: ErrorDetails, source_map: SourceMap) -> Finding:
    keys = detail["loc"]
    last = str(keys[-1])
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


# By the first word of pydantic's error type.
_EXPECTED = {
    "float": ("a number", "Write a number, for example `{key}: 0.7`."),
    "int": ("a whole number", "Write a whole number, for example `{key}: 100`."),
    "bool": ("true or false", "Write `{key}: true` or `{key}: false`."),
    "string": ("text", 'Put it in quotes: `{key}: "…"`.'),
    "dict": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "model": ("a mapping", "Write keys and values, indented below `{key}:`."),
    "tuple": ("a list", "Write one `- …` for each entry below `{key}:`."),
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
    near = synonym if synonym in choices else next(iter(get_close_matches(written, choices, 1)), None)
    return f"one of {', '.join(choices)}", f"Write `{near or choices[0]}`.", near


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
