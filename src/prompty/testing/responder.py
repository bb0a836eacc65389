"""The bytes that a server would send for a reply or a fault."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import cast

from prompty.errors import ModelError, RequestError
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.testing.encoding import WIRES, Wire
from prompty.testing.local import Chunks
from prompty.wire.json_bytes import write_bytes

_EMPTY_REPLY = Reply()


@dataclass(frozen=True, slots=True)
class Fault:
    """A failing call. In a stream it can fail `after` a number of events of `reply`; otherwise it fails at once."""

    error: ModelError | None = None
    after: int | None = None
    reply: Reply = _EMPTY_REPLY


Responder = Callable[[WireRequest], Reply | Fault]


def respond(responder: Responder, request: WireRequest) -> Chunks:
    """Return the bytes of a reply, whole or event by event. An immediate fault is raised here, not on reading."""
    wire = _find_wire(request)
    reply = responder(request)
    if not isinstance(reply, Fault):
        complete = _complete(reply, request)
        return _yield_chunks(wire.events(complete) if request.stream else [write_bytes(wire.whole(complete))])
    error = _copy_error(reply.error) if reply.error else ModelError("the connection failed: scripted", retryable=True)
    if reply.after is None or not request.stream:
        raise error
    return _yield_chunks(islice(wire.events(_complete(reply.reply, request)), reply.after), error)


def _copy_error(error: ModelError) -> ModelError:
    """Return a copy, because a fault can be reused, and each error names its own call."""
    copied = type(error).__new__(type(error), *error.args)
    vars(copied).update(vars(error))
    return copied


def _find_wire(request: WireRequest) -> Wire:
    if request.path in WIRES:
        return WIRES[request.path]
    raise RequestError(
        f"a script cannot answer requests to '{request.path}', only to {', '.join(WIRES)}",
        "Replay a recording of the real provider with `Player`.",
    )


def _complete(reply: Reply, request: WireRequest) -> Reply:
    """Fill in an id that is unique in the conversation, and the requested model."""
    history = cast(list[object], request.body.get("messages") or request.body.get("input") or [])
    return replace(
        reply, id=reply.id or f"reply_{len(history)}", model=reply.model or str(request.body.get("model", ""))
    )


def _yield_chunks(chunks: Iterable[bytes], error: ModelError | None = None) -> Chunks:
    yield from chunks
    if error is not None:
        raise error
