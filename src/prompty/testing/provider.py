"""The provider `scripted`: the real providers' wire formats over a transport that answers from a script, which may be
in the file (`model: {provider: scripted, script: […]}`).

The transport returns the bytes that a server would send.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, groupby, takewhile
from typing import Any, NamedTuple, cast

from prompty.errors import ModelError, RequestError
from prompty.model.agent import SCRIPTED, PromptAgent
from prompty.model.message import Json, Reply, ToolCall
from prompty.model.request import WireRequest
from prompty.providers import Provider
from prompty.providers.anthropic import messages
from prompty.providers.openai import chat, embeddings, responses
from prompty.testing.script import (
    AsyncLocalTransport,
    Chunks,
    Fault,
    LocalTransport,
    Responder,
    answer,
    assign_call_ids,
    create_call,
    create_exhausted_error,
    find_script,
    respond,
)
from prompty.wire.json_bytes import write_bytes

_FORMS = "Write a text, `{call: name, arguments: {…}}`, a list of such calls, or `{text: …, calls: […], reasoning: …}`."


def parse_file_script(entries: Sequence[object]) -> Responder:
    """Return a responder for the `script` of a file."""
    replies = [_parse_reply(entry) for entry in entries]

    def respond(request: WireRequest, /) -> Reply | Fault:
        parts = _PARSERS[request.path](request.body)
        position = _count_replies(parts)
        if position >= len(replies) and entries and isinstance(entries[-1], str):
            position = -1
        elif position >= len(replies):
            raise create_exhausted_error(len(replies), "End the file's `script` with a text, which is then repeated.")
        # continue the numbers of earlier calls, so that every id in a conversation is unique
        return assign_call_ids(replies[position], count(1 + sum(part.calls for part in parts)))

    return respond


def parse_file_vectors(entries: Sequence[object]) -> Callable[[WireRequest], Chunks]:
    """Return a function that answers embedding requests with one vector per text, repeating the last."""
    if not entries or not all(map(_is_vector, entries)):
        raise RequestError("the file's `script` is not a list of vectors", "Write a list, such as `[[0.1, 0.2]]`.")
    vectors = cast(Sequence[list[float]], entries)

    def get_chunks(request: WireRequest, /) -> Chunks:
        texts = request.body["input"]
        number = len(texts) if isinstance(texts, list) else 1
        chosen = [vectors[min(index, len(vectors) - 1)] for index in range(number)]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(chosen)]
        usage = {"prompt_tokens": 10, "total_tokens": 10}
        yield write_bytes({"object": "list", "data": data, "model": request.body["model"], "usage": usage})

    return get_chunks


def _is_vector(entry: object) -> bool:
    return isinstance(entry, list) and all(isinstance(number, int | float) for number in entry)


def _parse_reply(entry: object) -> Reply:
    match entry:
        case str():
            return answer(entry)
        case list():
            return answer("", *map(_parse_call, entry))
        case {"call": _}:
            return answer("", _parse_call(entry))
        case dict() if entry and entry.keys() <= {"text", "calls", "reasoning"}:
            calls = map(_parse_call, entry.get("calls") or ())
            return answer(str(entry.get("text", "")), *calls, reasoning=str(entry.get("reasoning", "")))
    raise RequestError(f"the file's `script` has an invalid answer: {entry!r}", _FORMS)


def _parse_call(entry: object) -> ToolCall:
    match entry:
        case {"call": str(name), "arguments": dict(arguments), **rest} if not rest:
            return create_call(name, arguments)
        case {"call": str(name), **rest} if not rest:
            return create_call(name, {})
    raise RequestError(f"the file's `script` has an invalid call: {entry!r}", _FORMS)


class ConversationPart(NamedTuple):
    """The role of a part of the conversation, and the number of its calls."""

    role: str
    calls: int = 0


def _count_replies(parts: list[ConversationPart]) -> int:
    """Count the model's replies since the last user message."""
    recent = takewhile(lambda part: part.role != "user", reversed(parts))
    return sum(role == "assistant" for role, _ in groupby(recent, key=lambda part: part.role))


def _parse_chat(body: Json) -> list[ConversationPart]:
    """Media in tool results are sent as a user message after them, which counts as a part of the results."""
    parts = [ConversationPart("")]
    for message in cast(list[dict[str, Any]], body["messages"]):
        content = message["content"]
        is_media = isinstance(content, list) and all(block["type"] != "text" for block in content)
        role = "tool" if is_media and parts[-1].role == "tool" else message["role"]
        parts.append(ConversationPart(role, len(message.get("tool_calls") or ())))
    return parts[1:]


def _parse_responses(body: Json) -> list[ConversationPart]:
    """Items without a role that are not results belong to the assistant."""
    items = cast(list[dict[str, Any]], body["input"])
    roles = [item.get("role") or ("tool" if item["type"] == "function_call_output" else "assistant") for item in items]
    calls = [int(item.get("type") == "function_call") for item in items]
    return [ConversationPart(role, count) for role, count in zip(roles, calls, strict=True)]


def _parse_messages(body: Json) -> list[ConversationPart]:
    """A user message that contains only results is not counted as the user's."""
    parts = []
    for message in cast(list[dict[str, Any]], body["messages"]):
        kinds = [block["type"] for block in message["content"]]
        role = "tool" if set(kinds) == {"tool_result"} else message["role"]
        parts.append(ConversationPart(role, kinds.count("tool_use")))
    return parts


_PARSERS = {
    chat.API.path: _parse_chat,
    responses.API.path: _parse_responses,
    messages.API.path: _parse_messages,
}


def _find_answers(agent: PromptAgent) -> Callable[[WireRequest], Chunks]:
    """Return a function that answers the agent's requests with the bytes that a server would send."""
    if agent.model.api_type == "embedding":
        return parse_file_vectors(_get_entries(agent))
    # The script registered for the model, or the one in the file. Not called within `with Script(…):`.
    script = find_script(agent)
    return partial(respond, parse_file_script(_get_entries(agent)) if script is None else script)


def _get_entries(agent: PromptAgent) -> Sequence[object]:
    """Return the script in the file."""
    if agent.model.script is None:
        raise ModelError(
            f"the model '{agent.model.id}' has no script\n"
            "    Write it in the file: `model: {provider: scripted, script: [Hello]}`. "
            f"In a test, call it within `with Script(…):`, or `register_script('{agent.model.id}', Script(…))`."
        )
    return agent.model.script


PROVIDER = Provider(
    key=SCRIPTED,
    apis={"chat": chat.API, "responses": responses.API, "messages": messages.API, "embedding": embeddings.API},
    transport=lambda agent: LocalTransport(_find_answers(agent)),
    transport_async=lambda agent: AsyncLocalTransport(_find_answers(agent)),
    hosts=None,
)
