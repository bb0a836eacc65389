"""One call to a model, in asynchronous code."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from prompty.drivers.aio import AsyncDriver
from prompty.drivers.decoding import Outcome
from prompty.drivers.models import async_model_of
from prompty.drivers.watch import watched
from prompty.errors import ModelError
from prompty.loop.retry import call_model
from prompty.model.agent import PromptAgent
from prompty.model.event import Event
from prompty.model.reply import Reply
from prompty.pipeline.request import has_kinds, offered_functions, request_for
from prompty.tracing.spans import Span, current_span

T = TypeVar("T")


def reply_events_async(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    stream: bool,
    timeout: float | None,
    max_retries: int,
    span: Span | None = None,
) -> AsyncGenerator[Event | Outcome[Reply], None]:
    """What happens while a model answers, and its reply as the outcome."""
    model = async_model_of(agent)
    driver = AsyncDriver(models=[model], watch=watched(span or current_span(), [agent], [model]))
    if has_kinds(agent):
        return _with_kinds(agent, messages, driver, stream=stream, timeout=timeout, max_retries=max_retries)
    request = request_for(agent, messages, model.api, stream=stream, timeout=timeout)
    return driver.run(call_model(request, max_retries))


async def _with_kinds(
    agent: PromptAgent, messages: Sequence[object], driver: AsyncDriver, *, max_retries: int, **options: Any
) -> AsyncGenerator[Event | Outcome[Reply], None]:
    """The same for a prompt whose tools must be asked what they offer."""
    functions = await offered_functions(agent)
    request = request_for(agent, messages, driver.models[0].api, functions=functions, **options)
    async with aclosing(driver.run(call_model(request, max_retries))) as events:
        async for event in events:
            yield event


async def last_of(events: AsyncGenerator[Event | Outcome[T], None]) -> T:
    """What it comes to, with nobody listening. The events are read to their end: closing a generator that is left
    half-way takes the event loop a task."""
    outcome = None
    async for event in events:
        if isinstance(event, Outcome):
            outcome = event
    if outcome is None:
        raise ModelError("the call ended without a reply")
    return outcome.value
