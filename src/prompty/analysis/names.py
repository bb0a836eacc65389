"""Find names in a file that nothing is registered under, and what a provider cannot use.

A name like a known one is misspelt: an error. Any other may be registered by the program that runs the file: a warning.
"""

from collections.abc import Iterator

from prompty.analysis.definition_keys import nearest
from prompty.errors import MissingExtra, Severity
from prompty.model.agent import PromptAgent
from prompty.pipeline.source_map import Finding, SourceMap
from prompty.registry import Registry


def find_unknown_names(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    """Yield a finding for each provider, `apiType`, connection and tool kind that cannot run here."""
    yield from _check_provider(agent, source_map, registry)
    kinds = ["function", *registry.tool_kinds.names()]
    foreign = [(at, tool) for at, tool in enumerate(agent.tools) if tool.kind not in kinds]
    # A registered function of its name runs a tool of any kind. To look for it among packages takes milliseconds.
    registered = registry.tools.names() if foreign else []
    for index, tool in foreign:
        if tool.name not in registered:
            near = nearest(tool.kind, kinds)
            message = f"no handler is registered for tool kind '{tool.kind}'"
            hint = f"Did you mean `{near}`? " if near else ""
            fix = f"{hint}Use one of {', '.join(kinds)}, or register it: register_tool_kind('{tool.kind}', …)."
            keys = ("tools", index, "kind")
            yield source_map.locate(
                keys, "unknown-tool-kind", message, fix, severity="error" if near else "warning", replacement=near
            )


def _check_provider(agent: PromptAgent, source_map: SourceMap, registry: Registry) -> Iterator[Finding]:
    key = agent.model.provider
    if registry.executors.has(key):
        return
    if not registry.providers.has(key):
        known = registry.providers.names()
        near = nearest(key, known)
        fix = f"{f'Did you mean `{near}`? ' if near else ''}Use one of {', '.join(known)}, or register your own."
        keys = ("model", "provider")
        severity: Severity = "error" if near else "warning"
        message = f"no provider is called '{key}'"
        yield source_map.locate(keys, "unknown-provider", message, fix, severity=severity, replacement=near)
        return
    try:
        provider = registry.providers.get(key)
    except MissingExtra:
        return  # running the file says what to install
    api_type, connection = agent.model.api_type, agent.model.connection
    if api_type not in provider.apis:
        message = f"the provider '{key}' has no API of type '{api_type}'"
        fix = f"Write `apiType:` with one of {', '.join(provider.apis)}."
        near = nearest(api_type, provider.apis)
        yield source_map.locate(("model", "apiType"), "unknown-api-type", message, fix, replacement=near)
    kinds = provider.connection_kinds
    if connection is not None and kinds and connection.kind not in kinds:
        message = f"the provider '{key}' cannot use a connection of kind '{connection.kind}'"
        fix = f"Write one of kind {', '.join(kinds)}."
        yield source_map.locate(("model", "connection", "kind"), "wrong-connection-kind", message, fix)
