"""Write the site for programs: a Markdown twin of each page, and `llms.txt`, which lists them.

    python -m scripts.write_site_texts build/site

The twin of `how-to/agents/` is `how-to/agents.md`, so that links between pages stay as they are.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from prompty.version import build_install_command

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SETTINGS: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
FRONTMATTER = re.compile(r"\A---\n.*?\n---\n\s*", re.DOTALL)


def list_pages(entry: object) -> Iterator[str]:
    """Yield the paths of all pages below an entry of the navigation."""
    match entry:
        case str():
            yield entry
        case list() | dict():
            for child in entry.values() if isinstance(entry, dict) else entry:
                yield from list_pages(child)


def read_twin(path: str) -> str:
    return FRONTMATTER.sub("", (DOCS / path).read_text(encoding="utf-8"))


def read_title(path: str) -> str:
    return read_twin(path).removeprefix("# ").partition("\n")[0]


def build_index() -> str:
    """Return the text of `llms.txt`: the sections of the site with a link for each page."""
    lines = [f"# {SETTINGS['site_name']}", "", f"> {SETTINGS['site_description']}", ""]
    install = build_install_command("openai,cli")
    lines += [f"Each page below is Markdown. Install from a checkout: `{install}`. Import: `prompty`."]
    for section in SETTINGS["nav"]:
        [(title, entries)] = section.items()
        lines += ["", f"## {title}", "", *(f"- [{read_title(path)}]({path})" for path in list_pages(entries))]
    return "\n".join(lines) + "\n"


def write_texts(site: Path) -> None:
    """Write the twins and `llms.txt` into a built site."""
    for path in list_pages(SETTINGS["nav"]):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(read_twin(path), encoding="utf-8")
    (site / "llms.txt").write_text(build_index(), encoding="utf-8")


if __name__ == "__main__":
    write_texts(Path(sys.argv[1]))
