"""The script that a file holds: the conversation says how far it has come, so nothing is remembered between calls."""

from itertools import count, groupby, takewhile
from typing import Any, NamedTuple, cast

from prompty.errors import RequestError
from prompty.model.message import Json, ToolCall
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, responses
from prompty.testing.script import Answers, Fault, answer, call_with, nothing_left, numbered

_FORMS = "Write a text, `{call: name, arguments: {…}}`, a list of such calls, or `{text: …, calls: […], reasoning: …}`."


def file_script(entries: object) -> Answers:
    """What answers by the `script` of a file."""
    if not isinstance(entries, list):
        raise RequestError("the `script` of the file is not a list", _FORMS)
    items = [_item(entry) for entry in entries]

    def answers(request: WireRequest, /) -> Reply | Fault:
        turns = _TURNS[request.path](request.body)
        position = _answered(turns)
        if position >= len(items) and entries and isinstance(entries[-1], str):
            position = -1
        elif position >= len(items):
            raise nothing_left(len(items), "End the `script` of the file with a text, which is then repeated.")
        # numbers go on from the calls that were made, so that no id of a conversation stands twice
        return numbered(items[position], count(1 + sum(turn.calls for turn in turns)))

    return answers


def _item(entry: object) -> Reply:
    match entry:
        case str():
            return answer(entry)
        case list():
            return answer("", *map(_call, entry))
        case {"call": _}:
            return answer("", _call(entry))
        case dict() if entry and entry.keys() <= {"text", "calls", "reasoning"}:
            calls = map(_call, entry.get("calls") or ())
            return answer(str(entry.get("text", "")), *calls, reasoning=str(entry.get("reasoning", "")))
    raise RequestError(f"the `script` of the file has an answer that cannot be read: {entry!r}", _FORMS)


def _call(entry: object) -> ToolCall:
    match entry:
        case {"call": str(name), "arguments": dict(arguments), **rest} if not rest:
            return call_with(name, arguments)
        case {"call": str(name), **rest} if not rest:
            return call_with(name, {})
    raise RequestError(f"the `script` of the file has a call that cannot be read: {entry!r}", _FORMS)


class Turn(NamedTuple):
    """Who said a part of a conversation, and how many calls are in it."""

    role: str
    calls: int = 0


def _answered(turns: list[Turn]) -> int:
    """How often the model has answered since the user spoke."""
    since = takewhile(lambda turn: turn.role != "user", reversed(turns))
    return sum(role == "assistant" for role, _ in groupby(since, key=lambda turn: turn.role))


def _chat_turns(body: Json) -> list[Turn]:
    """Media in results come as a message of the user's (W15), which is none of the user's."""
    found = [Turn("")]
    for message in cast(list[dict[str, Any]], body["messages"]):
        parts = message["content"]
        is_media = isinstance(parts, list) and all(part["type"] != "text" for part in parts)
        role = "tool" if is_media and found[-1].role == "tool" else message["role"]
        found.append(Turn(role, len(message.get("tool_calls") or ())))
    return found[1:]


def _responses_turns(body: Json) -> list[Turn]:
    """What has no role and is no result is the assistant's."""
    items = cast(list[dict[str, Any]], body["input"])
    roles = [item.get("role") or ("tool" if item["type"] == "function_call_output" else "assistant") for item in items]
    return [Turn(role, int(item.get("type") == "function_call")) for role, item in zip(roles, items, strict=True)]


def _messages_turns(body: Json) -> list[Turn]:
    """A user's turn of nothing but results is none of the user's."""
    turns = cast(list[dict[str, Any]], body["messages"])
    kinds = [(turn["role"], [block["type"] for block in turn["content"]]) for turn in turns]
    return [Turn("tool" if set(kind) == {"tool_result"} else role, kind.count("tool_use")) for role, kind in kinds]


_TURNS = {
    chat.API.path: _chat_turns,
    responses.API.path: _responses_turns,
    messages.API.path: _messages_turns,
}
