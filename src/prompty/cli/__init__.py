"""The command line. Requires the `cli` extra."""

import gc
import sys

from prompty.errors import MissingExtra
from prompty.extras import require


def main() -> None:
    """Run the `prompty` command."""
    gc.disable()  # while modules are imported, which leave no garbage; `app` enables it for the command
    try:
        for package in ("typer", "rich"):
            require(package, extra="cli")
    except MissingExtra as error:
        sys.exit(f"prompty: {error}")
    from prompty.cli.app import app  # needs the extra

    try:
        app()
    finally:
        gc.enable()
