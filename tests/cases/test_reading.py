"""Test files: what they may say, and every mistake in them with its line and its fix."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from prompty.cases.case_file import CaseFile
from prompty.cases.reading import check_suite, make_file_name, read_suite
from prompty.errors import LoadError
from scripts.write_schema import EXAMPLE, TEST_PATH, case_schema_text
from scripts.write_test_format import PATH, page_text
from tests.cases.project import write_suite


def problems_of(folder: Path, text: str) -> list[str]:
    file = folder / "greet.test.yaml"
    file.write_text(text, encoding="utf-8")
    return [f"{problem.line}: {problem.message} | {problem.fix}" for problem in check_suite(file)]


MISTAKES = {
    "a misspelt key": (
        "cases:\n  - name: a\n    expect:\n      render: {contians: x}\n",
        "4: unknown key `contians` | Write `contains`.",
    ),
    "an unknown level": (
        "cases:\n  - name: a\n    expect: {wires: {contains: x}}\n",
        "3: unknown key `wires` | Write `wire`.",
    ),
    "text for a number": (
        "cases:\n  - name: a\n    expect:\n      replay: {tokens: {max: many}}\n",
        "4: expected a number, found `many` | Write a number, for example `max: 0.7`.",
    ),
    "a key of answers on a level without one": (
        "cases:\n  - name: a\n    expect:\n      wire:\n        tools: [look]\n",
        "5: `tools` checks an answer, but `wire` has none | Write it under `replay:` or `live:`.",
    ),
    "time without a live run": (
        "cases:\n  - name: a\n    expect: {replay: {seconds: {max: 3}}}\n",
        "3: only live runs are timed | Write it under `live:`.",
    ),
    "a regular expression that cannot be read": (
        "cases:\n  - name: a\n    expect: {replay: {regex: '('}}\n",
        "3: the regular expression is invalid: missing ), unterminated subpattern at position 0 | "
        "Correct it, and quote it with '…'.",
    ),
    "a regular expression that Python alone has": (
        "cases:\n  - name: a\n    expect:\n      replay:\n        regex: 'late\\Z'\n",
        "5: the regular expression is Python's, not one of JSON Schema (ECMA 262): it has `\\Z` | Write `$` instead.",
    ),
    "a schema that is none": (
        "cases:\n  - name: a\n    expect: {replay: {json_schema: {type: texxt}}}\n",
        "3: not a JSON Schema: type: the value is not valid under any of the schemas listed in the 'anyOf' keyword | "
        "Correct the schema.",
    ),
    "a path that cannot be read": (
        "cases:\n  - name: a\n    expect: {wire: {path: 'a[x]', equals: 1}}\n",
        "3: the path `a[x]` is invalid at character 2 | Write it like `choices[0].message`.",
    ),
    "a path alone": (
        "cases:\n  - name: a\n    expect: {wire: {path: temperature}}\n",
        "3: there is no condition for this path | Add `equals:`, `contains:` or another condition.",
    ),
    "case without a text": (
        "cases:\n  - name: a\n    expect: {replay: {regex: x, ignore_case: true}}\n",
        "3: there is no text to compare | Add `equals:`, `contains:` or `not_contains:`. "
        "In a `regex:`, write `(?i)` at its start.",
    ),
    "no alternatives": (
        "cases:\n  - name: a\n    expect: {replay: {any_of: []}}\n",
        "3: there is no check in it | Write one `- …` for each alternative below `any_of:`.",
    ),
    "an alternative without a condition": (
        "cases:\n  - name: a\n    expect:\n      replay:\n        any_of:\n          - {contains: a}\n          - {}\n",
        "7: the check has no condition, so it always holds | Add one, or remove the check.",
    ),
    "a judge among alternatives": (
        "cases:\n  - name: a\n    expect:\n      replay:\n        any_of:\n          - {contains: a}\n"
        "          - {judge: j.prompty}\n",
        "7: `judge` runs code or a model, and cannot be one of several alternatives | "
        "Write it beside `any_of`, not in it.",
    ),
    "a misspelt key of an alternative": (
        "cases:\n  - name: a\n    expect:\n      replay: {any_of: [{contians: x}]}\n",
        "4: unknown key `contians` | Write `contains`.",
    ),
    "a bad expression in an alternative": (
        "cases:\n  - name: a\n    expect:\n      replay:\n        any_of:\n          - {path: 'a[x]', equals: 1}\n",
        "6: the path `a[x]` is invalid at character 2 | Write it like `choices[0].message`.",
    ),
    "two tools in one entry": (
        "cases:\n  - name: a\n    expect:\n      replay:\n        tools:\n"
        "          contains:\n            - {a: {}, b: {}}\n",
        "7: an entry names one call | Write one `- tool: {…}` for each call.",
    ),
    "an entry without a tool": (
        "cases:\n  - name: a\n    expect:\n      replay: {tools: [{}]}\n",
        "4: an entry names one call | Write one `- tool: {…}` for each call.",
    ),
    "an order of nothing": (
        "cases:\n  - name: a\n    expect:\n      replay: {tools: {any_order: true}}\n",
        "4: there is no call to compare | Add `equals:` or `contains:` with a list of calls.",
    ),
    "a misspelt key of tools": (
        "cases:\n  - name: a\n    expect:\n      replay: {tools: {contain: [a]}}\n",
        "4: unknown key `contain` | Write `contains`.",
    ),
    "a key of answers for an argument": (
        "cases:\n  - name: a\n    expect:\n      replay: {tools: [{pay: [{path: to, tokens: 3}]}]}\n",
        "4: unknown key `tokens` | Use one of path, equals, contains, not_contains, ignore_case, regex, json_schema, "
        "length, any_of, or remove it.",
    ),
    "a bad expression for an argument": (
        "cases:\n  - name: a\n    expect:\n      replay:\n        tools:\n          not_contains:\n"
        "            - pay: [{path: 'a[x]', equals: 1}]\n",
        "7: the path `a[x]` is invalid at character 2 | Write it like `choices[0].message`.",
    ),
    "a number of calls": (
        "cases:\n  - name: a\n    expect:\n      replay: {tools: 5}\n",
        "4: expected a mapping, found `5` | Write keys and values, indented below `tools:`.",
    ),
    "one name twice": (
        "cases:\n  - name: a b\n  - name: A-b\n",
        "3: the name 'A-b', or the recording's file name, is the same as for case 1 | Give each case a unique name.",
    ),
    "one model twice": (
        "cases:\n  - name: a\n    models: [openai:a, openai:b, openai:a]\n",
        "3: 'openai:a', or its recording's file name, is the same as for 'openai:a' | Remove one of them.",
    ),
    "one variant twice": (
        "defaults:\n  variants: ['', short, Short]\ncases:\n  - name: a\n",
        "2: 'Short', or its recording's file name, is the same as for 'short' | Remove one of them.",
    ),
    "more passes than runs": (
        "cases:\n  - name: a\n    repeat: 2\n    pass: 3\n",
        "4: `pass` is 3, but the case runs 2 times | Write `repeat: 3`, or lower `pass`.",
    ),
    "a label without a judge": (
        "cases:\n  - name: a\n    label: 3\n",
        "3: only the cases of a judge can have a label | Add `judge: {at_least: …}` at the top of the file, "
        "or remove the label.",
    ),
    "a judge without a label": (
        "judge: {at_least: 4}\ncases:\n  - name: a\n",
        "3: the case of a judge has no label | Add `label:` with a person's verdict.",
    ),
    "a limit without a judge": (
        "cases:\n  - name: a\n    expect: {replay: {at_least: 4}}\n",
        "3: there is no `judge` | Add `judge: FILE.prompty`, or remove it.",
    ),
    "no cases": ("cases: []\n", "1: the file has no cases | Add one below `cases:`."),
    "a number of cases": (
        "cases: 5\n",
        "1: expected a list, found `5` | Write one `- name: …` for each case below `cases:`, or ${file:rows.csv}.",
    ),
    "a missing file": (
        "cases:\n  - name: a\n    inputs: {text: '${file:none.txt}'}\n",
        "3: none.txt does not exist | Correct the path or create the file.",
    ),
    "a file outside of the folder": (
        "cases:\n  - name: a\n    inputs: {text: '${file:../../etc/passwd}'}\n",
        "3: ../../etc/passwd is outside allowed roots | Keep the file below the test file's folder.",
    ),
    "the same key twice": (
        "cases:\n  - name: a\n    name: b\n",
        "3: duplicate key `name` | Keep one of them.",
    ),
    "a list at the top": (
        "- a\n",
        "1: the file is not a mapping | Write `cases:`, and below it a list of cases.",
    ),
}


@pytest.mark.parametrize(("text", "problem"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_its_line_and_its_fix(text: str, problem: str, tmp_path: Path) -> None:
    assert problems_of(tmp_path, text) == [problem]


def test_all_mistakes_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    text = "defalts: {}\ncases:\n  - nam: a\n  - name: 3\n"
    assert [line.partition(" |")[0] for line in problems_of(tmp_path, text)] == [
        "1: unknown key `defalts`",
        "3: unknown key `nam`",
        "4: expected text, found `3`",
    ]


def test_environment_variables_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "x")
    suite = write_suite(tmp_path, "cases: [{name: a, inputs: {name: '${env:SECRET_OF_MINE}'}}]")
    assert suite.cases[0].inputs == {"name": "${env:SECRET_OF_MINE}"}


def test_a_whole_value_can_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("A long text.")
    (tmp_path / "people.json").write_text('["Ada"]')
    suite = write_suite(tmp_path, "cases: [{name: a, inputs: {text: '${file:long.txt}', of: '${file:people.json}'}}]")
    assert suite.cases[0].inputs == {"text": "A long text.", "of": ["Ada"]}


def test_a_case_adds_to_the_defaults_and_replaces_numbers_and_models(tmp_path: Path) -> None:
    suite = write_suite(
        tmp_path,
        """\
        defaults:
          inputs: {name: Ada, tone: kind}
          models: [openai:a]
          repeat: 3
          pass: 2
          tags: [slow]
          tools: {look: 1}
          expect: {render: {contains: Greet}}
        cases:
          - name: a
          - inputs: {name: Bob}
            models: [openai:b]
            repeat: 5
            tags: [rare]
            tools: {pay: 2}
            expect: {render: {contains: Bob}, wire: {path: model, equals: b}}
        """,
    )
    plain, own = suite.cases
    assert (plain.name, plain.inputs, plain.models, plain.repeat) == (
        "a",
        {"name": "Ada", "tone": "kind"},
        ("openai:a",),
        3,
    )
    assert (own.name, own.inputs, own.models) == ("case 2", {"name": "Bob", "tone": "kind"}, ("openai:b",))
    assert (own.repeat, own.passes, own.tags, own.tools) == (5, 2, ("slow", "rare"), {"look": 1, "pay": 2})
    assert [check.contains for check in own.expect.render] == [("Greet",), ("Bob",)]
    assert own.expect.levels == ("render", "wire")


def test_rows_of_csv_are_cases(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "case,name,age,expect.render.contains,expect.replay.length,tags\n"
        'first,Ada,36,Ada,"{""max"": 5}",slow rare\n,Bob,,,,\n'
    )
    prompt = "---\nmodel: m\ninputs:\n  name: {kind: string}\n  age: {kind: integer}\n---\nuser:\n{{name}} {{age}}\n"
    first, second = write_suite(tmp_path, "cases: ${file:rows.csv}", prompt).cases
    assert (first.name, first.inputs, first.tags) == ("first", {"name": "Ada", "age": 36}, ("slow", "rare"))
    assert first.expect.render[0].contains == ("Ada",)
    assert first.expect.replay[0].length is not None
    assert first.expect.replay[0].length.max == 5
    assert (second.name, second.inputs, second.expect.levels) == ("case 2", {"name": "Bob"}, ())


def test_rows_of_jsonl_are_cases_or_inputs(tmp_path: Path) -> None:
    rows = [{"name": "Ada"}, {"name": "second", "inputs": {"name": "Bob"}, "expect": {"render": {"contains": "Bob"}}}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first, second = write_suite(tmp_path, "cases: ${file:rows.jsonl}").cases
    assert (first.name, first.inputs) == ("case 1", {"name": "Ada"})
    assert (second.name, second.inputs, second.expect.levels) == ("second", {"name": "Bob"}, ("render",))


def test_a_mistake_in_a_row_names_the_row(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("name,expect.replay.tokens\nAda,5\nBob,many\n")
    assert problems_of(tmp_path, "cases: ${file:rows.csv}\n") == [
        "1: row 2: expected a mapping at `expect.replay.tokens` | Write it as in a test file."
    ]
    (tmp_path / "rows.csv").write_text("name\nAda,5\n")
    [problem] = problems_of(tmp_path, "cases: ${file:rows.csv}\n")
    assert "row 1 is invalid: it has 2 cells, but the first line has 1" in problem


def test_the_schema_in_the_repository_is_fresh() -> None:
    assert TEST_PATH.read_text(encoding="utf-8") == case_schema_text(), "run: make docs"


def test_the_reference_in_the_repository_is_fresh() -> None:
    assert PATH.read_text(encoding="utf-8") == page_text(), "run: make docs"


def test_the_schema_accepts_what_the_reader_accepts(tmp_path: Path) -> None:
    validator = jsonschema_rs.Draft202012Validator(json.loads(case_schema_text()))
    (tmp_path / "long.txt").write_text("long")
    (tmp_path / "greet.test.yaml").write_text(json.dumps(EXAMPLE))
    assert validator.is_valid(EXAMPLE)
    assert len(read_suite(tmp_path / "greet.test.yaml").cases) == 3
    assert validator.is_valid({"cases": "${file:rows.csv}"})
    assert not validator.is_valid({"cases": "${file:rows.txt}"})
    assert not validator.is_valid({"cases": [{"name": "a", "expect": {"render": {"contians": "x"}}}]})
    assert validator.is_valid({"cases": [{"expect": {"render": [{"contains": ["a"]}, {"length": 3}]}}]})
    tools = [
        ["look", {"pay": {"amount": 5}}],
        {"contains": [{"pay": [{"path": "to", "any_of": [{"equals": 1}]}]}]},
        "look",
    ]
    for calls in tools:
        data = {"cases": [{"expect": {"replay": {"tools": calls, "any_of": [{"contains": "a", "ignore_case": True}]}}}]}
        (tmp_path / "greet.test.yaml").write_text(json.dumps(data))
        assert validator.is_valid(data)
        assert len(read_suite(tmp_path / "greet.test.yaml").cases) == 1
    assert not validator.is_valid({"cases": [{"expect": {"replay": {"tools": {"contian": ["a"]}}}}]})


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
keys = st.sampled_from(
    [*CaseFile.model_fields, "name", "inputs", "expect", "render", "replay", "contains", "tokens", "max", "x"]
)
files = st.recursive(
    values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@given(data=st.dictionaries(keys, files, max_size=5))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_file_is_read_or_has_problems_with_places(data: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "greet.test.yaml"
    file.write_text(json.dumps(data))
    for problem in check_suite(file):
        assert problem.line >= 1
        assert problem.fix
        assert problem.message


@given(texts.filter(bool), texts.filter(bool))
def test_names_of_files_are_safe_and_different_for_different_texts(first: str, second: str) -> None:
    for name in (make_file_name(first), make_file_name(second)):
        assert 0 < len(name) <= 120
        assert not set(name) & set("./\\:* \0")
    plain = str.maketrans(" :", "--")
    if first.translate(plain) != second.translate(plain):
        assert make_file_name(first) != make_file_name(second)


def test_a_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="does not exist"):
        read_suite(tmp_path / "none.test.yaml")


def test_mistakes_of_all_kinds_come_in_one_pass(tmp_path: Path) -> None:
    text = """\
cases:
  - name: a
    expect: {render: {contians: x, path: y}}
  - name: b
    expect: {replay: {regex: '('}}
  - name: c
    repeat: 2
    pass: 3
  - name: d
    expect: {render: {judge: j.prompty}, replay: {tokens: {max: many}}}
  - name: e
    pass: 2
    repet: 3
"""
    found = [problem.partition(" | ")[0] for problem in problems_of(tmp_path, text)]
    assert found == [
        "3: unknown key `contians`",
        "5: the regular expression is invalid: missing ), unterminated subpattern at position 0",
        "8: `pass` is 3, but the case runs 2 times",
        "10: `judge` checks an answer, but `render` has none",
        "10: expected a number, found `many`",
        "13: unknown key `repet`",
    ]
