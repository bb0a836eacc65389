"""One call to a model, in synchronous code: from messages to the events of its answer."""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from prompty.drivers.deadline import deadline_after
from prompty.drivers.executor import prepared_call, target_of
from prompty.drivers.sync import SyncDriver
from prompty.errors import Refused
from prompty.loop.retry import call_model
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, ModelReply, TextDelta
from prompty.model.message import Message, ToolCall
from prompty.model.reply import Reply
from prompty.pipeline.process import result_of
from prompty.pipeline.request import read_messages
from prompty.providers.foreign import Pair
from prompty.wire.structured import cast

T = TypeVar("T")


def reply_events(
    agent: PromptAgent, messages: Sequence[object], *, stream: bool, timeout: float | None, max_retries: int
) -> Generator[Event, None, Reply]:
    """What happens while a model answers; the generator returns the reply."""
    target = target_of(agent)
    if isinstance(target, Pair):
        return _foreign_events(target, agent, read_messages(messages))
    api, request = prepared_call(target, agent, messages, stream=stream, timeout=timeout)
    driver = SyncDriver(api, target.transport(agent), deadline_after(timeout))
    return driver.run(call_model(request, max_retries))


def last_of(events: Generator[Event, None, Reply]) -> Reply:
    """The reply, with nobody listening."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            reply: Reply = end.value
            return reply


def finisher(agent: PromptAgent, output_type: type[T] | None) -> Callable[[Reply], object]:
    """What makes a result of a reply, of the type the caller asked for."""

    def finish(reply: Reply) -> object:
        if output_type is None:
            return result_of(agent, reply)
        if reply.refusal:
            raise Refused(reply.refusal)
        return cast(result_of(agent, reply), output_type)

    return finish


def _foreign_events(pair: Pair, agent: PromptAgent, messages: Sequence[Message]) -> Generator[Event, None, Reply]:
    reply = reply_from_result(pair.processor.process(agent, pair.executor.execute(agent, messages)))
    if reply.text:
        yield TextDelta(reply.text)
    yield ModelReply(reply)
    return reply


def reply_from_result(result: object) -> Reply:
    """A reply for what a processor of the host's made: text, calls, or any other value."""
    if isinstance(result, str):
        return Reply(text=result)
    if isinstance(result, list) and result and all(isinstance(call, ToolCall) for call in result):
        return Reply(tool_calls=tuple(result))
    return Reply(value=result)
