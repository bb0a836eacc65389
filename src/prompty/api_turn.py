"""`turn` and what belongs to it, apart from `api`: a program that only calls models does not pay for tools."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from prompty.api import Inputs, Source, agent_from
from prompty.cancellation import CancelToken
from prompty.drivers.calls import last_of
from prompty.drivers.host import Gate, Listener, MemoryStore, Steering
from prompty.drivers.spanning import result_of_turn, turn_span
from prompty.drivers.stream import PromptyStream
from prompty.drivers.turns import Execution, Turn, TurnOptions, resumed
from prompty.loop.budget import Budget
from prompty.loop.context import Context, Tokens
from prompty.loop.guardrails import Guardrails
from prompty.loop.repair import repaired
from prompty.loop.stop import Progress
from prompty.model.message import Message
from prompty.model.paused import Paused
from prompty.pipeline.request import read_messages
from prompty.registry import DEFAULT, Registry
from prompty.tools.kinds import ToolKind
from prompty.tools.toolbox import Tools

T = TypeVar("T")


class TurnArguments(TypedDict, total=False):
    """How a turn goes.

    - `tools`: functions, or what `bind_tools` gave. Those that the file does not declare are offered to the model by
      their signatures.
    - `memory`, `session_id`: where the conversation is kept. What is stored goes before what the user says now, or to
      where the file has a `thread` input; turns of one session wait for each other.
    - `gate`: asked once about all calls of an answer before any of them runs; one verdict for each. What is not a yes
      is a no; `later()` ends the turn with a `Paused` value, for `resume`.
    - `approval`: when a person is asked, for all tools or by their names: `never`, `always`, or
      `{"when": {"amount": {"minimum": 100}}}`. The file's `approvalMode` counts too, and the stricter wins. Without a
      gate, a call that needs approval pauses the turn.
    - `tool_execution`, `max_parallel`, `tool_timeout`: whether tools run beside each other, how many, and how long.
    - `max_iterations`: how often the model may ask for tools.
    - `stop`: ends the turn after a round of tools; see `Stop`.
    - `budget`: the tokens, dollars and seconds that the turn may use.
    - `timeout`, `max_retries`: seconds for one answer of the model with all its tries, and how often it is tried again.
    - `fallbacks`: models to ask when this one cannot be reached: ids, mappings as under `model:`, or agents.
    - `guardrails`: look at what goes to the model, at what comes from it, and at what it calls.
    - `steering`: what a person says while the turn runs.
    - `context_budget`: how much of the conversation is sent, in characters or `Tokens(n)`; see `Context`.
    - `cancel`: a token that ends the turn from elsewhere.
    - `on_event`: is told everything that happens.
    - `messages`: a conversation to go on with, in the place of the one that the file and its inputs make.
    """

    tools: Tools
    memory: MemoryStore | None
    session_id: str | None
    gate: Gate | None
    approval: object
    tool_execution: Execution
    max_parallel: int | None
    tool_timeout: float | None
    max_iterations: int
    stop: Callable[[Progress], bool] | None
    budget: Budget | None
    max_retries: int
    timeout: float | None
    fallbacks: Sequence[object] | None
    guardrails: Guardrails | None
    steering: Steering | None
    context_budget: int | Tokens | Context | None
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
    with turn_span(agent_or_path) as span:
        one = Turn(agent_from(agent_or_path), inputs, TurnOptions(**options), stream=stream, span=span)
        events = one.events()
    return PromptyStream(events, result_of_turn) if stream else result_of_turn(last_of(events))


invoke_agent = turn


def resume(
    agent_or_path: Source,
    paused: Paused,
    verdicts: Sequence[object] | Mapping[str, object],
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    **options: Unpack[TurnArguments],
) -> Any:
    """Go on with a turn that waited for a person, in this process or another one. `verdicts` are those on
    `paused.pending`, in order, or some of them by their keys. Tools, and inputs that bindings need, are passed again.
    """
    options["session_id"] = paused.session_id
    given = TurnOptions(output_type=output_type, **options)
    with turn_span(agent_or_path) as span:
        one = resumed(agent_from(agent_or_path), paused, verdicts, inputs, given, stream=stream, span=span)
        events = one.events()
    return PromptyStream(events, result_of_turn) if stream else result_of_turn(last_of(events))


def register_tool(name: str, function: Callable[..., object], *, registry: Registry = DEFAULT) -> None:
    """Let files declare a function tool of this name without passing it to every turn."""
    registry.tools.register(name, function)


def register_tool_kind(kind: str, handler: ToolKind, *, registry: Registry = DEFAULT) -> None:
    """Let files declare tools of this kind."""
    registry.tool_kinds.register(kind, handler)


def repair(
    messages: Sequence[object], provider: str = "openai", api_type: str = "chat", *, registry: Registry = DEFAULT
) -> list[Message]:
    """A history as an API takes it: each call with one result, in order, under ids that are unique. `turn` does this
    before every request; the messages given stay as they are."""
    return repaired(read_messages(messages), registry.providers.get(provider).api(api_type).call_ids)
