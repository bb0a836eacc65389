"""RulesServer: a stand-in for model providers that refuses what they refuse and answers everything else by itself.

It sees each request as the provider's server would: under its host and path, with the headers that would be sent. The
rules are in `tests.servers.rules`.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import count
from threading import Lock
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import SecretStr

from prompty.analysis.schema_values import create_value
from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import ApiKeyConnection, ReferenceConnection
from prompty.model.message import Reply, ToolCall
from prompty.model.request import WireRequest
from prompty.providers import AsyncTransport, Provider, Transport, TransportInterceptor
from prompty.providers.endpoint import append_path
from prompty.providers.http.failures import answer_error
from prompty.safety.redaction import is_credential_name
from prompty.testing.encoding import WIRES
from prompty.testing.script import (
    AsyncLocalTransport,
    Chunks,
    Fault,
    LocalTransport,
    Script,
    ScriptItem,
    answer,
    assign_call_ids,
    create_call,
    respond,
)
from prompty.wire.json_bytes import write_bytes
from tests.servers import rules
from tests.servers.rules import Received, RefusedRequest, RuleBook, find_rules, matches, strip_model_id

Fields = dict[str, Any]
_NO_DEPLOYMENTS: Mapping[str, str] = {}
_STAND_IN = SecretStr("stand-in")  # where a connection needs a key before it says where requests go
_AZURE_ENDPOINT = "AZURE_OPENAI_ENDPOINT"
_THOUGHT = "A tool can tell."
_VECTOR = [0.1, 0.2, 0.3]
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_OPENAI_MODELS = ("gpt-6-luna", "gpt-6-sol", "gpt-5.4-mini", "gpt-5-mini", "gpt-4o", "text-embedding-3-small")
_CLAUDE_MODELS = ("claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5", "claude-opus-4-6", "claude-sonnet-4-5")


class Answered(NamedTuple):
    """An answer: its status, and its bytes, whole or event by event."""

    status: int
    chunks: Chunks


class RulesServer(TransportInterceptor):
    """Within `with RulesServer() as server:`, refuse the requests that the providers refuse, with their errors.

    It accepts all others and answers by itself: it calls each function that is offered once, and then answers with text
    or with JSON of the requested schema. With `items`, it answers with them in order, as a `Script` does. Nothing
    connects, and no credential is looked up.

    `requests` are the requests that arrived, without credentials, and `refusals` the refusals. `undecided=True` also
    refuses requests for which no source says what the provider does. `today` is the date that decides which models have
    ended, and `deployments` are the models behind Azure deployments, by name.
    """

    is_live = False

    def __init__(
        self,
        *items: ScriptItem,
        undecided: bool = False,
        today: date | None = None,
        deployments: Mapping[str, str] = _NO_DEPLOYMENTS,
    ) -> None:
        self.requests: list[Received] = []
        self.refusals: list[RefusedRequest] = []
        self._rules = RuleBook(undecided=undecided, today=today, deployments=deployments)
        self._today, self._deployments = today, deployments
        self._script = Script(*items) if items else None
        self._call_numbers, self._signatures, self._lock = count(1), count(1), Lock()

    def transport(self, provider: Provider, agent: PromptAgent, /) -> Transport:
        return LocalTransport(partial(self._respond, provider, agent))

    def transport_async(self, provider: Provider, agent: PromptAgent, /) -> AsyncTransport:
        return AsyncLocalTransport(partial(self._respond, provider, agent))

    def hide(self, values: Sequence[object], /) -> None:
        """Do nothing: requests stay in memory."""

    def _respond(self, provider: Provider, agent: PromptAgent, request: WireRequest) -> Chunks:
        """Return the answer's bytes. A refusal is raised here, as the error that the same answer over HTTP becomes."""
        answered = self.answer(locate(provider, agent, request), request.method)
        if answered.status == 200:
            return answered.chunks
        raise answer_error(answered.status, {}, b"".join(answered.chunks))

    def answer(self, request: Received, method: str = "POST") -> Answered:
        """Return the answer to a request as it arrives at a host."""
        refusal = self._rules.refuse(request)
        with self._lock:
            self.requests.append(request)
            if refusal:
                self.refusals.append(refusal)
        if refusal:
            return _answer_json(refusal.body, refusal.status)
        if method == "GET" and request.path.endswith("/models"):
            return _answer_json(self._list_models(request.host))
        if request.path.endswith(rules.EMBEDDINGS):
            return _answer_json(_embed(request.body))
        if request.path.endswith(rules.IMAGES):
            return _answer_json({"created": 0, "data": [{"b64_json": _PIXEL}]})
        path = next((path for path in WIRES if request.path.endswith(path)), None)
        if path is None:
            text = f"Invalid URL ({method} {request.path})"
            return _answer_json({"error": {"message": text, "type": "invalid_request_error"}}, 404)
        body, is_streamed = request.body, request.body.get("stream") is True
        wire_request = WireRequest(path=path, body=body, headers=request.headers, stream=is_streamed)
        return Answered(200, respond(partial(self._reply, request), wire_request))

    def _reply(self, request: Received, wire_request: WireRequest) -> Reply | Fault:
        reply = self._script(wire_request) if self._script else self._converse(request)
        if isinstance(reply, Fault):
            return replace(reply, reply=self._add_thoughts(reply.reply, request))
        return self._add_thoughts(reply, request)

    def _converse(self, request: Received) -> Reply:
        """Return a call of the next function that was not called yet, or else an answer."""
        functions = _list_functions(request.body)
        called = set(_list_called(request.body))
        left = [name for name in functions if name not in called]
        if left:
            arguments = create_value(functions[left[0]])
            call = create_call(left[0], arguments if isinstance(arguments, dict) else {})
            return assign_call_ids(answer("", call), self._call_numbers)
        schema = _find_schema(request.body)
        return answer(
            f"{request.body.get('model')} says hello." if schema is None else json.dumps(create_value(schema))
        )

    def _add_thoughts(self, reply: Reply, request: Received) -> Reply:
        """Return a reply with what models send beside their calls and want back: reasoning, and signatures."""
        model, body, server = self._find_model(request), request.body, find_rules(request.host)
        has_calls = bool(reply.tool_calls)
        if request.path.endswith(rules.MESSAGES):
            if not reply.reasoning and not (has_calls and _is_thinking(model, body)):
                return reply
            signature = f"signature_{next(self._signatures)}"
            self._rules.bindings.bind(signature, body)
            return replace(
                reply, reasoning=reply.reasoning or _THOUGHT, opaque={**reply.opaque, "signature": signature}
            )
        if request.path.endswith(rules.RESPONSES):
            if not matches(model, (*rules.SINCE_GPT_5, *rules.O_SERIES)):
                return reply
            wants_content = "reasoning.encrypted_content" in (body.get("include") or ())
            encrypted = {"encrypted_content": f"content_{next(self._signatures)}"} if wants_content else {}
            return replace(reply, reasoning=reply.reasoning or _THOUGHT, opaque={**encrypted, **reply.opaque})
        is_thinking = _get(body, "thinking", "type") != "disabled"
        if has_calls and server and server.rules is rules.DEEPSEEK_RULES and is_thinking:
            return replace(reply, reasoning=reply.reasoning or _THOUGHT)
        if has_calls and server and server.rules is rules.GOOGLE_RULES and matches(model, rules.GEMINI_3):
            return replace(reply, tool_calls=self._sign(reply.tool_calls))
        return reply

    def _sign(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        """Return calls with a signature in the first, where Gemini puts it."""
        signature = {"google": {"thought_signature": f"signature_{next(self._signatures)}"}}
        return (replace(calls[0], extra={**signature, **calls[0].extra}), *calls[1:])

    def _find_model(self, request: Received) -> str:
        model = str(request.body.get("model"))
        return strip_model_id(self._deployments.get(model, model))

    def _list_models(self, host: str) -> Fields:
        server = find_rules(host)
        if server and server.rules is rules.ANTHROPIC_RULES:
            models = [self._describe_claude(model) for model in _CLAUDE_MODELS]
            return {"data": models, "has_more": False, "first_id": _CLAUDE_MODELS[0], "last_id": _CLAUDE_MODELS[-1]}
        is_openai = bool(server and server.rules is rules.OPENAI_RULES)
        return {"object": "list", "data": [_describe_gpt(model, with_end=is_openai) for model in _OPENAI_MODELS]}

    def _describe_claude(self, model: str) -> Fields:
        end = rules.LAST_DAYS.get(model)
        today = self._today or date.today()
        efforts = {effort: {"supported": "haiku-4" not in model and "sonnet-4" not in model} for effort in _EFFORTS}
        return {
            "type": "model",
            "id": model,
            "display_name": model,
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active" if end is None else "deprecated" if today <= end else "retired",
            "retires_at": end and f"{end}T00:00:00Z",
            "max_tokens": 64_000 if matches(model, rules.CLAUDE_4_5) else 128_000,
            "capabilities": {
                "effort": {"supported": efforts["low"]["supported"], **efforts},
                "structured_outputs": {"supported": True},
                "thinking": {"supported": True},
            },
        }


def _describe_gpt(model: str, *, with_end: bool) -> Fields:
    described = {"id": model, "object": "model", "created": 0, "owned_by": "openai"}
    end = rules.LAST_DAYS.get(model)
    return {**described, "shutdown_date": end and end.isoformat()} if with_end else described


def _answer_json(value: object, status: int = 200) -> Answered:
    return Answered(status, _yield_once(write_bytes(value)))


def _yield_once(content: bytes) -> Chunks:
    yield content


def _embed(body: Fields) -> Fields:
    texts = body.get("input")
    number = len(texts) if isinstance(texts, list) else 1
    data = [{"object": "embedding", "index": index, "embedding": _VECTOR} for index in range(number)]
    usage = {"prompt_tokens": 10, "total_tokens": 10}
    return {"object": "list", "data": data, "model": body.get("model"), "usage": usage}


# ---- What a request asks for ----


def _get(value: object, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list_dicts(value: object) -> list[Fields]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _is_thinking(model: str, body: Fields) -> bool:
    """Return True if a Claude model thinks: the later ones unless it is switched off, others if it is switched on."""
    kind = _get(body, "thinking", "type")
    return kind != "disabled" and (kind is not None or matches(model, rules.CLAUDE_4_6_ON))


def _list_functions(body: Fields) -> dict[str, object]:
    """Return the schemas of the functions that a model may call, by name, in any of the three formats."""
    choice = body.get("tool_choice")
    if choice == "none" or _get(choice, "type") == "none":
        return {}
    found: dict[str, object] = {}
    for tool in _list_dicts(body.get("tools")):
        function = cast(Fields, tool["function"]) if isinstance(tool.get("function"), dict) else tool
        schema = function.get("parameters", function.get("input_schema"))
        if isinstance(name := function.get("name"), str) and tool.get("type") in ("function", "custom", None):
            found[name] = schema if isinstance(schema, dict) else {"type": "object"}
    return found


def _list_called(body: Fields) -> list[str]:
    """Return the names of the functions that were called since the user's last message."""
    names: list[str] = []
    previous = ""
    for item in _list_dicts(body.get("input")) or _list_dicts(body.get("messages")):
        kinds = {block.get("type") for block in _list_dicts(item.get("content"))}
        # Results are a message of the user at Anthropic; elsewhere their images follow them in one.
        is_result = kinds == {"tool_result"} or (previous == "tool" and bool(kinds) and "text" not in kinds)
        if item.get("role") == "user" and not is_result:
            names = []
        names += _list_calls(item)
        previous = str(item.get("role"))
    return names


def _list_calls(item: Fields) -> Iterator[str]:
    """Yield the names of the functions that a message or an item calls."""
    if item.get("type") == "function_call":
        yield str(item.get("name"))
    for call in _list_dicts(item.get("tool_calls")):
        yield str(_get(call, "function", "name"))
    for block in _list_dicts(item.get("content")):
        if block.get("type") == "tool_use":
            yield str(block.get("name"))


def _find_schema(body: Fields) -> object | None:
    """Return the schema of the answer that a request asks for."""
    formats: Iterable[Any] = (
        body.get("response_format"),
        _get(body, "text", "format"),
        _get(body, "output_config", "format"),
    )
    for format_ in formats:
        kind = _get(format_, "type")
        if kind == "json_schema":
            return format_.get("schema") or _get(format_, "json_schema", "schema") or {"type": "object"}
        if kind == "json_object":
            return {"type": "object"}
    return None


# ---- Where a request would go ----

_Target = tuple[str, Mapping[str, str]]  # a URL and headers


def locate(provider: Provider, agent: PromptAgent, request: WireRequest) -> Received:
    """Return a request as the server gets it that the provider would send it to, without its credential."""
    url, headers = _find_target(provider, agent, request) or _find_shown_target(provider, agent, request)
    sent = {name.lower(): value for name, value in {**headers, **request.headers}.items()}
    parts = urlsplit(url)
    return Received(
        host=parts.hostname or "",
        path=parts.path,
        headers={name: value for name, value in sent.items() if not is_credential_name(name)},
        body=json.loads(write_bytes(request.body)),
        query=dict(parse_qsl(parts.query)),
    )


def _find_target(provider: Provider, agent: PromptAgent, request: WireRequest) -> _Target | None:
    """Return the URL of a request and the headers of its endpoint, or None if a call would fail before it is sent."""
    connection = agent.model.connection
    try:
        if isinstance(connection, ReferenceConnection):
            return _find_target_of_client(agent.registry.connections.find(connection.name, object), request)
        endpoint = provider.endpoint(_replace_key(agent)) if provider.endpoint else None
    except RequestError:
        return None
    if endpoint is None:
        return None
    return endpoint.get_url(request.path, str(request.body.get("model", ""))), dict(endpoint.headers)


def _find_target_of_client(client: Any, request: WireRequest) -> _Target:
    query = urlencode(getattr(client, "default_query", {}))
    base = str(getattr(client, "base_url", "")) + (f"?{query}" if query else "")
    headers = getattr(client, "default_headers", {})
    return append_path(base, request.path), {k: v for k, v in headers.items() if isinstance(v, str)}


def _find_shown_target(provider: Provider, agent: PromptAgent, request: WireRequest) -> _Target:
    """Return the URL that people are shown."""
    shown = urlsplit(provider.preview(agent, provider.api_for(agent)).url)
    return f"{shown.scheme}://{shown.netloc}{request.path}", {}


def _replace_key(agent: PromptAgent) -> PromptAgent:
    """Return the agent with a dummy key, so that no credential is looked up."""
    connection = agent.model.connection
    if connection is None:
        is_azure = agent.model.provider in ("azure", "foundry")
        named = os.environ.get(_AZURE_ENDPOINT) if is_azure else None
        connection = ApiKeyConnection(endpoint=named, api_key=_STAND_IN)
    elif isinstance(connection, ApiKeyConnection):
        connection = connection.model_copy(update={"api_key": _STAND_IN})
    return agent.model_copy(update={"model": agent.model.model_copy(update={"connection": connection})})
