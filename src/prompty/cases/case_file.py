"""The definition of a test file, `answer.test.yaml`. Its JSON Schema is `schemas/test.schema.json`."""

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

Level = Literal["render", "wire", "replay", "live"]
ROWS_REFERENCE = r"^\$\{file:(.+\.(?:csv|jsonl|ndjson))\}$"
LEVELS: tuple[Level, ...] = ("render", "wire", "replay", "live")


class SuitePart(BaseModel):
    """Base class of the parts of a test file."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_by_alias=True,
        validate_by_name=True,
        defer_build=True,
    )


def _to_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _to_range(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"min": value, "max": value} if is_number else value


def _to_checks(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


class Range(SuitePart):
    """Limits, both inclusive. A number alone is both of them."""

    min: float | None = Field(None, description="The smallest value that passes.")
    max: float | None = Field(None, description="The largest value that passes.")


Bounds = Annotated[Range | None, BeforeValidator(_to_range, json_schema_input_type=float | Range | None)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_to_list, json_schema_input_type=str | tuple[str, ...])]


class Similarity(SuitePart):
    """The required similarity of the answer to a text, by the vectors of an embedding prompt."""

    to: str = Field(description="The text to compare with.")
    prompt: str = Field(description="A .prompty file with `apiType: embedding` and one required input.")
    at_least: float = Field(0.8, ge=-1, le=1, description="The smallest cosine that passes.")


class ValueCheck(SuitePart):
    """One or more conditions on a value. All of them must hold."""

    path: str | None = Field(None, description="The part to look at, for example `messages[0].content`.")
    equals: Any = Field(None, description="The value must be equal to this one.")
    contains: Texts = Field((), description="The text must contain all of these.")
    not_contains: Texts = Field((), description="The text must contain none of these.")
    ignore_case: bool = Field(False, description="`equals`, `contains` and `not_contains` ignore case.")
    regex: str | None = Field(None, description="The text must match this regular expression somewhere.")
    json_schema: dict[str, Any] | None = Field(None, description="The value must be valid by this JSON Schema.")
    length: Bounds = Field(None, description="The number of characters of a text, or of entries of a list.")
    any_of: "tuple[ValueCheck, ...] | None" = Field(None, description="At least one of these checks must hold.")

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """The keys of the conditions, cheapest first. A null condition is ignored, except `equals`."""
        given = self.model_fields_set
        return tuple(
            name
            for name in type(self).model_fields
            if name in given and (name == "equals" or getattr(self, name) is not None)
        )


# Each union has a discriminator, so that a mistake is reported for the form that was written.
Arguments = Annotated[
    Annotated[dict[str, Any], Tag("<values>")] | Annotated[tuple[ValueCheck, ...], Tag("<checks>")],
    Discriminator(lambda value: "<checks>" if isinstance(value, list | tuple) else "<values>"),
]
CallEntry = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[dict[str, Arguments], Tag("<call>")],
    Discriminator(lambda value: "<name>" if isinstance(value, str) else "<call>"),
]
Calls = Annotated[tuple[CallEntry, ...], BeforeValidator(_to_list, json_schema_input_type=str | tuple[CallEntry, ...])]


class ToolCalls(SuitePart):
    """Conditions on the tools that were called. A list alone is `equals`. Arguments that are not named are ignored."""

    equals: Calls | None = Field(None, max_length=500, description="These calls, and no others.")
    contains: Calls = Field((), max_length=500, description="At least these calls, with any others around them.")
    not_contains: Calls = Field((), max_length=500, description="None of these calls.")
    any_order: bool = Field(False, description="`equals` and `contains` allow any order.")


def _to_calls(value: Any) -> Any:
    return {"equals": value} if isinstance(value, str | list | tuple) else value


class Check(ValueCheck):
    """One or more conditions on a level's observation. All of them must hold."""

    any_of: "tuple[Check, ...] | None" = Field(None, description="At least one of these checks must hold.")
    dropped: tuple[str, ...] | None = Field(None, description="Wire: the options that the provider does not take.")
    tokens: Bounds = Field(None, description="Wire: estimated tokens of the request. Answers: tokens of the answer.")
    tools: Annotated[ToolCalls | None, BeforeValidator(_to_calls, json_schema_input_type=Calls | ToolCalls | None)] = (
        Field(None, description="Answers: the tools called. A list names all calls, in order.")
    )
    rounds: Bounds = Field(None, description="Answers: how often the model was asked.")
    cost: Bounds = Field(None, description="Answers: the cost in dollars.")
    seconds: Bounds = Field(None, description="Live: how long the run took.")
    python: str | None = Field(None, description="Answers: `module:function` of a file named by `--checks`.")
    similar: Similarity | None = Field(None, description="Answers: how near the answer is to a text.")
    judge: str | None = Field(None, description="Answers: a .prompty file that scores the answer.")
    at_least: float | None = Field(None, description="With `judge`: the smallest score that passes.")
    judge_inputs: dict[str, Any] = Field({}, description="With `judge`: further inputs of the judge.")


Checks = Annotated[tuple[Check, ...], BeforeValidator(_to_checks, json_schema_input_type=Check | tuple[Check, ...])]


class Expect(SuitePart):
    """Checks by level, cheapest first. If a level fails, the more expensive levels do not run."""

    render: Checks = Field((), description="Checks of the messages. Nothing is sent.")
    wire: Checks = Field((), description="Checks of the request body. Nothing is sent.")
    replay: Checks = Field((), description="Checks of the answer: recorded, or fresh with `--live`.")
    live: Checks = Field((), description="Checks of a fresh answer. They are skipped without `--live`.")

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels that have checks, cheapest first."""
        return tuple(level for level in LEVELS if getattr(self, level))

    @property
    def level(self) -> Level:
        """The highest level that has checks."""
        return self.levels[-1] if self.levels else "render"


NO_EXPECTATIONS = Expect.model_construct()


class Defaults(SuitePart):
    """Values for every case. A case adds to `inputs`, `tools`, `tags` and `expect`, and replaces the others."""

    inputs: dict[str, Any] = Field({}, description="The inputs of the prompt.")
    tools: dict[str, Any] = Field(
        {}, description="Results of tools by name. A tool named here does not run. `look 2` is for the second call."
    )
    models: tuple[str, ...] | None = Field(None, description="Run each case with each of these: `provider:id`.")
    variants: tuple[str, ...] | None = Field(
        None, description="Run each case with each of these variants. An empty text is the file itself."
    )
    repeat: int | None = Field(None, ge=1, le=1000, description="Run a case this many times. 1 if not given.")
    passes: int | None = Field(
        None, alias="pass", ge=1, le=1000, description="How many runs must pass. All of them if not given."
    )
    tags: tuple[str, ...] = Field((), description="Words to select cases by, with `-k`.")
    expect: Expect = Field(NO_EXPECTATIONS, description="The checks, by level.")


class Case(Defaults):
    """One case: inputs, and what must hold."""

    name: str | None = Field(None, min_length=1, max_length=200, description="A unique name. `case 1` … if not given.")
    label: float | bool | str | None = Field(
        None, description="Of a judge: the score that a person gave, or `pass` or `fail`."
    )


class JudgeRules(SuitePart):
    """The agreement with people that lets a judge fail a build."""

    at_least: float | None = Field(None, description="Scores from here on count as a pass.")
    min_kappa: float = Field(0.6, ge=-1, le=1, description="The smallest Cohen's kappa.")
    min_labels: int = Field(20, ge=1, description="The smallest number of labelled cases.")


RowsReference = Annotated[str, Field(pattern=ROWS_REFERENCE)]
Cases = Annotated[
    tuple[Case, ...], BeforeValidator(lambda value: value, json_schema_input_type=tuple[Case, ...] | RowsReference)
]


class CaseFile(SuitePart):
    """The whole file. `cases` may be `${file:rows.csv}` or `${file:rows.jsonl}`."""

    prompt: str | None = Field(None, description="The prompt. By default the .prompty file of the same name.")
    defaults: Defaults = Field(Defaults(), description="Values for every case.")
    judge: JudgeRules | None = Field(None, description="The prompt is a judge, and its cases have labels.")
    cases: Cases = Field((), description="The cases, or a file with one case per row.")
