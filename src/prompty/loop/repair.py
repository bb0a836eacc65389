"""A history that every API takes, from whatever history there is (L1, L7).

Each call has exactly one result, in order, directly after the turn that made it; ids are unique and of a form the API
takes. What is fine is left alone, the same input gives the same output, and a longer history keeps what a shorter one
was repaired to, so that providers' caches keep working.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prompty.model.message import Json, Message, ToolCall, tool_result
from prompty.model.reply import tool_call_to_wire
from prompty.pipeline.messages import NotAMessage, message_from
from prompty.providers import ANY_ID
from prompty.safety.json import is_json_object
from prompty.wire.json_bytes import INVALID_JSON

NO_RESULT = "Error: There is no result: the run ended before this call was answered."
_ID = re.compile(r"[A-Za-z0-9_-]+")
# short enough for every API, with a number behind it
_LONGEST = 50
_ODD = re.compile(r"[^A-Za-z0-9_-]")


def repaired(messages: Sequence[Message], id_pattern: re.Pattern[str]) -> list[Message]:
    """The history with calls and results paired, under ids that are unique and match the pattern whole."""
    ids = _Ids(id_pattern)
    history: list[Message] = []
    for said, results in _turns(messages):
        calls = said.tool_calls if said.role == "assistant" else []
        unique = [ids.unique(call.id) for call in calls]
        history.append(_with_ids(said, calls, unique))
        history += map(_answering, _paired(calls, results), unique)
    return history


def readable(stored: Sequence[Json]) -> tuple[list[Message], list[str]]:
    """The messages in what was stored, and what cannot be read of it."""
    messages, problems = [], []
    for position, entry in enumerate(stored):
        try:
            messages.append(message_from(entry))
        except (NotAMessage, TypeError, ValueError) as error:
            problems.append(f"message {position + 1} cannot be read: {error}")
    return messages, problems


def problems_in(messages: Sequence[Message]) -> list[str]:
    """What is wrong with a history that `repaired` puts right, in words."""
    calls = sum(len(message.tool_calls) for message in messages if message.role == "assistant")
    results = [message for message in messages if message.role == "tool"]
    kept = [message for message in repaired(messages, ANY_ID) if message.role == "tool"]
    missing = sum(message.text == NO_RESULT for message in kept)
    answering = calls - missing
    problems = [f"{missing} calls have no result"] if missing else []
    return problems + ([f"{len(results) - answering} results answer no call"] if len(results) > answering else [])


def _turns(messages: Sequence[Message]) -> Iterator[tuple[Message, list[Message]]]:
    """Each message with the results that belong to it: those up to the next turn of the assistant, also when somebody
    else spoke in between."""
    turns: list[tuple[Message, list[Message]]] = []
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        own: list[Message] = []
        if message.role == "assistant":
            results = own
        turns.append((message, own))
    return iter(turns)


def _paired(calls: Sequence[ToolCall], results: Sequence[Message]) -> list[Message]:
    """One result for each call: that of its id, the first of several equal ones for the first call; then those whose
    id belongs to no call, in order. What is left over answers nothing and goes."""
    left = list(results)
    found: list[Message | None] = [_taken(left, call.id) for call in calls]
    known = {call.id for call in calls}
    strangers = iter([result for result in left if result.tool_call_id not in known])
    found = [result or next(strangers, None) for result in found]
    return [result or tool_result(call.id, NO_RESULT) for call, result in zip(calls, found, strict=True)]


def _taken(results: list[Message], call_id: str) -> Message | None:
    for position, result in enumerate(results):
        if result.tool_call_id == call_id:
            return results.pop(position)
    return None


class _Ids:
    """Ids that were given out, so that none is given out twice."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._times: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        base = wanted if self._pattern.fullmatch(wanted) else _ODD.sub("_", wanted)[:_LONGEST] or "call"
        found = base
        while found in self._times:
            self._times[base] += 1
            found = f"{base[:_LONGEST]}_{self._times[base]}"
        self._times[found] = 1
        return found


def _with_ids(message: Message, calls: Sequence[ToolCall], ids: Sequence[str]) -> Message:
    """The turn with its calls under these ids, and with names and arguments that every server takes."""
    wanted = [_sendable(call, own) for call, own in zip(calls, ids, strict=True)]
    if wanted == list(calls):
        return message
    entries: list[Json] = [tool_call_to_wire(call) for call in wanted]
    return replace(message, metadata={**message.metadata, "tool_calls": entries})


def _sendable(call: ToolCall, own_id: str) -> ToolCall:
    """A call as servers take it back. Some read the arguments of old calls, and fail on what is not a JSON object."""
    if call.id != own_id:
        call = replace(call, id=own_id)
    if not _ID.fullmatch(call.name):
        call = replace(call, name=_ODD.sub("_", call.name) or "unnamed")
    if is_json_object(call.arguments):
        return call
    return replace(call, arguments=json.dumps({INVALID_JSON: call.arguments}) if call.arguments.strip() else "{}")


def _answering(result: Message, call_id: str) -> Message:
    if result.tool_call_id == call_id:
        return result
    return replace(result, metadata={**result.metadata, "tool_call_id": call_id})
