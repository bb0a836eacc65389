"""The public functions; those that can wait have a twin in `api_async`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from prompty.drivers.calls import finisher, last_of, reply_events
from prompty.drivers.executor import executor_for, processor_for
from prompty.drivers.spanning import spanned
from prompty.drivers.stream import PromptyStream
from prompty.model.agent import PromptAgent
from prompty.parsers import Parser
from prompty.pipeline.load import StrPath, load, loads
from prompty.pipeline.prepare import parse, prepare, render
from prompty.pipeline.telemetry import begin_call, show_call
from prompty.pipeline.validate import validate_inputs
from prompty.providers import Provider
from prompty.providers.foreign import ExecutorProtocol, ProcessorProtocol
from prompty.registry import DEFAULT, Registry
from prompty.renderers import Renderer
from prompty.tracing.spans import Span
from prompty.wire.structured import cast

__all__ = [
    "cast",
    "executor_of",
    "invoke",
    "load",
    "loads",
    "parse",
    "prepare",
    "process",
    "processor_of",
    "register_connection",
    "register_executor",
    "register_parser",
    "register_processor",
    "register_provider",
    "register_renderer",
    "render",
    "run",
    "validate_inputs",
]

T = TypeVar("T")
MAX_RETRIES = 3

Source = PromptAgent | StrPath
Inputs = Mapping[str, object] | None


class CallOptions(TypedDict, total=False):
    """How a call is made: the seconds it may take, and how often it is tried again where that may help."""

    timeout: float | None
    max_retries: int


def agent_from(agent_or_path: Source) -> PromptAgent:
    """A loaded agent, or the one in the file of this path."""
    return agent_or_path if isinstance(agent_or_path, PromptAgent) else load(agent_or_path)


@overload
def run(
    agent: PromptAgent, messages: Sequence[object], *, stream: Literal[False] = ..., **options: Unpack[CallOptions]
) -> Any: ...
@overload
def run(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
def run(
    agent: PromptAgent, messages: Sequence[object], *, stream: Literal[True], **options: Unpack[CallOptions]
) -> PromptyStream[Any]: ...
@overload
def run(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> PromptyStream[T]: ...
def run(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    timeout: float | None = None,
    max_retries: int = MAX_RETRIES,
) -> Any:
    """Call the model with messages one already has. `messages` may be dicts in wire form."""
    options: dict[str, Any] = {"stream": stream, "timeout": timeout, "max_retries": max_retries}
    span = begin_call("run", agent)
    with span.within("on failure"):
        show_call(span, agent, None)
        return _called(span, agent, messages, output_type, options)


def _called(
    span: Span, agent: PromptAgent, messages: Sequence[object], output_type: type[Any] | None, options: dict[str, Any]
) -> Any:
    """Call a model within a span, which ends with the answer."""
    finish: Callable[..., Any] = finisher(agent, output_type)
    events, result = spanned(span, reply_events(agent, messages, span=span, **options), finish)
    return PromptyStream(events, result) if options["stream"] else result(last_of(events))


@overload
def invoke(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[False] = ..., **options: Unpack[CallOptions]
) -> Any: ...
@overload
def invoke(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
def invoke(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[True], **options: Unpack[CallOptions]
) -> PromptyStream[Any]: ...
@overload
def invoke(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> PromptyStream[T]: ...
def invoke(
    agent_or_path: Source,
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    timeout: float | None = None,
    max_retries: int = MAX_RETRIES,
) -> Any:
    """Run a prompt once: prepare its messages, call the model, process the answer. Calls come back as `ToolCall`s."""
    options: dict[str, Any] = {"stream": stream, "timeout": timeout, "max_retries": max_retries}
    span = begin_call("invoke", agent_or_path)
    with span.within("on failure"):
        agent = agent_from(agent_or_path)
        show_call(span, agent, inputs)
        return _called(span, agent, prepare(agent, inputs), output_type, options)


def process(agent: PromptAgent, response: object) -> object:
    """The result of a raw reply."""
    return processor_of(agent).process(agent, response)


def executor_of(agent: PromptAgent) -> ExecutorProtocol:
    """The executor of an agent's provider (§7.8)."""
    return executor_for(agent)


def processor_of(agent: PromptAgent) -> ProcessorProtocol:
    """The processor of an agent's provider (§7.8)."""
    return processor_for(agent)


def register_connection(name: str, *clients: object, registry: Registry = DEFAULT) -> None:
    """Let files say `connection: {kind: reference, name: name}` and mean these SDK clients, sync and async."""
    registry.connections.register(name, *clients)


def register_provider(name: str, provider: Provider, *, registry: Registry = DEFAULT) -> None:
    """Let files say `provider: name`."""
    registry.providers.register(name, provider)


def register_executor(name: str, executor: ExecutorProtocol, *, registry: Registry = DEFAULT) -> None:
    """Let files say `provider: name`, with a processor of the same name."""
    registry.executors.register(name, executor)


def register_processor(name: str, processor: ProcessorProtocol, *, registry: Registry = DEFAULT) -> None:
    """Let files say `provider: name`, with an executor of the same name."""
    registry.processors.register(name, processor)


def register_renderer(name: str, renderer: Renderer, *, registry: Registry = DEFAULT) -> None:
    """Let files say `template: {format: {kind: name}}`."""
    registry.renderers.register(name, renderer)


def register_parser(name: str, parser: Parser, *, registry: Registry = DEFAULT) -> None:
    """Let files say `template: {parser: {kind: name}}`."""
    registry.parsers.register(name, parser)
