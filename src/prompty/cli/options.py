"""Arguments and options that several commands share."""

import os
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from prompty.cases.project_file import NO_PROJECT, Project
from prompty.errors import RequestError
from prompty.safety.json import read_json
from prompty.tracing.sinks import VARIABLE, trace_to
from prompty.tracing.spans import SINKS

PromptFile = Annotated[Path, Argument(help="The .prompty file.")]
FileOrStdin = Annotated[Path, Argument(help="The .prompty file, or - to read it from standard input.")]
Variant = Annotated[
    str | None,
    Option("--variant", metavar="NAME", help="Use a variant of FILE, for example claude for answer.claude.prompty."),
]
Roots = Annotated[
    list[Path] | None,
    Option(
        "--root",
        metavar="FOLDER",
        exists=True,
        file_okay=False,
        help="Also let prompts read partials and files in FOLDER.",
    ),
]


AllowEnv = Annotated[
    list[str] | None,
    Option(
        "--allow-env",
        metavar="NAME",
        help="Let prompts send the value of this variable to any endpoint, except as a credential.",
    ),
]
InputValue = Annotated[
    str | None,
    Argument(metavar="INPUT", show_default=False, help="The value of the only required input without a value."),
]
InputPairs = Annotated[
    list[str] | None,
    Option(
        "--input",
        "-i",
        metavar="NAME=VALUE",
        help="Set an input. Use NAME=@FILE to read a file, NAME=- to read standard input.",
    ),
]
InputFile = Annotated[
    Path | None, Option("--inputs", metavar="FILE", help="Read inputs from a JSON or YAML file. -i overrides them.")
]
Approve = Annotated[bool, Option("--approve", help="Ask before every tool call, regardless of the file.")]


def complete_model(incomplete: str) -> list[str]:
    """Return the known servers that a model can begin with."""
    from prompty.providers.profiles import PROFILES  # only for completion

    return [f"{profile.name}:" for profile in PROFILES if profile.name.startswith(incomplete)]


ModelId = Annotated[
    str | None,
    Option(
        "--model",
        "-m",
        metavar="[PROVIDER:]ID",
        autocompletion=complete_model,
        help="Override the model in the file, for example ollama:llama3.2.",
    ),
]
ProviderKey = Annotated[str | None, Option("--provider", help="Override the provider in the file.")]
ApiType = Annotated[str | None, Option("--api", help="Override the apiType in the file.")]
ModelOptionPairs = Annotated[
    list[str] | None,
    Option("--option", metavar="NAME=VALUE", help="Override a model option, for example temperature=0.2."),
]
TraceTo = Annotated[
    list[str] | None,
    Option(
        "--trace",
        metavar="SINK",
        help="Trace to console, file:FOLDER or otel. Add wire to store exact requests in files.",
    ),
]
LenientOutputs = Annotated[
    bool, Option("--lenient-outputs", help="Accept an answer that does not fit the file's outputs, as it is.")
]
AsJson = Annotated[bool, Option("--json", help="Print JSON for other programs.")]


def start_tracing(sinks: list[str] | None, project: Project = NO_PROJECT) -> None:
    """Send traces of this command to `sinks`, or to the folder of the project if PROMPTY_TRACE names no sink."""
    if sinks:
        trace_to(*sinks)
    elif project.trace is not None and not os.environ.get(VARIABLE):
        from prompty.tracing.files import FileSink  # few commands write traces

        SINKS.set("file", FileSink(project.trace))  # not by a word, in which a comma would name another sink


def read_options(pairs: list[str] | None) -> dict[str, object]:
    """Return the model options in `pairs`. A value that is not JSON is text."""
    options: dict[str, object] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise RequestError(f"`{pair}` is not a model option", "Write --option NAME=VALUE.")
        try:
            options[name] = read_json(text)
        except ValueError:
            options[name] = text
    return options


def get_outputs_mode(*, lenient: bool) -> Literal["strict", "lenient"]:
    """Return the value of `outputs_mode` for --lenient-outputs."""
    return "lenient" if lenient else "strict"


def get_state_path(name: str) -> Path:
    """Return the path of a file in the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state).resolve() / "prompty" / name
