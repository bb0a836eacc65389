"""Count the tokens of a request at its provider, where the provider documents an endpoint that does so free of charge.

OpenAI counts requests of its Responses API, so a prompt for chat is written as one. No answer is generated. Anthropic
calls its count an estimate.
"""

import asyncio
from dataclasses import dataclass, replace

from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.model.connection import ReferenceConnection
from prompty.model.request import WireRequest
from prompty.providers import PROVIDERS, Api, AsyncTransport
from prompty.wire.json_bytes import as_count, as_object, read_bytes

_TIMEOUT = 60.0  # seconds
_WAITS = (0.5, 2.0, 8.0)  # seconds before each retry, unless the server names more
_MAX_WAIT = 60.0
_OPENAI_FIELDS = (
    "model instructions input tools tool_choice parallel_tool_calls text reasoning truncation "
    "conversation previous_response_id"
)
_ANTHROPIC_FIELDS = "model system messages tools tool_choice thinking output_config"


@dataclass(frozen=True, kw_only=True, slots=True)
class CountEndpoint:
    """An endpoint that counts. `api` writes the requests that it takes, of which it knows these `fields`."""

    api: Api
    path: str
    fields: frozenset[str]
    host: str


def find_count_endpoint(agent: PromptAgent) -> CountEndpoint | None:
    """Return the endpoint that counts an agent's requests, or None. Only the providers' own servers have one."""
    provider = agent.registry[PROVIDERS].get(agent.model.provider)
    if isinstance(agent.model.connection, ReferenceConnection):
        return None
    profile, api = provider.profile(agent), provider.api_for(agent)
    match profile.name, api.name:
        case "openai", "chat" | "responses" if "responses" in provider.apis:
            counted = api if api.name == "responses" else replace(provider.apis["responses"], facts=api.facts)
            fields = frozenset(_OPENAI_FIELDS.split())
            return CountEndpoint(api=counted, path="/responses/input_tokens", fields=fields, host="OpenAI")
        case "anthropic", "messages":
            fields = frozenset(_ANTHROPIC_FIELDS.split())
            return CountEndpoint(api=api, path="/v1/messages/count_tokens", fields=fields, host="Anthropic")
    return None


async def count_tokens(endpoint: CountEndpoint, transport: AsyncTransport, request: WireRequest) -> int:
    """Return the number of input tokens of a request that `endpoint.api` has written. Raise ModelError if the server
    does not say."""
    body = {name: value for name, value in request.body.items() if name in endpoint.fields}
    question = replace(request, path=endpoint.path, body=body, timeout=_TIMEOUT)
    for wait in (*_WAITS, None):
        try:
            content = await transport.send(question)
            break
        except ModelError as error:
            if wait is None or not error.retryable:
                raise
            await asyncio.sleep(min(max(wait, error.retry_after or 0), _MAX_WAIT))
    count = as_count(as_object(read_bytes(content)).get("input_tokens"))
    if count is None:
        raise ModelError("the answer has no count of tokens")
    return count
