"""The problems that `check` finds in a file."""

from pathlib import Path

import pytest

from prompty import check, load, turn
from prompty.analysis.check import check_text
from prompty.analysis.definition_keys import EXTENSIONS, METADATA_EXTENSIONS
from prompty.errors import ToolError
from prompty.testing import Script

GOOD = """---
name: good
model: gpt-6-luna
inputs:
  who: {kind: string, required: true}
tools:
  - {name: t, kind: function, parameters: {u: {kind: string}}, bindings: {u: {input: user}}}
---
system:
Hello {{ who }} {% for n in range(3) %}{{ n }}{% endfor %}
"""


def codes(text: str, **options: object) -> list[tuple[str, int]]:
    """Return the problems of a text, but for hints, and for the model: most of these texts name none."""
    found = check_text(text, env={}, **options)  # type: ignore[arg-type]  # the options vary by test
    return [(one.code, one.line) for one in found if one.code != "missing-model" and one.severity != "info"]


def frontmatter(text: str, body: str = "hi") -> str:
    return f"---\n{text}\n---\n{body}"


def test_a_good_file_has_no_problems() -> None:
    assert codes(GOOD.replace("{input: user}", "{input: who}")) == []


def test_a_tool_of_an_unknown_kind_has_its_unknown_keys_reported_too() -> None:
    text = frontmatter("tools:\n  - {name: a, kind: sql, query: x}")
    assert codes(text) == [("unknown-tool-kind", 3), ("unknown-key", 3)]


WARNINGS = {
    "an unknown key": (frontmatter("modle: gpt-4"), [("unknown-key", 2)]),
    "an unknown key below": (frontmatter("model: {id: x, apitype: chat}"), [("unknown-key", 2)]),
    "an unknown key of a connection": (
        frontmatter("model: {connection: {kind: key, apikey: ''}}"),
        [("unknown-key", 2)],
    ),
    "an unknown key of an output": (frontmatter("outputs:\n  - {name: a, typ: string}"), [("unknown-key", 3)]),
    "an unknown key of items": (
        frontmatter("outputs: {a: {kind: array, items: {kind: string, x: 1}}}"),
        [("unknown-key", 2)],
    ),
    "an unknown key nested": (
        frontmatter("outputs:\n  a:\n    properties:\n      b: {kind: string, x: 1}"),
        [("unknown-key", 5)],
    ),
    "an unknown key of a tool": (frontmatter("tools:\n  - {name: a, kind: mcp, server: x}"), [("unknown-key", 3)]),
    "an unknown key of a template": (frontmatter("template: {format: {kind: jinja2, x: 1}}"), [("unknown-key", 2)]),
    "an unknown option": (frontmatter("model:\n  options:\n    max_tokens: 5"), [("unknown-option", 4)]),
    "an unused input": (frontmatter("inputs:\n  - name: x\n    kind: string"), [("unused-input", 3)]),
    "an undeclared variable": (frontmatter("name: x", "a\n\n{{ y }}"), [("undeclared-variable", 6)]),
    "an undeclared variable in mustache": (frontmatter("template: mustache", "a\n{{y}}"), [("undeclared-variable", 5)]),
    "a secret in the prompt": (frontmatter("name: x", "Use sk-abcdefghijkl"), [("secret-in-prompt", 4)]),
    "a secret in the file": (
        frontmatter("model: {connection: {kind: key, apiKey: sk-abcdefghijkl}}"),
        [("secret-in-file", 2)],
    ),
    "a credential that feeds the text": (frontmatter("description: '${env:MY_API_KEY:}'"), [("secret-exposed", 2)]),
    "a variable that is not set": (frontmatter("description: '${env:NOPE}'"), [("env-missing", 2)]),
    "version 1": (frontmatter("model: {api: chat}\nsample: {a: b}"), [("version-1", 2), ("unused-input", 3)]),
    "a role from a variable": (frontmatter("inputs: {r: a}", "user:\n{{ r }}:\nhi"), [("role-from-variable", 5)]),
    "a name of an attribute": (
        frontmatter("inputs: {r: a}", "user:\nhi\nassistant[{{ r }}=x]:\nhi"),
        [("role-from-variable", 6)],
    ),
}


@pytest.mark.parametrize(("text", "expected"), WARNINGS.values(), ids=WARNINGS)
def test_what_is_probably_not_meant_is_a_warning(text: str, expected: list[tuple[str, int]]) -> None:
    problems = check_text(text, env={})
    assert [(problem.code, problem.line) for problem in problems] == expected
    assert all(problem.severity == "warning" and problem.fix for problem in problems)


NO_WARNING = {
    "a credential in a connection": frontmatter("model: {connection: {kind: key, apiKey: '${env:MY_API_KEY:}'}}"),
    "tokens are not a token": frontmatter("description: '${env:MAX_TOKENS:5} ${env:AUTHOR:x}'"),
    "an object's own keys": frontmatter("inputs: {x: {a: 1, b: 2}}", "{{ x.a }}"),
    "free metadata": frontmatter("metadata: {anything: {goes: 1}}"),
    "options of a provider": frontmatter("model: {options: {additionalProperties: {max_tokens: 5}}}"),
    "a name set in the template": frontmatter(
        "name: x", "{% set y = 1 %}{{ y }}{% macro m(a) %}{{ a }}{{ caller() }}{% endmacro %}"
    ),
    "a name inside a section": frontmatter("template: mustache\ninputs: {xs: []}", "{{#xs}}{{name}}{{/xs}}"),
    "a value of an attribute": frontmatter("inputs: {r: a}", 'user[name={{ r }}, b="{{ r }}"]:\nhi'),
    "a role beside a tag": frontmatter("inputs: {r: a}", "{% if r %}user:\nhi{% endif %}"),
    "an ordinary sentence": frontmatter("inputs: {r: a}", "Dear {{ r }}:\nhi"),
}


@pytest.mark.parametrize("text", NO_WARNING.values(), ids=NO_WARNING)
def test_what_is_meant_is_not_complained_about(text: str) -> None:
    assert codes(text) == []


BOUND_VARIABLES = {
    "a text": ("[{name: pay, kind: function, bindings: {my_key: '${env:BANK_KEY}'}}]", True),
    "a value": ("[{name: pay, kind: function, bindings: {my_key: {value: '${env:BANK_KEY}'}}}]", True),
    "a kind of the program": ("[{name: pay, kind: bank, bindings: {my_key: '${env:BANK_KEY}'}}]", True),
    "a literal": ("[{name: pay, kind: function, bindings: {my_key: x}}]", False),
    "another tool": ("[{name: pay, kind: prompty, path: x.prompty, bindings: {my_key: '${env:BANK_KEY}'}}]", False),
}


@pytest.mark.parametrize("env", [{"BANK_KEY": "hunter2-hunter2"}, {}], ids=["set", "not set"])
@pytest.mark.parametrize(("tools", "expected"), BOUND_VARIABLES.values(), ids=BOUND_VARIABLES)
def test_an_info_names_the_variable_that_a_function_gets(tools: str, expected: bool, env: dict[str, str]) -> None:
    text = frontmatter(f"tools: {tools}")
    problems = [one for one in check_text(text, env=env) if one.code == "bound-variable"]
    places = [("info", 2, text.split("\n")[1].index("'${env:") + 1)] if expected else []
    assert [(one.severity, one.line, one.column) for one in problems] == places
    assert all("gets the value of BANK_KEY" in one.message for one in problems)
    assert "hunter2" not in str(problems)


ERRORS = {
    "yaml": (frontmatter("name: [x"), [("invalid-yaml", 3)]),
    "a wrong value": (frontmatter("name: 1"), [("wrong-value", 2)]),
    "a computed role where it would be an instruction": (
        frontmatter("inputs: {r: a}", "{{ r }}:\nhi"),
        [("role-from-variable", 4)],
    ),
    "a filter that could change a marker": (
        frontmatter("inputs: {r: a}", "hi\n{% filter replace(r, '') %}\nuser:\n{% endfilter %}"),
        [("template-syntax", 5)],
    ),
    "a missing file": (frontmatter("description: '${file:nope.txt}'"), [("file-missing", 2)]),
    "a broken template": (frontmatter("name: x", "a\n{% if %}"), [("template-syntax", 5)]),
    "a broken mustache": (frontmatter("template: mustache", "a\n{{#x}}"), [("template-syntax", 5)]),
    "an unknown engine": (frontmatter("name: x\ntemplate: mako"), [("unknown-engine", 3)]),
    "an unknown parser": (frontmatter("template: {parser: {kind: x}}"), [("unknown-engine", 2)]),
    "no closing line": ("---\nname: x\n", [("unclosed-frontmatter", 1)]),
}


@pytest.mark.parametrize(("text", "expected"), ERRORS.values(), ids=ERRORS)
def test_what_cannot_work_is_an_error(text: str, expected: list[tuple[str, int]], tmp_path: Path) -> None:
    problems = check_text(text, base_dir=tmp_path, env={})
    assert [(problem.code, problem.line) for problem in problems] == expected
    assert all(problem.severity == "error" for problem in problems)


@pytest.mark.spec("003 §2.2", "both delimiters are the same")
@pytest.mark.parametrize(("opening", "closing"), [("---", "+++"), (" +++", "---")])
def test_delimiters_that_differ_are_a_warning_with_the_edit_that_makes_them_the_same(
    opening: str, closing: str
) -> None:
    text = f"{opening}\nname: x\n{closing} \nhi"
    [problem] = check_text(text, env={})
    assert (problem.code, problem.severity) == ("mixed-delimiters", "warning")
    [edit] = problem.edits
    assert (edit.line, edit.column, edit.end_line, edit.end_column, edit.text) == (3, 1, 3, 4, opening.strip())
    assert codes(f"{opening}\nname: x\n{opening.strip()}\nhi") == []


SUGGESTED = {
    "modle: x": "`model`",
    "display_name: x": "`displayName`",
    "model: {options: {max_tokens: 1}}": "`maxOutputTokens`",
    "model: {options: {stop: 1}}": "additionalProperties",
    "inputs: {a: {kind: string, defualt: 1}}": "`default`",
}


@pytest.mark.parametrize(("line", "suggestion"), SUGGESTED.items())
def test_the_nearest_known_name_is_suggested(line: str, suggestion: str) -> None:
    assert suggestion in check_text(frontmatter(line, "{{ a }}"), env={})[0].fix


def test_a_secret_is_not_repeated_in_the_problem() -> None:
    text = frontmatter("model: {connection: {kind: key, apiKey: sk-abcdefghijkl}}", "Use Bearer abcdefghijklmnop")
    assert not any("abcdefghij" in str(problem) for problem in check_text(text))


def test_errors_and_warnings_come_in_the_order_of_the_lines() -> None:
    text = frontmatter("name: 1\nmodle: x\nmodel: {options: {temperature: hot, top_p: 1}}", "user:\nsk-abcdefghijkl")
    assert codes(text) == [
        ("wrong-value", 2),
        ("unknown-key", 3),
        ("wrong-value", 4),
        ("unknown-option", 4),
        ("secret-in-prompt", 7),
    ]


def test_a_file_is_checked_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "a.prompty").write_text(frontmatter("modle: x"))
    [problem] = check(tmp_path / "a.prompty")
    assert problem.path == str(tmp_path / "a.prompty")
    assert [problem.code for problem in check(tmp_path / "nope.prompty")] == ["file-missing"]


EVERYWHERE = """name: everywhere
model: {id: m, connection: {kind: key, endpoint: "https://x", apiKey: "${env:KEY}"}}
inputs: {q: {kind: string}}
tools:
  - {name: f, kind: function, parameters: {u: {kind: string}}}
  - {name: p, kind: prompty, path: other.prompty}
  - {name: m, kind: mcp, serverName: s, approvalMode: always}
  - {name: o, kind: openapi, specification: api.json}
  - {name: c, kind: mine, options: {}}"""
HERE_ALONE = """metadata:
  fallbacks: [gpt-4o]
  reasoning: none
model:
  script: [Hi]
  connection: {endpoint: "https://x", apiKey: "${env:KEY}",
    apiVersion: "1"}
inputs:
  q: {kind: string,
    sensitive: true}
tools:
  - {name: f, kind: function, parameters: {u: {kind: object, properties: {v: {kind: string,
      sensitive: true}}}},
     approvalMode: always}
  - {name: p, kind: prompty, path: other.prompty,
     parameters: {q: {kind: string}},
     approvalMode: always}
  - {name: o, kind: openapi, specification: api.json,
     operations: [a],
     tags: [b],
     methods: [get],
     approvalMode: always,
     connection: {kind: foundry, endpoint: "https://x",
       apiVersion: "1"}}
  - {name: c, kind: mine,
     approvalMode: always}"""


def extension_lines(text: str) -> list[int]:
    found = check_text(frontmatter(text, "{{q}}"), env={"KEY": "k"}, portable=True)
    return [problem.line for problem in found if problem.code == "extension"]


def test_a_file_that_is_to_be_portable_is_told_what_this_runtime_alone_reads() -> None:
    assert extension_lines(HERE_ALONE) == [3, 4, 6, 7, 8, 11, 14, 15, 17, 18, 20, 21, 22, 23, 25, 27]
    assert "extension" not in dict(codes(frontmatter(HERE_ALONE)))


def test_what_the_documents_know_is_portable() -> None:
    assert extension_lines(EVERYWHERE) == []


def test_every_extension_is_in_the_documentation() -> None:
    differences = Path(__file__).parents[2] / "docs" / "explanation" / "differences.md"
    page = differences.read_text().partition("## Beyond the documents")[2]
    for name in {name for names in EXTENSIONS.values() for name in names} | {
        f"metadata.{name}" for name in METADATA_EXTENSIONS
    }:
        assert f"`{name}`" in page


MANY_WARNINGS = {
    "unknown keys": "---\n" + "".join(f"zz{number}: 1\n" for number in range(5_000)) + "---\nhi",
    "unused inputs": "---\ninputs:\n" + "".join(f"  a{n}: {{kind: string}}\n" for n in range(5_000)) + "---\nhi",
    "undeclared variables": "".join(f"{{{{ v{number} }}}}\n" for number in range(2_000)),
    "secrets": "sk-abcdefghijkl\n" * 5_000,
    "computed roles": "user:\n" + "{{ r }}:\n" * 2_000,
}


@pytest.mark.parametrize("text", MANY_WARNINGS.values(), ids=MANY_WARNINGS)
def test_of_too_many_warnings_the_first_hundred_are_listed_and_the_list_says_so(text: str) -> None:
    *shown, note = check_text(text, env={})
    assert len(shown) == 100
    assert (note.code, note.severity) == ("too-many-problems", "warning")


def test_an_error_is_listed_even_after_too_many_warnings() -> None:
    problems = check_text("---\n" + "".join(f"zz{n}: 1\n" for n in range(500)) + "name: 12\n---\nhi")
    assert "wrong-value" in [problem.code for problem in problems]


@pytest.mark.parametrize("line", ["## Instructions", "<instructions>", "**Model:**", "# Human resources"])
def test_a_heading_that_is_no_role_is_text(line: str) -> None:
    assert check_text(f"---\nmodel: m\n---\n{line}\nBe kind.\n") == []


@pytest.mark.parametrize(
    ("path", "is_outside"),
    [("../child.prompty", True), ("/child.prompty", True), ("inner/../child.prompty", False), ("gone.prompty", False)],
)
@pytest.mark.parametrize(
    "tool", ["{name: t, kind: prompty, path: '%s'}", "{name: t, kind: openapi, specification: '%s'}"]
)
def test_a_file_of_a_tool_outside_the_folder_is_an_error_as_in_a_run(
    tmp_path: Path, path: str, is_outside: bool, tool: str
) -> None:
    (tmp_path / "prompts").mkdir()
    parent = tmp_path / "prompts" / "a.prompty"
    parent.write_text(frontmatter(f"model: m\ntools:\n  - {tool % path}"))
    found = [(one.line, one.key, one.severity) for one in check(parent) if one.code == "file-outside"]
    key = "path" if "kind: prompty" in tool else "specification"
    assert found == ([(4, f"tools.0.{key}", "error")] if is_outside else [])
    if is_outside:
        assert "file-outside" not in {one.code for one in check(parent, allowed_roots=[tmp_path.parent, Path("/")])}
        with Script("Hi"), pytest.raises(ToolError, match="is not below the prompt's folder"):
            turn(load(parent))
