"""Save the files of the tutorial, how-to and explanation pages and type their commands: they do what the pages say."""

import re
import shlex
import subprocess
import sys
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
    DOCS,
    FIXTURES,
    GIVEN,
    REPLIES,
    ROOT,
    Block,
    find_pages,
    get_fixtures,
    parse_blocks,
    read_blocks,
    save_block,
    save_page,
    write_blocks,
)
from scripts.run_page import NOWHERE, Outcome, make_environment, matches, run_page
from scripts.run_tutorial import PAGES as TUTORIAL

PAGES = find_pages("tutorial", "how-to", "explanation")
SHOWING = [page for page in PAGES if read_blocks(page)]
ON_ENGINES = DOCS / "how-to" / "run-on-many-machines.md"  # `make engines` runs its programs, on Ray, Spark and Dask
RUNNING = [page for page in SHOWING if page not in TUTORIAL and page != ON_ENGINES]
VARIABLES = {
    "DATABASE_URL": "postgres://db",
    "MODEL_KEY": "sk-1",
    "MODEL_URL": "https://models.example/v1",
    "OPENAI_API_KEY": "sk-1",
    "SHOP_KEY": "x",
    "SHOP_URL": "https://shop.example",
}
UNNAMED = {"console", "sh", "text", ""}  # commands, and fragments of files


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


@pytest.mark.parametrize("page", SHOWING, ids=name_page)
def test_a_file_on_a_page_has_a_name(page: Path) -> None:
    for block in read_blocks(page):
        assert block.title or block.language in UNNAMED or is_fragment(block), f"no title:\n{block.text}"
        assert block.title or not block.text.startswith("---\n"), f"no title:\n{block.text}"


def is_fragment(block: Block) -> bool:
    """Return whether a block is a few lines of YAML, to be put into a file that the page has shown."""
    return block.language == "yaml" and block.title is None and not block.text.startswith("---")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *find_pages()], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_a_page_contains_its_code(page: Path) -> None:
    """It reads the same on GitHub, on a package index and on the site: no line includes a file, no fence is unread."""
    text = page.read_text(encoding="utf-8")
    assert "--8<--" not in text
    lines = text.split("\n")
    for block in parse_blocks(text):
        end = block.line + block.text.count("\n")
        lines[block.line - 1 : end + 1] = [""] * (end - block.line + 2)
    assert [line for line in lines if line.startswith("```")] == []


def test_every_fixture_belongs_to_a_page() -> None:
    files = {file for file in FIXTURES.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    folders = {get_fixtures(page) for page in PAGES}
    used = {file for folder in folders for file in (folder / REPLIES, *(folder / GIVEN).rglob("*"))}
    assert sorted(file.relative_to(ROOT).as_posix() for file in files - used) == []


GIVEN_PROMPTS = [
    (page, Block("", file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8"), NOWHERE))
    for page in PAGES
    for folder in [get_fixtures(page) / GIVEN]
    for file in sorted(folder.rglob("*.prompty"))
]
SHOWN_PROMPTS = [
    (page, block) for page in PAGES for block in read_blocks(page) if block.title and block.title.endswith(".prompty")
]
FROM_V1 = ("migrate-from-v1", "from-prompt-flow")  # pages that show files before their migration
PROMPTS = [*GIVEN_PROMPTS, *SHOWN_PROMPTS]


@pytest.mark.parametrize(
    ("page", "block"), PROMPTS, ids=[f"{name_page(page)}:{block.line}:{block.title}" for page, block in PROMPTS]
)
def test_the_prompts_of_the_pages_have_no_problems_but_those_shown(page: Path, block: Block, tmp_path: Path) -> None:
    save_page(page, tmp_path)
    save_block(block, tmp_path)
    file = tmp_path / str(block.title)
    shown = "".join(other.text for other in read_blocks(page) if other.language == "console")
    registry = Registry()
    registry[TOOL_KINDS].register("sqlite", ChildKind())  # pages register this kind and these providers
    for name in ("acme", "mirror"):
        registry[PROVIDERS].register(name, PROVIDER)
    project = find_project(file)
    problems = check(file, env=VARIABLES, allowed_roots=project.roots, registry=registry)
    known = {"missing-model"} if project.model else {"version-1"} if page.stem in FROM_V1 else set()
    left = [problem for problem in problems if problem.severity != "info" and problem.code not in known]
    assert [problem for problem in left if problem.message not in shown] == []


@pytest.mark.process
def test_the_programs_of_the_pages_pass_the_linter(tmp_path: Path) -> None:
    for page in SHOWING:
        save_page(page, tmp_path / name_page(page))
    programs = sorted(tmp_path.rglob("*.py"))
    assert len(programs) > 50
    ruff, settings = str(Path(sys.executable).with_name("ruff")), str(ROOT / "pyproject.toml")
    ignored = "B018,I001,S101,T20"  # what readers type: programs that print, and tests
    command = [ruff, "check", "--no-cache", "--config", settings, "--extend-ignore", ignored, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603  our own programs
    assert done.returncode == 0, done.stdout


def test_the_first_prompt_of_the_tutorial_is_the_one_that_new_writes() -> None:
    template = ROOT / "src" / "prompty" / "cli" / "templates" / "chat.prompty"
    [shown] = [block.text for block in read_blocks(TUTORIAL[0]) if block.title == "chat.prompty"]
    assert shown == template.read_text(encoding="utf-8").replace("TEMPLATE", "chat")


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


PAGE = """Text.

```yaml title="a.prompty"
---
name: a
---
```

````markdown
```python
0
```
````

```console
$ a
1
```
"""


def test_the_blocks_of_a_page_have_a_language_a_title_a_text_and_a_line() -> None:
    assert list(parse_blocks(PAGE)) == [
        Block("yaml", "a.prompty", "---\nname: a\n---\n", 3),
        Block("markdown", None, "```python\n0\n```\n", 9),
        Block("console", None, "$ a\n1\n", 15),
    ]


def test_a_block_is_written_in_its_place() -> None:
    written = write_blocks(PAGE, {15: "$ a\n1\n2\n", 3: "---\n---\n", NOWHERE: "nothing"})
    assert written == PAGE.replace("name: a\n", "").replace("1\n", "1\n2\n")
    assert write_blocks(PAGE, {}) == PAGE
