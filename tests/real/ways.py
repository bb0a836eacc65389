"""The same prompt asked for in every way there is: sync and async, streamed and not."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from prompty import Message, PromptAgent, ToolCall, invoke, invoke_async, load, prepare
from prompty.events import Event, ModelReply, TextDelta
from prompty.model.message import Reply
from prompty.pipeline import run, run_async

SOAK = bool(os.environ.get("PROMPTY_SOAK"))
REQUESTS = 6  # that `in_all_ways` makes
CALL: dict[str, Any] = {"timeout": 60.0, "max_retries": 3}
LENIENT: dict[str, Any] = {"outputs_mode": "lenient"}  # this server ignores the schema on two of its APIs

BODY = """\
system:
Answer.

user:
{{ question }}

{{ since }}
"""

Inputs = Mapping[str, object]
Options = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Family:
    """An API that the server speaks: what a file says to use it, and how it spells that a tool must be called."""

    provider: str
    api_type: str
    path: str
    must_call: object = None


FAMILIES = {
    "chat": Family(provider="openai", api_type="chat", path="/v1", must_call="required"),
    "responses": Family(provider="openai", api_type="responses", path="/v1", must_call="required"),
    "messages": Family(provider="anthropic", api_type="chat", path="", must_call={"type": "any"}),
}
EMBEDDING = Family(provider="openai", api_type="embedding", path="/v1")


@dataclass(frozen=True)
class Prompts:
    """Writes .prompty files for the server at `url`.

    `seed` is an option of chat; Responses and Messages have none, so it is among `additionalProperties` too, where the
    server reads it for Responses. For Messages it uses its own seed: there only the question makes a difference.
    `cache_prompt: false` keeps the usage the same: cached tokens depend on which slot answers. The text does not.
    """

    url: str
    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def write(
        self,
        family: Family,
        seed: int = 0,
        *,
        options: Options | None = None,
        connection: Options | None = None,
        **keys: object,
    ) -> Path:
        """A file; `options` add to its model options, or replace them, `keys` to its frontmatter."""
        given = {"temperature": 1.2, "maxOutputTokens": 40, "seed": seed, **(options or {})}
        additional = given.pop("additionalProperties", None)
        extra = additional if isinstance(additional, dict) else {}
        given["additionalProperties"] = {"seed": seed, "cache_prompt": False, **extra}
        model = {
            "id": "tiny",
            "provider": family.provider,
            "apiType": family.api_type,
            "connection": connection or {"kind": "anonymous", "endpoint": self.url + family.path},
            "options": given,
        }
        inputs = {"question": {"kind": "string"}, "since": {"kind": "thread", "required": False}}
        frontmatter = yaml.safe_dump({"model": model, "inputs": inputs, **keys}, sort_keys=False)
        path = self.folder / f"{next(self.numbers)}.prompty"
        path.write_text(f"---\n{frontmatter}---\n{BODY}", encoding="utf-8")
        return path


class Answer(NamedTuple):
    """What of an answer must not depend on how one asked for it. Ids are the server's, new for every answer."""

    result: object
    text: str
    calls: tuple[tuple[str, str], ...]
    finish: str | None
    input_tokens: int
    output_tokens: int | None


def answer(result: object, reply: Reply) -> Answer:
    """An answer for a reply, and for the result that came of it."""
    if isinstance(result, list) and all(isinstance(call, ToolCall) for call in result):
        result = named(result)
    usage = reply.usage
    return Answer(
        result,
        reply.text,
        named(reply.tool_calls),
        reply.finish_reason,
        usage.input_tokens or 0,
        usage.output_tokens,
    )


def named(calls: list[ToolCall] | tuple[ToolCall, ...]) -> tuple[tuple[str, str], ...]:
    """Calls without their ids."""
    return tuple((call.name, call.arguments) for call in calls)


def reply_to(agent: PromptAgent, messages: list[Message]) -> Reply:
    """The whole reply, of which `invoke` returns the result only."""
    events: list[Event] = []
    run(agent, messages, on_event=events.append, **CALL)
    return reply_in(events)


async def reply_to_async(agent: PromptAgent, messages: list[Message]) -> Reply:
    events: list[Event] = []
    await run_async(agent, messages, on_event=events.append, **CALL)
    return reply_in(events)


def streamed(path: Path, inputs: Inputs) -> Answer:
    """The answer of a stream, whose pieces must be the text of its reply."""
    with invoke(path, inputs, stream=True, **LENIENT) as stream:
        reply = reply_of(list(stream.events()))
        assert stream.usage == reply.usage
        return answer(stream.result, reply)


async def streamed_async(path: Path, inputs: Inputs) -> Answer:
    async with await invoke_async(path, inputs, stream=True, **LENIENT) as stream:
        reply = reply_of([event async for event in stream.events()])
        assert stream.usage == reply.usage
        return answer(await stream.result(), reply)


def reply_of(events: list[Event]) -> Reply:
    """The reply at the end of a stream."""
    reply = reply_in(events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == reply.text
    return reply


def reply_in(events: list[Event]) -> Reply:
    [reply] = [event.reply for event in events if isinstance(event, ModelReply)]
    return reply


def in_all_ways(runner: asyncio.Runner, path: Path, inputs: Inputs) -> dict[str, Answer]:
    """One prompt, asked four ways. Streams come last: this server hangs up after each, while it says it will not, and
    a call that meets the closing connection is made again half a second later."""
    agent = load(path)
    messages = prepare(agent, inputs)
    return {
        "sync": answer(invoke(path, inputs, **LENIENT), reply_to(agent, messages)),
        "async": answer(
            runner.run(invoke_async(path, inputs, **LENIENT)),
            runner.run(reply_to_async(agent, messages)),
        ),
        "streamed": streamed(path, inputs),
        "streamed, async": runner.run(streamed_async(path, inputs)),
    }
