"""MCP servers that the provider calls: what a file must say about one, and its approval policy."""

from collections.abc import Mapping

from prompty.model.connection import AnonymousConnection, ApiKeyConnection
from prompty.model.message import Json
from prompty.model.tool import McpTool

_ALWAYS, _NEVER = "alwaysRequireApprovalTools", "neverRequireApprovalTools"


def find_connection_problems(tool: McpTool) -> Mapping[str, tuple[str, str]]:
    """Return the reason why a provider cannot reach the server of a tool, by the key of the file."""
    connection = tool.connection
    if isinstance(connection, ApiKeyConnection | AnonymousConnection) and connection.endpoint:
        return {}
    fix = "Write `connection: {endpoint: https://…}`, and `apiKey` if it needs one."
    return {"connection": ("the provider needs the address of the MCP server", fix)}


def read_approval(mode: object) -> str | Json | None:
    """Return a file's `approvalMode` as Responses takes it, or None for a condition, which only prompty can apply.

    As for a server that prompty calls, a file without the key never asks, and an unknown mode always does.
    """
    match mode:
        case None | "never" | {"kind": "never"}:
            return "never"
        case {"when": _}:
            return None
        case {"kind": "specify", **lists} if lists.keys() <= {_ALWAYS, _NEVER}:
            always, never = lists.get(_ALWAYS) or [], lists.get(_NEVER) or []
            if isinstance(always, list | tuple) and isinstance(never, list | tuple):
                return _write_names([*always], [name for name in never if name not in always])
    return "always"


def _write_names(always: list[object], never: list[object]) -> str | Json:
    if not never:
        return "always"
    asks: Json = {"always": {"tool_names": always}} if always else {}
    return {**asks, "never": {"tool_names": never}}
