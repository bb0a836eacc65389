"""`prompty explain`: print the request that a prompt would send."""

import json
from dataclasses import asdict
from typing import Annotated

from rich.text import Text
from typer import Option

from prompty.analysis.explain import Explanation, explain as explain_prompt
from prompty.cli.console import out, print_json
from prompty.cli.inputs import read_inputs
from prompty.cli.options import (
    ApiType,
    AsJson,
    FileOrStdin,
    InputFile,
    InputPairs,
    InputValue,
    ModelId,
    ModelOptionPairs,
    ProviderKey,
    Variant,
    read_options,
)
from prompty.cli.prompts import Prompt
from prompty.cli.render import print_message
from prompty.pipeline.model_override import override_model
from prompty.safety.visible import visible


def explain_request(
    file: FileOrStdin,
    value: InputValue = None,
    variant: Variant = None,
    inputs: InputPairs = None,
    inputs_file: InputFile = None,
    stream: Annotated[bool, Option("--stream", "-s", help="Explain a streamed call.")] = False,
    as_json: AsJson = False,
    model: ModelId = None,
    provider: ProviderKey = None,
    api: ApiType = None,
    options: ModelOptionPairs = None,
) -> None:
    """Print the messages of FILE and the exact request, without sending it. Secrets are masked."""
    agent = override_model(Prompt(file, variant).load(), model, read_options(options), provider=provider, api_type=api)
    explanation = explain_prompt(agent, read_inputs(agent, inputs, inputs_file, value), stream=stream)
    if as_json:
        messages = [message.to_json() for message in explanation.messages]
        print_json({**asdict(explanation), "messages": messages})
    else:
        _print_explanation(explanation)


def _print_explanation(explanation: Explanation) -> None:
    for message in explanation.messages:
        print_message(message)
    _print_heading(f"POST {explanation.url}")
    for header in explanation.headers:
        out.print(Text(visible(header)))
    out.print(Text(visible(json.dumps(explanation.body, indent=2, ensure_ascii=False))), end="\n\n")
    hidden = {tool: ", ".join(parameters) for tool, parameters in explanation.bound.items()}
    for heading, lines in (("omitted options", explanation.dropped), ("parameters hidden from the model", hidden)):
        if lines:
            _print_heading(heading)
            out.print(Text(visible("\n".join(f"{name}: {text}" for name, text in lines.items()))), end="\n\n")
    if explanation.refused:
        _print_heading("a call would be refused")
        out.print(Text(visible(explanation.refused)), end="\n\n")
    _print_heading("as a curl command")
    out.print(Text(visible(explanation.curl)))


def _print_heading(text: str) -> None:
    out.print(Text(f"── {visible(text)} ──", "bold blue"))
