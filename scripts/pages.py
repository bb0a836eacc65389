"""Read the fenced blocks of the pages, and save the files that a page shows.

A block with a title is a file to save under that name. A block of the language `console` has commands after `$ `, each
followed by its output. What a reader does not see is in `docs/fixtures`, in a folder for each page: files in `given/`
are there from the start, and models answer from `replies.yaml`.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FIXTURES = DOCS / "fixtures"
GIVEN = "given"  # files that a page takes as given: pictures, rows, a service
REPLIES = "replies.yaml"  # what the model of a page answers
WRITTEN = "<!-- `make docs` writes the rest. -->\n"

_BLOCK = re.compile(r'^(`{3,})([\w+-]*)(?: title="([^"]+)")?\n(.*?)^\1$', re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


class Step(NamedTuple):
    """A command, and what the page says that it prints."""

    command: str
    output: str


@dataclass(frozen=True)
class Block:
    """A fenced block. `line` is the number of its first fence, counted from 1."""

    language: str
    title: str | None
    text: str
    line: int

    @property
    def steps(self) -> list[Step]:
        return [Step(*found) for found in _COMMAND.findall(self.text)] if self.language == "console" else []


def find_pages(*folders: str) -> list[Path]:
    """Return the pages of the documentation, or those of some of its folders."""
    pages = [page for page in sorted(DOCS.rglob("*.md")) if not page.is_relative_to(FIXTURES)]
    return [page for page in pages if not folders or page.relative_to(DOCS).parts[0] in folders]


def read_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, but for those in lists."""
    return list(parse_blocks(page.read_text(encoding="utf-8")))


def parse_blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text that begin at the margin."""
    for found in _BLOCK.finditer(text):
        yield Block(found[2], found[3], found[4], text.count("\n", 0, found.start()) + 1)


def write_blocks(text: str, written: Mapping[int, str]) -> str:
    """Return a page with other text in the blocks that begin on these lines."""
    lines = text.split("\n")
    for block in reversed(list(parse_blocks(text))):
        if block.line in written:
            lines[block.line : block.line + block.text.count("\n")] = written[block.line].split("\n")[:-1]
    return "\n".join(lines)


def read_head(page: Path) -> str:
    """Return what is written by hand at the top of a generated page, with the mark that ends it."""
    return page.read_text(encoding="utf-8").partition(WRITTEN)[0] + WRITTEN


def save_page(page: Path, folder: Path) -> None:
    """Write the files of a page into a folder: those that it takes as given, and its blocks with a title."""
    save_given(page, folder)
    for block in read_blocks(page):
        save_block(block, folder)


def save_given(page: Path, folder: Path) -> None:
    """Copy the files that a page takes as given."""
    if (given := get_fixtures(page) / GIVEN).is_dir():
        shutil.copytree(given, folder, dirs_exist_ok=True)


def save_block(block: Block, folder: Path) -> None:
    """Write a block to the file that its title names."""
    if block.title is not None:
        (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
        (folder / block.title).write_text(block.text, encoding="utf-8")


def get_fixtures(page: Path) -> Path:
    """Return the folder with what a page needs and does not show. Most pages need nothing."""
    return FIXTURES / page.relative_to(DOCS).with_suffix("")
