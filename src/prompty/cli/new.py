"""`prompty new`: create a prompt that runs at once, and print the commands to try next."""

import json
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Argument

from prompty.cli.console import fail, out
from prompty.errors import did_you_mean, nearest
from prompty.providers.facts import read_package_facts
from prompty.safety.visible import visible
from prompty.safety.write_files import create_files
from prompty.version import build_install_command


class NewTemplate(NamedTuple):
    """A template: its purpose, its additional files, how to run it, and models that can answer it.

    In `arguments`, `{name}` is the path of the new prompt without its suffix. If `hosted` is None, it is the default
    model for OpenAI.
    """

    purpose: str
    arguments: str
    others: tuple[str, ...] = ()
    hosted: str | None = None
    local: str = "ollama:llama3.2"
    chats: bool = False
    extra: str | None = None


TEMPLATES = {
    "chat": NewTemplate("answers a question", '"What is a monad?"', chats=True),
    "structured": NewTemplate("returns data of a fixed shape", '"Ada is 36 years old."'),
    "tools": NewTemplate("calls Python functions", '"What should I wear in Oslo?" --tools {name}.py', (".py",)),
    "vision": NewTemplate("looks at a picture", "@{name}.png", (".png",), local="ollama:gemma3"),
    "embedding": NewTemplate(
        "turns text into a vector",
        '"Hello"',
        hosted="openai:text-embedding-3-small",
        local="ollama:nomic-embed-text",
    ),
    "agent-mcp": NewTemplate(
        "uses the tools of an MCP server", '"What do I have to do?" --mcp {name}.json', (".py", ".json"), extra="mcp"
    ),
}
_LISTING = ", ".join(TEMPLATES)


def _complete_template(incomplete: str) -> list[str]:
    return [name for name in TEMPLATES if name.startswith(incomplete)]


def new(
    template: Annotated[str, Argument(help=f"One of {_LISTING}.", autocompletion=_complete_template)] = "chat",
    name: Annotated[str | None, Argument(help="The prompt's name. Defaults to the template's name.")] = None,
) -> None:
    """Create a small prompt that runs at once, without a key, and print the commands to try next.

    No existing file is overwritten.
    """
    if template not in TEMPLATES:
        hint = did_you_mean(nearest(template, TEMPLATES))
        fail(f"there is no template '{template}'\n    {hint}The templates are {_LISTING}.")
    chosen = TEMPLATES[template]
    target = Path((name or template).removesuffix(".prompty"))
    written = {target.with_name(target.name + suffix): suffix for suffix in (".prompty", *chosen.others)}
    _check_target(target)
    try:
        create_files({path: _read_template(template, suffix, target) for path, suffix in written.items()})
    except FileExistsError as error:
        fail(f"{error}\n    Choose another name: prompty new {template} NAME.")
    _print_next_steps(chosen, target, list(written))


def _check_target(target: Path) -> None:
    if not target.name.replace("-", "").replace("_", "").isalnum():
        fail(f"'{target.name}' is not a valid prompt name\n    Use letters, digits, - and _.")
    if not target.absolute().parent.is_dir():
        fail(f"there is no folder '{target.parent}'\n    Create it first.")


def _read_template(template: str, suffix: str, target: Path) -> bytes:
    content = files("prompty.cli").joinpath("templates", template + suffix).read_bytes()
    if suffix == ".png":
        return content
    text = content.decode().replace("TEMPLATE", target.name)
    if suffix == ".json":
        places = {"PYTHON": sys.executable, "FOLDER": str(target.absolute().parent)}
        for word, place in places.items():
            text = text.replace(word, json.dumps(place)[1:-1])
    return text.encode()


def _print_next_steps(template: NewTemplate, target: Path, paths: list[Path]) -> None:
    """Print the created files and the commands to try."""
    file = visible(f"{target}.prompty")
    run = f"prompty run {file} {visible(template.arguments.format(name=target))}"
    hosted = template.hosted or f"openai:{read_package_facts()['choices']['default_model_openai']}"
    out.print(f"Created {visible(', '.join(map(str, paths)))}. The prompt {template.purpose}.\n")
    if template.extra and find_spec(template.extra) is None:
        out.print(f"Install what it needs:\n    {build_install_command(template.extra)}\n")
    out.print(f"Run it. It answers with the script in the file, so it needs no key:\n    {run}\n")
    out.print(f"Ask a real model, with your key in OPENAI_API_KEY:\n    {run} --model {hosted}\n")
    out.print(f"Or ask a model on your machine, here with Ollama:\n    {run} --model {template.local}")
    if template.chats:
        out.print(f"\nTalk to it:\n    prompty chat {file}")
