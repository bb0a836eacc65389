"""The MCP servers of a registry, and the approved definitions of their tools.

A file may name a registered server or an HTTP address. Only the host can register a command that starts a process.
"""

import asyncio
import atexit
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

from prompty.concurrency import in_event_loop
from prompty.errors import ToolError
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, Connection, ReferenceConnection
from prompty.model.tool import McpTool
from prompty.tools.mcp.connection import ServerAddress
from prompty.tools.mcp.sessions import CLOSE_SECONDS, ServerConnection
from prompty.tools.openapi.permissions import Permissions

EXIT_SECONDS = 2 * CLOSE_SECONDS
Pinned = dict[str, dict[str, str]]  # by tool: the approved hash, and the one seen last
_file_lock = threading.Lock()  # several servers may share a file


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
        draft = self.path.with_name(f"{self.path.name}.{uuid4().hex}")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps({**all_servers, self.server: pinned}, indent=1, sort_keys=True), encoding="utf-8")
        draft.replace(self.path)


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server by its name."""

    name: str
    address: ServerAddress
    pins: Pins


class Servers:
    """The servers that the host registered or a file gives, and the connections to them."""

    def __init__(self) -> None:
        self._registered: dict[str, KnownServer] = {}
        self._declared: dict[tuple[str, ServerAddress], KnownServer] = {}
        self._connections: dict[ServerAddress, ServerConnection] = {}
        self._lock = threading.Lock()

    def register(self, server: KnownServer) -> None:
        self._registered[server.name] = server

    def find(self, tool: McpTool, permissions: Permissions) -> KnownServer:
        """Return the server of a tool: a registered one, or the one in the file, whose address is checked."""
        connection = tool.connection
        name = (connection.name if isinstance(connection, ReferenceConnection) else None) or tool.server_name
        if connection is None or isinstance(connection, ReferenceConnection) or name in self._registered:
            name = name or tool.name
            if name not in self._registered:
                raise self._unknown(name, f"tool '{tool.name}'")
            return self._registered[name]
        server = KnownServer(
            name or tool.name, _declared_address(connection, tool, permissions), Pins(name or tool.name)
        )
        return self._declared.setdefault((server.name, server.address), server)

    def approve_changes(self, name: str) -> list[str]:
        """Approve a server's current tool definitions. Return the tools that had changed."""
        declared = [server for server in self._declared.values() if server.name == name]
        servers = [self._registered[name]] if name in self._registered else declared
        if not servers:
            raise self._unknown(name, "approve_mcp_changes")
        return [changed for server in servers for changed in server.pins.approve()]

    def connection(self, address: ServerAddress) -> ServerConnection:
        """Return the shared connection to an address. It opens on the first request."""
        with self._lock:
            if not self._connections:
                atexit.register(self._close_at_exit)
            return self._connections.setdefault(address, ServerConnection(address))

    @property
    def any_used(self) -> bool:
        return bool(self._connections)

    async def close(self) -> None:
        """Close all sessions and their processes. The next request opens a new session."""
        await asyncio.gather(*(connection.close() for connection in list(self._connections.values())))

    def _close_at_exit(self) -> None:
        with suppress(Exception):  # at exit, there is nowhere to report it
            in_event_loop(self.close()).result(timeout=EXIT_SECONDS)

    def _unknown(self, name: str, place: str) -> ToolError:
        known = ", ".join(sorted(self._registered)) or "none"
        return ToolError(
            f"no MCP server named '{name}' is registered ({place}); registered: {known}",
            f"Register it: register_mcp_server('{name}', command=[…]) or url='https://…'.",
            f"Add --mcp FILE.json with an entry for the server '{name}'.",
        )


def _declared_address(connection: Connection, tool: McpTool, permissions: Permissions) -> ServerAddress:
    if not isinstance(connection, ApiKeyConnection | AnonymousConnection) or not connection.endpoint:
        raise ToolError(
            f"the connection of the tool '{tool.name}' has no `endpoint` of an MCP server",
            "Add `endpoint`, and `apiKey` if needed, or register the server and name it in `serverName`.",
        )
    key = connection.api_key if isinstance(connection, ApiKeyConnection) else None
    headers = (("Authorization", f"Bearer {key.get_secret_value()}"),) if key else ()
    url = check_url(connection.endpoint, f"the tool '{tool.name}'")
    return ServerAddress(url=url, headers=headers, permissions=permissions)


def check_url(url: str, owner: str) -> str:
    """Return an HTTP URL, or raise `ToolError`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolError(f"the URL '{parts.scheme}:…' of {owner} is not an HTTP URL", "Write it as https://….")
    return url
