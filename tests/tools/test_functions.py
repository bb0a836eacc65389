"""Functions as tools: what a model is told of a signature, and what a function gets of what a model wrote."""

import keyword
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional

import jsonschema_rs
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from prompty import ToolContext, tool
from prompty.errors import ArgumentsError, ToolError
from prompty.tools.function import make_handler

if TYPE_CHECKING:
    from somewhere import Nothing  # type: ignore[import-not-found]  # it exists for checkers only, as in many programs


class City(BaseModel):
    name: str
    title: str = ""
    founded: date | None = None


@dataclass
class Point:
    x: int
    y: int = 0


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Options(TypedDict):
    loud: bool


def schema_of(function: Callable[..., object]) -> dict[str, Any]:
    return dict(make_handler(function).describe().parameters)


def values_of(function: Callable[..., object], **arguments: object) -> dict[str, object]:
    return make_handler(function).signature.convert(arguments)


def nothing() -> None: ...
def texts(city: str) -> None: ...
def defaults(city: str = "Oslo", days: int = 3) -> None: ...
def choices(unit: Literal["C", "F"]) -> None: ...
def optional(city: str | None = None) -> None: ...
def old_optional(city: Optional[str]) -> None: ...  # noqa: UP045  people write it so
def lists(cities: list[str]) -> None: ...
def dates(day: date) -> None: ...
def moments(at: datetime) -> None: ...
def colors(color: Color) -> None: ...
def untyped(anything) -> None: ...  # type: ignore[no-untyped-def]  # people write it so
def keywords(city: str, *, days: int = 1) -> None: ...
def anything_else(city: str, **rest: object) -> None: ...
def with_context(city: str, context: ToolContext) -> None: ...
def described(
    city: Annotated[str, "Which city"], days: Annotated[int, Field(description="How many", ge=1)]
) -> None: ...
def odd_names(copy: str, schema: int, model_config: bool, _x: str, self_: str, json: str) -> None: ...


OBJECT = {"type": "object"}
NO_MORE = {"additionalProperties": False}


def only(name: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    told: dict[str, Any] = {**OBJECT, **NO_MORE, "properties": {name: schema}}
    return {**told, "required": [name]} if required else told


SCHEMAS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "no parameters": (nothing, {**OBJECT, **NO_MORE, "properties": {}}),
    "text": (texts, only("city", {"type": "string"})),
    "a choice": (choices, only("unit", {"type": "string", "enum": ["C", "F"]})),
    "an optional one": (
        optional,
        only("city", {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, required=False),
    ),
    "an optional one without a default": (
        old_optional,
        only("city", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ),
    "a list": (lists, only("cities", {"type": "array", "items": {"type": "string"}})),
    "a date": (dates, only("day", {"type": "string", "format": "date"})),
    "a moment": (moments, only("at", {"type": "string", "format": "date-time"})),
    "no type": (untyped, only("anything", {})),
    "a context": (with_context, only("city", {"type": "string"})),
}


@pytest.mark.parametrize(("function", "schema"), SCHEMAS.values(), ids=SCHEMAS)
def test_a_signature_becomes_a_schema(function: Callable[..., object], schema: dict[str, Any]) -> None:
    assert schema_of(function) == schema


def test_defaults_make_parameters_optional_and_are_told() -> None:
    found = schema_of(defaults)
    assert found["properties"] == {
        "city": {"type": "string", "default": "Oslo"},
        "days": {"type": "integer", "default": 3},
    }
    assert "required" not in found


def test_keyword_only_parameters_are_parameters() -> None:
    assert schema_of(keywords)["required"] == ["city"]
    assert values_of(keywords, city="Oslo", days=2) == {"city": "Oslo", "days": 2}


def test_other_keywords_are_allowed_where_the_function_takes_them() -> None:
    assert schema_of(anything_else)["additionalProperties"] is True
    assert values_of(anything_else, city="Oslo", more=[1]) == {"city": "Oslo", "more": [1]}
    with pytest.raises(ArgumentsError, match="more"):
        values_of(texts, city="Oslo", more=1)


def test_annotations_describe_and_limit_parameters() -> None:
    found = schema_of(described)["properties"]
    assert found["city"] == {"type": "string", "description": "Which city"}
    assert found["days"] == {"type": "integer", "description": "How many", "minimum": 1}


def google(city: str, days: int = 1) -> None:
    """Tell the weather.

    For anywhere.

    Args:
        city: Which city, by the name
            that people use.
        days (int): How many: one or more.

    Returns:
        Nothing.
    """


def sphinx(city: str, days: int = 1) -> None:
    """Tell the weather.

    For anywhere.

    :param city: Which city, by the name
        that people use.
    :param int days: How many: one or more.
    :returns: Nothing.
    """


@pytest.mark.parametrize("function", [google, sphinx])
def test_docstrings_describe_functions_and_parameters(function: Callable[..., object]) -> None:
    told = make_handler(function).describe()
    assert told.description == "Tell the weather.\n\nFor anywhere."
    properties: Any = told.parameters["properties"]
    assert properties["city"]["description"] == "Which city, by the name that people use."
    assert properties["days"]["description"] == "How many: one or more."


def test_an_annotation_goes_before_the_docstring() -> None:
    def look(
        at: Annotated[str, "From the annotation"], on: Annotated[int, Field(description="From the field")]
    ) -> None:
        """Look.

        Args:
            at: From the docstring.
            on: From the docstring.
        """

    properties = schema_of(look)["properties"]
    assert properties["at"]["description"] == "From the annotation"
    assert properties["on"]["description"] == "From the field"


def test_a_decorator_names_and_describes() -> None:
    @tool(name="other", description="Something else.", sequential=True, timeout=3)
    def look() -> None:
        """Look."""

    handler = make_handler(look)
    assert (handler.name, handler.describe().name, handler.describe().description) == (
        "other",
        "other",
        "Something else.",
    )
    assert (handler.options.sequential, handler.options.timeout) == (True, 3)
    assert make_handler(tool(nothing)).name == "nothing"


@pytest.mark.parametrize("name", ["copy", "schema", "model_config", "_x", "self_", "json"])
def test_parameters_may_be_called_anything(name: str) -> None:
    found = schema_of(odd_names)
    assert name in found["properties"]
    assert name in found["required"]
    given = {"copy": "a", "schema": 1, "model_config": True, "_x": "b", "self_": "c", "json": "d"}
    assert values_of(odd_names, **given) == given
    jsonschema_rs.validator_for(found).validate(given)


class Weather:
    def tell(self, city: str) -> str:
        """Tell the weather."""
        return city


def test_a_bound_method_does_not_show_its_instance() -> None:
    assert list(schema_of(Weather().tell)["properties"]) == ["city"]
    assert make_handler(Weather().tell).describe().description == "Tell the weather."


def test_what_a_partial_has_is_not_asked_for() -> None:
    handler = make_handler(partial(keywords, "Oslo"), "weather")
    assert list(handler.describe().parameters["properties"]) == ["days"]  # type: ignore[call-overload]  # plain JSON


class Pair(NamedTuple):
    left: int
    right: int


def nested(city: City, point: Point, color: Color, options: Options, many: list[City], pair: Pair) -> None: ...


def test_values_are_what_the_function_asks_for() -> None:
    got = values_of(
        nested,
        city={"name": "Oslo", "founded": "1048-01-01"},
        point={"x": 1},
        color="red",
        options={"loud": True},
        many=[{"name": "Rome"}],
        pair=[1, 2],
    )
    assert got == {
        "city": City(name="Oslo", founded=date(1048, 1, 1)),
        "point": Point(1, 0),
        "color": Color.RED,
        "options": {"loud": True},
        "many": [City(name="Rome")],
        "pair": Pair(1, 2),
    }
    assert values_of(defaults) == {}


def test_a_property_called_title_is_not_lost() -> None:
    definitions = schema_of(nested)["$defs"]
    assert "title" in definitions["City"]["properties"]
    assert "title" not in definitions["City"]


WRONG: dict[str, tuple[Callable[..., object], dict[str, object], str]] = {
    "missing": (texts, {}, "city: Field required"),
    "of another type": (texts, {"city": 5}, "city: Input should be a valid string"),
    "no choice": (choices, {"unit": "K"}, "unit: Input should be 'C' or 'F'"),
    "deep inside": (nested, {"city": {"name": []}}, "city.name: Input should be a valid string"),
    "no date": (dates, {"day": "someday"}, "day: "),
}


@pytest.mark.parametrize(("function", "arguments", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_said_in_words(
    function: Callable[..., object], arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ArgumentsError, match=message) as error:
        values_of(function, **arguments)
    assert "argument_" not in str(error.value)
    assert "pydantic" not in str(error.value)


def positional(city: str, /) -> None: ...
def many(*cities: str) -> None: ...
def of_a_checker(city: "Nothing") -> None: ...
def uncallable(callback: Callable[[int], int]) -> None: ...


class Thing:
    """Something no JSON can be."""


def of_a_thing(thing: Thing) -> None: ...


UNUSABLE: dict[str, tuple[Callable[..., object], str]] = {
    "positional only": (positional, "its parameter 'city' cannot be passed by name"),
    "any number": (many, "its parameter 'cities' cannot be passed by name"),
    "a name that is not there": (of_a_checker, "its annotations cannot be read"),
    "a function": (uncallable, "cannot be a tool"),
    "an object": (of_a_thing, "cannot be a tool"),
}


@pytest.mark.parametrize(("function", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_signature_that_no_model_can_call_is_refused(function: Callable[..., object], message: str) -> None:
    with pytest.raises(ToolError, match=message):
        make_handler(function).describe()


# Any signature of these types.

TYPES: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=3),
    int: st.integers(-9, 9),
    float: st.floats(-9, 9),
    bool: st.booleans(),
    list[int]: st.lists(st.integers(-9, 9), max_size=2),
    dict[str, bool]: st.dictionaries(st.text(max_size=2), st.booleans(), max_size=2),
    str | None: st.none() | st.text(max_size=3),
    int | str: st.integers(-9, 9) | st.text(max_size=3),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    Color: st.sampled_from(["red", "blue"]),
    date: st.dates().map(str),
    Point: st.fixed_dictionaries({"x": st.integers(-9, 9)}, optional={"y": st.integers(-9, 9)}),
    City: st.fixed_dictionaries({"name": st.text(max_size=3)}),
    Annotated[int, Field(ge=0)]: st.integers(0, 9),
}
names = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True) | st.sampled_from(["copy", "dict", "model_fields"])


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Callable[..., object], dict[str, Any]]:
    """A function, and arguments that it takes."""
    chosen = draw(st.lists(names.filter(lambda name: not keyword.iskeyword(name)), unique=True, max_size=4))
    hints = {name: draw(st.sampled_from(list(TYPES))) for name in chosen}
    defaulted = draw(st.sets(st.sampled_from(chosen))) if chosen else set()
    source = ", ".join(["*", *(f"{name}=None" if name in defaulted else name for name in chosen)]) if chosen else ""
    found: dict[str, Any] = {}
    body = ", ".join(f"'{name}': {name}" for name in chosen)
    exec(f"def made({source}): return {{{body}}}", found)  # noqa: S102  the names are plain identifiers
    made = found["made"]
    made.__annotations__ = {name: hint | None if name in defaulted else hint for name, hint in hints.items()}
    left = {name for name in defaulted if draw(st.booleans())}
    return made, {name: draw(TYPES[hint]) for name, hint in hints.items() if name not in left}


@settings(max_examples=100, deadline=None)
@given(made=signatures())
def test_every_schema_takes_the_arguments_that_its_function_takes(
    made: tuple[Callable[..., object], dict[str, Any]],
) -> None:
    function, arguments = made
    schema = schema_of(function)
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.validator_for(schema)
    validator.validate(arguments)
    assert not validator.is_valid({**arguments, "something else": 1})
    values = values_of(function, **arguments)
    assert values.keys() == arguments.keys()
    assert isinstance(function(**values), dict)
