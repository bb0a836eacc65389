"""`prompty render`: print the messages of a prompt."""

from typing import Annotated

from rich.text import Text
from typer import Option

from prompty.cli.console import out, print_json
from prompty.cli.inputs import read_inputs
from prompty.cli.options import AsJson, FileOrStdin, InputFile, InputPairs, InputValue, Variant
from prompty.cli.prompts import Prompt
from prompty.model.content import ContentPart, TextPart
from prompty.model.message import Message
from prompty.pipeline.prepare import prepare
from prompty.safety.visible import visible

_STYLES = {"system": "magenta", "developer": "magenta", "user": "cyan", "assistant": "green"}


def render_prompt(
    file: FileOrStdin,
    value: InputValue = None,
    variant: Variant = None,
    inputs: InputPairs = None,
    inputs_file: InputFile = None,
    strict: Annotated[bool, Option("--strict", help="Fail if the template uses a variable without a value.")] = False,
    as_json: AsJson = False,
) -> None:
    """Render FILE and print its messages, without calling a model."""
    agent = Prompt(file, variant).load()
    messages = prepare(agent, read_inputs(agent, inputs, inputs_file, value), strict=strict)
    if as_json:
        print_json([message.to_json() for message in messages])
        return
    for message in messages:
        print_message(message)


def print_message(message: Message) -> None:
    """Print the role and the text of a message; media by kind and size."""
    attributes = ", ".join(f"{name}={value}" for name, value in message.metadata.items())
    heading = visible(f"{message.role} [{attributes}]" if attributes else message.role)
    out.print(Text(f"── {heading} ──", f"bold {_STYLES.get(message.role, 'white')}"))
    out.print(Text("".join(map(_describe, message.content))), end="\n\n")


def _describe(part: ContentPart) -> str:
    if isinstance(part, TextPart):
        return visible(part.value)
    about = part.media_type or ""
    value = part.value if len(part.value) <= 80 else f"{part.value[:60]}… ({len(part.value):,} characters)"
    return visible(f"[{part.kind} {about} {value}]".replace("  ", " "))
