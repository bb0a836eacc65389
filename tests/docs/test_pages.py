"""Save the files of the tutorial, how-to and explanation pages and type their commands: they do what the pages say."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from typer.main import get_command

from prompty import check
from prompty.cases.project_file import find_project
from prompty.cli.app import app
from prompty.cli.new import TEMPLATES
from prompty.drivers.children import ChildKind
from prompty.providers import PROVIDERS
from prompty.registry import Registry
from prompty.testing.provider import PROVIDER
from prompty.tools.kinds import TOOL_KINDS
from scripts.pages import (
    GIVEN,
    REPLIES,
    ROOT,
    SNIPPETS,
    Block,
    Outcome,
    make_environment,
    matches,
    read_blocks,
    run_page,
)
from scripts.run_tutorial import PAGES as TUTORIAL
from scripts.write_performance import PAGE as PERFORMANCE, write_costs

DOCS = ROOT / "docs"
PAGES = [page for folder in ("tutorial", "how-to", "explanation") for page in sorted((DOCS / folder).rglob("*.md"))]
INCLUDING = [page for page in PAGES if read_blocks(page)]
RUNNING = [page for page in INCLUDING if page not in TUTORIAL]
INLINE = {"sh", "text", ""}  # commands that need an account or another machine, and fragments of files


def name_page(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def show_differences(outcome: Outcome) -> list[str]:
    return [f"$ {step.command}\n{output}\n--- the page says\n{step.output}" for step, output in outcome.differences]


@pytest.mark.process
def test_the_tutorial_prints_what_it_says(tmp_path: Path) -> None:
    """Installing is left to `scripts/run_tutorial.py`."""
    programs, work = tmp_path / "bin", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    (programs / "pip").write_text("#!/bin/sh\n")
    (programs / "pip").chmod(0o755)
    environment = make_environment(tmp_path)
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    for page in TUTORIAL:
        for outcome in run_page(page, work, environment):
            assert show_differences(outcome) == []


@pytest.mark.process
@pytest.mark.parametrize("page", RUNNING, ids=name_page)
def test_a_page_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for outcome in run_page(page, work, make_environment(tmp_path)):
        assert show_differences(outcome) == []


@pytest.mark.parametrize("page", INCLUDING, ids=name_page)
def test_what_a_page_shows_has_a_name(page: Path) -> None:
    for block in read_blocks(page):
        if block.language not in INLINE:
            assert block.language == "console" or block.title or is_fragment(block), f"no title:\n{block.text}"


def is_fragment(block: Block) -> bool:
    """Return whether a block is a few lines of YAML, to be put into a file that the page has shown."""
    return block.language == "yaml" and block.source is None and not block.text.startswith("---")


@pytest.mark.parametrize("page", INCLUDING, ids=name_page)
def test_a_snippet_is_in_the_folder_of_its_page(page: Path) -> None:
    folder = SNIPPETS / page.relative_to(DOCS).with_suffix("")
    assert all(block.source.is_relative_to(folder) for block in read_blocks(page) if block.source)


def test_every_snippet_is_on_a_page() -> None:
    shown = {block.source for page in PAGES for block in read_blocks(page)}
    files = {file for file in SNIPPETS.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    given = {file for file in files if GIVEN in file.relative_to(SNIPPETS).parts or file.name == REPLIES}
    assert sorted(file.relative_to(ROOT).as_posix() for file in files - given - shown) == []


PROMPTS = [file for file in sorted(SNIPPETS.rglob("*.prompty")) if not file.stem.endswith("-draft")]


@pytest.mark.parametrize("file", PROMPTS, ids=lambda file: file.relative_to(SNIPPETS).as_posix())
def test_the_prompts_of_the_pages_have_no_problems(file: Path) -> None:
    registry = Registry()
    registry[TOOL_KINDS].register("sqlite", ChildKind())  # pages register this kind and these providers
    for name in ("acme", "mirror"):
        registry[PROVIDERS].register(name, PROVIDER)
    project, env = find_project(file), {"SHOP_URL": "https://shop.example", "SHOP_KEY": "x"}
    problems = check(file, env=env, allowed_roots=project.roots, registry=registry)
    known = {"missing-model"} if project.model else set()
    assert [problem for problem in problems if problem.severity != "info" and problem.code not in known] == []


def test_the_first_prompt_of_the_tutorial_is_the_one_that_new_writes() -> None:
    template = ROOT / "src" / "prompty" / "cli" / "templates" / "chat.prompty"
    shown = SNIPPETS / "tutorial" / "first-answer" / "chat.prompty"
    assert shown.read_text(encoding="utf-8") == template.read_text(encoding="utf-8").replace("TEMPLATE", "chat")


COMMANDS = [
    (page, line)
    for page in PAGES
    for block in read_blocks(page)
    if block.language == "sh"
    for line in block.text.splitlines()
    if line.startswith("prompty ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{page.stem}: {line}" for page, line in COMMANDS])
def test_commands_that_are_only_shown_exist_with_their_options(page: Path, line: str) -> None:
    words = shlex.split(re.sub(r" (\||>|<|&&) ?.*", "", line), comments=True)[1:]
    command: Any = get_command(app)
    while hasattr(command, "get_command"):
        command = command.get_command(None, words.pop(0))
    options = {name for parameter in command.params for name in parameter.opts}
    assert [word for word in words if re.match("--?[a-z]", word) and word.split("=")[0] not in options] == []


def test_the_page_of_measurements_has_the_latest_ones() -> None:
    text = PERFORMANCE.read_text(encoding="utf-8")
    assert write_costs(text) == text


def test_every_template_of_new_is_on_its_page() -> None:
    page = (DOCS / "reference" / "commands" / "new.md").read_text(encoding="utf-8")
    assert [name for name in TEMPLATES if f"`{name}`" not in page] == []


LINES = st.text(st.characters(exclude_characters="…\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\n"), max_size=8)


@given(st.lists(LINES, max_size=5), st.lists(LINES, max_size=5), st.lists(LINES, max_size=5))
def test_an_ellipsis_stands_for_any_lines_and_nothing_else_does(
    before: list[str], middle: list[str], after: list[str]
) -> None:
    def join(*parts: list[str]) -> str:
        return "".join(f"{line}\n" for part in parts for line in part)

    actual = join(before, middle, after)
    assert matches(actual, actual)
    assert matches(join(before, ["…"], after), actual)
    assert not matches(join(before, ["…"], after, ["one more"]), actual + "another\n")
