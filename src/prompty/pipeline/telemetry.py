"""What traces say about prompts, requests and replies, and what they must not say."""

import os
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

from prompty.model.agent import PromptAgent
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.model.secrets import secrets_in
from prompty.providers import Api, tapped
from prompty.safety.redaction import MASK, is_credential_name, remember_secrets
from prompty.tracing import names
from prompty.tracing.spans import SILENCE, Span, begin, listening

_PORTS = {"https": 443, "http": 80}


def agent_attributes(agent: PromptAgent, conversation: str | None = None) -> dict[str, Any]:
    """What a turn is called, and which file it is a turn of."""
    return {
        names.OPERATION_NAME: "invoke_agent",
        names.OPERATION: "turn",
        names.AGENT_NAME: agent.name,
        names.AGENT_DESCRIPTION: agent.description,
        names.AGENT_VERSION: str(agent.metadata["version"]) if "version" in agent.metadata else None,
        names.CONVERSATION_ID: conversation,
        names.SHA256: _digest(agent),
    }


def _digest(agent: PromptAgent) -> str | None:
    try:
        return _digest_of(agent.path, os.stat(agent.path).st_mtime_ns) if agent.path else None
    except OSError:  # it was there when it was loaded
        return None


@lru_cache(maxsize=256)
def _digest_of(path: Path, _: int) -> str:
    return sha256(path.read_bytes()).hexdigest()


def call_attributes(agent: PromptAgent, api: Api, *, stream: bool = False, url: str = "") -> dict[str, Any]:
    """What a model is asked for (§7.1.8). An option that the API does not have is not part of the request."""
    options = {
        attribute: getattr(agent.model.options, option)
        for option, attribute in names.REQUEST_OPTIONS.items()
        if option in api.options
    }
    return {
        names.OPERATION_NAME: api.operation,
        names.PROVIDER_NAME: names.PROVIDERS.get(agent.model.provider, agent.model.provider),
        names.REQUEST_MODEL: agent.model.id or None,
        names.REQUEST_STREAM: stream or None,
        names.OUTPUT_TYPE: _output_type(agent, api),
        **{name: value for name, value in options.items() if value not in (None, ())},
        **_server(url),
    }


def _output_type(agent: PromptAgent, api: Api) -> str | None:
    if api.operation == "chat":
        return "json" if agent.outputs else "text"
    return "image" if api.operation == "generate_content" else None


def _server(url: str) -> dict[str, Any]:
    try:
        parts = urlsplit(url)
        return {names.SERVER_ADDRESS: parts.hostname, names.SERVER_PORT: parts.port or _PORTS.get(parts.scheme)}
    except ValueError:
        return {}


def reply_attributes(reply: Reply) -> dict[str, Any]:
    """What a model answered, but for its words (§7.1.8)."""
    return {
        names.RESPONSE_ID: reply.id,
        names.RESPONSE_MODEL: reply.model,
        names.RESPONSE_FINISH_REASONS: [reply.finish_reason] if reply.finish_reason else None,
        **{names.USAGE[name]: number for name, number in reply.usage.to_json().items()},
    }


def call_span(
    agent: PromptAgent,
    api: Api,
    request: WireRequest,
    url: str,
    *,
    parent: Span | None = None,
    conversation: str | None = None,
) -> Span:
    """The span of a call to a model."""
    if parent is None and not listening():
        return SILENCE
    attributes = call_attributes(agent, api, stream=request.stream, url=url)
    return begin(
        "execute",
        {**attributes, names.CONVERSATION_ID: conversation},
        title=f"{api.operation} {agent.model.id}".strip(),
        kind="client",
        parent=parent,
        inputs={"messages": request.messages, "tools": request.functions},
    )


def show_reply(span: Span, reply: Reply) -> None:
    """What a model answered; vectors and images are no message."""
    span.note(reply_attributes(reply))
    span.count(reply.usage.to_json())
    span("result", reply.message() if reply.value is None else reply.value)


def begin_call(name: str, source: object, operation: str = "") -> Span:
    """The span of a prompt, which may have to be loaded yet: until then it is called like its file."""
    if not listening():
        return SILENCE
    label = source.name if isinstance(source, PromptAgent) else PurePath(str(source)).stem
    return begin(name, {names.AGENT_NAME: label}, title=f"{operation or name} {label or ''}".strip())


def show_call(span: Span, agent: PromptAgent, inputs: Mapping[str, object] | None) -> None:
    """Say which prompt a call is of, and show what it is given."""
    if span.live:
        span.title = f"{span.name} {agent.name or ''}".strip()
        span.note({names.AGENT_NAME: agent.name, names.SHA256: _digest(agent)})
        show_inputs(span, agent, inputs)


def show_turn(span: Span, agent: PromptAgent, inputs: Mapping[str, object] | None, conversation: str | None) -> None:
    """The same for a turn."""
    if span.live:
        span.title = f"invoke_agent {agent.name or ''}".strip()
        span.note(agent_attributes(agent, conversation))
        show_inputs(span, agent, inputs)


def show_inputs(span: Span, agent: PromptAgent, inputs: Mapping[str, object] | None) -> None:
    """Show what a prompt is given, without what its file calls sensitive and without what goes to tools unseen."""
    taps = tapped()
    if not span.live and not taps:
        return
    given = dict(inputs or {})
    sensitive = {one.name for one in agent.inputs if one.sensitive}
    hidden = [value for name, value in given.items() if name in sensitive or is_credential_name(name)]
    hidden += [one.default for one in agent.inputs if one.sensitive]
    for tap in taps:
        tap.hide(hidden)
    if not span.live:
        return
    remember_secrets(secrets_in(agent))
    span.hide(hidden)
    bound = {binding.input for tool in agent.tools for binding in tool.bindings.values()}
    span("inputs", {name: MASK if name in sensitive | bound else value for name, value in given.items()})
