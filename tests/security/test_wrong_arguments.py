"""Whatever a caller passes, only errors of prompty leave its functions, in the caller's words."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

import prompty
from prompty import (
    Budget,
    Context,
    Guardrails,
    Message,
    PromptAgent,
    PromptyError,
    Registry,
    Steering,
    Tokens,
    loads,
    pipeline,
    turn,
    user,
)
from prompty.errors import InputError, PromptyWarning, RequestError, ToolError, WrongArgument
from prompty.mcp import load_mcp_servers
from prompty.memory import InProcessMemory, SqliteMemory
from prompty.messages import prepare_request_messages, repair
from prompty.parsers import register_parser
from prompty.pipeline import CallOptions, TurnOptions
from prompty.providers import register_connection, register_executor, register_processor, register_provider
from prompty.renderers import register_renderer
from prompty.testing import Player, Recorder, Script, answer, call
from prompty.tools import register_tool, register_tool_kind
from prompty.tracing import Tracer, trace_to
from tests.soak import SOAK

TEXT = """---
model: {id: m, provider: openai}
inputs:
  q: {kind: string, default: x}
  n: {kind: integer, default: 1}
  items: {kind: array, default: []}
  who: {kind: object, default: {}}
tools:
  - {name: look, kind: function, parameters: [{name: at, kind: string}]}
---
user:
Hi {{q}} {{items}} {{who}}
"""
AGENT = loads(TEXT)
ANY: Any = prompty  # takes what a type checker would refuse
PARTS: Any = pipeline
CALL_OPTIONS = (*get_type_hints(CallOptions), "output_type", "stream")
TURN_OPTIONS = (*get_type_hints(TurnOptions), "output_type", "stream")


def look(at: str = "") -> str:
    return at


def nested(depth: int, make: Callable[[object], object]) -> object:
    value: object = "deep"
    for _ in range(depth):
        value = make(value)
    return value


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.binary(max_size=8)
    | st.sampled_from([object(), int, dict, look, lambda: None, Path("x"), AGENT, user("x"), ..., NotImplemented, 1j])
)
keys = st.text(st.characters(), max_size=6) | st.integers() | st.sampled_from(["role", "content", "q", "look", "when"])
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.tuples(inner)
        | st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "content": inner})
    ),
    max_leaves=6,
)
deep = st.builds(
    nested,
    st.sampled_from([50, 5_000]),
    st.sampled_from([lambda v: [v], lambda v: {"a": v}, lambda v: {"properties": v}]),
)
values = trees | deep

Call = Callable[[Any], object]


def with_option(function: Callable[..., object], name: str, value: object) -> object:
    return function(AGENT, **{name: value})


def with_input(name: str, value: object) -> object:
    return ANY.invoke(AGENT, {name: value})


def with_load_option(name: str, value: object) -> object:
    return ANY.loads(TEXT, **{name: value})


def register_name(register: Callable[..., object], name: object) -> object:
    return register(name, look, registry=Registry())


def play(item: Any) -> object:
    if callable(item):
        return None  # a function of the host raises what it raises
    with Script(item):
        return ANY.invoke(AGENT)


FIRST_ARGUMENT = "load loads check prepare render validate_inputs invoke turn executor_of processor_of user system"
OF_AN_AGENT = "prepare render validate_inputs invoke turn run parse process process_stream bind_tools message_to_wire"
FUNCTIONS: dict[str, Any] = {name: getattr(module, name) for module in (pipeline, prompty) for name in module.__all__}
CALLS: dict[str, Call] = {
    **{
        f"{name}(_)": FUNCTIONS[name]
        for word in f"{FIRST_ARGUMENT} trace".split()
        for name in (word, f"{word}_async")
        if name in FUNCTIONS
    },
    **{
        f"{name}(agent, _)": partial(FUNCTIONS[name], AGENT)
        for word in OF_AN_AGENT.split()
        for name in (word, f"{word}_async")
        if name in FUNCTIONS
    },
    **{f"invoke({name}=_)": partial(with_option, ANY.invoke, name) for name in CALL_OPTIONS},
    **{f"turn({name}=_)": partial(with_option, ANY.turn, name) for name in TURN_OPTIONS},
    **{f"invoke(inputs={{{name}: _}})": partial(with_input, name) for name in ("q", "n", "items", "who", "unknown")},
    **{
        f"loads({name}=_)": partial(with_load_option, name)
        for name in ("base_dir", "allowed_roots", "env", "trusted_endpoints", "registry")
    },
    "run(_, messages)": lambda value: PARTS.run(value, [user("x")]),
    "run(agent, [_])": lambda value: PARTS.run(AGENT, [value]),
    "turn(tools=[_])": lambda value: ANY.turn(AGENT, tools=[value]),
    "turn(fallbacks=[_])": lambda value: ANY.turn(AGENT, tools=[look], fallbacks=[value]),
    "resume(agent, _, [])": lambda value: ANY.resume(AGENT, value, []),
    "repair(_)": cast(Call, repair),
    "repair([], _)": lambda value: repair([], value),
    "repair([], provider, _)": lambda value: repair([], "openai", value),
    "cast(_, int)": lambda value: PARTS.cast(value, int),
    "cast(text, _)": lambda value: PARTS.cast("1", value),
    "assistant(tool_calls=_)": lambda value: ANY.assistant("x", tool_calls=value),
    "Message(content=_)": lambda value: Message(role="user", content=value),
    "Message.from_json(_)": Message.from_json,
    "Paused.from_json(_)": ANY.Paused.from_json,
    "Registry(trusted_endpoints=_)": lambda value: Registry(trusted_endpoints=value),
    "Budget(tokens=_)": lambda value: ANY.turn(AGENT, tools=[look], budget=Budget(tokens=value)),
    "Budget(seconds=_)": lambda value: ANY.turn(AGENT, tools=[look], budget=Budget(seconds=value)),
    "Context(limit=_)": lambda value: ANY.turn(AGENT, tools=[look], context_budget=Context(limit=value)),
    "Context(summary=_)": lambda value: Context(limit=9, summary=value),
    "Tokens(_)": lambda value: ANY.turn(AGENT, tools=[look], context_budget=Tokens(value)),
    "Guardrails(input=_)": lambda value: ANY.turn(AGENT, tools=[look], guardrails=Guardrails(input=value)),
    "Steering().send(_)": lambda value: Steering().send(value),
    **{
        f"{register.__name__}(_, …)": partial(register_name, register)
        for register in (
            register_connection,
            register_executor,
            register_parser,
            register_processor,
            register_provider,
            register_renderer,
            register_tool,
            register_tool_kind,
        )
    },
    "register_connection('x', _)": lambda value: register_connection("x", value, registry=Registry()),
    "load_mcp_servers(_)": lambda value: load_mcp_servers(value, registry=Registry()),
    "prepare_request_messages(_)": cast(Call, prepare_request_messages),
    "prepare_request_messages([], _)": lambda value: prepare_request_messages([], value),
    "trace_to(_)": lambda value: trace_to(value),
    "SqliteMemory(_)": SqliteMemory,
    "Recorder(_)": Recorder,
    "Player(_)": Player,
    "answer(_)": answer,
    "call(_)": call,
    "Script(_)": lambda value: play(value),
    "turn(session_id=_, memory)": lambda value: ANY.turn(
        AGENT, tools=[look], memory=InProcessMemory(), session_id=value
    ),
}


@pytest.mark.parametrize("name", CALLS)
@settings(
    max_examples=2_000 if SOAK else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(value=values)
@example(value=NotImplemented)  # neither true nor false
def test_only_errors_of_prompty_leave_its_functions(
    name: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for those that write a file
    logging.disable()  # what functions of the host raise is logged
    try:
        with Script(*["answer"] * 9):
            result = CALLS[name](value)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            if hasattr(result, "events"):
                list(cast(Iterable[object], result))
    except (PromptyError, PromptyWarning) as error:  # a warning is an error in tests
        assert str(error)
    finally:
        logging.disable(logging.NOTSET)
        Tracer.clear()


DEEP = nested(100_000, lambda value: [value])


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: ANY.turn(AGENT, tools=look), WrongArgument, "turn(tools=…) takes a list of functions, not a function"),
        (lambda: ANY.loads(TEXT.encode()), WrongArgument, "loads(data.decode())"),
        (lambda: ANY.load(None), WrongArgument, "load() takes the path of a .prompty file, not None"),
        (lambda: ANY.prepare(3), WrongArgument, "prepare() takes a PromptAgent or the path of a .prompty file"),
        (lambda: PARTS.run(AGENT, "text"), RequestError, "expected a list of messages, got str"),
        (lambda: ANY.invoke(AGENT, ["x"]), InputError, "inputs is"),
        (lambda: ANY.invoke(3), WrongArgument, "takes a PromptAgent or the path of a .prompty file, not a int"),
        (
            lambda: ANY.assistant(tool_calls=[{"name": "x"}]),
            WrongArgument,
            "tool_calls takes a list of ToolCall, not a dict",
        ),
        (lambda: ANY.turn(AGENT, budget=3), WrongArgument, "turn(budget=…) takes a Budget, not a int"),
        (lambda: ANY.turn(AGENT, approval=3), WrongArgument, "Write 'always', 'never' or {'tool': 'always'}."),
        (
            lambda: ANY.invoke(AGENT, timeout="3"),
            WrongArgument,
            "invoke(timeout=…) takes a number of seconds, not a str",
        ),
        (lambda: ANY.invoke(AGENT, {"items": DEEP}), PromptyError, ""),
        (lambda: PARTS.run(AGENT, [{"role": "user", "content": DEEP}]), PromptyError, ""),
        (lambda: ANY.invoke(AGENT, output_type=3), WrongArgument, "output_type takes a type"),
    ],
)
def test_a_wrong_argument_is_explained(make: Callable[[], object], kind: type[PromptyError], words: str) -> None:
    with Script("answer"), pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)


SECONDS = "Give it a number of seconds above 0, or None for no limit."


@pytest.mark.parametrize(
    ("option", "value", "fix"),
    [
        ("max_retries", -5, "Give it a number of at least 0."),
        ("max_iterations", 0, "Give it a number of at least 1."),
        ("max_parallel", -1, "Give it a number of at least 1."),
        ("timeout", 0, SECONDS),
        ("timeout", -1, SECONDS),
        ("timeout", -0.5, SECONDS),
        ("tool_timeout", 0, SECONDS),
    ],
)
@pytest.mark.parametrize("function", ["turn", "turn_async", "batch", "batch_async"])
def test_a_number_that_is_too_small_is_an_error_before_anything_happens(
    function: str, option: str, value: float, fix: str, tmp_path: Path
) -> None:
    """The file is not there, and nobody has looked."""
    call = getattr(ANY, function)
    with pytest.raises(RequestError) as caught:
        asyncio.run(call(tmp_path / "none.prompty", [], **{option: value}))
    assert str(caught.value) == f"{option} is {value:g}\n    {fix}"


@pytest.mark.parametrize("function", ["run", "run_async", "invoke", "invoke_async"])
@pytest.mark.parametrize(("option", "value"), [("max_retries", -1), ("timeout", 0), ("timeout", -1)])
def test_so_it_is_for_single_calls(function: str, option: str, value: int, tmp_path: Path) -> None:
    call = getattr(PARTS if function.startswith("run") else ANY, function)
    with pytest.raises(RequestError, match=f"{option} is {value}"):
        asyncio.run(call(tmp_path / "none.prompty", [], **{option: value}))


def test_a_policy_for_a_tool_that_does_not_exist_is_an_error_with_the_nearest_match() -> None:
    agent = PromptAgent.model_validate({"model": {"id": "m", "provider": "openai"}, "instructions": "user:\nHi"})
    with Script("answer"), pytest.raises(ToolError) as caught:
        turn(agent, tools={"pay": look}, approval={"payy": "always"})
    assert "the option approval= names 'payy', which is not a tool of this run" in str(caught.value)
    assert "Did you mean `pay`?" in str(caught.value)


def test_a_policy_for_a_tool_of_a_child_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text("---\nmodel: {id: c, provider: openai}\n---\nuser:\nHi\n")
    path = tmp_path / "parent.prompty"
    path.write_text(
        "---\nmodel: {id: m, provider: openai}\ntools:\n  - {name: c, kind: prompty, path: child.prompty}\n"
        "---\nuser:\nHi\n"
    )
    with Script("answer"):
        assert turn(path, approval={"of_the_child": "always"}) == "answer"
