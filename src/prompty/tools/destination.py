"""Refuse to send a tool's credentials and bound values to an endpoint that only the file names (F14)."""

from collections.abc import Iterable
from dataclasses import replace

from pydantic import SecretStr

from prompty.errors import ToolError
from prompty.model.agent import PromptAgent
from prompty.model.provenance import Refusal, read_trusted
from prompty.model.tool import ToolDefinition
from prompty.safety.origins import Origin, TextOrigin
from prompty.safety.redaction import leaves


def check_tool_destination(
    agent: PromptAgent,
    tool: ToolDefinition,
    secret: SecretStr | None,
    endpoint: str | None,
    allowed: Iterable[Origin] = (),
) -> None:
    """Raise ToolError if a tool would send a secret from outside the file to an endpoint that may not receive it.

    `allowed` are origins that the host allows for this kind of tool.
    """
    if (
        endpoint
        and agent.provenance.from_file
        and (refusal := find_tool_refusal(agent, tool, secret, endpoint, allowed))
    ):
        raise ToolError(f"the tool '{tool.name}': {refusal.cause}", refusal.fix)


def find_tool_refusal(
    agent: PromptAgent,
    tool: ToolDefinition,
    secret: SecretStr | None,
    endpoint: str,
    allowed: Iterable[Origin] = (),
) -> Refusal | None:
    """Return the reason to refuse a tool's credential and bound values to an endpoint, or None."""
    sources = (agent.provenance.get_strictest(secret, endpoint), find_bound_source(agent, tool))
    credential = max((source for source in sources if source is not None), default=None)
    if credential is None or credential is TextOrigin.FILE:
        return None  # nothing from outside the file; `openapi.permissions` checks the address
    trusted = read_trusted(agent.registry.trusted_endpoints) | frozenset(allowed)
    return agent.provenance.refuse(credential, endpoint, (), trusted)


def find_bound_source(agent: PromptAgent, tool: ToolDefinition) -> TextOrigin | None:
    """Return the most restricted source of a tool's bound values, or None if all are written in the file."""
    provenance = agent.provenance
    bound = [binding.value.get_secret_value() for binding in tool.bindings.values() if binding.value]
    sources = [provenance.get_source(text) for text in leaves(bound)]
    if provenance.exposed is not None and any(binding.input for binding in tool.bindings.values()):
        sources.append(provenance.exposed)
    return max(sources, default=TextOrigin.FILE) or None


def inherit_provenance(child: PromptAgent, parent: PromptAgent, tool: ToolDefinition) -> PromptAgent:
    """Return a prompt that runs as a tool: it inherits its parent's trust, and may pass on bound values."""
    bound, trusted = find_bound_source(parent, tool), parent.provenance.trusted
    if not trusted and not bound:
        return child
    own = child.provenance
    exposed = own.exposed if bound is None else max(bound, own.exposed or bound)
    return child.model_copy(update={"provenance": replace(own, exposed=exposed, trusted=own.trusted | trusted)})
