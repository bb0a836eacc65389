"""Tools that Anthropic runs, as entries of a Messages request.

The versions are the newest that run no code of their own, so that they stay eligible for zero data retention.
"""

from prompty.model.connection import AnonymousConnection, ApiKeyConnection
from prompty.model.message import Json
from prompty.model.request import WrittenTool
from prompty.model.tool import CodeInterpreterTool, McpTool, RawTool, ToolDefinition, WebFetchTool, WebSearchTool
from prompty.providers.hosted_mcp import find_connection_problems, read_approval
from prompty.providers.provider_tools import merge_options, write_raw

BETA = "mcp-client-2025-11-20"  # has MCP servers
_NO_FILES = (
    "Anthropic's container gets no files from the tool",
    "Remove `fileIds`, and send the files with a user message.",
)
_NO_APPROVAL = (
    "Anthropic calls an MCP server without asking",
    "Write `execution: host`, so that prompty asks, or remove `approvalMode`.",
)
_NO_HEADERS = ("Anthropic sends a server no headers but its token", "Write `apiKey`, or `execution: host`.")


def write_anthropic_tool(tool: ToolDefinition) -> WrittenTool | None:
    """Return a tool as an entry of `tools`, or None for one that the API lacks."""
    match tool:
        case WebSearchTool():
            location = tool.location.model_dump(exclude_none=True) if tool.location else None
            place = {"type": "approximate", **location} if location is not None else None
            entry = {"type": "web_search_20250305", "name": "web_search"}
            return merge_options(tool, entry, {**_write_limits(tool), "user_location": place}, "web_search_")
        case WebFetchTool():
            entry = {"type": "web_fetch_20250910", "name": "web_fetch"}
            return merge_options(tool, entry, _write_limits(tool), "web_fetch_")
        case CodeInterpreterTool():
            entry = {"type": "code_execution_20250825", "name": "code_execution"}
            written = merge_options(tool, entry, {}, "code_execution_")
            refused = {"fileIds": _NO_FILES} if tool.file_ids else {}
            return written._replace(refused={**written.refused, **refused})
        case McpTool():
            return _write_mcp(tool)
        case RawTool():
            return write_raw(tool)
    return None


def _write_limits(tool: WebSearchTool | WebFetchTool) -> dict[str, object]:
    return {
        "allowed_domains": list(tool.allowed_domains) if tool.allowed_domains else None,
        "blocked_domains": list(tool.blocked_domains) if tool.blocked_domains else None,
        "max_uses": tool.max_uses,
    }


def _write_mcp(tool: McpTool) -> WrittenTool:
    connection, refused = tool.connection, dict(find_connection_problems(tool))
    if refused or not isinstance(connection, ApiKeyConnection | AnonymousConnection):
        return WrittenTool({}, refused=refused)
    if read_approval(tool.approval_mode) != "never":
        refused["approvalMode"] = _NO_APPROVAL
    if getattr(connection, "headers", None):
        refused["connection"] = _NO_HEADERS
    name = tool.server_name or tool.name
    key = connection.api_key if isinstance(connection, ApiKeyConnection) else None
    server: Json = {"type": "url", "name": name, "url": connection.endpoint}
    if key:
        server["authorization_token"] = key.get_secret_value()
    entry: Json = {"type": "mcp_toolset", "mcp_server_name": name}
    if tool.allowed_tools is not None:
        entry["default_config"] = {"enabled": False}
        entry["configs"] = {allowed: {"enabled": True} for allowed in tool.allowed_tools}
    return WrittenTool(entry, server, refused)
