"""Write the site for programs: a Markdown twin of each page, and `llms.txt`, which lists them.

    python -m scripts.write_site_texts build/site

The twin of `how-to/agents/` is `how-to/agents.md`, so that links between pages stay as they are.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from prompty.version import build_install_command
from scripts.write_section_pages import DOCS, FRONTMATTER, ROOT, list_pages, read_navigation, read_opening


def build_index() -> str:
    """Return the text of `llms.txt`: the sections of the site with a link and a sentence for each page."""
    settings: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}", ""]
    install = build_install_command("openai,cli")
    lines += [f"Each page below is Markdown. Install from a checkout: `{install}`. Import: `prompty`."]
    for section in read_navigation():
        [(title, entries)] = section.items()
        lines += ["", f"## {title}", "", *(build_line(path) for path in list_pages(entries))]
    return "\n".join(lines) + "\n"


def build_line(path: str) -> str:
    title, sentence = read_opening((DOCS / path).read_text(encoding="utf-8"))
    return f"- [{title}]({path}): {sentence}" if sentence else f"- [{title}]({path})"


def write_texts(site: Path) -> None:
    """Write the twins and `llms.txt` into a built site."""
    for path in list_pages(read_navigation()):
        twin = site / path
        twin.parent.mkdir(parents=True, exist_ok=True)
        text = FRONTMATTER.sub("", (DOCS / path).read_text(encoding="utf-8"))
        twin.write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(build_index(), encoding="utf-8")


if __name__ == "__main__":
    write_texts(Path(sys.argv[1]))
