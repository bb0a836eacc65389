"""`prompty list`: show the prompts in a folder or a package."""

from pathlib import Path
from typing import Annotated, NamedTuple

from rich.text import Text
from typer import Argument

from prompty.cli.check import find_prompts
from prompty.cli.console import out, print_json
from prompty.cli.options import AsJson
from prompty.errors import LoadError
from prompty.model.agent import PromptAgent
from prompty.pipeline.load import read_agent
from prompty.pipeline.packages import locate_prompt
from prompty.pipeline.variants import find_base, variants
from prompty.registry import DEFAULT
from prompty.safety.visible import visible

_DEFAULT = Path()


class Entry(NamedTuple):
    """A prompt, or a variant of the prompt above it."""

    name: str
    variant: str | None
    inputs: dict[str, bool]
    model: str
    description: str
    problem: str


def list_prompts(
    path: Annotated[Path, Argument(help="A folder, a file, or a package: pkg:PACKAGE.")] = _DEFAULT,
    as_json: AsJson = False,
) -> None:
    """List the prompts below PATH with their variants, inputs and models. Required inputs are marked with *."""
    folder = Path(locate_prompt(path))
    entries: list[Entry] = []
    for file in find_prompts([folder]):
        if find_base(file) is None:
            name = str(file.relative_to(folder)) if folder.is_dir() else file.name
            names = [None, *variants(file)]
            entries += [_describe(file, name, variant) for variant in names]
    if as_json:
        print_json([entry._asdict() for entry in entries])
    else:
        _print(entries)


def _describe(file: Path, name: str, variant: str | None) -> Entry:
    chosen = file if variant is None else file.with_name(f"{file.stem}.{variant}{file.suffix}")
    try:
        agent = read_agent(chosen, (), DEFAULT)
    except LoadError as error:
        return Entry(name, variant, {}, "", "", error.problems[0].message)
    inputs = {entry.name: bool(entry.required) for entry in agent.inputs}
    return Entry(name, variant, inputs, _name_model(agent), agent.description or "", "")


def _name_model(agent: PromptAgent) -> str:
    return f"{agent.model.provider}:{agent.model.id}" if agent.model.id else ""


def _print(entries: list[Entry]) -> None:
    rows = []
    for entry in entries:
        title = entry.name if entry.variant is None else f"  {entry.variant}"
        inputs = ", ".join(f"{name}*" if required else name for name, required in entry.inputs.items())
        rows.append((title, entry.model or "no model", entry.problem or inputs))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for title, model, inputs in rows:
        out.print(Text(visible(f"{title:<{widths[0]}}  {model:<{widths[1]}}  {inputs}".rstrip())), soft_wrap=True)
