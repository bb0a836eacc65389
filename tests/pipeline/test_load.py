"""A file into a `PromptAgent`: what a person is told, and what is remembered."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from prompty import PromptAgent, load, loads
from prompty.errors import FileMissing, LoadError, PromptyWarning
from prompty.pipeline import load_async
from prompty.pipeline.load import AGENT_BYTES
from prompty.registry import PromptCache, Registry
from tests.machine import time_factor

FIVE_MISTAKES = """---
name: 12
model:
  id: gpt-4
  options:
    temperature: hot
    maxOutputTokens: many
inputs:
  age: {kind: double}
tools:
  - kind: function
---
Hello
"""

EXPECTED = [
    (2, 7, "name", "expected text, found `12`", "quotes"),
    (6, 18, "model.options.temperature", "expected a number, found `hot`", "0.7"),
    (7, 22, "model.options.maxOutputTokens", "expected a whole number, found `many`", "100"),
    (9, 15, "inputs.age.kind", "found `double`", "`float`"),
    (11, 5, "tools.0", "`name` is missing", "Add `name"),
]


def test_a_file_with_five_mistakes_reports_five() -> None:
    with pytest.raises(LoadError) as caught:
        loads(FIVE_MISTAKES, env={})
    assert len(caught.value.problems) == 5
    for problem, (line, column, key, said, fix) in zip(caught.value.problems, EXPECTED, strict=True):
        assert (problem.line, problem.column, problem.key) == (line, column, key)
        assert said in problem.message
        assert fix in problem.fix
        assert problem.text.strip() in FIVE_MISTAKES


def test_the_message_lists_places_lines_and_fixes(tmp_path: Path) -> None:
    file = tmp_path / "five.prompty"
    file.write_text(FIVE_MISTAKES)
    with pytest.raises(LoadError) as caught:
        load(file, env={})
    text = str(caught.value)
    assert text.startswith("5 problems\n")
    assert f"{file}:6:18: model.options.temperature: expected a number, found `hot`\n    temperature: hot\n" in text


MISTAKES = {
    "not a mapping": ("- a\n", 2, 1, "not a mapping", "key: value"),
    "plain text": ("hello\n", 2, 1, "not a mapping", "key: value"),
    "an open list": ("name: [a\n", 3, 1, "invalid frontmatter", "Close the list"),
    "a colon in a value": ("name: x\ndescription: a: b\n", 3, 15, "mapping values", "quotes"),
    "a tab": ("model:\n\tid: x\n", 3, 1, "cannot start any token", "tabs"),
    "a key twice": ("name: a\nname: b\n", 3, 1, "duplicate key", "Keep one"),
    "a wrong connection kind": ("model:\n  connection: {kind: apikey}\n", 3, 22, "found `apikey`", "`key`"),
    "a connection without a clue": ("model:\n  connection: {foo: 1}\n", 3, 15, "`kind`", "kind: key"),
    "a number for an id": ("model: 4.1\n", 2, 8, "a mapping", "below `model:`"),
    "a flag that is not one": ("inputs:\n  a: {required: maybe}\n", 3, 17, "true or false", "required: true"),
    "a fraction of a token": ("model: {options: {maxOutputTokens: 1.5}}\n", 2, 36, "a whole number", "100"),
    "one stop sequence": ("model: {options: {stopSequences: x}}\n", 2, 34, "a list", "- …"),
    "inputs as text": ("inputs: name\n", 2, 9, "a list", "- …"),
    "an input without a name": ("inputs:\n  - kind: string\n", 3, 5, "`name` is missing", "Add `name"),
    "an input of text in a list": ("inputs:\n  - firstName\n", 3, 5, "a mapping", "below"),
    "tools as text": ("tools: look\n", 2, 8, "a list", "- …"),
    "a tool as text in a map": ("tools: {look: function}\n", 2, 15, "`kind`", "kind: function"),
    "a tool without a kind": ("tools:\n  - name: x\n", 3, 5, "`kind`", "kind: function"),
    "a prompty tool without a path": ("tools:\n  - {name: x, kind: prompty}\n", 3, 5, "`path` is missing", "path"),
    "a wrong mode": ("tools:\n  - {name: x, kind: prompty, path: p, mode: loop}\n", 3, 45, "found `loop`", "single"),
    "an openapi tool without a document": ("tools:\n  - {name: x, kind: openapi}\n", 3, 5, "`specification`", "Add"),
    "a template as a list": ("template: [jinja2]\n", 2, 11, "a mapping", "below"),
    "metadata as text": ("metadata: x\n", 2, 11, "a mapping", "below"),
}


@pytest.mark.spec("003 §2.1", "frontmatter that is not YAML is a ValueError")
@pytest.mark.parametrize(("frontmatter", "line", "column", "said", "fix"), MISTAKES.values(), ids=MISTAKES)
def test_every_mistake_has_its_place_and_its_fix(frontmatter: str, line: int, column: int, said: str, fix: str) -> None:
    with pytest.raises(ValueError, match=r"\S") as caught:
        loads(f"---\n{frontmatter}---\nBody")
    assert isinstance(caught.value, LoadError)
    [problem] = caught.value.problems
    assert (problem.line, problem.column) == (line, column), problem
    assert said in problem.message
    assert fix in problem.fix


def test_a_missing_file_is_a_file_not_found_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nope\.prompty") as caught:
        load(tmp_path / "nope.prompty")
    assert isinstance(caught.value, FileMissing)


UNREADABLE = {"a folder": None, "not text": b"\xff\xfe\x00x", "too large": b"x" * 4_000_001}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path
    if content is not None:
        path = tmp_path / "x.prompty"
        path.write_bytes(content)
    with pytest.raises(LoadError, match=r"is a folder|UTF-8|bytes"):
        load(path)


@pytest.mark.timing
def test_a_file_of_one_megabyte_loads_quickly(tmp_path: Path) -> None:
    file = tmp_path / "large.prompty"
    file.write_text("---\nname: large\n---\nuser:\n" + "word " * 200_000)
    started = time.process_time()
    assert len(load(file).instructions) > 999_000
    assert time.process_time() - started < 0.2 * time_factor()


def test_an_agent_knows_its_file_and_a_text_does_not(tmp_path: Path) -> None:
    (tmp_path / "x.prompty").write_text("hello")
    assert load(tmp_path / "x.prompty").path == tmp_path / "x.prompty"
    assert loads("hello").path is None


@pytest.mark.spec("003 §2.3", "unknown keys are kept in metadata")
@pytest.mark.spec("003 §2.3", "unknown keys raise nothing")
def test_unknown_keys_are_kept_in_metadata_and_the_file_s_own_metadata_wins() -> None:
    agent = loads("---\nauthor: Ada\nversion: 2\nmetadata: {version: 3}\n1: one\n---\n")
    assert agent.metadata == {"author": "Ada", "version": 3, "1": "one"}


def test_keys_without_a_value_are_absent_keys() -> None:
    assert loads("---\nname:\nmodel:\ninputs:\ntools:\nmetadata:\ntemplate:\n---\n") == PromptAgent()


VERSION_1 = """---
name: old
model:
  api: chat
  configuration: {type: azure_openai, azure_deployment: gpt-35-turbo}
  parameters: {max_tokens: 3000}
sample: {question: hi}
inputs:
  question: {type: string, description: what to ask}
---
system:
Answer.

user:
{{question}}
"""


def test_a_version_1_file_loads_with_one_warning_that_names_the_command() -> None:
    with pytest.warns(PromptyWarning) as caught:
        agent = loads(VERSION_1)
    assert agent.name == "old"
    assert [warning.filename for warning in caught] == [__file__]
    said = str(caught[0].message)
    assert said.startswith("<text>:4:3: model.api: this is a Prompty v1 file")
    assert "`prompty migrate FILE`" in said


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    """A file old enough to be remembered."""
    file = tmp_path / "p.prompty"
    file.write_text("---\nname: ${env:PROMPTY_TEST_NAME:first}\nmetadata: ${file:data.json}\n---\n")
    (tmp_path / "data.json").write_text('{"a": 1}')
    for path in tmp_path.iterdir():
        age(path, 10)
    return file


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_an_unchanged_file_is_the_same_agent(prompt: Path) -> None:
    assert load(prompt) is load(str(prompt))


def test_a_changed_file_is_loaded_again(prompt: Path) -> None:
    before = load(prompt)
    prompt.write_text("---\nname: second\n---\n")
    age(prompt, 5)
    assert (before.name, load(prompt).name) == ("first", "second")


def test_a_changed_variable_loads_the_file_again(prompt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(prompt)
    monkeypatch.setenv("PROMPTY_TEST_NAME", "other")
    assert (before.name, load(prompt).name) == ("first", "other")


def test_a_changed_file_that_it_refers_to_loads_it_again(prompt: Path) -> None:
    before = load(prompt)
    (prompt.parent / "data.json").write_text('{"a": 2}')
    age(prompt.parent / "data.json", 5)
    assert (before.metadata, load(prompt).metadata) == ({"a": 1}, {"a": 2})


def test_a_file_that_is_gone_is_an_error_again(prompt: Path) -> None:
    load(prompt)
    prompt.unlink()
    with pytest.raises(FileNotFoundError):
        load(prompt)


def test_a_young_file_is_not_remembered_because_a_change_would_not_show(tmp_path: Path) -> None:
    file = tmp_path / "young.prompty"
    for name in ("aa", "bb"):
        file.write_text(f"---\nname: {name}\n---\n")
        assert load(file).name == name


def test_an_environment_or_roots_of_the_caller_are_not_mixed_up(prompt: Path) -> None:
    plain = load(prompt)
    assert load(prompt, env={"PROMPTY_TEST_NAME": "given"}).name == "given"
    assert load(prompt) is plain
    assert load(prompt, allowed_roots=[prompt.parent]) is not plain


def test_the_least_recently_used_prompts_leave_beyond_a_number_of_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.prompty" for name in "abcd"]
    for path in paths:
        path.write_text("---\nname: a\n---\n".ljust(100), encoding="utf-8")
        age(path, 10)
    registry = Registry()
    registry.prompts = PromptCache(limit=3 * (100 + AGENT_BYTES))
    first, second, third = (load(path, registry=registry) for path in paths[:3])
    assert load(paths[0], registry=registry) is first  # so the second is the oldest
    load(paths[3], registry=registry)
    assert len(registry.prompts) == 3
    assert load(paths[0], registry=registry) is first
    assert load(paths[2], registry=registry) is third
    assert load(paths[1], registry=registry) is not second


def test_more_than_a_thousand_prompts_in_turn_are_loaded_once(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.prompty" for number in range(1_100)]
    for path in paths:
        path.write_text("---\nname: a\n---\n", encoding="utf-8")
        age(path, 10)
    first = [load(path) for path in paths]
    assert all(load(path) is agent for path, agent in zip(paths, first, strict=True))


def test_the_files_of_a_prompt_count_and_a_changed_one_counts_once(tmp_path: Path) -> None:
    prompt, text = tmp_path / "a.prompty", tmp_path / "text.md"
    prompt.write_text("---\ndescription: ${file:text.md}\n---\n".ljust(100), encoding="utf-8")
    registry = Registry()
    registry.prompts = PromptCache(limit=300 + AGENT_BYTES)
    for number in range(10):
        text.write_text(str(number).ljust(200), encoding="utf-8")
        age(prompt, 10)
        age(text, 10)
        agent = load(prompt, registry=registry)
        assert load(prompt, registry=registry) is agent
    text.write_text("x" * 201, encoding="utf-8")
    age(text, 10)
    load(prompt, registry=registry)
    assert not len(registry.prompts), "larger than the cache"


def test_each_registry_has_prompts_of_its_own(prompt: Path) -> None:
    registry = Registry()
    assert load(prompt, registry=registry) is load(prompt, registry=registry)
    assert load(prompt) is not load(prompt, registry=registry)


def test_an_agent_cannot_be_changed_under_those_who_share_it(prompt: Path) -> None:
    agent = load(prompt)
    with pytest.raises(ValueError, match="frozen"):
        agent.name = "mine"  # type: ignore[misc]  # that it is refused is the point
    assert agent.model_copy(update={"name": "mine"}).name == "mine"
    assert load(prompt).name == "first"


def test_loading_from_async_code(prompt: Path) -> None:
    assert asyncio.run(load_async(prompt)) is load(prompt)


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.prompty")
    with pytest.raises(LoadError, match="not a regular file"):
        load(tmp_path / "pipe.prompty")


def frontmatter_with(line: str, count: int, *, key: str = "inputs") -> str:
    return f"---\n{key}:\n" + "".join(line.format(number) for number in range(count)) + "---\nhi"


MANY_PROBLEMS = {
    "invalid entries of a mapping": frontmatter_with("  a{}: {{kind: nope}}\n", 20_000),
    "invalid entries of a list": frontmatter_with("  - {{name: a{}, kind: nope}}\n", 20_000),
    "entries that are numbers": frontmatter_with("  - {}\n", 20_000),
    "wrong defaults": frontmatter_with("  a{}: {{kind: integer, default: x}}\n", 20_000),
    "unset variables": frontmatter_with("  a{0}: ${{env:NOPE{0}}}\n", 20_000, key="metadata"),
    "duplicate keys": "---\n" + "name: x\n" * 20_000 + "---\nhi",
}


@pytest.mark.parametrize("text", MANY_PROBLEMS.values(), ids=MANY_PROBLEMS)
def test_of_too_many_problems_the_first_hundred_are_reported_and_the_error_says_so(text: str) -> None:
    with pytest.raises(LoadError) as caught:
        loads(text, env={})
    *shown, note = caught.value.problems
    assert len(shown) == 100
    assert [problem.line for problem in shown] == sorted(problem.line for problem in shown)
    assert shown[0].line in (2, 3)
    assert (note.code, note.severity, note.line) == ("too-many-problems", "error", shown[-1].line)
    assert "more than 100 problems" in str(caught.value)


@pytest.mark.timing
@pytest.mark.parametrize("text", MANY_PROBLEMS.values(), ids=MANY_PROBLEMS)
def test_a_file_with_20_000_problems_is_reported_within_two_seconds(text: str) -> None:
    started = time.process_time()
    with pytest.raises(LoadError):
        loads(text, env={})
    assert time.process_time() - started < 2 * time_factor()
