"""The documents say what is true: their Python runs, their prompts load, their commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from prompty import check, loads
from prompty.pipeline.check import check_text

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for word, body in FENCE.findall(page.read_text(encoding="utf-8")) if word == language]


PROMPTS = [(page.name, text) for page in PAGES for text in blocks(page, "") if text.startswith("---\n")]


@pytest.mark.parametrize(("page", "text"), PROMPTS, ids=[page for page, _ in PROMPTS])
def test_the_prompts_in_the_documents_have_no_problems(page: str, text: str) -> None:
    assert check_text(text, page, env={"OPENAI_API_KEY": "x"}) == []
    assert loads(text, env={"OPENAI_API_KEY": "x"}).name


def test_the_first_example_of_the_readme_runs_as_printed(tmp_path: Path) -> None:
    [prompt] = [text for page, text in PROMPTS if page == "README.md"]
    (tmp_path / "answer.prompty").write_text(prompt)
    [code] = blocks(ROOT / "README.md", "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603  our own code
    assert done.stdout == "system You help Ada. Answer briefly.\nuser What is a monad?\n"


PAGES_THAT_RUN = ("agents.md", "conversations.md", "durable.md", "kinds.md", "testing.md", "tracing.md")
RUNNING = [ROOT / "docs" / name for name in PAGES_THAT_RUN]


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_pages_with_a_scripted_model_run_as_printed(page: Path, tmp_path: Path) -> None:
    [prompt] = [text for name, text in PROMPTS if name == page.name]
    (tmp_path / "weather.prompty").write_text(prompt)
    for code in blocks(page, "python"):
        subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True, timeout=60)  # noqa: S603  our own code


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.prompty")), ids=lambda file: file.name)
def test_the_examples_have_no_problems(file: Path) -> None:
    assert check(file) == []


LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_documents_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
