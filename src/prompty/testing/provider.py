"""The provider `scripted`: the wire formats of the real providers, over a transport that ends in a script.

The transport returns the bytes that a server would send.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import cast

from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.model.message import Json, Message
from prompty.model.reply import Reply
from prompty.model.request import Function, WireRequest
from prompty.providers import Api, AsyncBytes, Bytes, Provider
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.testing.encoding import WIRES
from prompty.testing.file_script import parse_file_script
from prompty.testing.script import Fault, Responder, find_script
from prompty.wire.json_bytes import write_bytes

Chunks = Generator[bytes, None, None]


class LocalTransport:
    """Transport over chunks that are available at once."""

    def __init__(self, get_chunks: Callable[[WireRequest], Chunks]) -> None:
        self._get_chunks = get_chunks

    def send(self, request: WireRequest, /) -> bytes:
        return b"".join(self._get_chunks(request))

    def stream(self, request: WireRequest, /) -> Bytes:
        return LocalBytes(self._get_chunks(request))


class LocalBytes:
    """Byte stream over chunks that are available at once."""

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks

    def __iter__(self) -> Chunks:
        return self._chunks

    def close(self) -> None:
        self._chunks.close()

    def abort(self) -> None:
        pass


class AsyncLocalTransport:
    """Async counterpart of `LocalTransport`."""

    def __init__(self, get_chunks: Callable[[WireRequest], Chunks]) -> None:
        self._get_chunks = get_chunks

    async def send(self, request: WireRequest, /) -> bytes:
        return b"".join(self._get_chunks(request))

    async def stream(self, request: WireRequest, /) -> AsyncBytes:
        return _iterate(self._get_chunks(request))


class ScriptedTransport(LocalTransport):
    """Transport that replies from a script."""

    def __init__(self, agent: PromptAgent) -> None:
        super().__init__(partial(_respond, _find_responder(agent)))


class AsyncScriptedTransport(AsyncLocalTransport):
    """Async counterpart of `ScriptedTransport`."""

    def __init__(self, agent: PromptAgent) -> None:
        super().__init__(partial(_respond, _find_responder(agent)))


def _find_responder(agent: PromptAgent) -> Responder:
    """Return the script of the context, of the model or in the file, in this order."""
    script = find_script(agent.model.id)
    if script is not None:
        return script
    entries = (agent.model.options.additional_properties or {}).get("script")
    if entries is None:
        raise ModelError(
            f"no script is registered for the model '{agent.model.id}'\n"
            f"    Call it within `with Script(…):`, or `register_script('{agent.model.id}', Script(…))`, "
            "or write `model.options.additionalProperties.script` in the file."
        )
    return parse_file_script(entries)


def _respond(responder: Responder, request: WireRequest) -> Chunks:
    """Return the bytes of a reply, whole or event by event. An immediate fault is raised here, not on reading."""
    reply, wire = responder(request), WIRES[request.path]
    if not isinstance(reply, Fault):
        complete = _complete(reply, request)
        return _yield_chunks(wire.events(complete) if request.stream else [write_bytes(wire.whole(complete))])
    error = reply.error or ModelError("the connection failed: scripted", retryable=True)
    if reply.after is None or not request.stream:
        raise error
    return _yield_chunks(islice(wire.events(_complete(reply.reply, request)), reply.after), error)


def _complete(reply: Reply, request: WireRequest) -> Reply:
    """Fill in an id that is unique in the conversation, and the requested model."""
    history = cast(list[object], request.body.get("messages") or request.body.get("input") or [])
    return replace(reply, id=reply.id or f"reply_{len(history)}", model=reply.model or str(request.body["model"]))


def _yield_chunks(chunks: Iterable[bytes], error: ModelError | None = None) -> Chunks:
    yield from chunks
    if error is not None:
        raise error


async def _iterate(chunks: Chunks) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk


def _omit_script(api: Api) -> Api:
    """Return the API with requests that omit the script of the file, as a real provider's would."""

    def request(agent: PromptAgent, messages: Sequence[Message], functions: Sequence[Function]) -> Json:
        body = api.request(agent, messages, functions)
        body.pop("script", None)
        return body

    return replace(api, request=request)


_APIS = {"chat": chat.API, "responses": responses.API, "messages": messages.API}

PROVIDER = Provider(
    key="scripted",
    apis={name: _omit_script(api) for name, api in _APIS.items()},
    transport=ScriptedTransport,
    transport_async=AsyncScriptedTransport,
    hosts=None,
)
