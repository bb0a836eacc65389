"""`prompty build`: print a prompt as one file."""

from pathlib import Path
from typing import Annotated

from typer import Option, echo

from prompty.analysis.build import build_text
from prompty.cli.console import out
from prompty.cli.inputs import load_dotenv
from prompty.cli.options import File
from prompty.safety.visible import visible


def build(
    file: File,
    output: Annotated[Path | None, Option("--output", "-o", help="Write to this file instead of printing.")] = None,
) -> None:
    """Print FILE with its partials inserted, as one file that any runtime reads."""
    load_dotenv(file)
    text = build_text(file)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    else:
        echo(visible(text) if out.is_terminal else text, nl=False)
