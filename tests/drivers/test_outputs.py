"""`outputs:` is a promise: what `invoke`, `turn` and rows return has the declared shape, or they raise ResultError."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, given, settings, strategies as st

from prompty import (
    Budget,
    Message,
    Paused,
    PromptAgent,
    Stop,
    ToolCall,
    invoke,
    load,
    loads,
    resume,
    turn,
)
from prompty.errors import RequestError, ResultError
from prompty.events import IterationStarted, ModelReply, OutputRejected, RunFailed, ToolFinished
from prompty.pipeline import process, run
from prompty.pipeline.outputs import compile_check
from prompty.providers import EXECUTORS, PROCESSORS
from prompty.registry import Registry
from prompty.testing import Script, answer, call
from prompty.testing.script import ScriptItem
from prompty.wire.structured import output_schema
from tests.drivers.unfit import ADA, ADA_TEXT, CORRECTABLE, OUTPUTS, TARGETS, UNFIT, Unfit, fitting
from tests.drivers.wires import Chat, Wire
from tests.loopback import Server
from tests.strategies import plain_json, properties
from tests.ways import SYNC, Seen, Way, agent_of

every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
every_unfit = pytest.mark.parametrize("unfit", UNFIT.values(), ids=UNFIT)
every_correctable = pytest.mark.parametrize("unfit", CORRECTABLE, ids=lambda unfit: unfit.reason)
FIXES = {
    "text": "outputs_mode='lenient'",
    "shape": "outputs_mode='lenient'",
    "cut": "maxOutputTokens",
    "filtered": "another model",
    "empty": "another model",
    "refusal": "another model",
}


def check_error(error: object, unfit: Unfit, wire: Wire) -> None:
    """Fail unless an error says what came, why it does not fit, and what to do."""
    assert isinstance(error, ResultError)
    assert error.reason == unfit.reason_on(wire)
    assert error.text == (unfit.text if unfit.words else error.text)
    assert error.fix
    assert error.fix in str(error)
    assert FIXES[error.reason] in error.fix


@every_target
@every_unfit
def test_an_answer_that_does_not_fit_is_an_error(server: Server, way: Way, target: Wire, unfit: Unfit) -> None:
    server.answer(unfit.encode(target, streamed=way.streamed))
    seen = way.invoke(target.agent(server, outputs=OUTPUTS))
    check_error(seen.error, unfit, target)
    assert len(server.requests) == 1
    assert isinstance(seen.events[-1], RunFailed)
    if way.streamed and unfit.reason not in ("refusal", "filtered"):
        assert seen.text == unfit.text


@every_target
def test_an_answer_that_fits_is_returned(server: Server, way: Way, target: Wire) -> None:
    server.answer(fitting(target, streamed=way.streamed))
    assert way.invoke(target.agent(server, outputs=OUTPUTS)).result == ADA
    assert way.turn(target.agent(server, outputs=OUTPUTS)).result == ADA


@every_target
@every_unfit
def test_a_turn_asks_once_for_a_correction_and_then_raises(
    server: Server, way: Way, target: Wire, unfit: Unfit
) -> None:
    server.answer(unfit.encode(target, streamed=way.streamed))
    seen = way.turn(target.agent(server, outputs=OUTPUTS))
    check_error(seen.error, unfit, target)
    is_asked = unfit in CORRECTABLE
    assert len(server.requests) == 1 + is_asked
    assert [event.reason for event in seen.of(OutputRejected)] == [unfit.reason] * is_asked


@every_target
@every_correctable
def test_a_corrected_answer_is_the_result_of_a_turn(server: Server, way: Way, target: Wire, unfit: Unfit) -> None:
    server.answer(unfit.encode(target, streamed=way.streamed), fitting(target, streamed=way.streamed))
    seen = way.turn(target.agent(server, outputs=OUTPUTS))
    assert (seen.result, seen.error) == (ADA, None)
    [rejected] = seen.of(OutputRejected)
    assert (rejected.reason, rejected.text) == (unfit.reason, unfit.text)
    assert json.dumps(rejected.cause)[1:-1] in server.requests[1].content.decode()
    second = [event for event in seen.events if isinstance(event, OutputRejected | IterationStarted)]
    assert second == [IterationStarted(1), rejected, IterationStarted(2)]


def test_a_stream_forgets_the_text_that_was_rejected(server: Server) -> None:
    server.answer(UNFIT["text"].encode(Chat(), streamed=True), fitting(Chat(), streamed=True))
    with turn(Chat().agent(server, outputs=OUTPUTS), stream=True) as stream:
        shown = ""
        for event in stream.events():
            shown = "" if isinstance(event, OutputRejected) else shown + getattr(event, "text", "")
    assert (shown, stream.text, stream.result) == (ADA_TEXT, ADA_TEXT, ADA)


@every_target
@every_unfit
def test_a_lenient_caller_gets_what_came(server: Server, whole_way: Way, target: Wire, unfit: Unfit) -> None:
    server.answer(unfit.encode(target, streamed=False))
    parsed = {"name": "Ada", "years": 36} if unfit.reason == "shape" else unfit.text
    for verb in (whole_way.invoke, whole_way.turn):
        seen = verb(target.agent(server, outputs=OUTPUTS), outputs_mode="lenient")
        if unfit.reason_on(target) != "refusal":
            assert (seen.result, seen.error) == (parsed, None)
        else:
            assert isinstance(seen.result, str)
    assert len(server.requests) == 2


@every_target
@every_unfit
def test_run_and_process_return_what_came(server: Server, target: Wire, unfit: Unfit) -> None:
    server.answer(unfit.encode(target, streamed=False))
    agent = target.agent(server, outputs=OUTPUTS)
    returned = run(agent, [{"role": "user", "content": "Hi"}])
    assert isinstance(returned, str | dict)
    assert process(agent, json.loads(bytes(server.replies[0][1]))) == returned  # type: ignore[arg-type]  # a body of JSON


def scripted(*replies: Any, outputs: object = OUTPUTS, verb: str = "invoke", **options: Any) -> Seen:
    with Script(*replies):
        return getattr(SYNC, verb)(agent_of(outputs=outputs), **options)  # type: ignore[no-any-return]  # a verb of a way


SHAPES: dict[str, tuple[object, object, str | None]] = {
    "another kind": ({"n": {"kind": "integer"}}, {"n": "3"}, "`n` is a string, not an integer"),
    "a fraction": ({"n": {"kind": "integer"}}, {"n": 3.5}, "`n` is a number, not an integer"),
    "a whole number that is written as a fraction": (
        {"n": {"kind": "integer"}},
        {"n": 3.0},
        "`n` is a number, not an integer",
    ),
    "a whole number for a float": ({"n": {"kind": "float"}}, {"n": 3}, None),
    "true for a number": ({"n": {"kind": "float"}}, {"n": True}, "`n` is a boolean, not a number"),
    "1 for a boolean": ({"b": {"kind": "boolean"}}, {"b": 1}, "`b` is a number, not a boolean"),
    "null": ({"s": {"kind": "string"}}, {"s": None}, "`s` is null, not a string"),
    "null for an optional output": ({"s": {"kind": "string", "required": False}}, {"s": None}, None),
    "an optional output that is missing": ({"s": {"kind": "string", "required": False}}, {}, None),
    "an output that is missing": ({"s": {"kind": "string"}, "t": "x"}, {"s": "a"}, "`t` is missing"),
    "a key that is not declared": ({"s": {"kind": "string"}}, {"s": "a", "t": 1}, "`t` is not declared"),
    "an allowed value": ({"s": {"kind": "string", "enumValues": ["a", "b"]}}, {"s": "b"}, None),
    "another value": ({"s": {"enumValues": ["a", "b"]}}, {"s": "c"}, '`s` is not one of "a", "b"'),
    "true for an allowed 1": (
        {"n": {"kind": "integer", "enumValues": [1]}},
        {"n": True},
        "`n` is a boolean, not an integer",
    ),
    "a list": ({"s": {"kind": "string"}}, ["a"], "it is an array, not an object"),
    "a wrong item": (
        {"l": {"kind": "array", "items": {"kind": "integer"}}},
        {"l": [1, "2", 3]},
        "`l[1]` is a string, not an integer",
    ),
    "a wrong key of an item": (
        {"l": {"kind": "array", "items": {"kind": "object", "properties": {"a": {"kind": "string"}}}}},
        {"l": [{"a": "x"}, {"a": 1}]},
        "`l[1].a` is a number, not a string",
    ),
    "media": ({"i": {"kind": "image"}}, {"i": "https://example.com/a.png"}, None),
}


@pytest.mark.parametrize(("outputs", "value", "problem"), SHAPES.values(), ids=SHAPES)
def test_the_shape_is_that_of_the_schema_which_the_model_got(
    outputs: object, value: object, problem: str | None
) -> None:
    seen = scripted(json.dumps(value), outputs=outputs)
    if problem is None:
        assert (seen.result, seen.error) == (value, None)
    else:
        assert isinstance(seen.error, ResultError)
        assert seen.error.reason == "shape"
        assert problem in seen.error.cause


def test_a_union_takes_the_values_of_each_of_its_kinds() -> None:
    for key in ("anyOf", "oneOf"):
        union = {key: [{"type": "integer"}, {"type": "string", "enum": ["many"]}, {"type": "null"}]}
        check = compile_check({"type": "object", "properties": {"n": union}, "required": ["n"]})
        assert not any(check(value) for value in ({"n": 3}, {"n": "many"}, {"n": None}, {}))
        assert check({"n": "few"}) == [(".n", "is a string, which none of its branches allow")]
        assert check({"n": True})


def test_of_many_problems_the_first_are_named() -> None:
    seen = scripted(json.dumps({"l": ["x"] * 1000}), outputs={"l": {"kind": "array", "items": {"kind": "integer"}}})
    assert isinstance(seen.error, ResultError)
    assert "`l[4]`" in seen.error.cause
    assert "`l[5]`" not in seen.error.cause


def test_an_answer_that_is_complete_at_the_token_limit_is_returned() -> None:
    assert scripted(answer(ADA_TEXT, finish_reason="length")).result == ADA
    filtered = scripted(answer(ADA_TEXT, finish_reason="content_filter")).error
    assert isinstance(filtered, ResultError)
    assert (filtered.reason, filtered.text) == ("filtered", ADA_TEXT)


def test_an_output_type_decides_alone() -> None:
    assert scripted("3", output_type=int, outputs={}).result == 3
    error = scripted("no number", output_type=int, outputs={}).error
    assert isinstance(error, ResultError)
    assert (error.reason, error.text) == ("text", "no number")
    wide = {"name": "Ada", "age": 36, "mood": "good"}
    assert scripted(json.dumps(wide), output_type=dict[str, Any]).result == wide


def test_tool_calls_are_no_answer_to_check() -> None:
    assert scripted(call("look", at="a")).result == [ToolCall(id="call_1", name="look", arguments='{"at":"a"}')]


def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


def test_a_turn_that_a_stop_condition_ends_has_no_result_of_the_shape() -> None:
    options: dict[str, Any] = {"tools": [look], "stop": Stop.tool_called("look"), "verb": "turn"}
    error = scripted(call("look", at="a"), **options).error
    assert isinstance(error, ResultError)
    assert error.reason == "stopped"
    assert scripted(call("look", at="a"), **options, outputs_mode="lenient").result == ""


def test_no_correction_is_asked_for_once_the_budget_is_spent() -> None:
    with Script("no JSON", ADA_TEXT) as script, pytest.raises(ResultError):
        turn(agent_of(outputs=OUTPUTS), budget=Budget(tokens=1))
    assert len(script.requests) == 1


def test_a_turn_that_was_paused_keeps_the_promise() -> None:
    agent = agent_of(outputs=OUTPUTS)
    with Script(call("look", at="a")):
        paused = turn(agent, tools=[look], approval="always")
    assert isinstance(paused, Paused)
    with Script("no JSON", "no JSON"), pytest.raises(ResultError):
        resume(agent, paused, [True], tools=[look])
    with Script("no JSON"):
        assert resume(agent, paused, [True], tools=[look], outputs_mode="lenient") == "no JSON"


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with Script() as script, pytest.raises(RequestError, match="outputs_mode is neither"):
        invoke(agent_of(), outputs_mode="lenent")  # type: ignore[call-overload]  # the mistake under test
    assert script.requests == []


CHILD = """---
model: {id: m, provider: scripted}
outputs: {name: {kind: string}}
---
user:
Hi
"""
PARENT = """---
model: {id: m, provider: scripted}
tools:
  - {name: ask, kind: prompty, path: child.prompty}
---
user:
Hi
"""


def test_a_prompt_that_runs_as_a_tool_keeps_the_promise(tmp_path: Path) -> None:
    (tmp_path / "child.prompty").write_text(CHILD)
    (tmp_path / "parent.prompty").write_text(PARENT)
    agent = load(tmp_path / "parent.prompty")
    replies: list[ScriptItem] = [call("ask"), "no JSON", "Done."]
    with Script(*replies):
        [told] = SYNC.turn(agent).of(ToolFinished)
    assert told.is_error
    assert "the answer is text" in told.result.text
    with Script(*replies):
        [told] = SYNC.turn(agent, outputs_mode="lenient").of(ToolFinished)
    assert (told.is_error, told.result.text) == (False, "no JSON")


class Echo:
    """An executor and a processor of the host: the answer is `result`."""

    def __init__(self, result: object) -> None:
        self.result = result

    def execute(self, agent: PromptAgent, messages: list[Message]) -> object:
        return {}

    async def execute_async(self, agent: PromptAgent, messages: list[Message]) -> object:
        return {}

    def process(self, agent: PromptAgent, response: object) -> object:
        return self.result

    async def process_async(self, agent: PromptAgent, response: object) -> object:
        return self.result


@pytest.mark.parametrize(
    ("result", "fits"), [(ADA, True), (ADA_TEXT, True), ({"name": 3}, False), ("text", False), (3 + 4j, True)]
)
def test_data_from_the_hosts_processor_is_checked_and_its_objects_are_not(result: object, fits: bool) -> None:
    registry = Registry()
    registry[EXECUTORS].register("mine", Echo(result))  # type: ignore[arg-type]  # as loosely typed as a host's may be
    registry[PROCESSORS].register("mine", Echo(result))
    agent = PromptAgent.model_validate(
        {"model": {"id": "m", "provider": "mine"}, "instructions": "user:\nHi", "outputs": OUTPUTS}
    )
    error = SYNC.invoke(agent, registry=registry).error
    assert error is None if fits else isinstance(error, ResultError)
    assert process(agent.model_copy(update={"registry": registry}), {}) == result


V1 = """---
name: v1
model:
  api: chat
  configuration: {{type: openai, api_key: k}}
  parameters: {{model: gpt-4o{format}}}
outputs:
  score: {{type: int}}
---
user:
Rate it.
"""


@pytest.mark.filterwarnings("ignore::prompty.errors.PromptyWarning")
def test_outputs_of_a_v1_file_are_a_promise_only_if_it_requests_json() -> None:
    documented = loads(V1.format(format=""))
    requested = loads(V1.format(format=", response_format: {type: json_object}"))
    for reply in ("Good.", '{"score": "high"}'):
        with Script(reply, reply):
            assert (invoke(documented), turn(documented)) == (reply, reply)
        with Script(reply), pytest.raises(ResultError):
            invoke(requested)
    with Script('{"score": 3}'):
        assert invoke(requested) == {"score": 3}


# What a schema allows, with mistakes: the property must not depend on luck to see both.
def values_of(schema: dict[str, Any]) -> st.SearchStrategy[object]:
    if "anyOf" in schema:
        return st.one_of(*map(values_of, schema["anyOf"]))
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    choices: list[st.SearchStrategy[object]] = []
    if "enum" in schema:
        choices.append(st.sampled_from(schema["enum"]))
    elif "object" in types:
        entries = {name: values_of(entry) for name, entry in schema["properties"].items()}
        choices.append(st.fixed_dictionaries(entries))
        choices.append(st.fixed_dictionaries({}, optional=entries))
    elif "array" in types:
        choices.append(st.lists(values_of(schema["items"]), max_size=3))
    else:
        choices.append(LEAVES[types[0]])
    if "null" in types:
        choices.append(st.none())
    return st.one_of(*choices, *choices, *choices, plain_json)


LEAVES: dict[str, st.SearchStrategy[object]] = {
    "string": st.text(max_size=4),
    "integer": st.integers(-5, 5),
    "number": st.integers(-5, 5) | st.floats(-5, 5),
    "boolean": st.booleans(),
    "null": st.none(),
}


def without_optional_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as a server without strict mode may read it: what can be null can be missing."""
    relaxed = {**schema}
    if "properties" in schema:
        relaxed["properties"] = {name: without_optional_nulls(entry) for name, entry in schema["properties"].items()}
        relaxed["required"] = [name for name, entry in schema["properties"].items() if not can_be_null(entry)]
    if "items" in schema:
        relaxed["items"] = without_optional_nulls(schema["items"])
    if "anyOf" in schema:
        relaxed["anyOf"] = [without_optional_nulls(branch) for branch in schema["anyOf"]]
    return relaxed


def can_be_null(schema: dict[str, Any]) -> bool:
    return any(map(can_be_null, schema["anyOf"])) if "anyOf" in schema else "null" in schema["type"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_what_invoke_returns_fits_the_schema(data: st.DataObject) -> None:
    agent = agent_of(outputs=data.draw(properties))
    schema: Any = output_schema(agent)
    assume(schema is not None and "oneOf" not in str(schema) and len(str(schema)) < 2_000)
    value = data.draw(values_of(schema))
    text = json.dumps(value)
    cut = data.draw(st.sampled_from([len(text), len(text), len(text) - 1, len(text) // 2]))
    with Script(answer(text[:cut], finish_reason=data.draw(st.sampled_from(["stop", "length"])))):
        seen = SYNC.invoke(agent)
    oracle = jsonschema_rs.Draft202012Validator(without_optional_nulls(schema))
    if seen.error is None:
        oracle.validate(dict(seen.result))
        assert seen.result == value
    else:
        assert isinstance(seen.error, ResultError)
        assert seen.error.text == text[:cut]
        assert cut < len(text) or not oracle.is_valid(value) or has_whole_float(value)


def has_whole_float(value: object) -> bool:
    """Return True if a number such as 3.0 is in a value: JSON Schema takes it for an integer, and Python does not."""
    if isinstance(value, dict):
        return any(map(has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


def test_the_usage_of_a_rejected_answer_counts() -> None:
    seen = scripted("no JSON", ADA_TEXT, verb="turn", details=True)
    replies = [event.reply for event in seen.of(ModelReply)]
    assert seen.result.usage == replies[0].usage + replies[1].usage
    assert [message.role for message in seen.messages] == ["user", "assistant", "user", "assistant"]
