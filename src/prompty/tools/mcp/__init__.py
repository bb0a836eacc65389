"""Tools of MCP servers: the tool kind `mcp`, and the functions that register servers.

A file may name a registered server or an HTTP address. Only the host can register a command that starts a process.
`sessions` talks to the server, `content` limits and converts what it sends. Every turn lists the server's tools again,
so that a changed list is noticed at once.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prompty.errors import PromptyError, ToolError, check_path
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, Connection, ReferenceConnection
from prompty.model.content import ContentPart
from prompty.model.message import Json
from prompty.model.tool import McpTool, ToolDefinition
from prompty.registry import DEFAULT, Registry
from prompty.safety.redaction import mask_secrets
from prompty.safety.visible import visible
from prompty.safety.write_files import replace_file
from prompty.tools.function import ToolContext, ToolOptions
from prompty.tools.kinds import TOOL_KINDS, KindTool, check_tool_address
from prompty.tools.mcp.content import McpError, describe_tools, fingerprint, to_parts
from prompty.tools.mcp.sessions import ServerAddress, Sessions, run_on_loop

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, Tool

Pinned = dict[str, dict[str, str]]  # by tool: the approved hash, and the one seen last
_file_lock = threading.Lock()  # several servers may share a file
MAX_PAGES = 100
MAX_LISTED_TOOLS = 10_000
MAX_OFFERED_TOOLS = 500
_ALWAYS, _NEVER = "alwaysRequireApprovalTools", "neverRequireApprovalTools"
_LOGGER = getLogger("prompty.tools")


class Pins:
    """Hashes of a server's approved tool definitions, in this process or in a file of the host.

    A server can change a tool's definition after users have come to trust it. So the first definition of each tool is
    approved, and calls with any other need approval until the host accepts it.
    """

    def __init__(self, server: str, path: Path | None = None) -> None:
        self.server = server
        self.path = path
        self._in_memory: Pinned = {}

    def find_changed(self, hashes: Mapping[str, str]) -> set[str]:
        """Return the tools whose definition differs from the approved one. New tools are approved."""
        with _file_lock:
            all_servers, pinned = self._read()
            before = json.dumps(pinned, sort_keys=True)
            for name, seen in hashes.items():
                pinned[name] = {"approved": pinned.get(name, {}).get("approved", seen), "seen": seen}
            if json.dumps(pinned, sort_keys=True) != before:
                self._write(all_servers, pinned)
        return {name for name, seen in hashes.items() if pinned[name]["approved"] != seen}

    def approve(self) -> list[str]:
        """Approve all current definitions. Return the tools that had changed."""
        with _file_lock:
            all_servers, pinned = self._read()
            changed = [name for name, pin in pinned.items() if pin["approved"] != pin["seen"]]
            pinned.update({name: {"approved": pin["seen"], "seen": pin["seen"]} for name, pin in pinned.items()})
            if changed:
                self._write(all_servers, pinned)
        return changed

    def _read(self) -> tuple[dict[str, Pinned], Pinned]:
        if self.path is None or not self.path.exists():
            return ({}, self._in_memory) if self.path is None else ({}, {})
        try:
            all_servers = json.loads(self.path.read_text(encoding="utf-8"))
            pinned = {name: dict(pin) for name, pin in all_servers.get(self.server, {}).items()}
            if any(pin.keys() != {"approved", "seen"} for pin in pinned.values()):
                raise ValueError("an entry lacks `approved` or `seen`")
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ToolError(
                f"cannot read the pinned MCP tools in '{self.path}': {error}",
                "Restore the file, or remove it to approve all tools as they are now.",
            ) from error
        return all_servers, pinned

    def _write(self, all_servers: dict[str, Pinned], pinned: Pinned) -> None:
        if self.path is None:
            return
        text = json.dumps({**all_servers, self.server: pinned}, indent=1, sort_keys=True)
        replace_file(self.path, text.encode(), mode=0o600)


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server by its name."""

    name: str
    address: ServerAddress
    pins: Pins


class Servers:
    """The servers that the host registered or a file gives."""

    def __init__(self) -> None:
        self._registered: dict[str, KnownServer] = {}
        self._pins: dict[tuple[str, str], Pins] = {}  # of servers in files, by name and URL

    def register(self, server: KnownServer) -> None:
        self._registered[server.name] = server

    def is_registered(self, tool: McpTool) -> bool:
        """Return True if the host has registered the server of a tool, so that the file's connection is not used."""
        return not isinstance(tool.connection, ReferenceConnection) and tool.server_name in self._registered

    def find(self, tool: McpTool) -> KnownServer:
        """Return the server of a tool: a registered one, or the one in the file, whose address is checked."""
        connection = tool.connection
        name = (connection.name if isinstance(connection, ReferenceConnection) else None) or tool.server_name
        if connection is None or isinstance(connection, ReferenceConnection) or name in self._registered:
            name = name or tool.name
            if name not in self._registered:
                raise self._unknown(name, f"tool '{tool.name}'")
            return self._registered[name]
        name = name or tool.name
        address = _declared_address(connection, tool)
        # All keys of a server have its pins, and no pin is dropped: a changed tool would count as new for the next key.
        # A query may hold a key.
        pins = self._pins.setdefault((name, (address.url or "").partition("?")[0]), Pins(name))
        return KnownServer(name, address, pins)

    def approve_changes(self, name: str) -> list[str]:
        """Approve a server's current tool definitions. Return the tools that had changed."""
        declared = [pins for (owner, _), pins in tuple(self._pins.items()) if owner == name]
        known = [self._registered[name].pins] if name in self._registered else declared
        if not known:
            raise self._unknown(name, "approve_mcp_changes")
        return [changed for pins in known for changed in pins.approve()]

    def _unknown(self, name: str, place: str) -> ToolError:
        known = ", ".join(sorted(self._registered)) or "none"
        return ToolError(
            f"no MCP server named '{name}' is registered ({place}); registered: {known}",
            f"Register it: register_mcp_server('{name}', command=[…]) or url='https://…'.",
            f"Add --mcp FILE.json with an entry for the server '{name}'.",
        )


def _declared_address(connection: Connection, tool: McpTool) -> ServerAddress:
    if not isinstance(connection, ApiKeyConnection | AnonymousConnection) or not connection.endpoint:
        raise ToolError(
            f"the connection of the tool '{tool.name}' has no `endpoint` of an MCP server",
            "Add `endpoint`, and `apiKey` if needed, or register the server and name it in `serverName`.",
        )
    if connection.headers:
        raise ToolError(
            f"the connection of the tool '{tool.name}' has `headers`, which only requests to a model have",
            "Register the server with register_mcp_server(…, headers=…), and name it in `serverName`.",
        )
    key = connection.api_key if isinstance(connection, ApiKeyConnection) else None
    headers = (("Authorization", f"Bearer {key.get_secret_value()}"),) if key else ()
    url = check_url(connection.endpoint, f"the tool '{tool.name}'")
    return ServerAddress(url=url, headers=headers, is_declared=True)


def check_url(url: str, owner: str) -> str:
    """Return an HTTP URL, or raise `ToolError`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolError(f"the URL '{parts.scheme}:…' of {owner} is not an HTTP URL", "Write it as https://….")
    return url


def register_mcp_server(
    name: str,
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    pins: str | Path | None = None,
    registry: Registry = DEFAULT,
) -> None:
    """Register a server that files can name: a command to start, or a URL.

    `timeout` is in seconds: for the start, which otherwise takes at most 30, and for each call. A turn may end the wait
    earlier with its own `timeout`. `pins` is a file that keeps the approved tool definitions between processes.
    """
    if isinstance(command, str) or bool(command) == bool(url):
        raise ToolError(
            f"the MCP server '{name}' needs either a command as a list of words, or a URL",
            f"Call register_mcp_server('{name}', command=['npx', '-y', 'package']), or pass url='https://…'.",
        )
    seconds: object = 1 if timeout is None else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ToolError(
            f"the timeout of the MCP server '{name}' is {timeout!r}", "Pass a positive number of seconds: timeout=10."
        )
    address = ServerAddress(
        command=tuple(command or ()),
        environment=tuple(sorted((env or {}).items())),
        folder=None if cwd is None else str(cwd),
        url=None if url is None else check_url(url, f"the MCP server '{name}'"),
        headers=tuple(sorted((headers or {}).items())),
        timeout=timeout,
    )
    _servers(registry).register(KnownServer(name, address, Pins(name, None if pins is None else Path(pins))))


def load_mcp_servers(path: str | Path, *, registry: Registry = DEFAULT) -> list[str]:
    """Register the servers in a JSON file in the common form, `{"mcpServers": {name: {command, args, env}}}`."""
    check_path(path, "load_mcp_servers()", "the path of a JSON file")
    try:
        servers = json.loads(Path(path).read_text(encoding="utf-8"))["mcpServers"]
        options = {name: _read_entry(entry) for name, entry in servers.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(
            f"{path}: cannot read MCP servers: {type(error).__name__} {error}",
            'Write {"mcpServers": {"name": {"command": "npx", "args": ["-y", "package"]}}}.',
        ) from error
    for name, entry in options.items():
        register_mcp_server(name, **entry, registry=registry)
    return list(options)


def _read_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    kind = entry.get("type", "http" if "url" in entry else "stdio")
    if kind not in ("stdio", "http", "streamable-http", "streamableHttp"):
        raise ValueError(f"the type '{kind}' is not supported")
    if "url" in entry:
        return {"url": entry["url"], "headers": entry.get("headers")}
    return {"command": [entry["command"], *entry.get("args", [])], "env": entry.get("env"), "cwd": entry.get("cwd")}


def approve_mcp_changes(name: str, *, registry: Registry = DEFAULT) -> list[str]:
    """Approve a server's current tool definitions. Return the tools that had changed."""
    return _servers(registry).approve_changes(name)


def _servers(registry: Registry) -> Servers:
    kind = registry[TOOL_KINDS].get("mcp")
    if not isinstance(kind, McpKind):
        raise ToolError("the tool kind 'mcp' has been replaced", "Register servers with the handler that replaces it.")
    return kind.servers


class McpKind:
    """The tool kind `mcp`, with the servers of one registry."""

    def __init__(self) -> None:
        self.servers: Servers = Servers()

    async def describe(self, tool: ToolDefinition, agent: PromptAgent, /) -> Sequence[KindTool]:
        """Return the functions of a server's allowed tools. A tool whose definition has changed needs approval."""
        if not isinstance(tool, McpTool):
            raise ToolError(f"the tool '{tool.name}' does not name an MCP server", "Write `kind: mcp`.")
        server = self.servers.find(tool)
        address = server.address
        needs_public = check_tool_address(agent, tool, address.url if address.is_declared else None)
        address = replace(address, needs_public=needs_public)
        http = agent.registry.connections.find_client("mcp", is_async=True) if address.url else None
        sessions = Sessions(agent.registry.clients, replace(address, http=http))
        offered = _select_allowed(await _list_tools(sessions, server, tool), tool)
        changed = server.pins.find_changed({entry.name: fingerprint(entry) for entry in offered})
        return [
            KindTool(
                function=function,
                call=partial(_call, sessions, entry.name),
                options=ToolOptions(timeout=server.address.timeout),
                is_remote=True,
                approval="always" if entry.name in changed else approval_policy(tool.approval_mode, entry.name),
            )
            for entry, function in describe_tools(offered, server.name)
        ]


def approval_policy(mode: object, name: str) -> object:
    """Return the policy (see `loop.policy`) that `approvalMode` sets for one tool of a server. It is always for an
    unknown mode, and for a tool in neither list of `specify`."""
    match mode:
        case None | "never" | "always":
            return mode
        case {"when": dict(), **others} if not others:
            return mode
        case {"kind": "never" | "always" as kind, **others} if not others:
            return kind
        case {"kind": "specify", **lists} if lists.keys() <= {_ALWAYS, _NEVER}:
            always, never = lists.get(_ALWAYS) or (), lists.get(_NEVER) or ()
            if isinstance(always, list | tuple) and isinstance(never, list | tuple):
                return "never" if name in never and name not in always else "always"
    return "always"


async def _list_tools(sessions: Sessions, server: KnownServer, tool: McpTool) -> "list[Tool]":
    try:
        tools = await run_on_loop(sessions.run_idempotent(partial(_list_all_pages, server.address.start_seconds)))
        if twice := next((name for name, count in Counter(one.name for one in tools).items() if count > 1), None):
            raise McpError(f"it lists the tool '{visible(twice)}' twice")  # unclear which of them was approved
        return tools
    except PromptyError:
        raise
    except Exception as error:  # the SDK and the server raise many kinds
        raise ToolError(
            f"cannot use the MCP server '{server.name}' (tool '{tool.name}'): {error}",
            "Check its command or URL, its headers, and that it is running.",
        ) from error


async def _list_all_pages(seconds: float, client: "Client") -> "list[Tool]":
    tools: list[Tool] = []
    cursor: str | None = None
    try:
        async with asyncio.timeout(seconds):
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += page.tools
                cursor = page.next_cursor
                if len(tools) > MAX_LISTED_TOOLS:
                    raise McpError(f"it lists more than {MAX_LISTED_TOOLS:,} tools")
                if cursor is None:
                    return tools
    except TimeoutError as error:
        raise McpError(f"it did not list its tools within {seconds:g} s") from error
    raise McpError(f"its list of tools has more than {MAX_PAGES} pages")


def _select_allowed(tools: "list[Tool]", tool: McpTool) -> "list[Tool]":
    """Return the tools that the file allows. With an empty `allowedTools` that is none."""
    if tool.allowed_tools is not None:
        for missing in set(tool.allowed_tools) - {entry.name for entry in tools}:
            _LOGGER.warning("the tool '%s' allows '%s', which its MCP server does not offer", tool.name, missing)
        tools = [entry for entry in tools if entry.name in tool.allowed_tools]
    if len(tools) > MAX_OFFERED_TOOLS:
        raise ToolError(
            f"the MCP server of '{tool.name}' offers {len(tools):,} tools, more than {MAX_OFFERED_TOOLS:,}",
            "Select the tools that the model needs with `allowedTools`.",
        )
    return tools


async def _call(sessions: Sessions, name: str, arguments: Json, context: ToolContext) -> list[ContentPart]:
    loop = asyncio.get_running_loop()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        with suppress(RuntimeError):  # the caller's loop has ended
            loop.call_soon_threadsafe(tell, progress, total, visible(message or ""))

    def tell(progress: float, total: float | None, text: str) -> None:
        of_total = "" if total is None else f" of {total:g}"
        context.logger.info("%s: %g%s %s", context.name, progress, of_total, mask_secrets(text))
        context.progress(progress, total, text)

    async def work(client: "Client") -> "CallToolResult":
        return await client.call_tool(name, arguments, progress_callback=report)

    return to_parts(await run_on_loop(sessions.run(work, context.logger)))
