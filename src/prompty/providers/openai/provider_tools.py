"""Tools that OpenAI runs, as entries of a Responses request."""

from typing import Any

from prompty.model.connection import AnonymousConnection, ApiKeyConnection
from prompty.model.request import WrittenTool
from prompty.model.tool import (
    CodeInterpreterTool,
    FileSearchTool,
    McpTool,
    RawTool,
    ToolDefinition,
    WebSearchTool,
)
from prompty.providers.hosted_mcp import find_connection_problems, read_approval
from prompty.providers.provider_tools import merge_options, write_raw

_NO_BLOCKED = ("OpenAI cannot block domains", "Write `allowedDomains`, or use `provider: anthropic`.")
_NO_LIMIT = (
    "OpenAI has no limit for one tool",
    "Write `additionalProperties: {max_tool_calls: …}` under `model.options`, which counts all tools of OpenAI.",
)


def write_openai_tool(tool: ToolDefinition) -> WrittenTool | None:
    """Return a tool as an entry of `tools`, or None for one that the API lacks."""
    match tool:
        case WebSearchTool():
            return _write_search(tool)
        case FileSearchTool():
            fields = {"vector_store_ids": list(tool.vector_store_ids), "max_num_results": tool.maximum_result_count}
            return merge_options(tool, {"type": "file_search"}, fields, "file_search")
        case CodeInterpreterTool():
            container = {"type": "auto", "file_ids": list(tool.file_ids)} if tool.file_ids else None
            entry: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}
            return merge_options(tool, entry, {"container": container}, "code_interpreter")
        case McpTool():
            return _write_mcp(tool)
        case RawTool():
            return write_raw(tool)
    return None


def _write_search(tool: WebSearchTool) -> WrittenTool:
    location = tool.location.model_dump(exclude_none=True) if tool.location else None
    fields = {
        "filters": {"allowed_domains": list(tool.allowed_domains)} if tool.allowed_domains else None,
        "user_location": {"type": "approximate", **location} if location is not None else None,
    }
    written = merge_options(tool, {"type": "web_search"}, fields, "web_search")
    blocked = {"blockedDomains": _NO_BLOCKED} if tool.blocked_domains else {}
    limited = {"maxUses": _NO_LIMIT} if tool.max_uses is not None else {}
    return written._replace(refused={**written.refused, **blocked, **limited})


def _write_mcp(tool: McpTool) -> WrittenTool:
    connection, refused = tool.connection, find_connection_problems(tool)
    if refused or not isinstance(connection, ApiKeyConnection | AnonymousConnection):
        return WrittenTool({}, refused=refused)
    approval = read_approval(tool.approval_mode)
    if approval is None:
        fix = "Write always, never, or `kind: specify` with names of tools."
        refused = {"approvalMode": ("OpenAI cannot apply a condition", fix)}
    key = connection.api_key if isinstance(connection, ApiKeyConnection) else None
    fields = {
        "type": "mcp",
        "server_label": tool.server_name or tool.name,
        "server_url": connection.endpoint,
        "server_description": tool.server_description,
        "authorization": key.get_secret_value() if key else None,
        "headers": getattr(connection, "headers", None),
        "allowed_tools": None if tool.allowed_tools is None else list(tool.allowed_tools),
        "require_approval": approval,
    }
    return WrittenTool({name: value for name, value in fields.items() if value is not None}, refused=refused)
