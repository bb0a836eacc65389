"""Write the picture of a run in a terminal (`docs/images/terminal.svg`) from the files and the command of the tutorial.

python -m scripts.write_terminal_picture
"""

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from scripts.pages import DOCS, read_blocks, save_page
from scripts.run_page import make_environment

PAGE = DOCS / "tutorial" / "tools.md"
PICTURE = DOCS / "images" / "terminal.svg"
_WIDTH = 84
# Rich loads a font from another host. A page of ours loads nothing from elsewhere.
SVG_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw_picture() -> str:
    """Return the first command of the page and what it prints in a terminal, as SVG."""
    command = next(step.command for block in read_blocks(PAGE) for step in block.steps)
    with TemporaryDirectory() as folder:
        save_page(PAGE, Path(folder))
        environment = make_environment(Path(folder), Path(sys.executable).parent)
        del environment["NO_COLOR"]
        colors = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
        done = subprocess.run(  # noqa: S602  a command of our own page
            command,
            shell=True,
            cwd=folder,
            env=environment | colors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=True,
        )
    console = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True, highlight=False)
    console.print(Text.assemble(("$ ", "green"), command))
    console.print(Text.from_ansi(done.stdout))
    return console.export_svg(title="prompty run", code_format=SVG_FORMAT, unique_id="terminal")


if __name__ == "__main__":
    PICTURE.write_text(draw_picture(), encoding="utf-8")
