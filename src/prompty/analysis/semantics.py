"""Find what is valid by itself, but cannot run or will not do what it says.

Names that nothing is registered under, and settings that a provider does not support: a name that is similar to a known
one is an error, and any other may be registered by the program, so it is a warning. Bindings and approval conditions
that match no parameter, for tools whose parameters are known offline. Declarations that probably do not mean what their
author intended. Endpoints that a call would refuse to send a credential to.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from prompty.errors import MissingExtra, PromptyError, RequestError, Severity, ToolError, UnknownName, nearest
from prompty.model.agent import SCRIPTED, PromptAgent
from prompty.model.conditions import get_conditions
from prompty.model.connection import ApiKeyConnection
from prompty.model.property import Kind, walk_properties
from prompty.model.synonyms import BODY_KEYS, KIND_SYNONYMS
from prompty.model.tool import (
    KNOWN_TOOL_KINDS,
    CustomTool,
    FunctionTool,
    McpTool,
    OpenApiTool,
    PromptyTool,
    SkillsTool,
    ToolDefinition,
)
from prompty.model.trust import FieldKind, Refusal, Use
from prompty.pipeline.definitions import check_tool_conditions, list_tools
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap
from prompty.providers import EXECUTORS, PROVIDERS
from prompty.providers.credentials import find_implicit_refusal, find_refusal, find_target
from prompty.providers.families import refuse_family
from prompty.providers.openai.connection import is_at_openai
from prompty.providers.profiles import find_key_variables
from prompty.registry import Registry
from prompty.safety.origins import TextOrigin, parse_origin
from prompty.safety.redaction import mask_url
from prompty.tools.kinds import (
    TOOL_KINDS,
    UnknownKind,
    UnmatchedBinding,
    check_function_name,
    find_tool_refusal,
    find_unmatched,
    locate_file,
)
from prompty.tools.toolbox import TOOLS
from prompty.wire.request import find_raw_tool_problems
from prompty.wire.structured import find_strict_one_of


def find_unknown_names(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    """Yield a finding for each provider, `apiType`, connection and tool kind that cannot run here."""
    yield from _check_provider(agent, source_map, registry)
    yield from _check_model_id(agent, source_map, registry)
    foreign = [(at, tool) for at, tool in enumerate(agent.tools) if tool.kind not in KNOWN_TOOL_KINDS]
    if not foreign:
        return  # searching packages for other kinds takes milliseconds
    kinds = sorted({*KNOWN_TOOL_KINDS, *registry[TOOL_KINDS].names()})
    registered = registry[TOOLS].names()  # a registered function with its name runs a tool of any kind
    for index, tool in foreign:
        if tool.kind not in kinds and tool.name not in registered:
            yield _locate(source_map, ("tools", index, "kind"), "unknown-tool-kind", UnknownKind(tool, kinds))


def _locate(source_map: SourceMap, keys: tuple[str | int, ...], code: str, error: UnknownName | UnknownKind) -> Finding:
    near = error.nearest
    severity: Severity = "error" if near else "warning"
    return source_map.locate(keys, code, error.cause, error.fix, severity=severity, replacement=near)


def _check_provider(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    """Yield the findings about a provider, unless an executor takes its place. Only a prompt with such findings waits
    for the search for executors, which takes milliseconds."""
    findings = list(_find_provider_problems(agent, source_map, registry))
    if findings and not registry[EXECUTORS].has(agent.model.provider):
        yield from findings


def _find_provider_problems(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    try:
        provider = registry[PROVIDERS].get(agent.model.provider)
    except UnknownName as error:
        yield _locate(source_map, ("model", "provider"), "unknown-provider", error)
        return
    except MissingExtra:
        return  # a run reports what to install
    try:
        provider.api(agent.model.api_type)
    except RequestError as error:
        near = nearest(agent.model.api_type, provider.apis)
        place = ("model", "apiType")
        yield source_map.locate(place, "unknown-api-type", error.cause, error.fix, replacement=near)
    try:
        provider.check_connection(agent)
    except RequestError as error:
        keys = ("model", "connection", "kind")
        yield source_map.locate(keys, "wrong-connection-kind", error.cause, error.fix)


def _check_model_id(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    """Yield an error for an id of another family than OpenAI's at OpenAI, and a warning for an `id:` in the form
    `provider:id`, which is always an id. If the file names a provider, it may be a gateway's, which can look like
    that."""
    if (problem := refuse_family(agent)) and agent.model.provider == "openai" and is_at_openai(agent):
        yield source_map.locate(("model", "id"), "foreign-model", problem.cause, problem.fix)
    provider, colon, id = agent.model.id.partition(":")
    is_implied = "provider" not in agent.model.model_fields_set or agent.model.provider == provider
    if colon and is_implied and registry[PROVIDERS].has(provider):
        message = f"the model id {agent.model.id!r} contains the name of a provider"
        fix = f"Write them separately: model: {{provider: {provider}, id: {id!r}}}"
        yield source_map.locate(("model", "id"), "provider-in-model-id", message, fix, severity="warning")


def check_bindings(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each binding that would fail when a run describes its tools."""
    for index, tool in enumerate(agent.tools):
        for error in _find_errors(tool, agent) if tool.bindings else ():
            keys = ("tools", index, "bindings", error.binding)
            yield source_map.locate(
                keys, "unknown-binding", error.cause, error.fix, on_key=True, replacement=error.nearest
            )


def find_bound_variables(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an info for each variable that a function of the program gets. Other tools ask for its permission."""
    for use in (*agent.trust.uses, *agent.trust.missing):
        match use.keys:
            case ("tools", name, "bindings", *_) if use.kind is FieldKind.FREE:
                message = f"the tool '{name}' gets the value of {use.variable}, which the model does not see"
                keys = _get_keys(agent, ("model",), use)
                fix = "Remove it, unless your function needs it."
                yield source_map.locate(keys, "bound-variable", message, fix, severity="info")


def find_outside_files(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for each file of a tool that a run may not read: it is not below an allowed folder."""
    for index, tool in enumerate(agent.tools):
        key = "specification" if isinstance(tool, OpenApiTool) else "path"
        path = getattr(tool, key) if isinstance(tool, PromptyTool | OpenApiTool | SkillsTool) else ""
        if agent.base_dir is None or not path or "${" in path or "://" in path:
            continue
        try:
            locate_file(path, tool, agent)
        except ToolError as error:
            yield source_map.locate(("tools", index, key), "file-outside", error.cause, error.fix)
        except (OSError, ValueError, RuntimeError):
            continue  # no path; a run says so


def find_invalid_skills(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for each skill that a run refuses, and a warning for one whose folder has another name."""
    for index, tool in enumerate(agent.tools):
        if not isinstance(tool, SkillsTool) or agent.base_dir is None or "${" in tool.path:
            continue
        try:
            locate_file(tool.path, tool, agent)
        except (OSError, ValueError, RuntimeError):
            continue  # `find_outside_files` reports it, or a run
        from prompty.pipeline.skills import list_skills  # few prompts have skills, and it imports asyncio

        skills, errors = list_skills(tool, agent)
        keys = ("tools", index, "path")
        for error in errors:
            yield source_map.locate(keys, "invalid-skill", error.cause, error.fix)
        for skill in skills:
            if skill.name != skill.folder.name:
                message = f"the skill '{skill.name}' is in a folder named '{skill.folder.name}'"
                fix = "Give both the same name: other programs refuse the skill otherwise."
                yield source_map.locate(keys, "invalid-skill", message, fix, severity="warning")


def find_plain_bindings(agent: PromptAgent, data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each plain text in `bindings`: it does not say if it is an input or a fixed text."""
    declared = {entry.name for entry in agent.inputs}
    for index, tool in list_tools(data):
        bindings = tool.get("bindings")
        for name, text in bindings.items() if isinstance(bindings, dict) else ():
            if not isinstance(text, str) or "${" in text:
                continue
            if text in declared:
                message = f"the plain text `{text}` is the input of that name"
                fix, replacement = f"Write `{name}: {{input: {text}}}`.", "{{input: {}}}"
            else:
                message = "a plain text is a fixed value here, and the name of an input elsewhere"
                fix = f"Write `{name}: {{value: …}}` for the text, or `{name}: {{input: …}}` for an input."
                replacement = "" if '"' in text or "\\" in text else '{{value: "{}"}}'
            keys = ("tools", index, "bindings", name)
            yield source_map.locate(
                keys, "plain-binding", message, fix, severity="warning", replacement=replacement or None
            )


def find_wrong_tool_names(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each tool whose name no provider takes. A custom kind may offer other names."""
    for index, tool in enumerate(agent.tools):
        if isinstance(tool, FunctionTool | PromptyTool | CustomTool):
            try:
                check_function_name(tool.name)
            except ToolError as error:
                severity: Severity = "warning" if isinstance(tool, CustomTool) else "error"
                keys = ("tools", index, "name")
                yield source_map.locate(keys, "wrong-tool-name", error.cause, error.fix, severity=severity, on_key=True)


def check_kind_conditions(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a finding for each wrong name in the approval conditions of tools that are not functions."""
    for index, tool in enumerate(agent.tools):
        if isinstance(tool, FunctionTool) or not get_conditions(tool.approval_mode):
            continue
        with suppress(PromptyError):  # the tool's file is invalid, which a run reports
            parameters = _find_parameters(tool, agent)
            if parameters is not None:
                yield from check_tool_conditions(index, tool, parameters, source_map)


def _find_errors(tool: ToolDefinition, agent: PromptAgent) -> list[UnmatchedBinding]:
    try:
        parameters = _find_parameters(tool, agent)
    except UnmatchedBinding as error:
        return [error]
    except PromptyError:
        return []  # the tool's file is invalid, which a run reports
    return [] if parameters is None else find_unmatched(tool, parameters)


def _find_parameters(tool: ToolDefinition, agent: PromptAgent) -> Collection[str] | None:
    kinds = agent.registry[TOOL_KINDS]
    find_parameters = getattr(kinds.get(tool.kind), "find_parameters", None) if kinds.has(tool.kind) else None
    return find_parameters(tool, agent) if find_parameters else None


def find_open_outputs(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each output without a declared shape, which strict mode leaves empty."""
    for found in walk_properties(agent.outputs, ("outputs",)):
        declared, keys = found.declared, found.keys
        if declared.kind == "object" and not declared.properties:
            message = f"`{found.path}` is an object without `properties`, so the model can only answer with {{}}"
            yield source_map.locate(keys, "open-output", message, "Declare its `properties:`.", severity="warning")
        elif declared.kind == "array" and declared.items is None:
            message = f"`{found.path}` is an array without `items`, so the model can only answer with texts"
            fix = "Declare its `items:`, for example `items: {kind: string}`."
            yield source_map.locate(keys, "open-output", message, fix, severity="warning")


_STRICT_APIS = ("chat", "responses", "messages")


def find_refused_unions(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    """Yield an error for each `oneOf` in a strict schema, if the API has only `anyOf` there."""
    providers, key = registry[PROVIDERS], agent.model.provider
    unions = list(find_strict_one_of(agent))
    if not unions or registry[EXECUTORS].has(key) or not providers.has(key):
        return
    with suppress(PromptyError):  # other findings report an unknown `apiType` or a missing package
        if providers.get(key).api(agent.model.api_type).name not in _STRICT_APIS:
            return
        for keys, cause, fix in unions:
            yield source_map.locate(keys, "strict-one-of", cause, fix, on_key=True, replacement="anyOf")


def find_unread_script(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for a script among the options, and for one beside another provider."""
    keys: KeyPath = ("model", "script")
    if agent.model.provider == SCRIPTED:
        if "script" not in (agent.model.options.additional_properties or {}):
            return
        keys = ("model", "options", "additionalProperties", "script")
        message, fix = "`script` has no effect here", "Write it as `model: {provider: scripted, script: […]}`."
    elif agent.model.script is not None:
        message = f"`script` has no effect with the provider `{agent.model.provider}`"
        fix = "Write `provider: scripted`, or remove the script."
    else:
        return
    yield source_map.locate(keys, "misplaced-key", message, fix, severity="warning", on_key=True)


def find_raw_tools(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for each tool under `additionalProperties` that a call refuses."""
    names = [tool.name for tool in agent.tools if isinstance(tool, FunctionTool)]
    for keys, cause, fix in find_raw_tool_problems(agent.model.options, names):
        yield source_map.locate(keys, "raw-tool", cause, fix)


def find_kinds_as_defaults(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each input whose default is the name of a kind, as in `inputs: {question: string}`."""
    inputs = data.get("inputs")
    if not isinstance(inputs, dict) or "properties" in inputs:  # a JSON Schema, reported elsewhere
        return
    for name, value in inputs.items():
        kind = KIND_SYNONYMS.get(value, value) if isinstance(value, str) else None
        if kind in get_args(Kind) and kind != "union":
            message = f"the default of `{name}` is the word `{value}`"
            fix = f"If you mean the kind, write `{name}: {{kind: {kind}}}`."
            yield source_map.locate(("inputs", name), "kind-as-default", message, fix, severity="warning")


def find_misplaced_required(data: Mapping[str, Any], source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for a list of required names among the inputs or outputs, as in a JSON Schema."""
    for group in ("inputs", "outputs"):
        entries = data.get(group)
        if not isinstance(entries, dict):
            continue
        required = entries.get("required")
        if isinstance(required, list) and required and all(name in entries for name in required):
            message = f"`required` is a list of names here, so it declares one more of the `{group}`"
            fix = f"Remove it, and write `required: true` in each: `{required[0]}: {{kind: string, required: true}}`."
            yield source_map.locate((group, "required"), "misplaced-key", message, fix, on_key=True)


def find_text_in_frontmatter(data: Mapping[str, Any], body: str, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for a file without a body, whose text is in a key of the frontmatter."""
    for name in () if body.strip() else data:
        if str(name).lower().replace("_", "") in BODY_KEYS:
            message = f"the file has no body: `{name}` in the frontmatter has no effect"
            fix = "Write the messages below the second `---`: a line `system:` or `user:`, then its text."
            yield source_map.locate((name,), "no-body", message, fix, on_key=True)


def find_invalid_endpoints(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for each endpoint without http:// or https://."""
    places: list[KeyPath] = [("model",), *(("tools", index) for index in range(len(agent.tools)))]
    for keys, owner in zip(places, (agent.model, *agent.tools), strict=True):
        endpoint = getattr(getattr(owner, "connection", None), "endpoint", None)
        if endpoint and "${" not in endpoint and "://" not in endpoint:
            scheme = "http" if _LOCAL.match(endpoint) else "https"
            shown = mask_url(endpoint)
            message = f"the endpoint {shown!r} has no scheme"
            keys = (*keys, "connection", "endpoint")
            yield source_map.locate(keys, "endpoint-scheme", message, f"Write `{scheme}://{shown}`.")


_LOCAL = re.compile(r"localhost\b|127\.|\[::1\]|0\.0\.0\.0", re.IGNORECASE)


def find_missing_model(agent: PromptAgent, body: str, source_map: SourceMap) -> Iterator[Finding]:
    """Yield an error for an empty file, and a warning for a file without a model."""
    if not body.strip() and not source_map.text.strip():
        yield source_map.locate((), "empty-file", "the file is empty", "Write a prompt: `user:`, and text below it.")
    elif agent.model.provider == SCRIPTED and not agent.model.model_fields_set & {"script", "id"}:
        message = "the scripted model has no script"
        fix = "Write its replies below `model:`, for example `script: [Hello]`."
        yield source_map.locate(("model",), "missing-model", message, fix, severity="warning")
    elif not agent.model.id and not agent.trust.lacks("model", "id"):
        message = "the file names no model"
        fix = "Write `model: <id>` in the frontmatter, or set PROMPTY_MODEL."
        yield source_map.locate(("model",), "missing-model", message, fix, severity="warning")


def find_untrusted_endpoints(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each variable that a call would refuse to send, and for each endpoint without a key that
    would not get one of the environment."""
    for owner, keys, refusal in _find_refusals(agent):
        fix = refusal.command_fix or refusal.fix
        for use, cause in zip(refusal.uses, refusal.cause.split("\n"), strict=False):
            message = cause.partition("`: ")[2] or cause
            yield source_map.locate(
                _get_keys(agent, owner, use), "untrusted-variable", message, fix, severity="warning"
            )
        if not refusal.uses:
            yield source_map.locate(keys, "untrusted-endpoint", refusal.cause, refusal.fix, severity="warning")


def _get_keys(agent: PromptAgent, owner: KeyPath, use: Use) -> KeyPath:
    """Return the path of a variable's field in the file. `owner` is the model or the fallback that would get it."""
    match use.keys:
        case ("tools", name, *rest):
            names = [tool.name for tool in agent.tools]
            at = names.index(str(name)) if name in names else name
            return ("tools", at, *(map(_spell, rest) if "connection" in rest[:1] else rest))
        case ("fallbacks", *rest):
            return ("metadata", "fallbacks", *map(_spell, rest))
        case ("model", *rest):
            return (*owner, *map(_spell, rest))
    return use.keys


def _spell(key: str | int) -> str | int:
    return to_camel(key) if isinstance(key, str) else key


def find_fallbacks(agent: PromptAgent) -> Iterator[tuple[KeyPath, PromptAgent]]:
    """Yield the agent with each model in `metadata.fallbacks`. An invalid fallback fails in a run."""
    entries = agent.metadata.get("fallbacks")
    for index, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        if isinstance(entry, Mapping):
            with suppress(ValidationError):
                model = PromptAgent.model_validate({"model": entry}).model
                changes = {"model": model, "trust": agent.trust.for_fallback(index)}
                yield ("metadata", "fallbacks", index), agent.model_copy(update=changes)


def _find_refusals(agent: PromptAgent) -> Iterator[tuple[KeyPath, KeyPath, Refusal]]:
    """Yield the path of each model and tool with a refused connection, the path of its address, and the reason."""
    for keys, candidate in ((("model",), agent), *find_fallbacks(agent)):
        providers, key = agent.registry[PROVIDERS], candidate.model.provider
        hosts = providers.get(key).hosts if providers.has(key) else ()
        connection = candidate.model.connection
        if hosts is None:
            continue
        refusal = find_refusal(candidate, hosts)
        endpoint = getattr(connection, "endpoint", None) or ""
        if endpoint and parse_origin(endpoint) is None:
            continue  # which is another problem
        is_named = isinstance(connection, ApiKeyConnection) and connection.api_key is not None
        is_named = is_named or any(use.keys[:2] == ("model", "connection") for use in candidate.trust.missing)
        is_unnamed = isinstance(connection, ApiKeyConnection) and endpoint and not is_named
        if is_unnamed and not find_key_variables(endpoint) and not find_target(candidate, hosts).address:
            refusal = refusal or find_implicit_refusal(candidate, "", TextOrigin.ENVIRONMENT, hosts)
        if refusal:
            yield keys, (*keys, "connection", "endpoint"), refusal
    for index, tool in enumerate(agent.tools):
        if not isinstance(tool, McpTool | OpenApiTool):
            continue  # the host's code decides where its own kinds send credentials
        for name, field in (("endpoint", "endpoint"), ("tokenUrl", "token_url")):
            url = getattr(tool.connection, field, None)
            if url and (refusal := find_tool_refusal(agent, tool, url, field)) and not _is_text(refusal):
                yield ("tools", index), ("tools", index, "connection", name), refusal


def _is_text(refusal: Refusal) -> bool:
    """Return True for values that no request may have, which are reported once."""
    return any(use.kind is FieldKind.TEXT for use in refusal.uses)
