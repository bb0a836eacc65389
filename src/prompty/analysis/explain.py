"""What a prompt would send, said without sending it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.model.request import WireRequest
from prompty.pipeline.prepare import prepare
from prompty.pipeline.request import request_for
from prompty.providers import Address, Api
from prompty.safety.redaction import mask_secrets
from prompty.wire.options import dropped_options


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A request and how it came about. Nothing in it is secret: credentials are names of variables."""

    provider: str
    api_type: str
    messages: list[Message]
    url: str
    headers: tuple[str, ...]
    body: Json
    dropped: dict[str, str]
    bound: dict[str, list[str]]
    curl: str


def explain(agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, stream: bool = False) -> Explanation:
    """The messages, the exact request body, what was left out of it and why, and a curl line."""
    provider = agent.registry.providers.get(agent.model.provider)
    api = provider.api(agent.model.api_type)
    messages = prepare(agent, inputs)
    request = request_for(agent, messages, api, stream=stream and api.decoder is not None)
    address = provider.address(agent, api)
    body = json.loads(mask_secrets(json.dumps(request.body, ensure_ascii=False)))
    return Explanation(
        provider=agent.model.provider,
        api_type=agent.model.api_type,
        messages=messages,
        url=address.url,
        headers=_headers(address, request),
        body=body,
        dropped=_dropped(agent, api, request.body),
        bound={tool.name: sorted(tool.bindings) for tool in agent.tools if tool.bindings},
        curl=_curl(address.url, _headers(address, request), body),
    )


def sent(agent: PromptAgent, api: Api, request: WireRequest, body: Json) -> Json:
    """A request for people to see and to repeat; `body` is the part of it that may be shown."""
    address = agent.registry.providers.get(agent.model.provider).address(agent, api)
    return {"url": address.url, "request": body, "curl": _curl(address.url, _headers(address, request), body)}


def _headers(address: Address, request: WireRequest) -> tuple[str, ...]:
    said = {header.partition(":")[0].lower() for header in address.headers}
    own = [f"{name}: {value}" for name, value in request.headers.items() if name.lower() not in said]
    return (*address.headers, "Content-Type: application/json", *own)


def _dropped(agent: PromptAgent, api: Api, body: Json) -> dict[str, str]:
    where = f"`apiType: {agent.model.api_type}` of {agent.model.provider}"
    dropped = dict.fromkeys(dropped_options(agent.model.options, api.options), f"{where} has no such option")
    if agent.model.options.allow_multiple_tool_calls is not None and "tools" not in body:
        dropped["allowMultipleToolCalls"] = "the prompt offers no tools"
    return dropped


def _curl(url: str, headers: Sequence[str], body: Json) -> str:
    # Double quotes let the shell put the variable of the key in; nothing else in a header needs the shell.
    shown = [f'-H "{header}"' if "$" in header else f"-H {quote(header)}" for header in headers]
    return " ".join(["curl", quote(url), *shown, "-d", quote(json.dumps(body, ensure_ascii=False))])
