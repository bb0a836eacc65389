"""Script: the replies of a scripted model, in order, and the transport that sends them as a server would."""

import json
import os
import warnings
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice
from threading import Lock
from typing import Any, Self, TypeAlias, cast

from prompty.errors import ModelError, PromptyWarning, RequestError, WrongArgument
from prompty.model.agent import PromptAgent
from prompty.model.message import Reply, ToolCall, Usage
from prompty.model.request import WireRequest
from prompty.providers import AsyncBytes, AsyncTransport, Bytes, Transport, TransportSubstitute
from prompty.providers.credentials import OFFLINE_VARIABLE
from prompty.registry import DEFAULT, ExtensionPoint, Registry
from prompty.testing.encoding import WIRES, Wire
from prompty.wire.json_bytes import write_bytes

Chunks = Generator[bytes, None, None]
_EMPTY_REPLY = Reply()
_UNNUMBERED = "call_<n>"  # the id of a call until the script numbers it
_USAGE = Usage(input_tokens=10, output_tokens=5)


def forbid_models() -> None:
    """Let each call to a model outside of a script or a recording raise RequestError, in this process and in those that
    it starts from now on. With pytest, write `prompty_offline = true`."""
    os.environ[OFFLINE_VARIABLE] = "1"


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


async def _iterate(chunks: Chunks) -> AsyncGenerator[bytes, None]:
    for chunk in chunks:
        yield chunk


@dataclass(frozen=True, slots=True)
class Fault:
    """A failing call. In a stream it can fail `after` a number of events of `reply`; otherwise it fails at once."""

    error: ModelError | None = None
    after: int | None = None
    reply: Reply = _EMPTY_REPLY


ScriptItem: TypeAlias = str | ToolCall | Sequence[ToolCall] | Reply | Fault | Callable[[WireRequest], "ScriptItem"]
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


def call(name: str, /, *, id: str | None = None, **arguments: object) -> ToolCall:
    """Create a tool call. Without an `id` the script numbers it: `call_1`, `call_2` …"""
    return create_call(name, arguments, id)


def create_call(name: str, arguments: Mapping[str, object], id: str | None = None) -> ToolCall:
    """Create a tool call whose arguments can have any name, `id` included."""
    if not isinstance(name, str):
        raise WrongArgument("call()", name, "the name of a tool", "Write call('name', argument='value').")
    text = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    return ToolCall(id=_UNNUMBERED if id is None else id, name=name, arguments=text)


def answer(
    text: str = "",
    *calls: ToolCall,
    reasoning: str = "",
    finish_reason: str | None = None,
    usage: Usage | None = None,
    **opaque: object,
) -> Reply:
    """Create a reply with text, tool calls, or both."""
    if not isinstance(text, str):
        raise WrongArgument("answer()", text, "text", "Write answer('text').")
    return Reply(
        text=text,
        tool_calls=calls,
        reasoning=reasoning,
        finish_reason=finish_reason,
        usage=_USAGE if usage is None else usage,
        opaque=opaque,
    )


def assign_call_ids(reply: Reply, numbers: Iterator[int]) -> Reply:
    """Return the reply with a number for each call that has no id yet."""
    calls = (replace(call, id=f"call_{next(numbers)}") if call.id == _UNNUMBERED else call for call in reply.tool_calls)
    return replace(reply, tool_calls=tuple(calls))


class Script(TransportSubstitute):
    """Replies for successive calls. `requests` collects the bodies that were sent.

    Within `with script:` it replies to every prompt in this context, regardless of its provider, including tasks and
    threads that copy the context. Executors that the host registered still run. A reply that no call
    used is a warning at the end of the block, unless the block raised.
    """

    def __init__(self, *items: ScriptItem) -> None:
        self.requests: list[dict[str, Any]] = []
        self._items, self._numbers, self._lock = items, count(1), Lock()
        self._blocks = 0

    def __enter__(self) -> Self:
        with self._lock:
            self._blocks += 1
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        with self._lock:
            self._blocks -= 1
            unused = self._items[len(self.requests) :] if self._blocks == 0 and not any(raised) else ()
        if unused:
            replies = f"{len(unused)} of {len(self._items)} replies of the Script"
            message = f"{replies} not used at the end of its block, the first of them {unused[0]!r:.200}"
            warnings.warn(message, PromptyWarning, stacklevel=2)

    def __call__(self, request: WireRequest, /) -> Reply | Fault:
        item = self._next(request)
        while callable(item):
            item = item(request)
        reply = _to_reply(item)
        if isinstance(reply, Fault):
            return replace(reply, reply=assign_call_ids(reply.reply, self._numbers))
        return assign_call_ids(reply, self._numbers)

    def _next(self, request: WireRequest) -> ScriptItem:
        body = deepcopy(request.body)
        with self._lock:
            position = len(self.requests)
            self.requests.append(body)
        if position < len(self._items):
            return self._items[position]
        raise create_exhausted_error(
            len(self._items), "Pass `Script(…)` one item for each model call, including retries."
        )

    def transport(self) -> Transport:
        return LocalTransport(partial(respond, self))

    def transport_async(self) -> AsyncTransport:
        return AsyncLocalTransport(partial(respond, self))


def _to_reply(item: str | ToolCall | Sequence[ToolCall] | Reply | Fault) -> Reply | Fault:
    match item:
        case Reply() | Fault():
            return item
        case str():
            return answer(item)
        case ToolCall():
            return answer("", item)
        case [*calls] if all(isinstance(one, ToolCall) for one in calls):
            return answer("", *calls)
    raise WrongArgument("Script()", item, "replies", "Pass text, call('tool', …), a list of calls, or answer(…).")


def create_exhausted_error(number: int, fix: str) -> ModelError:
    return ModelError(f"the script has no reply left: it had {number}\n    {fix}")


SCRIPTS: ExtensionPoint[Script] = ExtensionPoint("script")


def register_script(name: str, script: Script, *, registry: Registry = DEFAULT) -> None:
    """Let this script reply to files with `model: {provider: scripted, id: name}`."""
    registry[SCRIPTS].register(name, script)


def find_script(agent: PromptAgent) -> Script | None:
    """Return the script registered for the agent's model."""
    scripts, name = agent.registry[SCRIPTS], agent.model.id
    return scripts.get(name) if scripts.is_registered(name) else None
