"""Carries requests to a script instead of a server. What comes back are the bytes that a server would send."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import cast

from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.providers import AsyncBytes, Bytes
from prompty.testing.encoding import WIRES
from prompty.testing.file_script import file_script
from prompty.testing.script import Answers, Fault, script_of
from prompty.wire.json_bytes import write_bytes

Received = Generator[bytes, None, None]


class LocalTransport:
    """Answers synchronous code with bytes that are all there."""

    def __init__(self, pieces_for: Callable[[WireRequest], Received]) -> None:
        self._pieces_for = pieces_for

    def send(self, request: WireRequest, /) -> bytes:
        return b"".join(self._pieces_for(request))

    def stream(self, request: WireRequest, /) -> Bytes:
        return LocalBytes(self._pieces_for(request))


class LocalBytes:
    """The bytes of an answer, for which nobody ever waits."""

    def __init__(self, pieces: Received) -> None:
        self._pieces = pieces

    def __iter__(self) -> Received:
        return self._pieces

    def close(self) -> None:
        self._pieces.close()

    def abort(self) -> None:
        pass


class AsyncLocalTransport:
    """The same for asynchronous code."""

    def __init__(self, pieces_for: Callable[[WireRequest], Received]) -> None:
        self._pieces_for = pieces_for

    async def send(self, request: WireRequest, /) -> bytes:
        return b"".join(self._pieces_for(request))

    async def stream(self, request: WireRequest, /) -> AsyncBytes:
        return _async(self._pieces_for(request))


class ScriptedTransport(LocalTransport):
    """Answers from a script."""

    def __init__(self, agent: PromptAgent) -> None:
        super().__init__(partial(received, answers_for(agent)))


class AsyncScriptedTransport(AsyncLocalTransport):
    """The same for asynchronous code."""

    def __init__(self, agent: PromptAgent) -> None:
        super().__init__(partial(received, answers_for(agent)))


def answers_for(agent: PromptAgent) -> Answers:
    """Who answers a prompt: the script of the context, the one of its model, or the one in its file."""
    script = script_of(agent.model.id)
    if script is not None:
        return script
    entries = (agent.model.options.additional_properties or {}).get("script")
    if entries is None:
        raise ModelError(
            f"there is no script for the model '{agent.model.id}'\n"
            f"    Call it within `with Script(…):`, or `register_script('{agent.model.id}', Script(…))`, "
            "or write `model.options.additionalProperties.script` in the file."
        )
    return file_script(entries)


def received(answers: Answers, request: WireRequest) -> Received:
    """The bytes of an answer: in one piece, or event by event. What fails at once fails here, not when it is read."""
    found, wire = answers(request), WIRES[request.path]
    if not isinstance(found, Fault):
        reply = _complete(found, request)
        return _pieces(wire.events(reply) if request.stream else [write_bytes(wire.whole(reply))])
    failure = found.error or ModelError("the connection failed: scripted", retryable=True)
    if found.after is None or not request.stream:
        raise failure
    return _pieces(islice(wire.events(_complete(found.reply, request)), found.after), failure)


def _complete(reply: Reply, request: WireRequest) -> Reply:
    """An answer with an id of its own in the conversation, and with the name of the model that was asked."""
    said = cast(list[object], request.body.get("messages") or request.body.get("input") or [])
    return replace(reply, id=reply.id or f"reply_{len(said)}", model=reply.model or str(request.body["model"]))


def _pieces(pieces: Iterable[bytes], failure: ModelError | None = None) -> Received:
    yield from pieces
    if failure is not None:
        raise failure


async def _async(pieces: Received) -> AsyncGenerator[bytes, None]:
    for piece in pieces:
        yield piece
