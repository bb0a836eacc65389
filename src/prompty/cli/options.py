"""Arguments and options that several commands share."""

import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from prompty.tracing.sinks import trace_to

File = Annotated[Path, Argument(help="The .prompty file.")]
InputPairs = Annotated[
    list[str] | None, Option("--input", "-i", metavar="NAME=VALUE", help="Set an input. Use NAME=@FILE to read a file.")
]
ModelId = Annotated[
    str | None,
    Option(
        "--model", "-m", metavar="[PROVIDER:]ID", help="Override the model in the file, for example ollama:llama3.2."
    ),
]
ProviderKey = Annotated[str | None, Option("--provider", help="Override the provider in the file.")]
ApiType = Annotated[str | None, Option("--api", help="Override the apiType in the file.")]
TraceTo = Annotated[
    list[str] | None,
    Option(
        "--trace",
        metavar="SINK",
        help="Trace to console, file:FOLDER or otel. Add wire to store exact requests in files.",
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON for other programs.")]


def start_tracing(sinks: list[str] | None) -> None:
    """Send traces of this command to `sinks`."""
    if sinks:
        trace_to(*sinks)


def get_state_path(name: str) -> Path:
    """Return the path of a file in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "prompty" / name
