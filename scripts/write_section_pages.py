"""Write the first page of each section (`docs/*/index.md`) from the navigation: the title and the first sentence of
each page. The home page links to these, so that every page is two clicks away. That of the tutorial is written by
hand."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from prompty.version import SOURCE

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

OPENINGS = {
    "how-to": (
        "Each page solves one task. Working code comes first. prompty has no release yet: where a page installs\n"
        f"`{SOURCE}`, write the path of your checkout."
    ),
    "reference": "Look up a name, a key, a command or a message. Tests compare these pages with the code.",
    "explanation": "Understand how prompty works, and what it promises.",
    "internals": "For contributors: the promises of each part, our decisions, and the demands of the specification.",
}
SENTENCE = re.compile(r".+?(\.(?=\s|$)|:$)", re.DOTALL)
FRONTMATTER = re.compile(r"\A---\n.*?\n---\n\s*", re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def read_navigation() -> list[dict[str, Any]]:
    """Return the sections of the site, as `mkdocs.yml` lists them."""
    navigation: list[dict[str, Any]] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return navigation


def list_pages(entry: object) -> Iterator[str]:
    """Yield the paths of all pages below an entry of the navigation."""
    match entry:
        case str():
            yield entry
        case list():
            for child in entry:
                yield from list_pages(child)
        case dict():
            for child in entry.values():
                yield from list_pages(child)


def build_page(title: str, entries: list[Any]) -> tuple[Path, str]:
    """Return the path and the text of the first page of a section."""
    folder = Path(entries[0]).parent.as_posix()
    lines = [f"# {title}", "", OPENINGS[folder], ""]
    for entry in entries[1:]:
        if isinstance(entry, dict):
            [(heading, children)] = entry.items()
            lines += ["", f"## {heading}", "", *(build_line(path, folder) for path in list_pages(children))]
        else:
            lines.append(build_line(entry, folder))
    return DOCS / entries[0], re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def build_line(path: str, folder: str) -> str:
    title, sentence = read_opening((DOCS / path).read_text(encoding="utf-8"))
    return f"- [{title}]({os.path.relpath(path, folder)}). {sentence}".rstrip()


def read_opening(text: str) -> tuple[str, str]:
    """Return the title of a page, and the first sentence of its first paragraph."""
    title, _, rest = FRONTMATTER.sub("", text).removeprefix("# ").partition("\n")
    paragraph = rest.strip().partition("\n\n")[0]
    found = SENTENCE.match(LINK.sub(r"\1", " ".join(paragraph.split())))
    if not found or paragraph.startswith(("|", "```", "#", "-", "<")):
        return title, ""
    return title, re.sub(":$", ".", found[0])


def is_generated(entries: object) -> bool:
    return isinstance(entries, list) and Path(entries[0]).parent.as_posix() in OPENINGS


def pages() -> dict[Path, str]:
    """Return the text of the first page of each section."""
    sections = [item for section in read_navigation() for item in section.items()]
    return dict(build_page(title, entries) for title, entries in sections if is_generated(entries))


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
