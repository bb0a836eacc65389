"""Unions and nullable properties in a file: loading, inputs, text inputs, and what rewrites a file (F17)."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from prompty import (
    Image,
    PromptAgent,
    check,
    invoke,
    load,
    loads,
    prepare,
    render,
    turn,
)
from prompty.batches.rows import get_input_kinds, read_rows
from prompty.cases.reading import read_suite
from prompty.cli.app import app
from prompty.cli.inputs import read_inputs
from prompty.errors import InputError, LoadError
from prompty.messages import TextPart
from prompty.pipeline import validate_inputs
from prompty.pipeline.migrate import migrate_text
from prompty.pipeline.validate import fill_defaults
from prompty.testing import Script, call
from prompty.tracing import Tracer, trace_to

FILE = """---
name: order
model: {id: m, provider: scripted}
inputs:
  item:
    kind: union
    anyOf:
      - kind: integer
      - {kind: string, enumValues: [all, none]}
      - kind: object
        properties:
          id: {kind: integer, required: true}
          note: {kind: string, nullable: true, required: true}
  limit: {kind: integer, nullable: true, default: 10}
  day: {kind: union, oneOf: [{kind: integer}, {kind: float}, {kind: string}]}
outputs:
  total: {kind: float, nullable: true}
tools:
  - name: find
    kind: function
    parameters:
      by: {kind: union, oneOf: [{kind: string}, {kind: integer}], nullable: true}
---
user:
{{ item }} {{ limit }} {{ day }}
"""


def agent(inputs: object, body: str = "user:\n{{ x }}", **keys: object) -> PromptAgent:
    model = {"id": "m", "provider": "scripted"}
    return PromptAgent.model_validate({"model": model, "inputs": inputs, **keys, "instructions": body})


def problems_of(made: PromptAgent, inputs: dict[str, object]) -> list[str]:
    with pytest.raises(InputError) as caught:
        validate_inputs(made, inputs)
    return [problem.cause for problem in caught.value.problems]


FITTING: list[dict[str, object]] = [
    {"item": 3},
    {"item": "all"},
    {"item": {"id": 1, "note": None}},
    {"item": {"id": 1, "note": "x", "more": []}},
    {"limit": None},
    {"limit": 2},
    {"day": 1.5},
    {"day": "monday"},
]


@pytest.mark.parametrize("inputs", FITTING)
def test_values_of_every_branch_are_inputs(inputs: dict[str, object]) -> None:
    assert validate_inputs(loads(FILE), inputs) == {"limit": 10, **inputs}


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "no branch": (
        {"item": []},
        "'item' must be an integer or one of 'all', 'none' or an object, not a value of type list",
    ),
    "a branch's enum": ({"item": "some"}, "'item' must be one of 'all', 'none', not 'some'"),
    "inside a branch": ({"item": {"note": 3}}, "'item.id' is required but has no value"),
    "null where it is none": ({"item": {"id": None, "note": None}}, "'item.id' is required but has no value"),
    "not nullable, but required": ({"item": {"id": 1}}, "'item.note' is required but has no value"),
    "two branches": (
        {"day": 3},
        "'day' must fit exactly one branch of `oneOf` (an integer or a float or text), but 3 fits 2",
    ),
    "a boolean": ({"limit": True}, "'limit' must be an integer, not True"),
}


@pytest.mark.parametrize(("inputs", "cause"), WRONG.values(), ids=WRONG)
def test_a_value_that_fits_no_branch_is_an_error(inputs: dict[str, object], cause: str) -> None:
    assert problems_of(loads(FILE), inputs)[0] == f"Input {cause}"


def test_none_is_a_value_of_a_nullable_input_alone() -> None:
    made = agent(
        {
            "a": {"kind": "string", "nullable": True, "default": "d", "required": True},
            "b": {"kind": "string", "default": "d"},
            "c": {"anyOf": [{"kind": "string", "nullable": True}, {"kind": "integer"}], "required": True},
            "d": {"kind": "array", "items": {"kind": "integer", "nullable": True}},
        },
        "user:\n{{ a }} {{ b }} {{ c }} {{ d }}",
    )
    given: dict[str, Any] = {"a": None, "b": None, "c": None, "d": [1, None]}
    expected = {"a": None, "b": "d", "c": None, "d": [1, None]}
    assert validate_inputs(made, given) == fill_defaults(made, given) == expected
    assert render(made, given) == "user:\nNone d None [1, None]"
    assert problems_of(made, {"a": "x", "d": [None, "x"]}) == [
        "Missing required input 'c'",
        "Input 'd[1]' must be an integer, not 'x'",
    ]


def test_null_that_two_branches_of_one_of_allow_is_no_value() -> None:
    branches = [{"kind": "string", "nullable": True}, {"kind": "integer", "nullable": True}]
    items = {"kind": "array", "items": {"oneOf": branches}}
    assert "fits 2" in problems_of(agent({"x": items}), {"x": [None]})[0]
    nullable = {"kind": "array", "items": {"oneOf": branches, "nullable": True}}
    assert validate_inputs(agent({"x": nullable}), {"x": [None]}) == {"x": [None]}


def test_media_are_values_of_their_branch() -> None:
    made = agent({"x": {"anyOf": [{"kind": "integer"}, {"kind": "image"}, {"kind": "thread"}, {"kind": "string"}]}})
    [seen] = prepare(made, {"x": Image("aGk=", "image/png")})
    assert seen.content == (Image("aGk=", "image/png"),)
    [seen] = prepare(made, {"x": "https://example.com/a.png"})
    assert seen.content == (Image("https://example.com/a.png"),)
    [seen] = prepare(made, {"x": "a cat"})
    assert seen.content == (TextPart("a cat"),)
    thread = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    assert [(message.role, message.text) for message in prepare(made, {"x": thread})] == [
        ("user", "Hi"),
        ("assistant", "Ho"),
    ]
    no_media = agent({"x": {"anyOf": [{"kind": "integer"}, {"kind": "string"}]}})
    assert problems_of(no_media, {"x": Image("aGk=", "image/png")}) == [
        "Input 'x' must be an integer or text, not a value of type ImagePart"
    ]


@pytest.mark.parametrize("place", ["the union", "a branch", "a branch of a branch"])
def test_no_trace_and_no_message_shows_a_value_of_a_sensitive_union(place: str, tmp_path: Path) -> None:
    mark = {"sensitive": True}
    inner = {"anyOf": [{"kind": "integer", **(mark if place == "a branch of a branch" else {})}]}
    pin = {"kind": "object", "properties": {"pin": {"kind": "integer"}}, **(mark if place == "a branch" else {})}
    made = agent({"x": {"anyOf": [inner, {"kind": "string"}, pin], **(mark if place == "the union" else {})}})
    assert made.inputs[0].sensitive
    for wrong in (["hunter2"], {"pin": "hunter2"}):
        assert "hunter2" not in str(problems_of(made, {"x": wrong}))
    trace_to(f"file:{tmp_path}")
    try:
        with Script("Yes."):
            invoke(made, {"x": "hunter2 is mine"})
    finally:
        Tracer.clear()
    [trace] = tmp_path.glob("*.jsonl")
    assert "Yes." in trace.read_text()
    assert "hunter2" not in trace.read_text()


def test_a_default_must_fit_a_branch() -> None:
    good = "inputs: {x: {anyOf: [{kind: integer}, {kind: string, nullable: true}], default: many}}"
    assert validate_inputs(loads(f"---\nmodel: m\n{good}\n---\nuser:\n{{{{ x }}}}"), {}) == {"x": "many"}
    bad = "inputs: {x: {anyOf: [{kind: integer}, {kind: boolean}], default: many}}"
    with pytest.raises(LoadError) as caught:
        loads(f"---\nmodel: m\n{bad}\n---\nuser:\n{{{{ x }}}}")
    [problem] = caught.value.problems
    assert (problem.code, problem.key) == ("wrong-default", "inputs.x.default")
    assert problem.message == "the default of 'x' must be an integer or true or false, not 'many'"


MISTAKES: dict[str, tuple[str, str, str, str]] = {
    "no branches": (
        "x: {kind: union}",
        "wrong-union",
        "this union has neither `oneOf` nor `anyOf`",
        "Write one of them, with the list of its branches.",
    ),
    "both lists": (
        "x: {kind: union, oneOf: [{kind: string}], anyOf: [{kind: string}]}",
        "wrong-union",
        "this union has both `oneOf` and `anyOf`",
        "Write one of them, with the list of its branches.",
    ),
    "branches of another kind": (
        "x: {kind: string, anyOf: [{kind: string}]}",
        "wrong-union",
        "`anyOf` belongs to a union, not to the kind `string`",
        "Write `kind: union`.",
    ),
    "a wrong union in a branch": (
        "x: {anyOf: [{kind: string}, {kind: union}]}",
        "wrong-union",
        "this union has neither `oneOf` nor `anyOf`",
        "Write one of them, with the list of its branches.",
    ),
    "a branch as a word": (
        "x: {anyOf: [string, {kind: integer}]}",
        "wrong-value",
        "expected a mapping, found `string`",
        "Write a branch as a property, for example `{kind: string}`.",
    ),
}
GROUPS = {
    "inputs": "inputs: {{{}}}",
    "outputs": "outputs: {{{}}}",
    "parameters": "tools: [{{name: f, kind: function, parameters: {{{}}}}}]",
    "items": "inputs: {{list: {{kind: array, items: {{properties: {{{}}}}}}}}}",
}


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize(("written", "code", "message", "fix"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_union_is_an_error_with_its_place_and_its_fix(
    written: str, code: str, message: str, fix: str, group: str, tmp_path: Path
) -> None:
    file = tmp_path / "a.prompty"
    file.write_text(f"---\nmodel: {{id: m, provider: scripted}}\n{group.format(written)}\n---\nuser:\nHi\n")
    with pytest.raises(LoadError) as caught:
        load(file)
    [problem] = caught.value.problems
    assert (problem.code, problem.message, problem.fix, problem.line) == (code, message, fix, 3)
    assert "x" in problem.key.split(".")
    assert problem in check(file)


def test_the_whole_file_is_without_problems(tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    file.write_text(FILE)
    assert check(file) == []


def test_check_finds_one_of_in_a_strict_schema_and_can_replace_it(tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    branches = "oneOf: [{kind: string}, {kind: integer}]"
    head = "---\nmodel: {id: m, provider: scripted}\n"
    file.write_text(f"{head}outputs:\n  a: {{kind: array, items: {{{branches}}}}}\n---\nuser:\nHi\n")
    [problem] = check(file)
    assert (problem.code, problem.severity, problem.line) == ("strict-one-of", "error", 4)
    assert problem.message == "the output `a[]` has `oneOf`, which strict schemas cannot have"
    assert [edit.text for edit in problem.edits] == ["anyOf"]
    with Script() as script:
        shown = CliRunner().invoke(app, ["run", str(file)])
    assert (shown.exit_code, script.requests) == (1, [])
    assert "Write `anyOf` instead." in shown.stderr
    file.write_text(file.read_text().replace("oneOf", "anyOf"))
    assert check(file) == []


def test_check_finds_what_is_open_or_unknown_in_items_and_branches(tmp_path: Path) -> None:
    file = tmp_path / "a.prompty"
    outputs = (
        "outputs:\n  a: {kind: array, items: {kind: object}}\n  b:\n    anyOf:\n      - {kind: array, itmes: {}}\n"
    )
    file.write_text(f"---\nmodel: {{id: m, provider: scripted}}\n{outputs}---\nuser:\nHi\n")
    assert [(problem.code, problem.key) for problem in check(file)] == [
        ("open-output", "outputs.a.items"),
        ("open-output", "outputs.b.anyOf.0"),
        ("unknown-key", "outputs.b.anyOf.0.itmes"),
    ]


def test_a_model_calls_a_tool_with_null_and_with_every_branch() -> None:
    made = loads(FILE)
    seen: list[object] = []

    def find(by: object = "nothing") -> str:
        seen.append(by)
        return "found"

    asked: list[object] = ["x", 3, None, []]
    calls = [call("find", by=by) for by in asked]
    with Script(*calls, '{"total": null}') as script:
        assert turn(made, {"item": 1}, tools=[find]) == {"total": None}
    assert seen == ["x", 3, None]
    assert "by" in script.requests[-1]["messages"][-1]["content"]


# Text of a command line, of a CSV file and of a table of cases.

READ: dict[str, tuple[str, object]] = {
    "3": ("item", 3),
    "all": ("item", "all"),
    '"all"': ("item", "all"),
    '{"id": 2, "note": null}': ("item", {"id": 2, "note": None}),
    "monday": ("day", "monday"),
    "1.5": ("day", 1.5),
    "[1]": ("day", "[1]"),
}


@pytest.mark.parametrize(("text", "expected"), READ.items(), ids=READ)
def test_text_of_a_union_is_json_if_that_fits_and_else_text(
    text: str, expected: tuple[str, object], tmp_path: Path
) -> None:
    name, value = expected
    made = loads(FILE)
    assert read_inputs(made, [f"{name}={text}"]) == {name: value}
    rows = tmp_path / "rows.csv"
    quoted = text.replace('"', '""')
    rows.write_text(f'{name}\n"{quoted}"\n')
    assert [row.inputs for row in read_rows(rows, get_input_kinds(made))] == [{name: value}]
    (tmp_path / "order.prompty").write_text(FILE)
    (tmp_path / "order.test.yaml").write_text("cases: ${file:rows.csv}\n")
    assert [case.inputs for case in read_suite(tmp_path / "order.test.yaml").cases] == [{name: value}]


def test_text_that_fits_no_branch_is_reported_as_it_was_read(tmp_path: Path) -> None:
    made = agent({"x": {"anyOf": [{"kind": "integer"}, {"kind": "boolean"}]}})
    with pytest.raises(InputError, match="input 'x' must be JSON for a value of kind union, not 'many'"):
        read_inputs(made, ["x=many"])
    assert read_inputs(made, ["x=[1]"]) == {"x": [1]}
    rows = tmp_path / "rows.csv"
    rows.write_text("x,y\nmany,1\n,2\n")
    first, second = read_rows(rows, get_input_kinds(made))
    assert "'x' is declared as union" in str(first.problem)
    assert second.inputs == {"y": "2"}


# What rewrites a file keeps them.


def test_a_prompt_has_the_unions_of_its_partials(tmp_path: Path) -> None:
    declared = "{oneOf: [{kind: string}, {kind: integer, nullable: true}], nullable: true}"
    (tmp_path / "_who.md").write_text(f"---\ninputs:\n  who: {declared}\n---\n{{{{ who }}}}\n")
    (tmp_path / "a.prompty").write_text('---\nmodel: m\n---\nuser:\n{% include "_who.md" %}\n')
    [who] = load(tmp_path / "a.prompty").inputs
    assert who.nullable
    assert who.one_of[1].nullable


V1 = """---
name: old
model:
  api: chat
  configuration: {type: openai, name: gpt-4o}
  parameters:
    tools:
      - type: function
        function:
          name: find
          parameters:
            type: object
            properties:
              by:
                anyOf: [{type: string}, {type: integer}, {type: "null"}]
                description: What to look for.
              day: {type: [string, "null"]}
inputs:
  x: {type: union, anyOf: [{type: string}, {type: number, nullable: true}], description: d}
---
user:
{{x}}
"""


def test_a_file_of_version_one_keeps_unions_and_null() -> None:
    migrated = migrate_text(V1, "old.prompty").text
    for text in (V1, migrated):
        with pytest.warns() if text is V1 else pytest.MonkeyPatch.context():
            made = loads(text)
        [declared] = made.inputs
        assert [(branch.kind, branch.nullable) for branch in declared.any_of] == [("string", False), ("float", True)]
        [tool] = made.tools
        by, day = tool.parameters  # type: ignore[union-attr]  # it is a function
        assert (by.nullable, [branch.kind for branch in by.any_of]) == (True, ["string", "integer"])
        assert (day.nullable, day.kind) == (True, "string")
