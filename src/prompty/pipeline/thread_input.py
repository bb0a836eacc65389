"""Inputs of kind `thread`: conversations that a prompt continues.

A `Message` is an object of the caller's program and brings anything. A dictionary may come from a browser, so it brings
text, media and complete calls of the file's tools. The rest of it, such as metadata and reasoning, is left out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import cast

from prompty.errors import InputError
from prompty.model.agent import PromptAgent
from prompty.model.content import ContentPart, TextPart
from prompty.model.message import INSTRUCTION_ROLES, Message, parse_messages
from prompty.model.tool import READ_SKILL, McpTool, OpenApiTool, SkillsTool
from prompty.pipeline.validate import resolve_kind
from prompty.wire.request import get_inline_data, is_url

_FIX = (
    "Remove it, or pass a `Message` object, which brings anything. `Message.from_json` reads a dictionary that your "
    "own program wrote."
)


def find_threads(agent: PromptAgent, inputs: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of the inputs that are threads."""
    for declared in agent.inputs:
        value = inputs.get(declared.name)
        if value is not None and resolve_kind(declared, value) == "thread":
            yield declared.name


def parse_thread(agent: PromptAgent, name: str, value: object) -> list[Message]:
    """Return the messages of a thread. Raise InvalidMessage for an entry that is not a message, and InputError for a
    dictionary that brings what only a `Message` may bring."""
    messages = parse_messages(value)
    entries = cast(Sequence[object], value["messages"] if isinstance(value, Mapping) else value)
    problem = next(_find_problems(agent, entries, messages), None)
    if problem is not None:
        raise InputError(name, f"Input '{name}' is not a valid thread: {problem}", _FIX, "Remove it.")
    return [
        message if isinstance(entry, Message) else _drop_extras(message)
        for entry, message in zip(entries, messages, strict=True)
    ]


def _find_problems(agent: PromptAgent, entries: Sequence[object], messages: Sequence[Message]) -> Iterator[str]:
    tools = frozenset(_list_functions(agent))
    asked: set[str | None] = set()  # the calls that the results here belong to
    for number, (entry, message) in enumerate(zip(entries, messages, strict=True), start=1):
        if message.role != "tool":
            asked = {call.id for call in message.tool_calls if message.role == "assistant"}
        if isinstance(entry, Message):
            continue
        if message.role in INSTRUCTION_ROLES:
            yield f"message {number} is a dictionary with the role '{message.role}'"
        if any(map(_is_file_id, message.content)):
            yield f"message {number} is a dictionary with the id of a file"
        if message.role == "tool" and message.tool_call_id not in asked:
            yield f"message {number} is a dictionary with a result, and no message directly before it has the call"
        if message.role == "assistant" and message.tool_calls:
            for call in message.tool_calls:
                if call.name not in tools:
                    yield f"message {number} is a dictionary that calls {call.name!r:.80}, which is no tool of the file"
            following = messages[number : number + len(message.tool_calls) + 1]
            results = takewhile(lambda message: message.role == "tool", following)
            if Counter(call.id for call in message.tool_calls) != Counter(result.tool_call_id for result in results):
                yield f"message {number} is a dictionary with calls that are not directly followed by one result each"


def _is_file_id(part: ContentPart) -> bool:
    return not isinstance(part, TextPart) and not is_url(part.value) and get_inline_data(part) is None


def _list_functions(agent: PromptAgent) -> Iterator[str]:
    """Yield the names of the functions that the file names. Those that only a server lists are not among them."""
    for tool in agent.tools:
        yield tool.name
        listed: Sequence[str] = ()
        match tool:
            case McpTool():
                listed = tool.allowed_tools or ()
            case OpenApiTool():
                listed = tool.operations or ()
            case SkillsTool():
                listed = (READ_SKILL,)
        for function in listed:
            yield function
            yield f"{tool.name}_{function}"  # its name if another tool has the short one


def _drop_extras(message: Message) -> Message:
    calls = message.tool_calls if message.role == "assistant" else ()
    return Message(
        message.role,
        [part if part.extra is None else replace(part, extra=None) for part in message.content],
        tool_calls=[replace(call, extra={}) for call in calls],
        tool_call_id=message.tool_call_id,
        is_error=message.is_error,
    )
