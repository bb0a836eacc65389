"""Scripts: what a scripted model answers, one item after the other."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock
from typing import Any, Self, TypeAlias

from prompty.errors import ModelError
from prompty.model.message import ToolCall
from prompty.model.reply import Reply, Usage
from prompty.model.request import WireRequest

# The id of a call that waits for its number.
_NUMBERED = "call_<n>"
_NOTHING = Reply()
_USAGE = Usage(input_tokens=10, output_tokens=5)


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that fails: at once, or, in a stream, `after` so many events of `reply`."""

    error: ModelError | None = None
    after: int | None = None
    reply: Reply = _NOTHING


Item: TypeAlias = str | ToolCall | Sequence[ToolCall] | Reply | Fault | Callable[[WireRequest], "Item"]
Answers = Callable[[WireRequest], Reply | Fault]


def call(name: str, /, *, id: str | None = None, **arguments: object) -> ToolCall:
    """A call of a tool. Without an `id` the script numbers it: `call_1`, `call_2` …"""
    return call_with(name, arguments, id)


def call_with(name: str, arguments: Mapping[str, object], id: str | None = None) -> ToolCall:
    """The same, for arguments of any name."""
    text = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    return ToolCall(id=_NUMBERED if id is None else id, name=name, arguments=text)


def answer(
    text: str = "",
    *calls: ToolCall,
    reasoning: str = "",
    finish_reason: str | None = None,
    usage: Usage | None = None,
    **metadata: object,
) -> Reply:
    """An answer: text, calls, or both."""
    return Reply(
        text=text,
        tool_calls=calls,
        reasoning=reasoning,
        finish_reason=finish_reason,
        usage=_USAGE if usage is None else usage,
        metadata=metadata,
    )


def numbered(reply: Reply, numbers: Iterator[int]) -> Reply:
    """The same with an id for each call that waits for one."""
    calls = (replace(call, id=f"call_{next(numbers)}") if call.id == _NUMBERED else call for call in reply.tool_calls)
    return replace(reply, tool_calls=tuple(calls))


class Script:
    """Answers in the order they are given here, to whoever asks next; `requests` are the bodies that were sent.

    Within `with script:` it answers for every prompt of the provider `scripted`, in this context: threads that copy
    it and tasks too.
    """

    def __init__(self, *items: Item) -> None:
        self.requests: list[dict[str, Any]] = []
        self._items, self._numbers, self._lock = items, count(1), Lock()

    def __call__(self, request: WireRequest, /) -> Reply | Fault:
        item = self._next(request)
        while callable(item):
            item = item(request)
        found = _read(item)
        if isinstance(found, Fault):
            return replace(found, reply=numbered(found.reply, self._numbers))
        return numbered(found, self._numbers)

    def _next(self, request: WireRequest) -> Item:
        body = deepcopy(request.body)
        with self._lock:
            position = len(self.requests)
            self.requests.append(body)
        if position < len(self._items):
            return self._items[position]
        raise nothing_left(len(self._items), "Give `Script(…)` one item for each call of the model, retries included.")

    def __enter__(self) -> Self:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _entered.set(_entered.get()[:-1])


def _read(item: str | ToolCall | Sequence[ToolCall] | Reply | Fault) -> Reply | Fault:
    match item:
        case Reply() | Fault():
            return item
        case str():
            return answer(item)
        case ToolCall():
            return answer("", item)
        case _:
            return answer("", *item)


def nothing_left(number: int, fix: str) -> ModelError:
    return ModelError(f"the script has no answer left: it had {number}\n    {fix}")


# A stack without tokens, so that one script may be entered in several threads at once.
_entered: ContextVar[tuple[Script, ...]] = ContextVar("prompty_scripts", default=())
_registered: dict[str, Script] = {}


def register_script(name: str, script: Script) -> None:
    """Let files say `model: {provider: scripted, id: name}` and be answered by this script."""
    _registered[name] = script


def script_of(model_id: str) -> Script | None:
    """The script of this context, else the one registered for a model."""
    entered = _entered.get()
    return entered[-1] if entered else _registered.get(model_id)
