"""Write the picture of `prompty explain --cache` (`docs/images/explain-cache.svg`) for the prompt on the page."""

import re
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

import prompty
from prompty.cli.cache import draw_cache

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "how-to" / "cache-your-prompt.md"
PICTURE = DOCS / "images" / "explain-cache.svg"
NAME = "triage.prompty"
_WIDTH = 110
# Rich loads a font from another host. A page of ours loads nothing from elsewhere.
SVG_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw_picture() -> str:
    """Return the picture as SVG."""
    blocks = dict(re.findall(r'```\w+ title="(.+?)"\n(.*?)\n```', PAGE.read_text(encoding="utf-8"), re.DOTALL))
    with TemporaryDirectory() as folder:
        for name, text in blocks.items():
            Path(folder, name).write_text(f"{text}\n", encoding="utf-8")
        agent = prompty.load(Path(folder, NAME))
    console = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True, highlight=False)
    console.print(draw_cache(agent))
    return console.export_svg(
        title=f"prompty explain {NAME} --cache", code_format=SVG_FORMAT, unique_id="explain-cache"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), encoding="utf-8")
