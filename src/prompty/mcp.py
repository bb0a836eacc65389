"""MCP servers as tools: register servers, approve changed tools."""

from prompty.tools.mcp import (
    approve_mcp_changes as approve_mcp_changes,
    load_mcp_servers as load_mcp_servers,
    register_mcp_server as register_mcp_server,
)
