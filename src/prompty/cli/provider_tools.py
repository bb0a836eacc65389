"""`--provider-tools` and `--no-provider-tools`: allow or refuse the tools that a prompt's provider runs.

Such tools cost money and send text to third parties, and a prompt may come from anyone. A prompt outside the working
folder needs a word of the user.
"""

import sys
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Option

from prompty.cli.console import err, fail
from prompty.model.agent import PromptAgent
from prompty.providers.provider_tools import list_provider_tools
from prompty.safety.visible import visible

ProviderTools = Annotated[
    bool | None,
    Option(
        "--provider-tools/--no-provider-tools",
        show_default=False,
        help="Allow or refuse tools that the provider runs, such as a web search. For a file outside the "
        "working folder, you are asked.",
    ),
]


def decide_provider_tools(agent: PromptAgent, file: Path, wanted: bool | None) -> bool:
    """Return False if the provider's tools are refused. Ask for a prompt from elsewhere, once."""
    if wanted is not None:
        return wanted
    if str(file) != "-" and file.resolve().is_relative_to(Path.cwd().resolve()):
        return True
    names = list_provider_tools(agent)
    if not names:
        return False  # prompts that it runs as tools may have some
    listed = visible(", ".join(dict.fromkeys(names)))
    if not sys.stdin.isatty():
        fail(
            f"'{file}' is outside the working folder, and has tools that the provider runs: {listed}\n"
            "    Add --provider-tools if you trust it."
        )
    question = f"'{visible(str(file))}' has tools that the provider runs: {listed}. They cost, and send text elsewhere."
    err.print(Text(f"{question} Allow them? [y/N] ", "yellow"), end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
