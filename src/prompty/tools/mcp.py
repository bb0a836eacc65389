"""Tools of MCP servers (§2.9): the kind `mcp`. Every turn asks the server what it offers, so that a changed list is
seen at once. What the host calls is here too: registering, loading, approving and closing servers."""

import asyncio
from collections.abc import Sequence
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING

from prompty.errors import PromptyError, ToolError
from prompty.model.agent import PromptAgent
from prompty.model.message import ContentPart, Json
from prompty.model.tool import McpTool, ToolDefinition
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible
from prompty.tools.context import ToolContext
from prompty.tools.kinds import KindTool
from prompty.tools.mcp_approval import policy_for
from prompty.tools.mcp_connection import CONNECT_SECONDS
from prompty.tools.mcp_content import McpError, fingerprint, functions_of, parts_of
from prompty.tools.mcp_servers import Known, approve_mcp_changes, load_mcp_servers, register_mcp_server, server_for
from prompty.tools.mcp_sessions import Server, close_mcp_servers, close_mcp_servers_async, on_its_loop, server_at

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, Tool

__all__ = [
    "KIND",
    "approve_mcp_changes",
    "close_mcp_servers",
    "close_mcp_servers_async",
    "load_mcp_servers",
    "register_mcp_server",
]

MOST_PAGES = 100
_LOGGER = getLogger("prompty.tools")


class McpKind:
    """The kind `mcp`."""

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        if not isinstance(tool, McpTool):
            raise ToolError(f"the tool '{tool.name}' is not of an MCP server", "Write `kind: mcp`.")
        known = server_for(tool)
        server = server_at(known.address)
        offered = _allowed(await _offered(server, known, tool), tool)
        changed = known.pins.changed({one.name: fingerprint(one) for one in offered})
        return [
            KindTool(
                function=function,
                call=partial(_call, server, one.name),
                approval="always" if one.name in changed else policy_for(tool.approval_mode, one.name),
            )
            for one, function in functions_of(offered, known.name)
        ]


KIND = McpKind()


async def _offered(server: Server, known: Known, tool: McpTool) -> "list[Tool]":
    try:
        return await on_its_loop(server.ask_again(_all_tools))
    except PromptyError:
        raise
    except Exception as error:  # the server's own mistakes too: nobody else puts them into words
        raise ToolError(
            f"the MCP server '{known.name}' of the tool '{tool.name}' cannot be used: {error}",
            "Check its command or address, its headers, and that it runs.",
        ) from error


async def _all_tools(client: "Client") -> "list[Tool]":
    tools: list[Tool] = []
    cursor: str | None = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            for _ in range(MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    return list({tool.name: tool for tool in tools}.values())  # a name stands for one tool
    except TimeoutError as error:
        raise McpError(f"it did not list its tools within {CONNECT_SECONDS:g} s") from error
    raise McpError(f"its list of tools has more than {MOST_PAGES} pages")


def _allowed(tools: "list[Tool]", tool: McpTool) -> "list[Tool]":
    """The tools that the file allows; a list that is empty allows none."""
    if tool.allowed_tools is None:
        return tools
    for missing in set(tool.allowed_tools) - {one.name for one in tools}:
        _LOGGER.warning("the tool '%s' allows '%s', which its MCP server does not offer", tool.name, missing)
    return [one for one in tools if one.name in tool.allowed_tools]


async def _call(server: Server, name: str, arguments: Json, context: ToolContext) -> list[ContentPart]:
    work = partial(_called, name, arguments, _progress(context))
    return parts_of(await on_its_loop(server.ask(work, context.logger)))


async def _called(name: str, arguments: Json, progress: "ProgressFnT", client: "Client") -> "CallToolResult":
    return await client.call_tool(name, arguments, progress_callback=progress)


def _progress(context: ToolContext) -> "ProgressFnT":
    async def tell(progress: float, total: float | None, message: str | None) -> None:
        of = "" if total is None else f" of {total:g}"
        context.logger.info("%s: %g%s %s", context.name, progress, of, mask_secrets(visible(message or "")))
        context.progress(progress, total, visible(message or ""))

    return tell
