"""`turn` and what belongs to it, apart from `api`: a program that only calls models does not pay for tools."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from prompty.api import Inputs, Source, agent_from
from prompty.drivers.calls import last_of
from prompty.drivers.stream import PromptyStream
from prompty.drivers.sync import Gate, Listener
from prompty.drivers.turns import Execution, Turn, TurnOptions
from prompty.loop.budget import Budget
from prompty.loop.repair import repaired
from prompty.loop.stop import Progress
from prompty.model.event import Done
from prompty.model.message import Message
from prompty.pipeline.request import read_messages
from prompty.providers import providers
from prompty.tools.context import CancelToken
from prompty.tools.toolbox import Tools, registered_tools

T = TypeVar("T")


class TurnArguments(TypedDict, total=False):
    """How a turn goes.

    - `tools`: functions, or what `bind_tools` gave. Those that the file does not declare are offered to the model by
      their signatures.
    - `gate`: asked once about all calls of an answer before any of them runs; one verdict for each. What is not a yes
      is a no.
    - `tool_execution`, `max_parallel`, `tool_timeout`: whether tools run beside each other, how many, and how long.
    - `max_iterations`: how often the model may ask for tools.
    - `stop`: ends the turn after a round of tools; see `Stop`.
    - `budget`: the tokens, dollars and seconds that the turn may use.
    - `timeout`, `max_retries`: seconds for one answer of the model with all its tries, and how often it is tried again.
    - `cancel`: a token that ends the turn from elsewhere.
    - `on_event`: is told everything that happens.
    - `messages`: a conversation to go on with, in the place of the one that the file and its inputs make.
    """

    tools: Tools
    gate: Gate | None
    tool_execution: Execution
    max_parallel: int | None
    tool_timeout: float | None
    max_iterations: int
    stop: Callable[[Progress], bool] | None
    budget: Budget | None
    max_retries: int
    timeout: float | None
    cancel: CancelToken | None
    on_event: Listener | None
    messages: Sequence[object] | None


@overload
def turn(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[False] = ..., **options: Unpack[TurnArguments]
) -> Any: ...
@overload
def turn(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    **options: Unpack[TurnArguments],
) -> T: ...
@overload
def turn(
    agent_or_path: Source, inputs: Inputs = ..., *, stream: Literal[True], **options: Unpack[TurnArguments]
) -> PromptyStream[Any]: ...
@overload
def turn(
    agent_or_path: Source,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[TurnArguments],
) -> PromptyStream[T]: ...
def turn(agent_or_path: Source, inputs: Inputs = None, *, stream: bool = False, **options: Any) -> Any:
    """One round of a conversation: the model is asked, its calls run, and it is asked again until it answers.

    See `TurnArguments` for the options.
    """
    events = Turn(agent_from(agent_or_path), inputs, TurnOptions(**options), stream=stream).events()
    return PromptyStream(events, result_of_turn) if stream else last_of(events).result


invoke_agent = turn


def result_of_turn(done: Done) -> Any:
    return done.result


def register_tool(name: str, function: Callable[..., object]) -> None:
    """Let files declare a function tool of this name without passing it to every turn."""
    registered_tools.register(name, function)


def repair(messages: Sequence[object], provider: str = "openai", api_type: str = "chat") -> list[Message]:
    """A history as an API takes it: each call with one result, in order, under ids that are unique. `turn` does this
    before every request; the messages given stay as they are."""
    return repaired(read_messages(messages), providers.get(provider).api(api_type).call_ids)
