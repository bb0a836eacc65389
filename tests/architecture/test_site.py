"""The documentation site: every page has a place in it, and every link leads somewhere."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from prompty.cli.app import app
from prompty.version import REPOSITORY, SITE, __version__
from scripts.check_dist import list_tracked
from scripts.check_site import find_problems, read_site
from scripts.write_section_pages import list_pages, pages, read_navigation, read_opening

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_what_names_the_site_or_the_repository_says_the_same() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert (settings.get("site_url"), settings.get("repo_url")) == (SITE, REPOSITORY)
    assert __version__ in settings["copyright"]
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    assert (urls.get("Documentation"), urls.get("Source")) == (SITE, REPOSITORY)
    extension = json.loads((ROOT / "editors" / "vscode" / "package.json").read_text(encoding="utf-8"))
    assert extension.get("repository") == REPOSITORY
    assert ("Documentation: " in CliRunner().invoke(app, ["--help"]).output) == (SITE is not None)


# A page on GitHub Pages, a repository, and an installation of what no index has.
NOT_THERE = re.compile(
    r"prompty-python(?:\.github\.io|/prompty\b)"
    r"|prompty-runtime\[(?![\w,]+\] @ )"
    r"|(?:install|uvx) [^\n]*prompty-runtime(?!\[)\b"
)
ALLOWED = {"pyproject.toml", "tests/architecture/test_distributions.py"}  # the extra `all` names other extras


@pytest.mark.process
def test_no_file_names_an_address_or_a_release_that_does_not_exist() -> None:
    texts = {name: (ROOT / name).read_bytes().decode(errors="replace") for name in list_tracked(ROOT, ".")}
    assert {name for name, text in texts.items() if NOT_THERE.search(text)} == ALLOWED


def test_every_page_has_one_line_in_the_navigation() -> None:
    listed = sorted(list_pages(read_navigation()))
    written = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if "fixtures" not in page.parts)
    assert listed == written, "edit `nav` in mkdocs.yml, then run: make docs"


LINK = re.compile(r"\]\((?!https?:)([^)#\s]+\.md)(?:#[^)]*)?\)")


def follow_links(pages: set[Path]) -> set[Path]:
    """Return the pages that these pages link to, and these."""
    return pages | {
        (page.parent / target).resolve() for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))
    }


def test_every_page_is_two_clicks_from_the_home_page() -> None:
    everything = {DOCS / path for path in list_pages(read_navigation())}
    once = follow_links({DOCS / "index.md"})
    assert everything - once
    assert everything - follow_links(once) == set()


@pytest.mark.parametrize(("path", "text"), pages().items(), ids=lambda value: getattr(value, "parent", Path()).name)
def test_the_first_page_of_a_section_is_current(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run: make docs"


@pytest.mark.parametrize(
    ("text", "opening"),
    [
        ("# Title\n\nOne sentence. Another one.\n", ("Title", "One sentence.")),
        ("# Title\n\nA sentence\nof two lines.\n\nMore.\n", ("Title", "A sentence of two lines.")),
        (
            "# Title\n\nPass a type to `f.x`, and see [here](a.md#b):\n\n```\n",
            ("Title", "Pass a type to `f.x`, and see here."),
        ),
        ("# Title\n\n| a | b |\n", ("Title", "")),
        ("# Title\n\n## Heading\n", ("Title", "")),
        ("# Title\n", ("Title", "")),
    ],
)
def test_the_opening_of_a_page_is_its_first_sentence(text: str, opening: tuple[str, str]) -> None:
    assert read_opening(text) == opening


PROBLEMS = {
    "a page that exists": ('<a href="other/">x</a>', []),
    "a place that exists": ('<a href="other/#there">x</a>', []),
    "a place on the same page": ('<a href="#here">x</a><p id="here">', []),
    "a file that exists": ('<a href="notes.txt">x</a>', []),
    "a page of another host": ('<a href="https://example.com/a#b">x</a>', []),
    "a page that does not exist": ('<a href="nowhere/">x</a>', ["index.html: dead link nowhere/"]),
    "a place that does not exist": ('<a href="other/#nowhere">x</a>', ["index.html: dead link other/#nowhere"]),
    "a picture that does not exist": ('<img src="a.png">', ["index.html: dead link a.png"]),
    "a script of another host": (
        '<script src="https://example.com/a.js"></script>',
        ["index.html: loads https://example.com/a.js"],
    ),
}


@pytest.mark.parametrize(("html", "problems"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_check_of_the_site_finds(html: str, problems: list[str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text('<h2 id="there">There</h2>')
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "index.html").write_text(html)
    assert find_problems(tmp_path, read_site(tmp_path)) == problems
