"""`--tools` and `--mcp`: load functions from a Python file or module, and MCP servers from a JSON file."""

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Annotated

from rich.text import Text
from typer import Option

from prompty.cli.console import err
from prompty.errors import ToolError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.tool import CustomTool, FunctionTool
from prompty.safety.visible import visible
from prompty.tools.function import load_functions, make_handler
from prompty.tools.toolbox import TOOLS

ToolFiles = Annotated[
    list[str] | None,
    Option("--tools", "-t", metavar="FILE", help="Offer the functions marked @tool in a Python file or module."),
]
AllTools = Annotated[
    bool, Option("--all-tools", help="Offer all functions in --tools, even if the file does not declare them.")
]
McpFile = Annotated[
    list[Path] | None,
    Option("--mcp", metavar="FILE", help='Start the MCP servers in a JSON file: {"mcpServers": {…}}.'),
]


def load_mcp(files: list[Path] | None) -> None:
    """Register the MCP servers in these files."""
    if files:
        require("mcp", extra="mcp")
        from prompty.mcp import load_mcp_servers  # needs the extra

        for file in files:
            load_mcp_servers(file)


def select_functions(agent: PromptAgent, sources: Sequence[str] | None, *, all_tools: bool) -> list[object]:
    """Return the functions in `sources` to offer: those that `agent` declares, or all.

    Raise ToolError if the file declares a function that is missing.
    """
    functions = {make_handler(function).name: function for function in load_functions(sources or ())}
    declared = {tool.name for tool in agent.tools if isinstance(tool, FunctionTool | CustomTool)}
    extra = functions.keys() - {tool.name for tool in agent.tools}
    _require_all(agent, functions.keys() | set(agent.registry[TOOLS].names()), list(sources or ()))
    if all_tools or not extra:
        return list(functions.values())
    if not declared & functions.keys():
        raise ToolError(
            f"the file declares none of the functions in {', '.join(sources or ())}: {', '.join(sorted(extra))}",
            "Declare them under `tools:` in the file, or add --all-tools.",
        )
    listed = ", ".join(sorted(extra))
    err.print(Text(visible(f"not offered, because the file does not declare it: {listed} (see --all-tools)"), "dim"))
    return [function for name, function in functions.items() if name not in extra]


def _require_all(agent: PromptAgent, known: Set[str], sources: list[str]) -> None:
    missing = [tool.name for tool in agent.tools if isinstance(tool, FunctionTool) and tool.name not in known]
    if not missing:
        return
    names = ", ".join(f"'{name}'" for name in missing)
    if sources:
        raise ToolError(
            f"the file declares the tool {names}, but {', '.join(sources)} has no such function",
            "Add a function with that name and mark it with @tool.",
        )
    raise ToolError(
        f"the file declares the tool {names}, which needs a function",
        f"Add --tools FILE.py with a function named {missing[0]}.",
    )
