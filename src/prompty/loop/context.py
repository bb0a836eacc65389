"""Context budget: drop the oldest units of a conversation that is too long, and insert a summary of them.

A unit is a message, or an assistant turn with tool calls and all its results. System messages, the last user message
and the last unit are never dropped, because the model needs them to answer.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from prompty.errors import WrongArgument
from prompty.loop.effects import OfferedTool
from prompty.model.content import TextPart
from prompty.model.message import INSTRUCTION_ROLES, Message, Usage, user

SUMMARY = "[Summary of earlier conversation]"
CHARACTERS_PER_TOKEN = 4.0
_LEAST_RATIO, _GREATEST_RATIO = 1.0, 8.0  # of characters to tokens, in any language
_MEDIA_SIZE = 1_000
_MAX_SUMMARY = 2_000
_MAX_LINE = 120


@dataclass(frozen=True, slots=True)
class Tokens:
    """A size in tokens: estimated at first, then calibrated with the usage that the model reports."""

    count: int

    def __post_init__(self) -> None:
        count: object = self.count
        if not isinstance(count, int) or isinstance(count, bool):
            raise WrongArgument("Tokens()", count, "a whole number", "Write a number such as Tokens(8000).")


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """The limit of a conversation: `Tokens(n)`, or a plain number of characters.

    `summary` summarizes the dropped messages: a function of the messages and the maximum number of characters, or a
    .prompty file with the inputs `conversation` and `characters`. By default, or if it fails, the summary lists the
    user's questions.
    """

    limit: int | Tokens
    summary: Callable[[list[Message], int], str | Awaitable[str]] | str | Path | None = None

    def __post_init__(self) -> None:
        limit: object = self.limit
        if not isinstance(limit, int | Tokens) or isinstance(limit, bool):
            raise WrongArgument(
                "Context(limit=…)", limit, "Tokens or a number of characters", "Write Context(limit=Tokens(8000))."
            )
        if self.summary is not None and not callable(self.summary) and not isinstance(self.summary, str | Path):
            raise WrongArgument("Context(summary=…)", self.summary, "a function or a file", "Pass a .prompty file.")


def parse_context(value: Any) -> Context | None:
    """Return the context budget that a host passed."""
    return value if value is None or isinstance(value, Context) else Context(limit=value)


class Gauge(NamedTuple):
    """Estimates the tokens of a request from its messages. `overhead` is the number of tokens outside the messages: of
    tools and schemas."""

    chars_per_token: float = CHARACTERS_PER_TOKEN
    overhead: int = 0

    def get_character_limit(self, context: Context) -> int:
        if isinstance(context.limit, int):
            return context.limit
        return int(max(context.limit.count - self.overhead, 0) * self.chars_per_token)

    def learn(self, messages: Sequence[Message], usage: Usage) -> "Gauge":
        """Return the gauge that agrees with the usage of a request. If no text has such a ratio, the overhead was
        wrong."""
        tokens, characters = usage.input_tokens, count_characters(messages)
        if not tokens or not messages:
            return self
        ratio = characters / max(tokens - self.overhead, 1)
        if _LEAST_RATIO <= ratio <= _GREATEST_RATIO:
            return Gauge(ratio, self.overhead)
        return Gauge(CHARACTERS_PER_TOKEN, max(tokens - round(characters / CHARACTERS_PER_TOKEN), 0))


def estimate_gauge(tools: Sequence[OfferedTool]) -> Gauge:
    """Return the gauge of a conversation that no model has counted yet, from the definitions of its tools."""
    definitions = [asdict(tool.function) for tool in tools]
    return Gauge(overhead=round(len(json.dumps(definitions)) / CHARACTERS_PER_TOKEN) if tools else 0)


def count_characters(messages: Sequence[Message]) -> int:
    """Return the size of messages. Media count approximately by their token cost."""
    return sum(map(_count_message, messages))


def _count_message(message: Message) -> int:
    parts = sum(len(part.value) if isinstance(part, TextPart) else _MEDIA_SIZE for part in message.content)
    calls = sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return parts + calls + (len(message.reasoning) if calls else 0)


def group_units(messages: Sequence[Message]) -> list[list[int]]:
    """Return the positions of each unit, without system messages."""
    units: list[list[int]] = []
    for position, message in enumerate(messages):
        if message.role in INSTRUCTION_ROLES:
            continue
        if message.role == "tool" and units:
            units[-1].append(position)
        else:
            units.append([position])
    return units


def select_dropped(messages: Sequence[Message], limit: int) -> frozenset[int]:
    """Return the positions to drop so that the rest fits with a summary. Return none if everything fits."""
    total = count_characters(messages)
    if total <= limit:
        return frozenset()
    units = group_units(messages)
    questions = [unit for unit in units if messages[unit[0]].role == "user"]
    protected = {tuple(unit) for unit in [*questions[-1:], *units[-1:]]}
    total += get_summary_size(limit)
    dropped: list[int] = []
    for unit in units:
        if total <= limit:
            break
        if tuple(unit) not in protected:
            dropped += unit
            total -= count_characters([messages[position] for position in unit])
    return frozenset(dropped)


def get_summary_size(limit: int) -> int:
    """Return the size reserved for a summary and its heading: a quarter of the limit, up to a maximum."""
    return max(min(_MAX_SUMMARY, limit // 4), len(SUMMARY) + 1)


def write_plain_summary(messages: Sequence[Message], longest: int) -> str:
    """List the user's questions, newest last. Drop the oldest lines if there are too many."""
    lines = [f"User asked: {_shorten(message.text)}" for message in messages if message.role == "user"]
    if calls := [call.name for message in messages for call in message.tool_calls]:
        lines.append(f"Tools were called: {', '.join(dict.fromkeys(calls))}")
    while len(lines) > 1 and len("\n".join(lines)) > longest:
        lines.pop(0)
    return "\n".join(lines)[:longest]


def _shorten(text: str) -> str:
    line = " ".join(text.removeprefix(SUMMARY).split())
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…"


def compact(messages: Sequence[Message], dropped: frozenset[int], summary: str) -> list[Message]:
    """Return the conversation without the dropped messages. The summary follows the leading system messages."""
    kept = [message for position, message in enumerate(messages) if position not in dropped]
    leading = next((at for at, message in enumerate(kept) if message.role not in INSTRUCTION_ROLES), len(kept))
    return [*kept[:leading], user(f"{SUMMARY}\n{summary}"), *kept[leading:]]
