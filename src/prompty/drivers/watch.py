"""What a driver does, as spans: one for each model call with all its tries, one for each tool.

A span is never left set across a `yield`: what runs inside of it is entered step by step.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from json import loads
from typing import Any, cast

from prompty.analysis.explain import describe_request
from prompty.drivers.decoding import Outcome
from prompty.drivers.host import Host
from prompty.drivers.toolruns import ToolRuns
from prompty.errors import ModelError
from prompty.loop.effects import CallModel
from prompty.model.agent import PromptAgent
from prompty.model.event import Event, ToolFinished, ToolStarted
from prompty.model.message import Message, TextPart, ToolCall
from prompty.model.reply import Reply
from prompty.model.request import WireRequest
from prompty.model.tool import FunctionTool
from prompty.pipeline.telemetry import call_span, show_reply
from prompty.providers import Api
from prompty.providers.listening import Answered, Exchange
from prompty.providers.transport import address_of
from prompty.tools.kinds import KindRunner
from prompty.tools.toolbox import BoundTool
from prompty.tracing import names
from prompty.tracing.spans import SILENCE, Span, begin, followed, followed_async


class ModelCall:
    """One call to a model, with all its tries."""

    def __init__(self, request: WireRequest, span: Span) -> None:
        self.request, self.span = request, span
        self.exchanges: list[tuple[PromptAgent, Api, WireRequest, Answered]] = []
        self._tries, self._failed_after = 0, 0

    @contextmanager
    def trying(self) -> Iterator[None]:
        """One try. After a failure of the model's there may be another one: the span stays open."""
        self._tries += 1
        self.span.note({names.ATTEMPTS: self._tries} if self._tries > 1 else {})
        try:
            yield
        except ModelError as error:
            self.span.fail(error)
            self._failed_after = self.span.elapsed()
            raise
        except GeneratorExit:
            self.span.note({names.ABANDONED: True})
            self._end()
            raise
        except BaseException as error:
            self.span.fail(error)
            self._end()
            raise

    def began(self) -> None:
        """Something of the answer has come."""
        if names.TIME_TO_FIRST_CHUNK not in self.span.attributes:
            self.span.note({names.TIME_TO_FIRST_CHUNK: self.span.elapsed() / 1e9})

    def answered(self, reply: Reply) -> None:
        self.span.error = None
        show_reply(self.span, reply)
        self._end()

    def given_up(self) -> None:
        """There was no other try: it ended when it failed."""
        self._end(self._failed_after)

    def _end(self, duration: int | None = None) -> None:
        """The exchanges are shown last: only an answer says which of its arguments are sensitive."""
        if self.exchanges:
            self.span("wire", [_exchanged(*exchange) for exchange in self.exchanges])
            self.exchanges.clear()
        self.span.end(duration)


class Unwatched:
    """Nobody wants to know."""

    def answer(self, _: CallModel, __: Any, events: Generator[Event, None, Reply]) -> Generator[Event, None, Reply]:
        return events

    def reply(self, _: CallModel, __: Any, sending: Awaitable[Reply]) -> Awaitable[Reply]:
        return sending

    def items(
        self, _: CallModel, __: Any, items: AsyncGenerator[Event | Outcome[Reply], None]
    ) -> AsyncGenerator[Event | Outcome[Reply], None]:
        return items

    def within(self) -> AbstractContextManager[object]:
        return SILENCE

    def attach(self, host: Host, tools: ToolRuns | None) -> None:
        pass

    def end(self) -> None:
        pass


class Watch:
    """The spans of one run. `agents` are the prompts whose models it asks, in the order of their numbers."""

    def __init__(
        self, span: Span, agents: Sequence[PromptAgent], tools: dict[str, BoundTool], conversation: str | None = None
    ) -> None:
        self.span = span
        self._agents, self._bound, self._conversation = agents, tools, conversation
        self._call: ModelCall | None = None
        self._tools: dict[int, Span] = {}
        self._declared = {
            tool.name: frozenset(one.name for one in tool.parameters if one.sensitive)
            for tool in agents[0].tools
            if isinstance(tool, FunctionTool)
        }

    def attach(self, host: Host, tools: ToolRuns | None) -> None:
        """Hear what the run tells, and be around its tools."""
        host.watcher = self.saw
        if tools:
            tools.inside = self.inside

    def within(self) -> AbstractContextManager[object]:
        """What is done in there is part of the span of this run."""
        return self.span.within()

    def answer(
        self, effect: CallModel, model: Any, events: Generator[Event, None, Reply]
    ) -> Generator[Event, None, Reply]:
        """The events of an answer, in synchronous code."""
        call = self._called(effect, model)
        with call.trying():
            reply = yield from self._hearing(call, followed(call.span, events))
        self._answered(call, reply)
        return reply

    @staticmethod
    def _hearing(call: ModelCall, events: Generator[Event, None, Reply]) -> Generator[Event, None, Reply]:
        try:
            while True:
                event = next(events)
                call.began()
                yield event
        except StopIteration as end:
            reply: Reply = end.value
            return reply
        finally:
            events.close()

    async def reply(self, effect: CallModel, model: Any, sending: Awaitable[Reply]) -> Reply:
        """A whole answer, in asynchronous code."""
        call = self._called(effect, model)
        with call.trying(), call.span.within():
            reply = await sending
        self._answered(call, reply)
        return reply

    async def items(
        self, effect: CallModel, model: Any, items: AsyncGenerator[Event | Outcome[Reply], None]
    ) -> AsyncGenerator[Event | Outcome[Reply], None]:
        """A streamed answer, in asynchronous code."""
        call = self._called(effect, model)
        try:
            with call.trying():
                async for item in followed_async(call.span, items):
                    if isinstance(item, Outcome):
                        self._answered(call, item.value)
                    else:
                        call.began()
                    yield item
        finally:
            await items.aclose()

    def _answered(self, call: ModelCall, reply: Reply) -> None:
        """Hide what the model writes into parameters that a file calls sensitive, before anything of it is shown."""
        for one in reply.tool_calls:
            sensitive = self._sensitive(one.name)
            if sensitive and isinstance(arguments := _read(one.arguments), dict):
                call.span.hide(value for name, value in arguments.items() if name in sensitive)
        call.answered(reply)

    def _sensitive(self, name: str) -> frozenset[str]:
        bound = self._bound.get(name)
        if bound and isinstance(bound.handler, KindRunner):
            return bound.handler.tool.sensitive
        return self._declared.get(name, frozenset())

    def _called(self, effect: CallModel, model: Any) -> ModelCall:
        """The call of a request, which may have been tried before."""
        if self._call is None or self._call.request is not effect.request:
            self._give_up()
            self._call = ModelCall(effect.request, self._begun(effect, model))
        return self._call

    def _begun(self, effect: CallModel, model: Any) -> Span:
        agent, url = self._agents[effect.model], address_of(getattr(model, "transport", None))
        return call_span(agent, model.api, effect.request, url, parent=self.span, conversation=self._conversation)

    def saw(self, event: Any) -> None:
        """A tool begins when its event is told, and is over with the other one."""
        kind = type(event)
        if kind is ToolStarted:
            self._tools[id(event.call)] = self._tool(event.call)
        elif kind is ToolFinished and (span := self._tools.pop(id(event.call), None)):
            if self.span.trace.content:
                span("result", _shown(event.result))
            if event.is_error:
                span.error = ("ToolError", span.trace.masking.text(event.result.text))
            span.end()

    def _tool(self, call: ToolCall) -> Span:
        bound = self._bound.get(call.name)
        attributes = {
            names.OPERATION_NAME: "execute_tool",
            names.TOOL_NAME: call.name,
            names.TOOL_DESCRIPTION: bound.function.description if bound else None,
            names.TOOL_TYPE: "extension" if bound and isinstance(bound.handler, KindRunner) else "function",
            names.TOOL_CALL_ID: call.id,
        }
        title, inputs = f"execute_tool {call.name}", _read(call.arguments) if self.span.trace.content else None
        return begin("execute_tool", attributes, title=title, parent=self.span, inputs=inputs)

    def inside(self, call: ToolCall, function: Callable[[], object], is_async: bool) -> Callable[[], object]:
        """The function of a tool, run inside the span of its call."""
        span = self._tools.get(id(call), self.span)
        if is_async:
            return lambda: _awaited(span, cast(Awaitable[object], function()))

        def run() -> object:
            with span.within():
                value = function()
            return _awaited(span, value) if inspect.isawaitable(value) else value

        return run

    def heard(self, agent: PromptAgent, api: Api) -> Callable[[WireRequest], Exchange]:
        """What is told of every request to a model, so that the exact exchange is in its span."""

        def begun(request: WireRequest) -> Exchange:
            exchanges = self._call.exchanges if self._call else []
            return Exchange(lambda answer: exchanges.append((agent, api, request, answer)))

        return begun

    def end(self) -> None:
        """The run is over: a call that failed is not tried again, and a tool that still runs was interrupted."""
        self._give_up()
        for span in self._tools.values():
            span.error = ("Cancelled", "interrupted; what it has done until then is not known")
            span.end()
        self._tools.clear()

    def _give_up(self) -> None:
        if self._call:
            self._call.given_up()
            self._call = None


UNWATCHED = Unwatched()


def watched(
    span: Span,
    agents: Sequence[PromptAgent],
    models: Sequence[Any],
    tools: dict[str, BoundTool] | None = None,
    conversation: str | None = None,
) -> Watch | Unwatched:
    """Who watches a run; nobody, where nobody wants to know."""
    if not span.live:
        return UNWATCHED
    watch = Watch(span, agents, {} if tools is None else tools, conversation)
    if span.trace.wire:
        for agent, model in zip(agents, models, strict=True):
            if hasattr(model, "transport"):
                model.transport = model.listening(model.transport, watch.heard(agent, model.api))
    return watch


def _exchanged(agent: PromptAgent, api: Api, request: WireRequest, answer: Answered) -> dict[str, Any]:
    """What went over the wire, for people."""
    text = None if answer.chunks is None else b"".join(answer.chunks).decode(errors="replace")
    received = {"response": None if text is None else _read(text), "error": str(answer.error) if answer.error else None}
    return describe_request(agent, api, request, request.body) | received


async def _awaited(span: Span, value: Awaitable[object]) -> object:
    with span.within():
        return await value


def _read(arguments: str) -> object:
    try:
        return loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


def _shown(result: Message) -> object:
    """A result as its text, or as parts where it is more than that."""
    if len(result.content) == 1 and isinstance(result.content[0], TextPart):
        return result.content[0].value
    return result.text if all(part.kind == "text" for part in result.content) else result.to_json()["content"]
