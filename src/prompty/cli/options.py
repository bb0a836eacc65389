"""Arguments that several commands take."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from prompty.model.agent import PromptAgent
from prompty.tracing.sinks import trace_to

File = Annotated[Path, Argument(help="The .prompty file.")]
InputPairs = Annotated[
    list[str] | None, Option("--input", "-i", metavar="NAME=VALUE", help="An input; @file reads a file.")
]
ModelId = Annotated[str | None, Option("--model", "-m", help="Another model than the file names.")]
ProviderKey = Annotated[str | None, Option("--provider", help="Another provider than the file names.")]
ApiType = Annotated[str | None, Option("--api", help="Another apiType than the file names.")]
TraceTo = Annotated[
    list[str] | None,
    Option("--trace", metavar="SINK", help="Trace to console, file:FOLDER, otel; wire keeps exact requests in files."),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON, for tools.")]


def start_tracing(sinks: list[str] | None) -> None:
    """Trace what the command does from here on."""
    if sinks:
        trace_to(*sinks)


def with_model(agent: PromptAgent, model: str | None, provider: str | None, api: str | None) -> PromptAgent:
    """The agent with another model. The connection of the file belongs to its provider and is not taken along."""
    changes: dict[str, Any] = {"id": model, "provider": provider, "api_type": api}
    changes = {name: value for name, value in changes.items() if value is not None}
    if provider is not None and provider != agent.model.provider:
        changes["connection"] = None
    return agent.model_copy(update={"model": agent.model.model_copy(update=changes)})
