"""Who sums up what no longer fits: a function of the host, or a .prompty file."""

from collections.abc import Callable, Sequence
from typing import Any

from prompty.drivers.calls import last_of, reply_events
from prompty.drivers.calls_async import last_of as last_of_async
from prompty.drivers.calls_async import reply_events_async
from prompty.loop.context import Context
from prompty.model.message import Message
from prompty.pipeline.load import load
from prompty.pipeline.prepare import prepare

_CALL: dict[str, Any] = {"stream": False, "timeout": None, "max_retries": 3}


def summary_of(context: Context | None) -> Callable[..., object] | None:
    """What sums up in synchronous code."""
    if context is None or context.summary is None or callable(context.summary):
        return context.summary if context and callable(context.summary) else None
    agent = load(context.summary)
    return lambda messages, characters: (
        last_of(reply_events(agent, prepare(agent, _inputs(messages, characters)), **_CALL)).text
    )


def async_summary_of(context: Context | None) -> Callable[..., object] | None:
    """What sums up in asynchronous code."""
    if context is None or context.summary is None or callable(context.summary):
        return context.summary if context and callable(context.summary) else None
    agent = load(context.summary)

    async def summary(messages: Sequence[Message], characters: int) -> str:
        prepared = prepare(agent, _inputs(messages, characters))
        return (await last_of_async(reply_events_async(agent, prepared, **_CALL))).text

    return summary


def _inputs(messages: Sequence[Message], characters: int) -> dict[str, object]:
    told = [f"{message.role}: {message.text}" for message in messages if message.text]
    return {"conversation": "\n".join(told), "characters": characters}
