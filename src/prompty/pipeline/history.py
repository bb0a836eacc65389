"""History repair: turn any history into one that every API accepts.

Each call gets exactly one result, in order, directly after the turn that made it. Ids are unique and in a form the API
accepts. Valid messages are unchanged. Repair is deterministic, and appending messages does not change how the earlier
ones are repaired, so that the providers' prompt caches keep working.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from prompty.model.message import Json, Message, ToolCall, tool_result
from prompty.providers import ANY_ID
from prompty.safety.json import is_json_object
from prompty.wire.json_bytes import INVALID_JSON

NO_RESULT = "Error: No result: the run ended before this call returned."
_CARRIED_CALL = "responses_function_call"
_DETAILS = "reasoning_details"
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# Short enough for every API, even with a number appended.
_LONGEST = 50
_INVALID = re.compile(r"[^A-Za-z0-9_-]")


def normalize_history(messages: Sequence[Message], id_pattern: re.Pattern[str]) -> list[Message]:
    """Return the history with calls and results paired, under unique ids that match the whole pattern."""
    if not any(message.tool_calls or message.role == "tool" for message in messages):
        return list(messages)
    ids = _UniqueIds(id_pattern)
    history: list[Message] = []
    for message, results in _split_turns(_insert_calls(messages)):
        if message.role != "assistant" or not message.tool_calls:
            history.append(message)
            continue
        calls = tuple([_sendable(call, ids.assign(call.id)) for call in message.tool_calls])
        history.append(message if calls == message.tool_calls else replace(message, tool_calls=calls))
        for call, result in zip(calls, pair_results(message.tool_calls, results), strict=True):
            history.append(result if result.tool_call_id == call.id else replace(result, tool_call_id=call.id))
    return history


def strip_reasoning(messages: Sequence[Message]) -> list[Message]:
    """Return the history with reasoning only on turns that call tools. Models ignore it on other turns (001)."""
    return [
        replace(message, reasoning="", opaque={key: value for key, value in message.opaque.items() if key != _DETAILS})
        if not message.tool_calls and (message.reasoning or _DETAILS in message.opaque)
        else message
        for message in messages
    ]


def parse_stored(stored: Sequence[Json]) -> tuple[list[Message], list[str]]:
    """Return the valid messages, and a sentence for each invalid one."""
    messages, problems = [], []
    for position, entry in enumerate(stored):
        try:
            messages.append(Message.from_json(entry))
        except ValueError as error:
            problems.append(f"message {position + 1} is invalid: {error}")
    return messages, problems


def find_repairs(messages: Sequence[Message]) -> list[str]:
    """Describe what `normalize_history` would repair."""
    calls = sum(len(message.tool_calls) for message in messages if message.role == "assistant")
    results = sum(message.role == "tool" for message in messages)
    repaired = [message for message in normalize_history(messages, ANY_ID) if message.role == "tool"]
    missing = sum(message.text == NO_RESULT for message in repaired)
    stray = results - (calls - missing)
    problems = [f"{missing} calls have no result"] if missing else []
    return problems + ([f"{stray} results have no call"] if stray > 0 else [])


def _insert_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """Insert the calls that results carry before them, unless they are there already.

    Document 000 stores a call of the Responses API in the metadata of its result.
    """
    if not any(_CARRIED_CALL in message.opaque for message in messages):
        return messages
    known = {call.id for message in messages for call in message.tool_calls}
    inserted: list[Message] = []
    for message in messages:
        carried = message.opaque.get(_CARRIED_CALL)
        if message.role == "tool" and isinstance(carried, Mapping) and message.tool_call_id not in known:
            call = {"id": message.tool_call_id, "function": carried}
            inserted.append(Message("assistant", tool_calls=[ToolCall.from_wire(call)]))
        inserted.append(message)
    return inserted


def _split_turns(messages: Sequence[Message]) -> list[tuple[Message, list[Message]]]:
    """Return each message with its results: those before the next assistant turn, even after user messages."""
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
    return turns


def pair_results(calls: Sequence[ToolCall], results: Sequence[Message]) -> list[Message]:
    """Return one result per call: the first with its id, or else the next whose id belongs to no call.

    A call without a result gets one that says so. Remaining results are dropped.
    """
    unused = list(results)
    paired = [_take_result(unused, call.id) for call in calls]
    known = {call.id for call in calls}
    strays = iter([result for result in unused if result.tool_call_id not in known])
    return [
        result or next(strays, None) or tool_result(call.id, NO_RESULT)
        for call, result in zip(calls, paired, strict=True)
    ]


def _take_result(results: list[Message], call_id: str) -> Message | None:
    for position, result in enumerate(results):
        if result.tool_call_id == call_id:
            return results.pop(position)
    return None


class _UniqueIds:
    """Assigns each call id once; a repeated id gets a number."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._times: dict[str, int] = {}

    def assign(self, wanted: str) -> str:
        base = wanted if self._pattern.fullmatch(wanted) else _INVALID.sub("_", wanted)[:_LONGEST] or "call"
        assigned = base
        while assigned in self._times:
            self._times[base] += 1
            assigned = f"{base[:_LONGEST]}_{self._times[base]}"
        self._times[assigned] = 1
        return assigned


def _sendable(call: ToolCall, call_id: str) -> ToolCall:
    """Return the call in a form that every server accepts. Some fail if an old call's arguments are not an object."""
    if call.id != call_id:
        call = replace(call, id=call_id)
    if not _NAME.fullmatch(call.name):
        call = replace(call, name=_INVALID.sub("_", call.name) or "unnamed")
    if is_json_object(call.arguments):
        return call
    return replace(call, arguments=json.dumps({INVALID_JSON: call.arguments}) if call.arguments.strip() else "{}")
