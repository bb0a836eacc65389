"""`prompty build`: print a prompt as one file."""

from pathlib import Path
from typing import Annotated

from typer import Option, echo

from prompty.cases.project_file import find_project
from prompty.cli.console import fail, out
from prompty.cli.options import PromptFile, Roots, Variant
from prompty.pipeline.build import build_text
from prompty.pipeline.dotenv import load_env
from prompty.pipeline.variants import find_base
from prompty.safety.visible import visible


def build(
    file: PromptFile,
    variant: Variant = None,
    roots: Roots = None,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="PATH", help="Write to this file instead of printing.")
    ] = None,
) -> None:
    """Print FILE as one file that any runtime can read: partials inserted, and a variant merged with its base."""
    load_env(prompt=file)
    text = build_text(file, variant=variant, allowed_roots=(*(roots or ()), *find_project(file).roots))
    if output is not None:
        if base := find_base(output.absolute()):
            fail(f"{output} would be a variant of {base.name}\n    Choose a name without a dot, or another folder.")
        output.write_text(text, encoding="utf-8")
    else:
        echo(visible(text) if out.is_terminal else text, nl=False)
