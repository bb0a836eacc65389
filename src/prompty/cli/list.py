"""`prompty check --list`: show the prompts in folders and packages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from prompty.cases.project_file import Project, find_project, override_in_project, uses_model
from prompty.cli.console import out, print_json
from prompty.cli.search import find_prompts
from prompty.errors import LoadError
from prompty.pipeline.load import read_agent
from prompty.pipeline.packages import locate_prompt
from prompty.pipeline.variants import find_base, variants
from prompty.registry import DEFAULT
from prompty.safety.visible import visible


def print_prompts(paths: Sequence[Path], roots: Sequence[Path], *, as_json: bool) -> None:
    """Print the prompts below `paths` with their variants, inputs and models. Required inputs are marked with *."""
    entries: list[dict[str, Any]] = []
    for folder in [Path(locate_prompt(str(path))) for path in paths]:
        for file in find_prompts([folder]):
            if find_base(file) is None:
                name = str(file.relative_to(folder)) if folder.is_dir() else file.name
                project = find_project(file)
                allowed = (*roots, *project.roots)
                entries += [_describe(file, name, variant, project, allowed) for variant in (None, *variants(file))]
    if as_json:
        print_json(entries)
    else:
        _print(entries)


def _describe(file: Path, name: str, variant: str | None, project: Project, roots: Sequence[Path]) -> dict[str, Any]:
    """Describe a prompt, or one of its variants."""
    entry: dict[str, Any] = {
        "name": name,
        "variant": variant,
        "inputs": {},
        "model": "",
        "description": "",
        "problem": "",
    }
    chosen = file if variant is None else file.with_name(f"{file.stem}.{variant}{file.suffix}")
    try:
        agent = read_agent(chosen, roots, DEFAULT)
    except LoadError as error:
        return {**entry, "problem": error.problems[0].message}
    if uses_model(agent, project):
        agent = override_in_project(agent, project)
    inputs = {declared.name: bool(declared.required) for declared in agent.inputs}
    model = f"{agent.model.provider}:{agent.model.id}" if agent.model.id else ""
    return {**entry, "inputs": inputs, "model": model, "description": agent.description or ""}


def _print(entries: list[dict[str, Any]]) -> None:
    rows = []
    for entry in entries:
        title = entry["name"] if entry["variant"] is None else f"  {entry['variant']}"
        inputs = ", ".join(f"{name}*" if required else name for name, required in entry["inputs"].items())
        rows.append((title, entry["model"] or "no model", entry["problem"] or inputs))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for title, model, inputs in rows:
        out.print(Text(visible(f"{title:<{widths[0]}}  {model:<{widths[1]}}  {inputs}".rstrip())), soft_wrap=True)
