"""One call to a model, in asynchronous code."""

from collections.abc import AsyncGenerator, Sequence

from prompty.drivers.aio import AsyncDriver
from prompty.drivers.calls import reply_from_result
from prompty.drivers.deadline import deadline_after
from prompty.drivers.decoding import Outcome
from prompty.drivers.executor import prepared_call, target_of
from prompty.errors import ModelError
from prompty.loop.retry import call_model
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, ModelReply, TextDelta
from prompty.model.message import Message
from prompty.model.reply import Reply
from prompty.pipeline.request import read_messages
from prompty.providers.foreign import Pair

Events = AsyncGenerator[Event | Outcome[Reply], None]


def reply_events_async(
    agent: PromptAgent, messages: Sequence[object], *, stream: bool, timeout: float | None, max_retries: int
) -> Events:
    """What happens while a model answers, and its reply as the outcome."""
    target = target_of(agent)
    if isinstance(target, Pair):
        return _foreign_events(target, agent, read_messages(messages))
    api, request = prepared_call(target, agent, messages, stream=stream, timeout=timeout)
    driver = AsyncDriver(api, target.transport_async(agent), deadline_after(timeout))
    return driver.run(call_model(request, max_retries))


async def last_of(events: Events) -> Reply:
    """The reply, with nobody listening. The events are read to their end: closing a generator that is left half-way
    takes the event loop a task."""
    reply = None
    async for event in events:
        if isinstance(event, Outcome):
            reply = event.value
    if reply is None:
        raise ModelError("the call ended without a reply")
    return reply


async def _foreign_events(pair: Pair, agent: PromptAgent, messages: Sequence[Message]) -> Events:
    raw = await pair.executor.execute_async(agent, messages)
    reply = reply_from_result(await pair.processor.process_async(agent, raw))
    if reply.text:
        yield TextDelta(reply.text)
    yield ModelReply(reply)
    yield Outcome(reply)
