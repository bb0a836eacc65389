"""Fit a conversation into a context budget: drop the oldest units, and put a summary in their place (L7).

A unit is a message, or an answer with tool calls together with its results. System messages are kept, and so are the
last user message and the last unit: without them there is nothing to answer.
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
    """A size in tokens, measured by the usage that the model reports, and estimated before the first report."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """How much of a conversation is sent, in characters or `Tokens(n)`.

    `summary` sums up the rest: a function of the dropped messages and the maximum number of characters, or a .prompty
    file with the inputs `conversation` and `characters`. Without it, or if it fails, a list of the user's questions
    is used.
    """

    limit: int | Tokens
    summary: Callable[[list[Message], int], str | Awaitable[str]] | str | Path | None = None


def characters(context: Context, ratio: float) -> int:
    """Return the limit in characters, by the ratio of characters per token."""
    return context.limit if isinstance(context.limit, int) else int(context.limit.count * ratio)


def measured_ratio(messages: Sequence[Message], usage: Usage, before: float) -> float:
    """Return the characters per token by a reported usage, or `before` if there is none."""
    return size(messages) / usage.input_tokens if usage.input_tokens and messages else before


def size(messages: Sequence[Message]) -> int:
    return sum(map(_size, messages))


def _size(message: Message) -> int:
    parts = sum(len(part.value) if isinstance(part, TextPart) else _MEDIA for part in message.content)
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return parts + calls + (len(message.reasoning) if calls else 0)


def units(messages: Sequence[Message]) -> list[list[int]]:
    """Return the positions of each unit. System messages belong to none."""
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
    """Return the positions to drop so that the rest and a summary fit; none if everything fits."""
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
    """Return the characters of the summary: at most a quarter of the limit, its first line included."""
    return max(min(_LONGEST_SUMMARY, limit // 4), len(SUMMARY) + 1)


def plain_summary(messages: Sequence[Message], most: int) -> str:
    """Return the user's questions, one per line. If they are too long, the oldest are left out."""
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
    """Return the conversation without the dropped messages, with the summary after the leading system messages."""
    kept = [message for position, message in enumerate(messages) if position not in gone]
    leading = next((at for at, message in enumerate(kept) if message.role not in INSTRUCTION_ROLES), len(kept))
    return [*kept[:leading], user(f"{SUMMARY}\n{summary}"), *kept[leading:]]


def context_of(given: Any) -> Context | None:
    """Return the context for a `context_budget` option."""
    if given is None or isinstance(given, Context):
        return given
    return Context(limit=given)
