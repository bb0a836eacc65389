import prompty
from prompty.mcp import close_mcp_servers, register_mcp_server

register_mcp_server("tasks", command=["python", "tasks.py"])
print(prompty.turn("tasks.prompty"))
close_mcp_servers()
