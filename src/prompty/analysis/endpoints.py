"""Find endpoints to which a call would refuse to send a credential (F14)."""

from collections.abc import Iterator

from prompty.model.agent import PromptAgent
from prompty.model.connection import OAuthConnection
from prompty.model.provenance import Refusal
from prompty.model.tool import McpTool, OpenApiTool
from prompty.pipeline.source_map import Finding, KeyPath, SourceMap
from prompty.providers.destination import find_refusal as find_model_refusal
from prompty.tools.destination import find_refusal as find_tool_refusal

_PARTIAL = Refusal(
    "the credential is from the environment, but the file names part of the endpoint's origin",
    "Take the whole origin from a variable: endpoint: ${env:NAME}.",
)


def find_untrusted_endpoints(agent: PromptAgent, source_map: SourceMap) -> Iterator[Finding]:
    """Yield a warning for each endpoint that gets a credential of the environment only if the host allows it."""
    for keys, endpoint, refusal in _find_refusals(agent):
        if "${" in endpoint:  # its variable is not set
            if endpoint in agent.provenance.endpoints:
                continue
            refusal = _PARTIAL
        yield source_map.locate(keys, "untrusted-endpoint", refusal.cause, refusal.fix, severity="warning")


def _find_refusals(agent: PromptAgent) -> Iterator[tuple[KeyPath, str, Refusal]]:
    providers, key = agent.registry.providers, agent.model.provider
    hosts = providers.get(key).hosts if providers.has(key) else ()
    if hosts is not None and (refusal := find_model_refusal(agent, hosts)):
        yield ("model", "connection", "endpoint"), getattr(agent.model.connection, "endpoint", ""), refusal
    for index, tool in enumerate(agent.tools):
        if not isinstance(tool, McpTool | OpenApiTool):
            continue  # code of the host decides where its own kinds send credentials
        connection = tool.connection
        secret = getattr(connection, "api_key", None) or getattr(connection, "client_secret", None)
        endpoints = {"endpoint": getattr(connection, "endpoint", None)}
        if isinstance(connection, OAuthConnection):
            endpoints["tokenUrl"] = connection.token_url
        for name, endpoint in endpoints.items():
            if endpoint and (refusal := find_tool_refusal(agent, tool, secret, endpoint)):
                yield ("tools", index, "connection", name), endpoint, refusal
