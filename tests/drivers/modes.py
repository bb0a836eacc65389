"""The four ways to call a model (sync or async, streamed or not), so that each behaviour is written once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prompty import PromptAgent, PromptyError, invoke, invoke_async
from prompty.model.event import Event, ModelReply, ReasoningDelta, Retry, TextDelta, ToolCallDelta
from prompty.providers.anthropic import client as anthropic_client
from prompty.providers.foundry import client as foundry_client
from prompty.providers.openai import client as openai_client


@dataclass
class Seen:
    """The outcome of a call: the events of its answer where it was streamed, and its result or its error."""

    events: list[Event] = field(default_factory=list)
    result: Any = None
    error: PromptyError | None = None

    def note(self, event: Event) -> None:
        """Keep the events of the answer; those of the run around it are tested with turns."""
        if isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta | Retry | ModelReply):
            self.events.append(event)

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def retries(self) -> list[Retry]:
        return [event for event in self.events if isinstance(event, Retry)]


@dataclass(frozen=True)
class Mode:
    """One way to call."""

    asynchronous: bool
    streamed: bool

    def __str__(self) -> str:
        return ("async" if self.asynchronous else "sync") + (" stream" if self.streamed else "")

    def call(self, agent: PromptAgent, **options: Any) -> Seen:
        """Call to the end; an error of ours is kept, any other is a failure of the test."""
        return self.call_often(1, agent, **options)[0]

    def call_until_heard(self, agent: PromptAgent, timeout: float) -> Seen:
        """Call with a time limit, and with longer ones as long as nothing is heard: on a busy machine even a first
        word may take its time."""
        seen = self.call(agent, timeout=timeout)
        return seen if seen.text or timeout > 3 else self.call_until_heard(agent, timeout * 2)

    def call_often(self, times: int, agent: PromptAgent, **options: Any) -> list[Seen]:
        """Call several times in a row, in one event loop."""
        if self.asynchronous:
            return asyncio.run(self._call_async(times, agent, options))
        return [self._call_sync(agent, options) for _ in range(times)]

    def _call_sync(self, agent: PromptAgent, options: dict[str, Any]) -> Seen:
        seen = Seen()
        try:
            if not self.streamed:
                return Seen(result=invoke(agent, **options))
            with invoke(agent, stream=True, **options) as stream:
                for event in stream.events():
                    seen.note(event)
                seen.result = stream.result
        except PromptyError as error:
            seen.error = error
        return seen

    async def _call_async(self, times: int, agent: PromptAgent, options: dict[str, Any]) -> list[Seen]:
        return [await self._call_once_async(agent, options) for _ in range(times)]

    async def _call_once_async(self, agent: PromptAgent, options: dict[str, Any]) -> Seen:
        seen = Seen()
        try:
            if not self.streamed:
                return Seen(result=await invoke_async(agent, **options))
            async with await invoke_async(agent, stream=True, **options) as stream:
                async for event in stream.events():
                    seen.note(event)
                seen.result = await stream.result()
        except PromptyError as error:
            seen.error = error
        return seen


MODES: Sequence[Mode] = [Mode(asynchronous, streamed) for asynchronous in (False, True) for streamed in (False, True)]


def close_clients() -> None:
    """Close what synchronous calls would keep for the rest of the process."""
    for connector in (openai_client.CONNECTOR, anthropic_client.CONNECTOR, foundry_client.CONNECTOR):
        while connector._transports:
            connector._transports.popitem()[1].client.close()
