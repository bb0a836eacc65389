"""The `_async` twins of the public functions: same arguments, same results.

They stand apart from `api` so that synchronous programs do not pay for importing asyncio.
"""

from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

from prompty.api import MAX_RETRIES, CallOptions, Inputs, Source, processor_of
from prompty.drivers.calls import finisher
from prompty.drivers.calls_async import last_of, reply_events_async
from prompty.drivers.spanning import spanned_async
from prompty.drivers.stream_async import AsyncPromptyStream
from prompty.model.agent import PromptAgent
from prompty.model.message import Message
from prompty.pipeline.load import StrPath, load
from prompty.pipeline.prepare import parse, prepare, render
from prompty.pipeline.telemetry import begin_call, show_call
from prompty.tracing.spans import Span

T = TypeVar("T")


async def load_async(
    path: StrPath, *, allowed_roots: Sequence[StrPath] = (), env: Mapping[str, str] | None = None
) -> PromptAgent:
    """Like `load`, with the reading done in a thread."""
    return await to_thread(load, path, allowed_roots=allowed_roots, env=env)


async def render_async(agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False) -> str:
    """Like `render`; nothing in it waits."""
    return render(agent, inputs, strict=strict)


async def parse_async(agent: PromptAgent, text: str, *, nonce: str | None = None) -> list[Message]:
    """Like `parse`; nothing in it waits."""
    return parse(agent, text, nonce=nonce)


async def prepare_async(
    agent: PromptAgent, inputs: Mapping[str, object] | None = None, *, strict: bool = False
) -> list[Message]:
    """Like `prepare`; nothing in it waits."""
    return prepare(agent, inputs, strict=strict)


async def process_async(agent: PromptAgent, response: object) -> object:
    """Like `process`."""
    return await processor_of(agent).process_async(agent, response)


@overload
async def run_async(
    agent: PromptAgent, messages: Sequence[object], *, stream: Literal[False] = ..., **options: Unpack[CallOptions]
) -> Any: ...
@overload
async def run_async(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
async def run_async(
    agent: PromptAgent, messages: Sequence[object], *, stream: Literal[True], **options: Unpack[CallOptions]
) -> AsyncPromptyStream[Any]: ...
@overload
async def run_async(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> AsyncPromptyStream[T]: ...
async def run_async(
    agent: PromptAgent,
    messages: Sequence[object],
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    timeout: float | None = None,
    max_retries: int = MAX_RETRIES,
) -> Any:
    """Like `run`; with `stream=True` awaiting it gives the stream."""
    options: dict[str, Any] = {"stream": stream, "timeout": timeout, "max_retries": max_retries}
    span = begin_call("run", agent)
    with span.within("on failure"):
        show_call(span, agent, None)
        return await _called(span, agent, messages, output_type, options)


async def _called(
    span: Span, agent: PromptAgent, messages: Sequence[object], output_type: type[Any] | None, options: dict[str, Any]
) -> Any:
    """Call a model within a span, which ends with the answer."""
    finish: Callable[..., Any] = finisher(agent, output_type)
    events, result = spanned_async(span, reply_events_async(agent, messages, span=span, **options), finish)
    return AsyncPromptyStream(events, result) if options["stream"] else result(await last_of(events))


@overload
async def invoke_async(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[False] = ..., **options: Unpack[CallOptions]
) -> Any: ...
@overload
async def invoke_async(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
async def invoke_async(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[True], **options: Unpack[CallOptions]
) -> AsyncPromptyStream[Any]: ...
@overload
async def invoke_async(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> AsyncPromptyStream[T]: ...
async def invoke_async(
    agent_or_path: Source,
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    timeout: float | None = None,
    max_retries: int = MAX_RETRIES,
) -> Any:
    """Like `invoke`; with `stream=True` awaiting it gives the stream."""
    options: dict[str, Any] = {"stream": stream, "timeout": timeout, "max_retries": max_retries}
    span = begin_call("invoke", agent_or_path)
    with span.within("on failure"):
        agent = agent_or_path if isinstance(agent_or_path, PromptAgent) else await load_async(agent_or_path)
        show_call(span, agent, inputs)
        return await _called(span, agent, prepare(agent, inputs), output_type, options)
