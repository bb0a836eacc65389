from mcp.server import MCPServer

server = MCPServer("tasks")
tasks = ["Buy milk", "Call Ada"]


@server.tool()
def list_tasks() -> str:
    """Return all tasks."""
    return ", ".join(tasks)


@server.tool()
def add_task(task: str) -> str:
    """Add a task to the list."""
    tasks.append(task)
    return "Added."


if __name__ == "__main__":
    server.run("stdio")
