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
from scripts.write_site_texts import SETTINGS, list_pages

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
    listed = sorted(list_pages(SETTINGS["nav"]))
    written = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if "fixtures" not in page.parts)
    assert listed == written, "edit `nav` in mkdocs.yml"


LINK = re.compile(r"\]\((?!https?:)([^)#\s]+\.md)(?:#[^)]*)?\)")


def follow_links(pages: set[Path]) -> set[Path]:
    """Return the pages that these pages link to, and these."""
    return pages | {
        (page.parent / target).resolve() for page in pages for target in LINK.findall(page.read_text(encoding="utf-8"))
    }


def test_every_page_is_two_clicks_from_the_home_page() -> None:
    everything = {DOCS / path for path in list_pages(SETTINGS["nav"])}
    once = follow_links({DOCS / "index.md"})
    assert everything - once
    assert everything - follow_links(once) == set()
