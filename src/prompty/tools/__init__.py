"""Tools: register functions and tool kinds."""

from prompty.model.request import Function
from prompty.tools.kinds import KindTool, ToolKind, register_tool_kind
from prompty.tools.toolbox import register_tool

__all__ = ["Function", "KindTool", "ToolKind", "register_tool", "register_tool_kind"]
