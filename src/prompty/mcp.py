"""MCP servers as tools: register servers, approve changed tools, close connections."""

from prompty.tools.mcp import (
    approve_mcp_changes,
    close_mcp_servers,
    close_mcp_servers_async,
    load_mcp_servers,
    register_mcp_server,
)

__all__ = [
    "approve_mcp_changes",
    "close_mcp_servers",
    "close_mcp_servers_async",
    "load_mcp_servers",
    "register_mcp_server",
]
