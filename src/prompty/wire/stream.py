"""Putting a streamed reply together (§8.6)."""

from dataclasses import dataclass, field
from typing import Protocol

from prompty.model.event import Delta, ToolCallDelta
from prompty.model.message import Json, ToolCall
from prompty.model.reply import Reply
from prompty.safety.json import is_json_object


class Decoder(Protocol):
    """Turns the events of one stream into deltas, and at the end into the reply that the same answer would have
    been without a stream."""

    def feed(self, event: Json, /) -> list[Delta]: ...

    def finish(self) -> Reply:
        """The whole reply; StreamCut when the stream ended early."""
        ...


@dataclass
class _OpenCall:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)
    extra: Json = field(default_factory=dict)

    def may_be(self, call_id: str | None, name: str | None) -> bool:
        return (not call_id or self.id in ("", call_id)) and (not name or self.name in ("", name))


class CallAssembler:
    """Calls that arrive in pieces, by index. Where a server leaves the index out or repeats it, a new id or a new
    name opens a new call."""

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []
        self._at: dict[int, int] = {}

    def add(self, index: int | None, call_id: str | None, name: str | None, arguments: str | None) -> ToolCallDelta:
        position = self._position(index, call_id, name)
        call = self._calls[position]
        call.id = call.id or call_id or ""
        call.name = call.name or name or ""
        if arguments:
            call.arguments.append(arguments)
        return ToolCallDelta(position, call.id, call.name, arguments or "")

    def keep(self, position: int, extra: object) -> None:
        """Keep what stands beside a call (`ToolCall.extra`)."""
        if isinstance(extra, dict):
            self._calls[position].extra |= extra

    def _position(self, index: int | None, call_id: str | None, name: str | None) -> int:
        position = self._known(index, call_id, name)
        if position is None:
            position = len(self._calls)
            self._calls.append(_OpenCall(call_id or "", name or ""))
        if index is not None:
            self._at[index] = position
        return position

    def _known(self, index: int | None, call_id: str | None, name: str | None) -> int | None:
        """The call a piece continues: the one at its index (the last one, without an index), or one of its id."""
        if not self._calls or (index is not None and index not in self._at):
            return None
        here = len(self._calls) - 1 if index is None else self._at[index]
        of_this_id = (position for position, call in enumerate(self._calls) if call_id and call.id == call_id)
        return next((found for found in (here, *of_this_id) if self._calls[found].may_be(call_id, name)), None)

    def calls(self, *, cut: bool = False) -> tuple[ToolCall, ...]:
        """The calls, numbered where the server gave them no id. Of an answer that was `cut` off, the last one counts
        only when its arguments are whole: one that has none yet may have been meant to have some (P3)."""
        calls = [(call, "".join(call.arguments)) for call in self._calls]
        if cut and calls and not is_json_object(calls[-1][1]):
            calls.pop()
        return tuple(
            ToolCall(id=call.id or f"call_{position}", name=call.name, arguments=arguments or "{}", extra=call.extra)
            for position, (call, arguments) in enumerate(calls)
        )
