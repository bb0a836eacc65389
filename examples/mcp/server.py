"""An MCP server that keeps a list of tasks, on standard input and output."""

from mcp.server import MCPServer

server = MCPServer("tasks")
tasks = ["Buy milk"]


@server.tool()
def list_tasks() -> list[str]:
    """Return the open tasks."""
    return tasks


@server.tool()
def add_task(title: str) -> str:
    """Add a task to the list."""
    tasks.append(title)
    return f"added {title}"


@server.tool()
def delete_task(title: str) -> str:
    """Delete a task."""
    tasks.remove(title)
    return f"deleted {title}"


if __name__ == "__main__":
    server.run()
