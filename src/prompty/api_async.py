"""The `_async` forms of the public functions: same arguments, same results."""

from asyncio import to_thread
from collections.abc import AsyncIterable, Collection, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from typing_extensions import TypeVar

from prompty.api import Verdicts, describe_call, takes_options
from prompty.chunks import chunk_events_async, get_decoder
from prompty.drivers.run import AgentOrPath, Inputs, Result, start_async
from prompty.drivers.stream import AsyncPromptyStream
from prompty.drivers.target import process_response_async
from prompty.errors import RequestError
from prompty.loop.options import CallOptions, TurnOptions
from prompty.model.agent import PromptAgent
from prompty.model.message import Message
from prompty.model.paused import Paused
from prompty.pipeline.load import MissingEnv, StrPath, load, open_agent
from prompty.pipeline.prepare import parse, prepare, render
from prompty.pipeline.validate import ExtraInputs
from prompty.registry import DEFAULT, Registry

T = TypeVar("T", default=Any)  # of a result without `output_type`


async def load_async(
    path: StrPath,
    *,
    variant: str | None = None,
    allowed_roots: Sequence[StrPath] = (),
    env: Mapping[str, str] | None = None,
    trusted_endpoints: Sequence[str] = (),
    env_allowed: Collection[str] = (),
    missing_env: MissingEnv | None = None,
    registry: Registry = DEFAULT,
) -> PromptAgent:
    """Load a file, like `load`, in a thread."""
    return await to_thread(
        load,
        path,
        variant=variant,
        allowed_roots=allowed_roots,
        env=env,
        trusted_endpoints=trusted_endpoints,
        env_allowed=env_allowed,
        missing_env=missing_env,
        registry=registry,
    )


async def _open_agent(agent_or_path: AgentOrPath, function: str) -> PromptAgent:
    """Return an agent unchanged, or load it from its file in a thread."""
    if isinstance(agent_or_path, PromptAgent):
        return agent_or_path
    return await to_thread(open_agent, agent_or_path, function)


async def render_async(
    agent_or_path: AgentOrPath, inputs: Inputs = None, *, strict: bool = False, extra_inputs: ExtraInputs = "error"
) -> str:
    """Render a prompt, like `render`."""
    agent = await _open_agent(agent_or_path, "render_async()")
    return render(agent, inputs, strict=strict, extra_inputs=extra_inputs)


async def parse_async(agent_or_path: AgentOrPath, text: str, *, trusted: bool = False) -> list[Message]:
    """Parse rendered text, like `parse`."""
    return parse(await _open_agent(agent_or_path, "parse_async()"), text, trusted=trusted)


async def prepare_async(
    agent_or_path: AgentOrPath, inputs: Inputs = None, *, strict: bool = False, extra_inputs: ExtraInputs = "error"
) -> list[Message]:
    """Prepare messages, like `prepare`."""
    agent = await _open_agent(agent_or_path, "prepare_async()")
    return prepare(agent, inputs, strict=strict, extra_inputs=extra_inputs)


async def process_async(agent_or_path: AgentOrPath, response: object) -> object:
    """Process a raw reply, like `process`."""
    return await process_response_async(await _open_agent(agent_or_path, "process_async()"), response)


async def process_stream_async(agent_or_path: AgentOrPath, chunks: AsyncIterable[object]) -> AsyncPromptyStream[Any]:
    """Return a stream of raw chunks that you receive yourself, like `process_stream`, in async code."""
    agent = await _open_agent(agent_or_path, "process_stream_async()")
    iterable: object = chunks
    if not isinstance(iterable, AsyncIterable):
        cause = f"process_stream_async() takes an async iterable of chunks, not {type(chunks).__name__}"
        raise RequestError(cause, "Use process_stream for an iterable.")
    get_decoder(agent)
    return await AsyncPromptyStream.start(chunk_events_async(agent, chunks))


@overload
async def run_async(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
async def run_async(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[True],
    **options: Unpack[CallOptions],
) -> Result[T]: ...
@overload
async def run_async(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[T] | None = ...,
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> AsyncPromptyStream[T]: ...
@takes_options(CallOptions)
async def run_async(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    details: bool = False,
    **options: Any,
) -> Any:
    """Call the model once, with messages you already have. With `stream=True`, await it to get the stream."""
    call = describe_call("run_async", agent_or_path, None, output_type, stream, details, options, messages=messages)
    return await start_async(call)


@overload
async def invoke_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
async def invoke_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[True],
    **options: Unpack[CallOptions],
) -> Result[T]: ...
@overload
async def invoke_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> AsyncPromptyStream[T]: ...
@takes_options(CallOptions)
async def invoke_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    details: bool = False,
    **options: Any,
) -> Any:
    """Run a prompt once, like `invoke`. With `stream=True`, await it to get the stream."""
    return await start_async(
        describe_call("invoke_async", agent_or_path, inputs, output_type, stream, details, options)
    )


@overload
async def turn_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[TurnOptions],
) -> Any: ...
@overload
async def turn_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[True],
    **options: Unpack[TurnOptions],
) -> Result[T] | Paused: ...
@overload
async def turn_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[TurnOptions],
) -> T | Paused: ...
@overload
async def turn_async(
    agent_or_path: AgentOrPath, inputs: Inputs = ..., *, stream: Literal[True], **options: Unpack[TurnOptions]
) -> AsyncPromptyStream[Any]: ...
@overload
async def turn_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[TurnOptions],
) -> AsyncPromptyStream[T | Paused]: ...
@takes_options(TurnOptions)
async def turn_async(
    agent_or_path: AgentOrPath,
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    details: bool = False,
    **options: Any,
) -> Any:
    """Run one turn of a conversation, like `turn`. With `stream=True`, await it to get the stream."""
    return await start_async(describe_call("turn_async", agent_or_path, inputs, output_type, stream, details, options))


invoke_agent_async = turn_async


@overload
async def resume_async(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = ...,
    *,
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[TurnOptions],
) -> Any: ...
@overload
async def resume_async(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[True],
    **options: Unpack[TurnOptions],
) -> Result[T] | Paused: ...
@overload
async def resume_async(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[TurnOptions],
) -> T | Paused: ...
@overload
async def resume_async(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = ...,
    *,
    stream: Literal[True],
    **options: Unpack[TurnOptions],
) -> AsyncPromptyStream[Any]: ...
@overload
async def resume_async(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[TurnOptions],
) -> AsyncPromptyStream[T | Paused]: ...
@takes_options(TurnOptions)
async def resume_async(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    details: bool = False,
    **options: Any,
) -> Any:
    """Continue a paused turn, like `resume`. With `stream=True`, await it to get the stream."""
    call = describe_call(
        "resume_async", agent_or_path, inputs, output_type, stream, details, options, paused=paused, verdicts=verdicts
    )
    return await start_async(call)
