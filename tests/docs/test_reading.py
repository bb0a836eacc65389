"""A newcomer's tasks are two clicks from the home page, and the answer is on the first screen of its page.

The fast test looks at the Markdown. The other one opens the built site in a browser of 1280 by 800 pixels.
"""

import re
from pathlib import Path

import pytest

from scripts.pages import DOCS
from tests.docs.walk import TASKS, Site

SCREEN = 45  # lines of a page that a reader sees without scrolling
LINK = re.compile(r"\]\((?!https?:)([^)#]+\.md)[^)]*\)")
NAMES = [task["task"] for task in TASKS]


def find_links(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("task", TASKS, ids=NAMES)
def test_a_newcomer_finds_the_answer(task: dict[str, str]) -> None:
    page = DOCS / f"{task['page']}.md"
    first = find_links(DOCS / "index.md")
    second = {target for link in first for target in find_links(link)}
    assert page in first | second
    lines = page.read_text(encoding="utf-8").splitlines()
    assert re.search(task["answer"], "\n".join(lines[:SCREEN]))


@pytest.mark.parametrize("task", range(len(TASKS)), ids=NAMES)
def test_a_browser_shows_the_answer_after_two_clicks(site: Site, task: int) -> None:
    way = site.find_way(task)
    assert way.clicks <= 2
    assert way.is_on_first_screen, way
