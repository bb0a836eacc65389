"""Ask an agent that has the tools of an MCP server: python main.py [QUESTION]."""

import os
import sys

import prompty
from prompty import turn
from prompty.events import Event, ToolFinished
from prompty.mcp import register_mcp_server


def show(event: Event) -> None:
    """Print each tool call with its result."""
    if isinstance(event, ToolFinished):
        print(f"  {event.call.name}({event.call.arguments}) -> {event.result.text}")


def main(question: str) -> None:
    """Start the server with the first turn, and stop it at the end."""
    register_mcp_server("tasks", command=[sys.executable, "server.py"])
    try:
        print(turn("tasks.prompty", {"question": question}, on_event=show, model=os.environ.get("MODEL")))
    finally:
        prompty.close()


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "What is on my list? And I have to call Ada.")
