"""A conversation that fits: the oldest units go first, and a summary stands for them (L7).

A unit is a message, or an answer with calls together with all its results. System messages always stay, and so do the
last user message and the last unit: without them there would be nothing to answer.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompty.model.content import TextPart
from prompty.model.message import INSTRUCTION_ROLES, Message, Usage, user

SUMMARY = "[Summary of earlier conversation]"
CHARACTERS_PER_TOKEN = 4.0
_MEDIA = 1_000  # about what an image costs
_LONGEST_SUMMARY = 2_000
_LONGEST_LINE = 120


@dataclass(frozen=True, slots=True)
class Tokens:
    """A size in tokens. They are counted by what the model says it read, and estimated before it has said so."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """How much of a conversation is sent: characters, or `Tokens(n)`. `summary` sums up what is left out: a function of
    the messages and the most characters it may take, or a .prompty file with the inputs `conversation` and
    `characters`; without it, or if it fails, a plain list of what the user asked."""

    limit: int | Tokens
    summary: Callable[[list[Message], int], str | Awaitable[str]] | str | Path | None = None


def characters(context: Context, ratio: float) -> int:
    """The limit in characters, with so many characters to a token."""
    return context.limit if isinstance(context.limit, int) else int(context.limit.count * ratio)


def measured_ratio(messages: Sequence[Message], usage: Usage, before: float) -> float:
    """Characters to a token, by what a model says that it read."""
    return size(messages) / usage.input_tokens if usage.input_tokens and messages else before


def size(messages: Sequence[Message]) -> int:
    return sum(map(_size, messages))


def _size(message: Message) -> int:
    parts = sum(len(part.value) if isinstance(part, TextPart) else _MEDIA for part in message.content)
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return parts + calls + (len(message.reasoning) if calls else 0)


def units(messages: Sequence[Message]) -> list[list[int]]:
    """The positions of what belongs together, without system messages."""
    found: list[list[int]] = []
    for position, message in enumerate(messages):
        if message.role in INSTRUCTION_ROLES:
            continue
        if message.role == "tool" and found:
            found[-1].append(position)
        else:
            found.append([position])
    return found


def left_out(messages: Sequence[Message], limit: int) -> frozenset[int]:
    """The positions that go so that the rest fits, with room for a summary; none if it fits as it is."""
    total = size(messages)
    if total <= limit:
        return frozenset()
    groups = units(messages)
    questions = [group for group in groups if messages[group[0]].role == "user"]
    staying = {tuple(group) for group in [*questions[-1:], *groups[-1:]]}
    total += room_for_summary(limit)
    gone: list[int] = []
    for group in groups:
        if total <= limit:
            break
        if tuple(group) not in staying:
            gone += group
            total -= size([messages[position] for position in group])
    return frozenset(gone)


def room_for_summary(limit: int) -> int:
    """A quarter of it, with its first line."""
    return max(min(_LONGEST_SUMMARY, limit // 4), len(SUMMARY) + 1)


def plain_summary(messages: Sequence[Message], most: int) -> str:
    """What was asked, line by line, the newest last; the oldest lines go when there are too many."""
    asked = [f"User asked: {_line(message.text)}" for message in messages if message.role == "user"]
    calls = [call.name for message in messages for call in message.tool_calls]
    lines = [*asked, f"Tools were called: {', '.join(dict.fromkeys(calls))}"] if calls else asked
    while len(lines) > 1 and len("\n".join(lines)) > most:
        lines.pop(0)
    return "\n".join(lines)[:most]


def _line(text: str) -> str:
    line = " ".join(text.removeprefix(SUMMARY).split())
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def compacted(messages: Sequence[Message], gone: frozenset[int], summary: str) -> list[Message]:
    """The conversation without what is gone; the summary stands after the system messages that lead it."""
    kept = [message for position, message in enumerate(messages) if position not in gone]
    leading = next((at for at, message in enumerate(kept) if message.role not in INSTRUCTION_ROLES), len(kept))
    return [*kept[:leading], user(f"{SUMMARY}\n{summary}"), *kept[leading:]]


def context_of(given: Any) -> Context | None:
    """What a host gave as a context budget."""
    if given is None or isinstance(given, Context):
        return given
    return Context(limit=given)
