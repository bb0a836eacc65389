"""Find unregistered names in a file, and settings that a provider does not support.

A name that is similar to a known one is an error. Any other may be registered by the program: a warning.
"""

from collections.abc import Iterator

from prompty.errors import MissingExtra, RequestError, Severity, UnknownName, nearest
from prompty.model.agent import PromptAgent
from prompty.pipeline.source_map import Finding, SourceMap
from prompty.providers import EXECUTORS, PROVIDERS
from prompty.registry import Registry
from prompty.tools.kinds import TOOL_KINDS, UnknownKind
from prompty.tools.toolbox import TOOLS


def find_unknown_names(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    """Yield a finding for each provider, `apiType`, connection and tool kind that cannot run here."""
    yield from _check_provider(agent, source_map, registry)
    yield from _check_model_id(agent, source_map, registry)
    kinds = ["function", *registry[TOOL_KINDS].names()]
    foreign = [(at, tool) for at, tool in enumerate(agent.tools) if tool.kind not in kinds]
    # A registered function with its name runs a tool of any kind. Searching packages for it takes milliseconds.
    registered = registry[TOOLS].names() if foreign else []
    for index, tool in foreign:
        if tool.name not in registered:
            yield _locate(source_map, ("tools", index, "kind"), "unknown-tool-kind", UnknownKind(tool, kinds))


def _locate(source_map: SourceMap, keys: tuple[str | int, ...], code: str, error: UnknownName | UnknownKind) -> Finding:
    near = error.nearest
    severity: Severity = "error" if near else "warning"
    return source_map.locate(keys, code, error.cause, error.fix, severity=severity, replacement=near)


def _check_provider(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    key = agent.model.provider
    if registry[EXECUTORS].has(key):
        return
    try:
        provider = registry[PROVIDERS].get(key)
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
    """Yield a warning for `provider:id`, which only the command line accepts. If the file names a provider, the id may
    be a gateway's, which can look like that."""
    provider, colon, id = agent.model.id.partition(":")
    is_implied = "provider" not in agent.model.model_fields_set or agent.model.provider == provider
    if colon and is_implied and registry[PROVIDERS].has(provider):
        message = f"the model id {agent.model.id!r} contains the name of a provider"
        fix = f"Write them separately: model: {{provider: {provider}, id: {id!r}}}"
        yield source_map.locate(("model", "id"), "provider-in-model-id", message, fix, severity="warning")
