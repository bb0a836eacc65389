"""Which MCP servers there are: those that the host registered, by name, and those whose address is in a file.

What starts a process comes from the host only. A file may name a registered server, or an HTTP address.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prompty.errors import ToolError
from prompty.model.connection import AnonymousConnection, ApiKeyConnection, Connection, ReferenceConnection
from prompty.model.tool import McpTool
from prompty.safety.redaction import is_credential_name, remember_secrets
from prompty.tools.mcp_approval import Pins

Pairs = tuple[tuple[str, str], ...]

# What a process needs to run at all; keys and tokens of the host are not among it.
_INHERITED = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TEMP", "TMP", "TZ", "USER", "LOGNAME"}
    | {"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA"}
    | {"USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "PROGRAMFILES", "PROCESSOR_ARCHITECTURE"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """How a server is reached: a command, or a URL. Who has the same address shares a session."""

    command: tuple[str, ...] = ()
    environment: Pairs = field(default=(), repr=False)
    folder: str | None = None
    url: str | None = None
    headers: Pairs = field(default=(), repr=False)

    def process_environment(self) -> dict[str, str]:
        """The environment of the process: an allow-list of ours, and what the host gives."""
        ours = {name: value for name, value in os.environ.items() if _is_inherited(name)}
        return {**ours, **dict(self.environment)}


@dataclass(frozen=True, slots=True)
class Known:
    """A server by its name."""

    name: str
    address: Address
    pins: Pins


_registered: dict[str, Known] = {}
_declared: dict[tuple[str, Address], Known] = {}


def register_mcp_server(
    name: str,
    *,
    command: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    url: str | None = None,
    headers: Mapping[str, str] | None = None,
    pins: str | Path | None = None,
) -> None:
    """Make a server known to files, by a name: a command to start, or the URL of a running one.

    `pins` is a file that remembers the definitions of its tools between processes.
    """
    if isinstance(command, str) or bool(command) == bool(url):
        raise ToolError(
            f"the MCP server '{name}' needs either a command as a list of words, or a URL",
            f"register_mcp_server('{name}', command=['npx', '-y', 'package']), or url='https://…'.",
        )
    given = {**(env or {}), **(headers or {})}
    remember_secrets(word for key, value in given.items() if is_credential_name(key) for word in value.split())
    address = Address(
        command=tuple(command or ()),
        environment=tuple(sorted((env or {}).items())),
        folder=None if cwd is None else str(cwd),
        url=None if url is None else _http_url(url, f"the MCP server '{name}'"),
        headers=tuple(sorted((headers or {}).items())),
    )
    _registered[name] = Known(name, address, Pins(name, None if pins is None else Path(pins)))


def load_mcp_servers(path: str | Path) -> list[str]:
    """Register the servers of a JSON file in the common form, `{"mcpServers": {name: {command, args, env}}}`."""
    try:
        servers = json.loads(Path(path).read_text(encoding="utf-8"))["mcpServers"]
        given = {name: _arguments(entry) for name, entry in servers.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ToolError(
            f"{path}: no MCP servers can be read from it: {type(error).__name__} {error}",
            'Write {"mcpServers": {"name": {"command": "npx", "args": ["-y", "package"]}}}.',
        ) from error
    for name, arguments in given.items():
        register_mcp_server(name, **arguments)
    return list(given)


def approve_mcp_changes(name: str) -> list[str]:
    """Accept the tools of a server as it described them last; gives those that had changed since they were known."""
    declared = [known for known in _declared.values() if known.name == name]
    found = [_registered[name]] if name in _registered else declared
    if not found:
        raise _unknown(name, "approve_mcp_changes")
    return [changed for known in found for changed in known.pins.approve()]


def server_for(tool: McpTool) -> Known:
    """The server of a tool: one that the host registered, or one whose address the file gives."""
    connection = tool.connection
    name = (connection.name if isinstance(connection, ReferenceConnection) else None) or tool.server_name
    if connection is None or isinstance(connection, ReferenceConnection) or name in _registered:
        name = name or tool.name
        if name not in _registered:
            raise _unknown(name, f"the tool '{tool.name}'")
        return _registered[name]
    known = Known(name or tool.name, _declared_address(connection, tool), Pins(name or tool.name))
    return _declared.setdefault((known.name, known.address), known)


def _declared_address(connection: Connection, tool: McpTool) -> Address:
    if not isinstance(connection, ApiKeyConnection | AnonymousConnection) or not connection.endpoint:
        raise ToolError(
            f"the connection of the tool '{tool.name}' does not lead to an MCP server",
            "Give it an `endpoint` and perhaps an `apiKey`, or register the server and name it in `serverName`.",
        )
    key = connection.api_key if isinstance(connection, ApiKeyConnection) else None
    headers = (("Authorization", f"Bearer {key.get_secret_value()}"),) if key else ()
    return Address(url=_http_url(connection.endpoint, f"the tool '{tool.name}'"), headers=headers)


def _http_url(url: str, place: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolError(f"{place} has '{parts.scheme}:…' for its address", "Use one that begins with https://.")
    return url


def _arguments(entry: Mapping[str, Any]) -> dict[str, Any]:
    kind = entry.get("type", "http" if "url" in entry else "stdio")
    if kind not in ("stdio", "http", "streamable-http", "streamableHttp"):
        raise ValueError(f"the type '{kind}' is not supported")
    if "url" in entry:
        return {"url": entry["url"], "headers": entry.get("headers")}
    return {"command": [entry["command"], *entry.get("args", [])], "env": entry.get("env"), "cwd": entry.get("cwd")}


def _unknown(name: str, place: str) -> ToolError:
    known = ", ".join(sorted(_registered)) or "none"
    return ToolError(
        f"no MCP server is called '{name}', which {place} wants; registered: {known}",
        f"Register it: register_mcp_server('{name}', command=[…]) or url='https://…'.",
    )


def _is_inherited(name: str) -> bool:
    return name.upper() in _INHERITED or name.startswith("LC_")
