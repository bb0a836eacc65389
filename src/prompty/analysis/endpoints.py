"""Find endpoints that a call would refuse to send a credential to (F14)."""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from pydantic import ValidationError

from prompty.model.agent import PromptAgent
from prompty.model.connection import OAuthConnection
from prompty.model.provenance import Refusal
from prompty.model.tool import McpTool, OpenApiTool
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap
from prompty.providers import PROVIDERS
from prompty.providers.credentials import find_endpoint_refusal
from prompty.tools.kinds import find_tool_refusal

_PARTIAL = Refusal(
    "the credential is from the environment, but the file names part of the endpoint's origin",
    "Take the whole origin from a variable: endpoint: ${env:NAME}.",
)


def find_untrusted_endpoints(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each endpoint that receives a credential from the environment only if the host allows it."""
    for keys, endpoint, refusal in _find_refusals(agent):
        if "${" in endpoint:  # an unset variable
            if endpoint in agent.provenance.endpoints:
                continue
            refusal = _PARTIAL
        yield source_map.locate(keys, "untrusted-endpoint", refusal.cause, refusal.fix, severity="warning")


def _find_fallbacks(agent: PromptAgent) -> Iterator[tuple[KeyPath, PromptAgent]]:
    """Yield the agent with each model in `metadata.fallbacks`. An invalid fallback fails in a run."""
    entries = agent.metadata.get("fallbacks")
    for index, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        if isinstance(entry, Mapping):
            with suppress(ValidationError):
                model = PromptAgent.model_validate({"model": entry}).model
                yield ("metadata", "fallbacks", index), agent.model_copy(update={"model": model})


def _find_refusals(agent: PromptAgent) -> Iterator[tuple[KeyPath, str, Refusal]]:
    for keys, candidate in ((("model",), agent), *_find_fallbacks(agent)):
        providers, key = agent.registry[PROVIDERS], candidate.model.provider
        hosts = providers.get(key).hosts if providers.has(key) else ()
        if hosts is not None and (refusal := find_endpoint_refusal(candidate, hosts)):
            yield (*keys, "connection", "endpoint"), getattr(candidate.model.connection, "endpoint", ""), refusal
    for index, tool in enumerate(agent.tools):
        if not isinstance(tool, McpTool | OpenApiTool):
            continue  # the host's code decides where its own kinds send credentials
        connection = tool.connection
        secret = getattr(connection, "api_key", None) or getattr(connection, "client_secret", None)
        endpoints = {"endpoint": getattr(connection, "endpoint", None)}
        if isinstance(connection, OAuthConnection):
            endpoints["tokenUrl"] = connection.token_url
        for name, endpoint in endpoints.items():
            if endpoint and (refusal := find_tool_refusal(agent, tool, secret, endpoint)):
                yield ("tools", index, "connection", name), endpoint, refusal
