"""The spans of a run, derived from its events: one per model call with all its attempts, one per tool call.

`RunSpans` is a listener. It works the same for sync, async and durable runs, and no span is left current across a
`yield`. `SpanLifetime` and `RunSpans` are the only places that end a span.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from json import loads
from pathlib import PurePath
from typing import Any, cast

from prompty.drivers.span_attributes import (
    agent_attributes,
    begin_call_span,
    file_digest,
    prompt_attributes,
    record_reply,
)
from prompty.drivers.target import HttpTarget, Target
from prompty.loop.options import Settings
from prompty.model.agent import PromptAgent
from prompty.model.citation import ProviderCall
from prompty.model.content import TextPart
from prompty.model.event import (
    Done,
    Event,
    ModelFailed,
    ModelReply,
    ModelRequested,
    ProviderCallDone,
    ProviderCallStarted,
    ReasoningDelta,
    RunPaused,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
)
from prompty.model.message import Message, Reply, ToolCall
from prompty.model.request import WireRequest
from prompty.model.tool import FunctionTool
from prompty.pipeline.prepare import record_inputs
from prompty.pipeline.request import describe_request
from prompty.providers import Api
from prompty.providers.wiretap import Exchange, ExchangeResult
from prompty.safety.redaction import Redactor
from prompty.tools.kinds import KindRunner
from prompty.tools.toolbox import BoundTool
from prompty.tracing import names
from prompty.tracing.spans import Span, SpanScope, begin


class _CallSpan:
    """The span of one model call, with all its attempts."""

    def __init__(self, call: int, span: Span) -> None:
        self.call, self.span = call, span
        self.exchanges: list[tuple[PromptAgent, Api, WireRequest, ExchangeResult]] = []
        self.failed_after: int | None = None
        self.provider_calls: dict[str, Span] = {}  # those that have begun, by id

    def begin_attempt(self, attempt: int) -> None:
        self.failed_after = None
        if attempt > 1:
            self.span.set_attributes({names.ATTEMPTS: attempt})

    def record_first_chunk(self) -> None:
        if names.TIME_TO_FIRST_CHUNK not in self.span.attributes:
            self.span.set_attributes({names.TIME_TO_FIRST_CHUNK: self.span.elapsed() / 1e9})

    def record_exchanges(self) -> None:
        """Record the wire exchanges. Call this last: only the answer shows which of its arguments are sensitive."""
        if self.exchanges:
            self.span.record("wire", [_exchange_to_json(*exchange) for exchange in self.exchanges])


class RunSpans:
    """The span of a run, and those of its model calls and tools. Use it in a `with` statement."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.redactor: Redactor = span.trace.redactor
        self._agents: Sequence[PromptAgent] = ()
        self._targets: Sequence[Target] = ()
        self._tools: Mapping[str, BoundTool] = {}
        self._conversation: str | None = None
        self._sensitive: dict[str, frozenset[str]] = {}
        self._call: _CallSpan | None = None
        self._tool_spans: dict[str, Span] = {}

    def describe(self, agent: PromptAgent, inputs: Mapping[str, object] | None, settings: Settings) -> None:
        """Name the agent once it is loaded, and record the inputs."""
        operation = "invoke_agent" if self.span.name == "turn" else self.span.name
        self.span.title = f"{operation} {agent.name or ''}".strip()
        self._conversation = settings.session_id
        self.span.set_attributes(
            {names.AGENT_NAME: agent.name, names.SHA256: file_digest(agent), **prompt_attributes(agent)}
        )
        if self.span.name == "turn":
            self.span.set_attributes(agent_attributes(agent, settings.session_id))
        record_inputs(self.span, agent, inputs)

    def attach(self, agents: Sequence[PromptAgent], targets: Sequence[Target], tools: Mapping[str, BoundTool]) -> None:
        """Set the models and tools of the run. If a sink wants wire exchanges, intercept the transports."""
        self._agents, self._targets, self._tools = agents, targets, tools
        self._sensitive = {
            tool.name: frozenset(parameter.name for parameter in tool.parameters if parameter.sensitive)
            for tool in agents[0].tools
            if isinstance(tool, FunctionTool)
        }
        if self.span.trace.wire:
            for target in targets:
                if isinstance(target, HttpTarget):
                    target.intercept(self._record_exchange(target.agent, target.api))

    def inside(self) -> SpanScope:
        """Make the span of the run current inside a `with` statement."""
        return self.span.inside()

    @property
    def call_span(self) -> Span:
        """The span of the current model call."""
        return self._call.span if self._call else self.span

    def wrap_tool(self, key: str, function: Callable[[], object], *, is_async: bool) -> Callable[[], object]:
        """Return a function that runs a tool call inside its span."""
        span = self._tool_spans.get(key, self.span)
        if is_async:
            return lambda: _await_inside(span, cast(Awaitable[object], function()))

        def run() -> object:
            with span.inside():
                value = function()
            return _await_inside(span, value) if inspect.isawaitable(value) else value

        return run

    def on_event(self, event: Event) -> None:
        """Begin and end the spans of model calls and tools."""
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                if self._call:
                    self._call.record_first_chunk()
            case ModelRequested():
                self._request(event)
            case ProviderCallStarted(call) if self._call:
                self._begin_provider_call(self._call, call)
            case ProviderCallDone(call) if self._call:
                self._end_provider_call(self._call, call)
            case ModelReply(reply) if self._call:
                for call in reply.provider_calls:
                    self._end_provider_call(self._call, call)
                self._hide_sensitive_arguments(reply)
                self._call.span.error = None
                record_reply(self._call.span, reply)
                self._end_call()
                if reply.tool_calls and self.span.name == "turn":  # other replies are recorded when they are processed
                    self._record_calls(reply)
            case ModelFailed() if self._call:
                self._call.span.record_error(event.error)
                self._call.failed_after = self._call.span.elapsed()
                if event.final:
                    self._end_call()
            case ToolStarted():
                self._tool_spans[event.key] = self._begin_tool(event.call)
            case ToolFinished() if span := self._tool_spans.pop(event.key, None):
                if self.span.trace.content:
                    span.record("result", _result_content(event.result))
                if event.is_error:
                    span.error = ("ToolError", span.trace.sanitizer.text(event.result.text))
                self._end(span)
            case Done():
                self.span.record("result", event.result)
            case RunPaused():
                self.span.record("result", event.paused)

    def __enter__(self) -> "RunSpans":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """End everything that is still open: an interrupted call, interrupted tools, and the run itself."""
        if self._call:
            if isinstance(error, GeneratorExit):
                self._call.span.set_attributes({names.ABANDONED: True})
            elif error is not None and self._call.failed_after is None:
                self._call.span.record_error(error)
            self._end_call()
        for span in self._tool_spans.values():
            span.error = ("Cancelled", "interrupted; it may or may not have taken effect")
            self._end(span)
        self._tool_spans.clear()
        self.span.lifetime().__exit__(kind, error, traceback)

    def _request(self, event: ModelRequested) -> None:
        if self._call is None or self._call.call != event.call:
            if self._call:
                self._end_call()
            agent, target = self._agents[event.model], self._targets[event.model]
            span = begin_call_span(
                agent, target.api, target.url, event.request, parent=self.span, conversation=self._conversation
            )
            self._call = _CallSpan(event.call, span)
        self._call.begin_attempt(event.attempt)

    def _begin_provider_call(self, model_call: _CallSpan, call: ProviderCall) -> Span:
        """Begin the span of a tool that the provider runs, below that of the model call. Results are not recorded."""
        attributes = {
            names.OPERATION_NAME: "execute_tool",
            names.TOOL_NAME: call.tool,
            names.TOOL_TYPE: "extension",
            names.TOOL_CALL_ID: call.id,
            names.TOOL_RUN_BY: "provider",
        }
        span = begin("execute_provider_tool", attributes, title=f"execute_tool {call.tool}", parent=model_call.span)
        model_call.provider_calls[call.id] = span
        return span

    def _end_provider_call(self, model_call: _CallSpan, call: ProviderCall) -> None:
        """End the span of a provider's tool. In an answer without a stream, it begins and ends here."""
        span = model_call.provider_calls.get(call.id) or self._begin_provider_call(model_call, call)
        if span.duration is None:
            span.record("inputs", call.input)
            if call.status != "completed":
                span.error = ("ToolError", span.trace.sanitizer.text(call.error or call.status))
            self._end(span)

    def _record_calls(self, reply: Reply) -> None:
        """Add the `process` span of a reply whose result is its calls (§8)."""
        span = begin("process", parent=self.span)
        span.record("result", list(reply.tool_calls))
        self._end(span)

    def _end_call(self) -> None:
        if self._call:
            for span in self._call.provider_calls.values():
                if span.duration is None:
                    span.error = ("Cancelled", "the answer ended before the call")
                    self._end(span)
            self._call.record_exchanges()
            self._end(self._call.span, self._call.failed_after)
            self._call = None

    @staticmethod
    def _end(span: Span, duration: int | None = None) -> None:
        span.end(duration)

    def _hide_sensitive_arguments(self, reply: Reply) -> None:
        """Mask the arguments of sensitive parameters before they are recorded."""
        for call in reply.tool_calls:
            tool = self._tools.get(call.name)
            is_kind = tool is not None and isinstance(tool.handler, KindRunner)
            sensitive = tool.handler.tool.sensitive if is_kind else self._sensitive.get(call.name)  # type: ignore[union-attr]  # `is_kind` says so
            if sensitive and isinstance(arguments := _read_json(call.arguments), dict):
                self.span.hide([value for name, value in arguments.items() if name in sensitive])

    def _begin_tool(self, call: ToolCall) -> Span:
        tool = self._tools.get(call.name)
        attributes = {
            names.OPERATION_NAME: "execute_tool",
            names.TOOL_NAME: call.name,
            names.TOOL_DESCRIPTION: tool.function.description if tool else None,
            names.TOOL_TYPE: "extension" if tool and isinstance(tool.handler, KindRunner) else "function",
            names.TOOL_CALL_ID: call.id,
        }
        inputs = _read_json(call.arguments) if self.span.trace.content else None
        return begin("execute_tool", attributes, title=f"execute_tool {call.name}", parent=self.span, inputs=inputs)

    def _record_exchange(self, agent: PromptAgent, api: Api) -> Callable[[WireRequest], Exchange]:
        """Return the function that records a wire exchange in the span of its call."""

        def begin_exchange(request: WireRequest) -> Exchange:
            exchanges = self._call.exchanges if self._call else []
            return Exchange(lambda answer: exchanges.append((agent, api, request, answer)))

        return begin_exchange


@contextmanager
def assembling(spans: RunSpans) -> Iterator[None]:
    """Make the run's span current while the run is assembled. If that fails, the run ends here."""
    try:
        with spans.inside():
            yield
    except BaseException as error:
        spans.__exit__(type(error), error, None)
        raise


def open_run_spans(operation: str, source: object) -> RunSpans:
    """Begin the span of a run. Until the prompt is loaded, its name is that of the file."""
    label = source.name if isinstance(source, PromptAgent) else PurePath(str(source)).stem
    shown = "invoke_agent" if operation == "turn" else operation
    return RunSpans(begin(operation, {names.AGENT_NAME: label}, title=f"{shown} {label or ''}".strip()))


def _exchange_to_json(agent: PromptAgent, api: Api, request: WireRequest, answer: ExchangeResult) -> dict[str, Any]:
    text = None if answer.chunks is None else b"".join(answer.chunks).decode(errors="replace")
    response = None if text is None else _read_json(text)
    error = str(answer.error) if answer.error else None
    return {**describe_request(agent, api, request, request.body), "response": response, "error": error}


async def _await_inside(span: Span, value: Awaitable[object]) -> object:
    with span.inside():
        return await value


def _read_json(text: str) -> object:
    try:
        return loads(text or "{}")
    except (ValueError, RecursionError):
        return text


def _result_content(result: Message) -> object:
    """Return a tool result as text, or as parts if it has media."""
    if len(result.content) == 1 and isinstance(result.content[0], TextPart):
        return result.content[0].value
    return result.text if all(part.kind == "text" for part in result.content) else result.to_json()["content"]
