"""The documents say what is true: their Python runs, their prompts load, their commands exist."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from prompty import loads
from prompty.analysis.check import check_text
from prompty.drivers.children import ChildKind
from prompty.registry import Registry
from prompty.tools.kinds import TOOL_KINDS
from scripts.pages import find_pages, read_blocks

ROOT = Path(__file__).parents[2]
SITE = find_pages()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
RUN_ELSEWHERE = find_pages("tutorial", "how-to", "explanation")  # tests/docs saves their files and runs their commands
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)

VARIABLES = {"OPENAI_API_KEY": "x", "SHOP_URL": "https://shop.example", "SHOP_KEY": "x"}


def blocks(page: Path, language: str) -> list[str]:
    return [body for word, body in FENCE.findall(page.read_text(encoding="utf-8")) if word == language]


def prompts(page: Path) -> list[str]:
    """Return the prompts of a page that need no other file."""
    texts = (*blocks(page, ""), *blocks(page, "yaml"))
    return [text for text in texts if text.startswith("---\n") and "{% include" not in text]


def write_prompts(page: Path, folder: Path) -> None:
    """Write each prompt of `page` to a file called by the prompt's own name, as the code of the page expects."""
    for text in prompts(page):
        (folder / f"{loads(text).name}.prompty").write_text(text)


PROMPTS = [(page, text) for page in PAGES if page not in RUN_ELSEWHERE for text in prompts(page)]


@pytest.mark.parametrize(("page", "text"), PROMPTS, ids=[page.name for page, _ in PROMPTS])
def test_the_prompts_in_the_documents_have_no_problems(page: Path, text: str) -> None:
    registry = Registry()
    registry[TOOL_KINDS].register("sqlite", ChildKind())  # the page about kinds registers one
    problems = check_text(text, page.name, env=VARIABLES, registry=registry)
    assert [problem for problem in problems if problem.severity != "info"] == []
    assert loads(text, env=VARIABLES).name


README_SCRIPT = """
from prompty.testing import Script, call
from prompty.tools.kinds import TOOL_KINDS
with Script(call("find_order", number=7), '{"answer": "It is at the customs office.", "urgent": false}'):
    exec(CODE, {})
"""


@pytest.mark.process
@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "index.md"], ids=lambda page: page.name)
def test_the_first_example_runs_as_printed(page: Path, tmp_path: Path) -> None:
    write_prompts(page, tmp_path)
    [code] = blocks(page, "python")
    program = f"CODE = {code!r}\n{README_SCRIPT}"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603  our own code
    assert done.stdout == "It is at the customs office.\n"


@pytest.mark.process
@pytest.mark.parametrize("page", [ROOT / "README.md"], ids=lambda page: page.name)
def test_the_commands_of_the_first_page_print_what_stands_there(page: Path, tmp_path: Path) -> None:
    """Installing and real models are left to `scripts/first_answer.py`."""
    commands = [step for block in read_blocks(page) for step in block.steps]
    steps = [step for step in commands if not re.search("^pip |--model", step.command)]
    assert len(steps) >= 2
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "prompty"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m prompty.cli "$@"\n')
    program.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    for command, output in steps:
        done = subprocess.run(  # noqa: S602  commands of our own pages
            command,
            shell=True,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        assert done.stdout == output, command
    shown = {loads(text).name: text for text in prompts(page) if "provider: scripted" in text}
    assert shown
    for name, text in shown.items():
        assert (work / f"{name}.prompty").read_text() == text


def test_the_home_page_opens_with_the_file_and_the_program_of_readme() -> None:
    shown = [
        [block.text for block in read_blocks(page)[:2]] for page in (ROOT / "README.md", ROOT / "docs" / "index.md")
    ]
    assert shown[0] == shown[1]


def test_every_page_is_in_a_known_folder() -> None:
    folders = {page.relative_to(ROOT / "docs").parts[0] for page in SITE}
    assert folders == {"index.md", "tutorial", "how-to", "reference", "explanation", "internals"}


LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


LINKING = [*PAGES, ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "examples").rglob("*.md"))]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_the_documents_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
