"""`${env:}` and `${file:}` (003 §2.11, F6, F7)."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from prompty import load, loads
from prompty.errors import LoadError
from prompty.pipeline.references import References

ENV = {"HOST": "example.test", "EMPTY": "", "OTHER": "${env:HOST}"}


def resolved(text: str, base: Path | None = None, env: dict[str, str] | None = None) -> object:
    """What `metadata.x` becomes when the file says `text` there."""
    return loads(f"---\n{json.dumps({'metadata': {'x': text}})}\n---\n", base_dir=base, env=env or ENV).metadata["x"]


EXPANDED = {
    "whole": ("${env:HOST}", "example.test"),
    "inside a longer text": ("https://${env:HOST}/v1", "https://example.test/v1"),
    "twice": ("${env:HOST}/${env:HOST}", "example.test/example.test"),
    "a default": ("${env:NOPE:fallback}", "fallback"),
    "a default that is not needed": ("${env:HOST:fallback}", "example.test"),
    "a default with colons": ("${env:NOPE:https://a:8080/x}", "https://a:8080/x"),
    "a default with braces": ('${env:NOPE:{"a": {}}}', '{"a": {}}'),
    "an empty default": ("${env:NOPE:}", ""),
    "a variable that is empty": ("${env:EMPTY:fallback}", ""),
    "a default that refers": ("${env:NOPE:${env:HOST}}", "example.test"),
    "a value is not expanded again": ("${env:OTHER}", "${env:HOST}"),
    "another protocol stays": ("${other:x}", "${other:x}"),
    "no protocol stays": ("${x}", "${x}"),
    "an open brace stays": ("${env:HOST", "${env:HOST"),
    "a dollar stays": ("$5 {x}", "$5 {x}"),
}


@pytest.mark.spec("003 §2.11", "a variable that is not set has its default")
@pytest.mark.spec("003 §2.11", "an env reference is the value of its variable")
@pytest.mark.spec("003 §2.11", "values of the frontmatter hold references")
@pytest.mark.spec("003 §2.11", "a default follows the second colon")
@pytest.mark.parametrize(("text", "expected"), EXPANDED.values(), ids=EXPANDED)
def test_environment_references(text: str, expected: str) -> None:
    assert resolved(text) == expected


@pytest.mark.spec("003 §2.11", "an unset variable is a ValueError")
def test_an_unset_variable_is_named_with_its_key_and_line() -> None:
    with pytest.raises(ValueError, match="Environment variable 'NOPE' not set") as caught:
        loads("---\nname: x\nmetadata:\n  by: ${env:NOPE}\n---\n", env={})
    assert isinstance(caught.value, LoadError)
    [problem] = caught.value.problems
    assert (problem.line, problem.column, problem.key) == (4, 7, "metadata.by")
    assert "${env:NOPE:default}" in problem.fix


def test_the_real_environment_is_used_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_TEST_NAME", "real")
    assert loads("---\nname: ${env:PROMPTY_TEST_NAME}\n---\n").name == "real"


def test_a_host_can_restrict_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_TEST_NAME", "real")
    with pytest.raises(LoadError, match="PROMPTY_TEST_NAME"):
        loads("---\nname: ${env:PROMPTY_TEST_NAME}\n---\n", env={})


@pytest.mark.spec("003 §2.11", "the whole tree is walked")
def test_references_are_resolved_everywhere() -> None:
    agent = loads(
        """---
description: ${env:HOST}
metadata: {a: [{b: "${env:HOST}"}]}
inputs:
  x: {kind: string, default: "${env:HOST}"}
tools:
  - {name: t, kind: function, bindings: {u: "${env:HOST}"}}
---
""",
        env=ENV,
    )
    bound = agent.tools[0].bindings["u"].value
    assert agent.description == agent.metadata["a"][0]["b"] == agent.inputs[0].default == "example.test"
    assert bound is not None
    assert bound.get_secret_value() == "example.test"


def test_the_body_is_not_searched_for_references() -> None:
    assert loads("---\nname: x\n---\n${env:HOST}", env=ENV).instructions == "${env:HOST}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "data.json").write_text('{"host": "${env:HOST}", "file": "${file:text.txt}"}')
    (tmp_path / "data.yaml").write_text("list: [1, two]\nhost: ${env:HOST}\n")
    (tmp_path / "sub" / "data.yml").write_text("a: 1\n")
    (tmp_path / "text.txt").write_text("plain ${env:HOST}\n")
    (tmp_path / "text.md").write_bytes(b"\xef\xbb\xbfwith a mark")
    return tmp_path


FILES = {
    "json": ("${file:data.json}", {"host": "example.test", "file": "${file:text.txt}"}),
    "yaml": ("${file:data.yaml}", {"list": [1, "two"], "host": "example.test"}),
    "yml below": ("${file:sub/data.yml}", {"a": 1}),
    "back inside": ("${file:sub/../text.txt}", "plain ${env:HOST}\n"),
    "text": ("${file:text.txt}", "plain ${env:HOST}\n"),
    "text with a mark": ("${file:text.md}", "with a mark"),
    "text inside text": ("a ${file:text.md} b", "a with a mark b"),
}


@pytest.mark.spec("003 §2.11", "json is parsed")
@pytest.mark.spec("003 §2.11", "yaml is parsed")
@pytest.mark.spec("003 §2.11", "other files are text")
@pytest.mark.parametrize(("text", "expected"), FILES.values(), ids=FILES)
def test_file_references(folder: Path, text: str, expected: object) -> None:
    assert resolved(text, folder) == expected


@pytest.mark.spec("003 §2.11", "a file reference is relative to the prompt")
def test_a_file_is_found_beside_the_prompt_and_not_in_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub" / "x.prompty").write_text("---\nmetadata: ${file:data.yml}\n---\n")
    monkeypatch.chdir(folder)
    assert load("sub/x.prompty").metadata == {"a": 1}


@pytest.mark.spec("003 §2.11", "a missing file is a FileNotFoundError")
def test_a_missing_file_is_a_file_not_found_error_and_a_value_error(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nope\.txt does not exist") as caught:
        resolved("${file:nope.txt}", folder)
    assert isinstance(caught.value, ValueError)


BROKEN = {
    "a structure inside text": ("x ${file:data.json}", "structure"),
    "a folder": ("${file:sub}", "sub is a folder"),
    "a name with a zero byte": ("${file:a\x00b}", "cannot be opened"),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_files_that_cannot_be_used_are_problems(folder: Path, text: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        resolved(text, folder)


CONTENT = {
    "broken.json": ("{", "line 1"),
    "twice.json": ('{"a": 1, "a": 2}', "duplicate key"),
    "nan.json": ("NaN", "not JSON"),
    "deep.json": ("[" * 100_000, "deep"),
    "twice.yaml": ("a: 1\na: 2\n", "duplicate key"),
    "tag.yaml": ("a: !thing x\n", "tag"),
}


@pytest.mark.parametrize(("name", "content", "said"), [(name, *rest) for name, rest in CONTENT.items()], ids=CONTENT)
def test_files_with_broken_content_are_problems_at_the_reference(
    folder: Path, name: str, content: str, said: str
) -> None:
    (folder / name).write_text(content)
    with pytest.raises(LoadError, match=said) as caught:
        resolved(f"${{file:{name}}}", folder)
    assert caught.value.problems[0].key == "metadata.x"


def test_text_that_is_not_utf8_is_a_problem(folder: Path) -> None:
    (folder / "latin.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(LoadError, match="UTF-8"):
        resolved("${file:latin.txt}", folder)


def test_text_without_a_folder_cannot_refer_to_files() -> None:
    with pytest.raises(LoadError, match="base_dir"):
        resolved("${file:x.txt}")


def test_all_failures_are_found_in_one_run() -> None:
    references = References(None, env={})
    references.resolve({"a": "${env:X}", "b": ["${env:Y}", {"c": "${file:z}"}]})
    assert [keys for keys, _ in references.failures] == [("a",), ("b", 0), ("b", 1, "c")]


@given(st.text(alphabet="${}:envfil abc", max_size=60))
def test_any_text_resolves_or_fails_as_a_problem(text: str) -> None:
    references = References(None, env={"a": "1"})
    value = references.resolve(text)
    assert isinstance(value, str)
    assert os.environ is not references.env


@pytest.mark.parametrize("depth", [500, 20_000])
def test_references_in_defaults_have_a_limit(depth: int) -> None:
    text = "${env:X:" * depth + "}" * depth
    with pytest.raises(LoadError, match="more than 16 references"):
        loads(f'---\ndescription: "{text}"\n---\nhi', env={})
    assert loads('---\ndescription: "' + "${env:X:" * 16 + "a" + "}" * 16 + '"\n---\nhi', env={}).description == "a"
