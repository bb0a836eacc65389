"""Turns through the scripted model, the same way in sync and async code."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from prompty import Message, Paused, PromptAgent, PromptyError, resume, resume_async, turn, turn_async
from prompty.loop.repair import normalize_history
from prompty.model.event import Done, Event
from prompty.pipeline.request import build_request
from prompty.registry import DEFAULT
from tests.legality import assert_legal

every_way = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@dataclass
class Seen:
    """What came of a turn."""

    events: list[Event] = field(default_factory=list)
    result: Any = None
    error: PromptyError | None = None

    @property
    def messages(self) -> Sequence[Message]:
        if self.error:
            return self.error.messages
        return next(event.messages for event in reversed(self.events) if isinstance(event, Done))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.messages]


def scripted(**parts: Any) -> PromptAgent:
    """An agent of the scripted model that says `q` to it."""
    model = {"id": "m", "provider": "scripted", **parts.pop("model", {})}
    body = {"instructions": "system:\nBe brief.\nuser:\n{{q}}", "inputs": {"q": "Hi"}}
    return PromptAgent.model_validate({"model": model, **body, **parts})


def run_turn(asynchronous: bool, agent: PromptAgent, inputs: Any = None, **options: Any) -> Seen:
    """One turn; an error of ours is kept, any other is a failure of the test."""
    return _seen(asynchronous, turn, turn_async, agent, inputs, **options)


def run_resume(asynchronous: bool, agent: PromptAgent, paused: Paused, verdicts: Any, **options: Any) -> Seen:
    """Go on with a paused turn."""
    return _seen(asynchronous, resume, resume_async, agent, paused, verdicts, **options)


def _seen(asynchronous: bool, sync_way: Any, async_way: Any, *arguments: Any, **options: Any) -> Seen:
    seen = Seen()
    options["on_event"] = seen.events.append
    try:
        if asynchronous:
            seen.result = asyncio.run(async_way(*arguments, **options))
        else:
            seen.result = sync_way(*arguments, **options)
    except PromptyError as error:
        seen.error = error
    return seen


def assert_history_is_legal(messages: Sequence[Message]) -> None:
    """Every API takes it, under the ids it is sent with, and with a new question behind it."""
    for provider, api_type in (("openai", "chat"), ("openai", "responses"), ("anthropic", "chat")):
        api = DEFAULT.providers.get(provider).api(api_type)
        agent = scripted()
        asked = [*messages, Message("user", [])] if messages and messages[-1].role != "user" else messages
        body = build_request(agent, normalize_history(asked, api.call_ids), api).body
        assert_legal("messages" if provider == "anthropic" else api_type, body)
