"""Inputs are validated before anything is rendered or sent (R7, §2.7)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from prompty import PromptAgent, check, invoke, loads, prepare, render, turn
from prompty.errors import InputError, LoadError
from prompty.model.property import Property
from prompty.pipeline import validate_inputs
from prompty.pipeline.validate import find_misfits
from prompty.testing import Script, call


def agent(inputs: object, body: str = "user:\nHi", **keys: object) -> PromptAgent:
    return PromptAgent.model_validate({"inputs": inputs, **keys, "instructions": body})


def problems_of(made: PromptAgent, inputs: Mapping[str, object], **options: Any) -> list[str]:
    """Return the causes of an `InputError`."""
    with pytest.raises(InputError) as caught:
        validate_inputs(made, inputs, **options)
    return [problem.cause for problem in caught.value.problems]


class Colour(Enum):
    RED = "red"


class Order(BaseModel):
    count: int = 1


@dataclass
class Person:
    age: int


FITTING: list[tuple[str, object]] = [
    ("string", "x"),
    ("string", date(2026, 1, 1)),
    ("string", Colour.RED),
    ("integer", 3),
    ("float", 3),
    ("float", 3.5),
    ("float", Decimal("3.5")),
    ("boolean", False),
    ("array", [1]),
    ("array", (1, 2)),
    ("object", {"a": 1}),
    ("object", Order()),
    ("object", Person(3)),
]


@pytest.mark.spec("003 §2.7", "inputs follow the schema of the file")
@pytest.mark.parametrize(("kind", "value"), FITTING)
def test_a_value_of_the_declared_kind_is_accepted(kind: str, value: object) -> None:
    assert validate_inputs(agent({"x": {"kind": kind}}), {"x": value}) == {"x": value}


WRONG: list[tuple[str, object, str]] = [
    ("string", 3, "must be text, not 3"),
    ("string", ["a"], "must be text, not a value of type list"),
    ("integer", "abc", "must be an integer, not 'abc'"),
    ("integer", 3.5, "must be an integer, not 3.5"),
    ("integer", True, "must be an integer, not True"),
    ("float", "3.5", "must be a float, not '3.5'"),
    ("float", True, "must be a float, not True"),
    ("boolean", 1, "must be true or false, not 1"),
    ("boolean", "true", "must be true or false, not 'true'"),
    ("array", "zzz", "must be an array, not 'zzz'"),
    ("array", {}, "must be an array, not a value of type dict"),
    ("object", [], "must be an object, not a value of type list"),
]


@pytest.mark.spec("003 §2.7", "inputs follow the schema of the file")
@pytest.mark.parametrize(("kind", "value", "cause"), WRONG)
def test_a_value_of_another_kind_is_an_error(kind: str, value: object, cause: str) -> None:
    assert problems_of(agent({"x": {"kind": kind}}), {"x": value}) == [f"Input 'x' {cause}"]


@pytest.mark.spec("003 §2.7", "a value outside of the allowed ones is an error")
def test_a_value_outside_of_the_enum_values_is_an_error() -> None:
    made = agent({"q": {"kind": "integer", "enumValues": [1, 2]}})
    assert validate_inputs(made, {"q": 2}) == {"q": 2}
    assert problems_of(made, {"q": 3}) == ["Input 'q' must be one of 1, 2, not 3"]


def test_true_is_not_the_number_one_in_enum_values() -> None:
    made = agent({"q": {"kind": "array", "items": {"kind": "boolean", "enumValues": [1]}}})
    assert problems_of(made, {"q": [True]}) == ["Input 'q[0]' must be one of 1, not True"]


@pytest.mark.spec("003 §2.7", "inputs follow the schema of the file")
def test_values_inside_lists_and_objects_are_validated_by_their_path() -> None:
    made = agent(
        {
            "order": {
                "kind": "object",
                "properties": {
                    "lines": {
                        "kind": "array",
                        "items": {"kind": "object", "properties": {"price": {"kind": "float", "required": True}}},
                    },
                    "note": {"kind": "string"},
                },
            }
        }
    )
    assert problems_of(made, {"order": {"lines": [{"price": 1}, {"price": "x"}, {}], "note": 7}}) == [
        "Input 'order.lines[1].price' must be a float, not 'x'",
        "Input 'order.lines[2].price' is required but has no value",
        "Input 'order.note' must be text, not 7",
    ]


def test_every_problem_is_reported_at_once() -> None:
    made = agent({"a": {"kind": "integer"}, "b": {"required": True}, "c": {"kind": "boolean"}})
    assert problems_of(made, {"a": "x", "c": 2, "zzz": 1}) == [
        "Input 'a' must be an integer, not 'x'",
        "Missing required input 'b'",
        "Input 'c' must be true or false, not 2",
        "Unknown input 'zzz': the prompt has 'a', 'b', 'c'",
    ]


def test_an_unknown_input_is_an_error_with_the_nearest_match() -> None:
    made = agent({"question": {"kind": "string"}})
    with pytest.raises(InputError, match="Unknown input 'questoin'") as caught:
        prepare(made, {"questoin": "x"})
    assert caught.value.problems[0].fix == "Did you mean `question`?"


def test_extra_inputs_can_be_ignored() -> None:
    made = agent({"q": {"kind": "string"}}, "user:\n{{ q }}", model={"id": "m", "provider": "scripted"})
    assert render(made, {"q": "a", "z": 1}, extra_inputs="ignore") == "user:\na"
    with Script("ok", "ok"):
        assert invoke(made, {"q": "a", "z": 1}, extra_inputs="ignore") == "ok"
        assert turn(made, {"q": "a", "z": 1}, extra_inputs="ignore") == "ok"


def test_a_name_that_only_the_template_uses_is_known() -> None:
    assert prepare(agent({}, "user:\n{% if name is defined %}{{ name }}{% endif %}"), {"name": "Ada"})[0].text == "Ada"


def test_a_name_inside_a_section_of_mustache_is_known() -> None:
    made = agent({"xs": []}, "user:\n{{#xs}}{{name}}{{/xs}}", template="mustache")
    assert prepare(made, {"xs": [1], "name": "Ada"})[0].text == "Ada"


def test_a_name_that_only_a_binding_uses_is_known() -> None:
    tool = {"name": "pay", "kind": "function", "parameters": {"who": "x"}, "bindings": {"who": {"input": "user"}}}
    assert validate_inputs(agent({}, tools=[tool]), {"user": "ada"}) == {"user": "ada"}


def test_none_means_that_an_input_has_no_value() -> None:
    assert validate_inputs(agent({"q": {"kind": "integer"}}), {"q": None}) == {}


def test_the_value_of_a_sensitive_input_is_not_in_the_message() -> None:
    made = agent({"pin": {"kind": "integer", "sensitive": True}})
    assert problems_of(made, {"pin": "hunter2"}) == ["Input 'pin' must be an integer, not another value"]


def test_inputs_that_are_no_mapping_are_an_error_of_ours() -> None:
    with pytest.raises(InputError, match=r"inputs is 'x', not a mapping"):
        invoke(agent({}), "x")  # type: ignore[call-overload]  # the mistake


def test_a_conversation_that_exists_needs_only_the_inputs_of_bindings() -> None:
    inputs = {"q": {"required": True}, "user": {"required": True}}
    made = agent(inputs, "user:\n{{ q }}", model={"id": "m", "provider": "scripted"})
    with Script("Fine."):
        assert turn(made, messages=[{"role": "user", "content": "Hi"}]) == "Fine."
    tool = {"name": "pay", "kind": "function", "parameters": {"who": "x"}, "bindings": {"who": {"input": "user"}}}
    bound = agent(inputs, "user:\n{{ q }}", model={"id": "m", "provider": "scripted"}, tools=[tool])
    with Script(call("pay")), pytest.raises(InputError, match="Missing required input 'user'"):
        turn(bound, messages=[{"role": "user", "content": "Hi"}], tools={"pay": lambda who: who})


WRONG_DEFAULTS = {
    "of another kind": ("inputs: {n: {kind: integer, default: many}}", "inputs.n.default"),
    "outside of the enum values": ("inputs: {n: {kind: string, enumValues: [a, b], default: c}}", "inputs.n.default"),
    "inside a list": ("inputs: {n: {kind: array, items: {kind: integer}, default: [1, x]}}", "inputs.n.default"),
    "of a tool's parameter": (
        "tools: [{name: f, kind: function, parameters: {n: {kind: integer, default: x}}}]",
        "tools.0.parameters.n.default",
    ),
}


@pytest.mark.parametrize(("frontmatter", "key"), WRONG_DEFAULTS.values(), ids=WRONG_DEFAULTS)
def test_a_default_that_does_not_fit_is_an_error_at_load(frontmatter: str, key: str, tmp_path: Any) -> None:
    file = tmp_path / "a.prompty"
    file.write_text(f"---\nmodel: m\n{frontmatter}\n---\nuser:\n{{{{ n }}}}\n")
    with pytest.raises(LoadError) as caught:
        loads(file.read_text())
    [problem] = caught.value.problems
    assert (problem.code, problem.key, problem.line) == ("wrong-default", key, 3)
    assert "wrong-default" in [found.code for found in check(file)]


KINDS = st.sampled_from(["string", "integer", "float", "boolean", "array", "object"])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["f0", "f1", "z"]), inner, max_size=3),
    max_leaves=8,
)
PROPERTIES = st.recursive(
    st.builds(Property, name=st.just("x"), kind=KINDS),
    lambda inner: st.builds(
        lambda items, fields: Property(
            name="x",
            kind="array" if items else "object",
            items=items,
            properties=tuple(field.model_copy(update={"name": f"f{at}"}) for at, field in enumerate(fields)),
        ),
        st.none() | inner,
        st.lists(inner, max_size=2),
    ),
    max_leaves=6,
)


def fits(declared: Property, value: object) -> bool:
    """Decide by the words of the document, in another way than the code."""
    types = {"string": (str,), "integer": (int,), "float": (int, float), "boolean": (bool,), "array": (list,)}
    if not isinstance(value, types.get(declared.kind, (dict,))) or isinstance(value, bool) != (
        declared.kind == "boolean"
    ):
        return False
    if isinstance(value, list):
        return declared.items is None or all(fits(declared.items, entry) for entry in value)
    if isinstance(value, dict):
        inner = [(field, value[field.name]) for field in declared.properties if value.get(field.name) is not None]
        return all(fits(field, entry) for field, entry in inner)
    return True


@given(PROPERTIES, PLAIN.filter(lambda value: value is not None))
def test_exactly_the_values_of_the_declared_shape_have_no_problems(declared: Property, value: object) -> None:
    found = find_misfits(declared, value)
    assert (not found) == fits(declared, value)
    assert all(problem.name == "x" and problem.cause.startswith("Input 'x") for problem in found)
