"""Who answers: the model behind a provider, or an executor and a processor of the host's (§7.8)."""

from collections.abc import AsyncGenerator, Generator, Sequence
from typing import cast

from prompty.cancellation import CancelToken
from prompty.drivers.deadline import Deadline
from prompty.drivers.decoding import Outcome
from prompty.drivers.executor import target_of
from prompty.drivers.http import HttpModel
from prompty.drivers.http_async import AsyncHttpModel
from prompty.errors import ModelError
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, TextDelta
from prompty.model.message import Json, Message, ToolCall
from prompty.model.reply import Reply
from prompty.model.request import Function, WireRequest
from prompty.pipeline.messages import messages_from
from prompty.providers import Api, turn_messages
from prompty.providers.foreign import Pair


def model_of(agent: PromptAgent, cancel: CancelToken | None = None) -> "HttpModel | PairModel":
    """Who answers a prompt in synchronous code."""
    target = target_of(agent)
    if isinstance(target, Pair):
        return PairModel(agent, target)
    return HttpModel(target.api(agent.model.api_type), target.transport_for(agent), cancel)


def async_model_of(agent: PromptAgent, cancel: CancelToken | None = None) -> "AsyncHttpModel | AsyncPairModel":
    """Who answers a prompt in asynchronous code."""
    target = target_of(agent)
    if isinstance(target, Pair):
        return AsyncPairModel(agent, target)
    return AsyncHttpModel(target.api(agent.model.api_type), target.transport_async_for(agent), cancel)


def _own_messages(_: PromptAgent, messages: Sequence[Message], __: Sequence[Function]) -> Json:
    return {"messages": [message.to_json() for message in messages]}


def _no_reply(_: Json) -> Reply:
    raise ModelError("a processor of the host's reads the answers of its executor")


# What an executor is sent: messages in our own form.
PAIR_API = Api(path="", request=_own_messages, reply=_no_reply, tool_messages=turn_messages)


class PairModel:
    """An executor and a processor as a model."""

    api = PAIR_API

    def __init__(self, agent: PromptAgent, pair: Pair) -> None:
        self.agent, self.pair = agent, pair

    def answer(self, request: WireRequest, _: Deadline) -> Generator[Event, None, Reply]:
        raw = self.pair.executor.execute(self.agent, messages_from(request.body))
        reply = reply_from_result(self.pair.processor.process(self.agent, raw))
        if request.stream and reply.text:
            yield TextDelta(reply.text)
        return reply


class AsyncPairModel:
    """The same in async code."""

    api = PAIR_API

    def __init__(self, agent: PromptAgent, pair: Pair) -> None:
        self.agent, self.pair = agent, pair

    def streams(self, request: WireRequest) -> bool:
        return request.stream

    async def reply(self, request: WireRequest, _: Deadline) -> Reply:
        raw = await self.pair.executor.execute_async(self.agent, messages_from(request.body))
        return reply_from_result(await self.pair.processor.process_async(self.agent, raw))

    async def answer(self, request: WireRequest, deadline: Deadline) -> AsyncGenerator[Event | Outcome[Reply], None]:
        reply = await self.reply(request, deadline)
        if reply.text:
            yield TextDelta(reply.text)
        yield Outcome(reply)


def reply_from_result(result: object) -> Reply:
    """A reply for what a processor of the host's made: text, calls, or any other value."""
    if isinstance(result, str):
        return Reply(text=result)
    if isinstance(result, list) and result and all(isinstance(call, ToolCall) for call in result):
        return Reply(tool_calls=tuple(cast(list[ToolCall], result)))
    return Reply(value=result)
