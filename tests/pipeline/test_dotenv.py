"""`.env` files: their format, and where `load_env` looks for them."""

import os
from io import StringIO
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import example, given, settings, strategies as st

from prompty import Registry, load, load_env, loads
from prompty.errors import FileMissing, LoadError, PromptyWarning, WrongArgument
from prompty.model.agent import create_redactor
from prompty.pipeline.dotenv import parse_env
from prompty.registry import DEFAULT


def read(text: str) -> dict[str, str]:
    return {name: value for _, name, value in parse_env(text) if name}


FORMS = {
    "A=b": {"A": "b"},
    "  export A = b  # why": {"A": "b"},
    "A=b#c": {"A": "b#c"},
    "A='b # c' # d": {"A": "b # c"},
    'A="b\\n\\"c\\" \\q"': {"A": 'b\n"c" \\q'},
    "A='it\\'s \\n'": {"A": "it's \\n"},
    'A="two\nlines"\nB=c': {"A": "two\nlines", "B": "c"},
    "A=": {"A": ""},
    "A": {},
    "A=b\r\nB=c\rC=d": {"A": "b", "B": "c", "C": "d"},
    "# A=b\n\n  \nB=c": {"B": "c"},
    "A=one\nA=two": {"A": "two"},
    "A=${B} $B": {"A": "${B} $B"},
    "no variable\nA=b": {"A": "b"},
    'A="open\nB=c': {"B": "c"},
    "A='b' c\nB=d": {"B": "d"},
    "": {},
}


@pytest.mark.parametrize(("text", "variables"), FORMS.items())
def test_the_format(text: str, variables: dict[str, str]) -> None:
    assert read(text) == variables


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
PLAIN = st.characters(codec="utf-8", exclude_characters="'\"\\\r", exclude_categories=["Cc", "Zl", "Zp"])
VALUES = st.text(PLAIN, max_size=20)
LINES = st.one_of(
    st.tuples(NAMES, VALUES).map(lambda pair: f"{pair[0]}={pair[1]}"),
    st.tuples(NAMES, VALUES).map(lambda pair: f"{pair[0]}='{pair[1]}' # note"),
    st.tuples(NAMES, VALUES).map(lambda pair: f'export {pair[0]} = "{pair[1]}"'),
    st.sampled_from(["", "# note", "  ", "A", "A=", "export B"]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=6).map("\n".join))
@example("A='\\\\'\nB=c")
def test_files_of_ordinary_lines_mean_what_python_dotenv_takes_them_for(text: str) -> None:
    """Except for names that no shell takes, and for values that refer to others."""
    theirs = dotenv_values(stream=StringIO(text), interpolate=False)
    expected = {name: value for name, value in theirs.items() if value is not None}
    ours = read(text)
    names = {name for name in expected if name.isidentifier() and name.isascii()}
    assert {name: ours.get(name) for name in names} == {name: expected[name] for name in names}


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("A=b'\"\\# \t\n\r${}x"), max_size=60))
def test_any_text_is_read_and_every_line_is_numbered(text: str) -> None:
    lines = [line for line, _, _ in parse_env(text)]
    assert lines == sorted(set(lines))
    assert all(1 <= line <= len(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")) for line in lines)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(NAMES, st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=20), max_size=5))
def test_quoted_values_come_back(variables: dict[str, str]) -> None:
    escaped = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in variables.items()}
    assert read("\n".join(f'{name}="{value}"' for name, value in escaped.items())) == variables


# Where it looks.


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".env").write_text("NAMED=above\n")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "p.prompty").write_text("---\nmodel: m\ninputs: {a: '${env:NAMED:none}'}\n---\n{{a}}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NAMED", raising=False)
    return tmp_path


def value(project: Path, registry: Registry) -> object:
    return load(project / "prompts" / "p.prompty", registry=registry).inputs[0].default


def test_the_nearest_file_is_read_and_returned(project: Path) -> None:
    registry = Registry()
    assert load_env(registry=registry) == project / ".env"
    assert value(project, registry) == "above"
    (project / "prompts" / ".env").write_text("NAMED=beside\n")
    assert load_env(prompt="prompts/p.prompty", registry=registry) == project / "prompts" / ".env"
    assert value(project, registry) == "beside"
    (project / "own.env").write_text("NAMED=own\n")
    assert load_env("own.env", registry=registry) == project / "own.env"
    assert value(project, registry) == "own"


def test_the_environment_wins_and_is_not_changed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    load_env(registry=registry)
    assert "NAMED" not in os.environ
    monkeypatch.setenv("NAMED", "environment")
    assert value(project, registry) == "environment"


@pytest.mark.usefixtures("clean_registry")
def test_the_default_registry_is_that_of_load(project: Path) -> None:
    load_env()
    assert DEFAULT.dotenv["NAMED"] == "above"
    assert load("prompts/p.prompty").inputs[0].default == "above"


def test_no_file_is_no_error_and_ends_the_former_one(tmp_path: Path) -> None:
    registry = Registry()
    registry.dotenv = {"NAMED": "before"}
    nowhere = tmp_path / "p.prompty"
    if any((folder / ".env").is_file() for folder in nowhere.parents):
        pytest.skip("there is a .env file above the folder of the tests")
    assert load_env(prompt=nowhere, registry=registry) is None
    assert not registry.dotenv


def test_the_search_ends_at_the_repository(project: Path) -> None:
    registry, prompt = Registry(), project / "prompts" / "p.prompty"
    (project / "prompts" / ".git").mkdir()
    assert load_env(prompt=prompt, registry=registry) is None
    (project / ".git").mkdir()
    (project / "prompts" / ".git").rmdir()
    assert load_env(prompt=prompt, registry=registry) == project / ".env"


def test_the_search_ends_at_the_home_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project / "prompts"))
    monkeypatch.setenv("USERPROFILE", str(project / "prompts"))
    assert load_env(prompt=project / "prompts" / "p.prompty", registry=Registry()) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_used(project: Path) -> None:
    beside = project / "prompts" / ".env"
    beside.write_text("NAMED=planted\n")
    os.chown(beside, 65534, -1)
    registry = Registry()
    with pytest.warns(PromptyWarning, match="it belongs to another user"):
        assert load_env(prompt=project / "prompts" / "p.prompty", registry=registry) == project / ".env"
    assert value(project, registry) == "above"


def test_a_file_is_loaded_once_until_another_env_is_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prompty.pipeline.load._YOUNG_NANOSECONDS", 0)
    registry = Registry()
    load_env(registry=registry)
    path = project / "prompts" / "p.prompty"
    first = load(path, registry=registry)
    assert load(path, registry=registry) is first
    (project / ".env").write_text("NAMED=changed\n")
    load_env(registry=registry)
    assert value(project, registry) == "changed"


def test_a_path_that_names_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match=r"none\.env does not exist"):
        load_env(tmp_path / "none.env", registry=Registry())
    (tmp_path / "latin.env").write_bytes(b"A=\xe9")
    with pytest.raises(LoadError, match="not UTF-8"):
        load_env(tmp_path / "latin.env", registry=Registry())
    with pytest.raises(WrongArgument, match=r"load_env\(path=…\) takes a path"):
        load_env(3, registry=Registry())  # type: ignore[arg-type]  # the mistake under test


def test_a_line_that_is_no_variable_is_named_without_its_text(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=b\nsk-pasted-without-a-name\n")
    with pytest.warns(PromptyWarning, match=r"\.env:2: ignored a line that is not NAME=value") as caught:
        load_env(tmp_path / ".env", registry=Registry())
    assert "pasted" not in str(caught[0].message)


def test_keys_in_it_are_masked_in_the_runs_of_its_registry_and_in_no_others(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SHOP_API_KEY=plain-key-of-a-dotenv\n")
    registry = Registry()
    load_env(tmp_path / ".env", registry=registry)
    text = "it said plain-key-of-a-dotenv"
    assert create_redactor(loads("user:\nHi", registry=registry)).mask(text) == "it said ••••"
    assert create_redactor(loads("user:\nHi")).mask(text) == text
