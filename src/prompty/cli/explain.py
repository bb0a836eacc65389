"""`prompty explain`: what would be sent, without sending it."""

import json
from dataclasses import asdict
from typing import Annotated

from rich.text import Text
from typer import Option

from prompty.analysis.explain import Explanation
from prompty.analysis.explain import explain as explain_prompt
from prompty.api import load
from prompty.cli.console import fail, out, show_json
from prompty.cli.inputs import load_dotenv, read_pairs
from prompty.cli.options import ApiType, AsJson, File, InputPairs, ModelId, ProviderKey, with_model
from prompty.cli.render import show_message
from prompty.errors import PromptyError
from prompty.safety.visible import visible


def explain(
    file: File,
    inputs: InputPairs = None,
    stream: Annotated[bool, Option("--stream", "-s", help="As a streamed call.")] = False,
    as_json: AsJson = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
) -> None:
    """Show the messages of FILE and the exact request they become, offline; secrets are masked."""
    load_dotenv(file)
    try:
        agent = with_model(load(file), model, provider, api)
        explanation = explain_prompt(agent, read_pairs(agent, inputs or []), stream=stream)
    except PromptyError as error:
        fail(error)
    if as_json:
        messages = [message.to_json() for message in explanation.messages]
        show_json({**asdict(explanation), "messages": messages})
    else:
        _show(explanation)


def _show(explanation: Explanation) -> None:
    for message in explanation.messages:
        show_message(message)
    _heading(f"POST {explanation.url}")
    for header in explanation.headers:
        out.print(Text(visible(header)))
    out.print(Text(visible(json.dumps(explanation.body, indent=2, ensure_ascii=False))), end="\n\n")
    if explanation.dropped:
        _heading("options left out")
        for name, reason in explanation.dropped.items():
            out.print(Text(visible(f"{name}: {reason}")))
        out.print()
    if explanation.bound:
        _heading("parameters the model does not see")
        for tool, parameters in explanation.bound.items():
            out.print(Text(visible(f"{tool}: {', '.join(parameters)}")))
        out.print()
    _heading("by hand")
    out.print(Text(visible(explanation.curl)))


def _heading(text: str) -> None:
    out.print(Text(f"── {visible(text)} ──", "bold blue"))
