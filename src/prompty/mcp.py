"""MCP servers as tools: register servers, approve changed tools, close connections."""

from prompty.tools.mcp import (
    approve_mcp_changes as approve_mcp_changes,
    close_mcp_servers as close_mcp_servers,
    close_mcp_servers_async as close_mcp_servers_async,
    load_mcp_servers as load_mcp_servers,
    register_mcp_server as register_mcp_server,
)
