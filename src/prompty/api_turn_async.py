"""The `_async` twin of `turn`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Unpack, overload

from prompty.api import Inputs, Source
from prompty.api_async import load_async
from prompty.api_turn import TurnArguments
from prompty.drivers.calls_async import last_of
from prompty.drivers.spanning import result_of_turn, turn_span
from prompty.drivers.stream_async import AsyncPromptyStream
from prompty.drivers.turns import Turn, TurnOptions, resumed
from prompty.model.agent import PromptAgent
from prompty.model.paused import Paused

T = TypeVar("T")


@overload
async def turn_async(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[False] = ..., **options: Unpack[TurnArguments]
) -> Any: ...
@overload
async def turn_async(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    **options: Unpack[TurnArguments],
) -> T: ...
@overload
async def turn_async(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[True], **options: Unpack[TurnArguments]
) -> AsyncPromptyStream[Any]: ...
@overload
async def turn_async(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[TurnArguments],
) -> AsyncPromptyStream[T]: ...
async def turn_async(agent_or_path: Source, inputs: Inputs = None, *, stream: bool = False, **options: Any) -> Any:
    """Like `turn`; with `stream=True` awaiting it gives the stream."""
    with turn_span(agent_or_path) as span:
        agent = agent_or_path if isinstance(agent_or_path, PromptAgent) else await load_async(agent_or_path)
        events = Turn(agent, inputs, TurnOptions(**options), stream=stream, span=span).events_async()
    return AsyncPromptyStream(events, result_of_turn) if stream else result_of_turn(await last_of(events))


invoke_agent_async = turn_async


async def resume_async(
    agent_or_path: Source,
    paused: Paused,
    verdicts: Sequence[object] | Mapping[str, object],
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    **options: Unpack[TurnArguments],
) -> Any:
    """Like `resume`; with `stream=True` awaiting it gives the stream."""
    options["session_id"] = paused.session_id
    given = TurnOptions(output_type=output_type, **options)
    with turn_span(agent_or_path) as span:
        agent = agent_or_path if isinstance(agent_or_path, PromptAgent) else await load_async(agent_or_path)
        events = resumed(agent, paused, verdicts, inputs, given, stream=stream, span=span).events_async()
    return AsyncPromptyStream(events, result_of_turn) if stream else result_of_turn(await last_of(events))
