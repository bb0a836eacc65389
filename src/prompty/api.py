"""The public functions. Those that can wait have an `_async` form in `api_async`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, get_type_hints, overload

from typing_extensions import TypeVar  # pydantic brings it; `typing` has defaults from 3.13 on

from prompty.chunks import chunk_events, get_decoder
from prompty.drivers.run import AgentOrPath, Inputs, Invocation, Result, start
from prompty.drivers.stream import PromptyStream
from prompty.drivers.target import get_executor, get_processor, process_response
from prompty.errors import RequestError, WrongArgument, did_you_mean, nearest
from prompty.loop.options import CallOptions, Settings, TurnOptions, check_options
from prompty.model.agent import ModelOptions, PromptAgent, require_agent
from prompty.model.paused import Paused
from prompty.model.synonyms import OPTION_SYNONYMS
from prompty.pipeline.load import open_agent
from prompty.providers import ExecutorProtocol, ProcessorProtocol

T = TypeVar("T", default=Any)  # of a result without `output_type`
F = TypeVar("F", bound=Callable[..., Any])
Verdicts = Sequence[object] | Mapping[str, object]
NO_OPTIONS = Settings()  # shared by calls without options


def takes_options(options: type) -> Callable[[F], F]:
    """Show a function's options in its signature and help. They are declared once, in `loop.options`."""

    def describe(function: F) -> F:
        hints = get_type_hints(options, include_extras=True)
        defaults = {name: field.default for name, field in Settings.__dataclass_fields__.items()}
        keyword = inspect.Parameter.KEYWORD_ONLY
        signature = inspect.signature(function)
        own = [parameter for parameter in signature.parameters.values() if parameter.name != "options"]
        extra = [
            inspect.Parameter(name, keyword, default=defaults[name], annotation=hint.__origin__)
            for name, hint in hints.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *extra])  # type: ignore[attr-defined]  # read by inspect
        lines = [f"    {name}: {hint.__metadata__[0].documentation}" for name, hint in hints.items()]
        function.__doc__ = "\n".join([function.__doc__ or "", "", "Options:", *lines])
        return function

    return describe


def make_settings(function: str, allowed: type, options: Mapping[str, Any]) -> Settings:
    """Return the settings for a call's options. Raise TypeError for an unknown option, with the nearest match."""
    if not options:
        return NO_OPTIONS
    unknown = options.keys() - allowed.__annotations__.keys()
    if unknown:
        name = min(unknown)
        raise TypeError(f"{function}() got an unexpected option '{name}'. {_find_option_fix(name, function, allowed)}")
    check_options(function, options)
    return Settings(**options)


def _find_option_fix(name: str, function: str, allowed: type) -> str:
    model_options = {*ModelOptions.model_fields, *(field.alias for field in ModelOptions.model_fields.values())}
    if name in TurnOptions.__annotations__:
        return f"{function}() calls the model once and runs no tools. Call turn({name}=…)."
    if name in model_options:
        return f"Pass options={{'{name}': …}}."
    if name in OPTION_SYNONYMS:
        return OPTION_SYNONYMS[name]
    question = did_you_mean(nearest(name, allowed.__annotations__))
    return question.rstrip() or "Pass inputs as a mapping: {'name': value}."


_ALLOWED: dict[str, type] = {
    "run": CallOptions,
    "invoke": CallOptions,
    "turn": TurnOptions,
    "resume": TurnOptions,
}


def describe_call(
    function: str,
    source: AgentOrPath,
    inputs: Inputs,
    output_type: type[Any] | None,
    stream: bool,
    details: bool,
    options: Mapping[str, Any],
    *,
    messages: Sequence[object] | None = None,
    paused: Paused | None = None,
    verdicts: Verdicts | None = None,
) -> Invocation:
    """Return the call of a public function, or of its `_async` form, after checking its arguments."""
    verb = function.removesuffix("_async")
    if verb == "resume":
        options = {**options, "session_id": _find_session(paused, options)}
    settings = make_settings(function, _ALLOWED[verb], options)
    _check_details(details, stream)
    return Invocation(
        operation="turn" if verb == "resume" else verb,  # type: ignore[arg-type]  # one of its literals
        source=source,
        settings=settings if messages is None else replace(settings, messages=messages),
        inputs=inputs,
        output_type=output_type,
        stream=stream,
        paused=paused,
        verdicts=verdicts,
        details=details,
    )


def _find_session(paused: object, options: Mapping[str, Any]) -> str | None:
    """Return the session of a paused turn. `resume` may name it again, but no other."""
    if not isinstance(paused, Paused):
        raise RequestError(
            f"expected a Paused, got {type(paused).__name__}", "Pass the result of `turn`, or Paused.from_json(value)."
        )
    if options.get("session_id") not in (None, paused.session_id):
        own = "no session" if paused.session_id is None else f"the session '{paused.session_id}'"
        raise RequestError(
            f"the paused turn belongs to {own}, not to the session '{options['session_id']}'",
            "Leave session_id= out: the turn continues where it was paused.",
        )
    return paused.session_id


def _check_details(details: bool, stream: bool) -> None:
    """Raise an error if `details` cannot be had."""
    for name, flag in (("details", details), ("stream", stream)):
        if flag.__class__ is not bool:
            raise WrongArgument(f"{name}=…", flag, "True or False", f"Write {name}=True.")
    if details and stream:
        raise RequestError(
            "`details=True` and `stream=True` exclude each other",
            "Read `usage`, `cost` and `messages` from the stream.",
        )


@overload
def run(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
def run(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[True],
    **options: Unpack[CallOptions],
) -> Result[T]: ...
@overload
def run(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[T] | None = ...,
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> PromptyStream[T]: ...
@takes_options(CallOptions)
def run(
    agent_or_path: AgentOrPath,
    messages: Sequence[object],
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    details: bool = False,
    **options: Any,
) -> Any:
    """Call the model once, with messages you already have. `messages` may be dicts in wire form."""
    return start(describe_call("run", agent_or_path, None, output_type, stream, details, options, messages=messages))


@overload
def invoke(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[CallOptions],
) -> T: ...
@overload
def invoke(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[True],
    **options: Unpack[CallOptions],
) -> Result[T]: ...
@overload
def invoke(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[True],
    **options: Unpack[CallOptions],
) -> PromptyStream[T]: ...
@takes_options(CallOptions)
def invoke(
    agent_or_path: AgentOrPath,
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    details: bool = False,
    **options: Any,
) -> Any:
    """Run a prompt once: prepare its messages, call the model, process the answer.

    Declared tools are offered to the model. Its calls are not run: they are returned as a list of `ToolCall`.
    Raises `ResultError` for an answer that does not have the shape of the file's `outputs`.
    With `details`, returns a `Result` with the value, usage, cost, finish reason, model and messages.
    """
    return start(describe_call("invoke", agent_or_path, inputs, output_type, stream, details, options))


@overload
def turn(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[TurnOptions],
) -> Any: ...
@overload
def turn(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T] | None = ...,
    stream: Literal[False] = ...,
    details: Literal[True],
    **options: Unpack[TurnOptions],
) -> Result[T] | Paused: ...
@overload
def turn(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[False] = ...,
    details: Literal[False] = ...,
    **options: Unpack[TurnOptions],
) -> T | Paused: ...
@overload
def turn(
    agent_or_path: AgentOrPath, inputs: Inputs = ..., *, stream: Literal[True], **options: Unpack[TurnOptions]
) -> PromptyStream[Any]: ...
@overload
def turn(
    agent_or_path: AgentOrPath,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[TurnOptions],
) -> PromptyStream[T | Paused]: ...
@takes_options(TurnOptions)
def turn(
    agent_or_path: AgentOrPath,
    inputs: Inputs = None,
    *,
    output_type: type[Any] | None = None,
    stream: bool = False,
    details: bool = False,
    **options: Any,
) -> Any:
    """Run one turn of a conversation: ask the model, run the tools it calls, and ask again until it answers.

    Returns the result, or a `Paused` value for `resume` if a call needs approval. If an answer does not have the shape
    of the file's `outputs`, the model is asked once to correct it; then `ResultError` is raised. With `details`, the
    result is a `Result` with the value, usage, cost, finish reason, model and messages.
    """
    return start(describe_call("turn", agent_or_path, inputs, output_type, stream, details, options))


invoke_agent = turn


@overload
def resume(
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
def resume(
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
def resume(
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
def resume(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = ...,
    *,
    stream: Literal[True],
    **options: Unpack[TurnOptions],
) -> PromptyStream[Any]: ...
@overload
def resume(
    agent_or_path: AgentOrPath,
    paused: Paused,
    verdicts: Verdicts,
    inputs: Inputs = ...,
    *,
    output_type: type[T],
    stream: Literal[True],
    **options: Unpack[TurnOptions],
) -> PromptyStream[T | Paused]: ...
@takes_options(TurnOptions)
def resume(
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
    """Continue a paused turn, in this process or another.

    `verdicts` are the verdicts on `paused.pending`, in order, or some of them by key. Pass the model, the tools, the
    gate, the guardrails and the inputs for bindings again. The calls run with the arguments in `paused`.
    """
    call = describe_call(
        "resume", agent_or_path, inputs, output_type, stream, details, options, paused=paused, verdicts=verdicts
    )
    return start(call)


def process(agent_or_path: AgentOrPath, response: object) -> object:
    """Return the result of a raw reply: the provider's JSON, or its SDK's object (§8)."""
    return process_response(open_agent(agent_or_path, "process()"), response)


def process_stream(agent_or_path: AgentOrPath, chunks: Iterable[object]) -> PromptyStream[Any]:
    """Return a stream of raw chunks that you receive yourself: JSON objects, or objects of the provider's SDK (§8.6).

    Iterate over it for text, then tool calls. `result` is the same as for the whole reply.
    """
    agent = open_agent(agent_or_path, "process_stream()")
    iterable: object = chunks
    if not isinstance(iterable, Iterable):
        cause = f"process_stream() takes an iterable of chunks, not {type(chunks).__name__}"
        raise RequestError(cause, "Use process_stream_async for an async iterable.")
    get_decoder(agent)
    return PromptyStream(chunk_events(agent, chunks))


def executor_of(agent: PromptAgent) -> ExecutorProtocol:
    """Return the executor of an agent's provider (§7.8)."""
    require_agent(agent, "executor_of")
    return get_executor(agent)


def processor_of(agent: PromptAgent) -> ProcessorProtocol:
    """Return the processor of an agent's provider (§7.8)."""
    require_agent(agent, "processor_of")
    return get_processor(agent)
