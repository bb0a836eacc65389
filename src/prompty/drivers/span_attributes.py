"""The attributes of agents, model calls and replies in spans (§7.1.8)."""

import json
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from prompty.model.agent import ModelOptions, PromptAgent
from prompty.model.message import Reply, Usage
from prompty.model.request import WireRequest
from prompty.providers import Api
from prompty.safety.redaction import MASK, is_credential_name
from prompty.tracing import names
from prompty.tracing.spans import Span, begin

_PORTS = {"https": 443, "http": 80}


def begin_call_span(
    agent: PromptAgent,
    api: Api,
    url: str,
    request: WireRequest,
    *,
    parent: Span | None = None,
    conversation: str | None = None,
) -> Span:
    """Begin the span of a model call (§7.1.8), with the options that are part of the request."""
    options = {
        attribute: getattr(agent.model.options, option)
        for option, attribute in names.REQUEST_OPTIONS.items()
        if option in api.options and (not request.omitted or _alias(option) not in request.omitted)
    }
    attributes = {
        **_additional_options(agent, request),
        names.OPERATION_NAME: api.operation,
        names.PROVIDER_KEY: agent.model.provider,
        names.PROVIDER_NAME: names.GEN_AI_PROVIDERS.get(agent.model.provider, agent.model.provider),
        names.REQUEST_MODEL: agent.model.id or None,
        names.REQUEST_STREAM: request.stream or None,
        names.OUTPUT_TYPE: _output_type(agent, api),
        names.CONVERSATION_ID: conversation,
        **prompt_attributes(agent),
        names.API_REASON: api.chosen,
        names.OMITTED: [f"{name}: {reason}" for name, reason in request.omitted.items()] or None,
        **{name: value for name, value in options.items() if value not in (None, ())},
        **_server_attributes(url),
    }
    return begin(
        "execute",
        attributes,
        title=f"{api.operation} {agent.model.id}".strip(),
        kind="client",
        parent=parent,
        inputs={"messages": request.messages, "tools": request.functions},
    )


def _alias(option: str) -> str:
    return ModelOptions.model_fields[option].alias or option


def _additional_options(agent: PromptAgent, request: WireRequest) -> dict[str, Any]:
    """Return the options under `additionalProperties` that are part of the request."""
    options = agent.model.options.additional_properties or {}
    return {
        f"{names.REQUEST_PREFIX}{name}": MASK if is_credential_name(name) else _attribute_value(value)
        for name, value in options.items()
        if name in request.body
    }


def _attribute_value(value: object) -> object:
    """Convert a value for a span attribute: a scalar, a list of str, or JSON."""
    if isinstance(value, str | int | float) or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def record_reply(span: Span, reply: Reply) -> None:
    """Record a reply. The result of embeddings and images is not a message."""
    counts = flatten_usage(reply.usage)
    span.set_attributes(
        {
            names.RESPONSE_ID: reply.id,
            names.RESPONSE_MODEL: reply.model,
            names.RESPONSE_FINISH_REASONS: [reply.finish_reason] if reply.finish_reason else None,
            **{names.get_usage_name(name): number for name, number in counts.items()},
            **{
                f"{names.REQUESTS_PREFIX}{tool}": "unknown"
                for tool, count in reply.usage.requests.items()
                if count is None
            },
        }
    )
    span.add_usage(counts)
    span.record("result", reply.message() if reply.value is None else reply.value)


def flatten_usage(usage: Usage) -> dict[str, int | None]:
    """Return all counts by name. Those of a provider's calls are `requests.` and the tool."""
    counts: Any = usage.to_json()
    requests: dict[str, int | None] = counts.pop("requests", {})
    return {**counts, **{f"requests.{tool}": count for tool, count in requests.items()}}


def agent_attributes(agent: PromptAgent, conversation: str | None) -> dict[str, Any]:
    return {
        names.OPERATION_NAME: "invoke_agent",
        names.OPERATION: "turn",
        names.AGENT_DESCRIPTION: agent.description,
        names.AGENT_VERSION: str(agent.metadata["version"]) if "version" in agent.metadata else None,
        names.CONVERSATION_ID: conversation,
    }


def prompt_attributes(agent: PromptAgent) -> dict[str, Any]:
    """Return the name of a prompt, and the hash of its text: with its partials, and of its variant."""
    name = agent.name or (agent.path.stem if agent.path else None)
    return {names.PROMPT_NAME: name, names.PROMPT_VERSION: _hash_text(agent.instructions)}


def describe_version(agent: PromptAgent) -> str:
    """Return the name of a prompt and the beginning of its text's hash, such as `answer@1a2b3c4d`."""
    attributes = prompt_attributes(agent)
    return f"{attributes[names.PROMPT_NAME] or 'prompt'}@{attributes[names.PROMPT_VERSION][:8]}"


def _hash_text(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _output_type(agent: PromptAgent, api: Api) -> str | None:
    if api.operation == "chat":
        return "json" if agent.outputs else "text"
    return "image" if api.operation == "generate_content" else None


def _server_attributes(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
        return {names.SERVER_ADDRESS: parts.hostname, names.SERVER_PORT: parts.port or _PORTS.get(parts.scheme)}
    except ValueError:
        return {}


def file_digest(agent: PromptAgent) -> str | None:
    try:
        return sha256(agent.path.read_bytes()).hexdigest() if agent.path else None
    except OSError:  # deleted since it was loaded
        return None
