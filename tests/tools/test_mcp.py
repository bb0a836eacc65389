"""MCP servers without a server: how they are registered, found, and started."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

import prompty
from prompty.errors import ToolError
from prompty.mcp import load_mcp_servers, register_mcp_server
from prompty.model.tool import McpTool
from prompty.registry import DEFAULT, Registry
from prompty.tools.kinds import TOOL_KINDS
from prompty.tools.mcp import KnownServer, McpKind
from prompty.tools.mcp.content import McpError, fingerprint, to_parts
from prompty.tools.mcp.sessions import ServerAddress, is_lost

pytestmark = pytest.mark.usefixtures("clean_registry")


def tool(**parts: Any) -> McpTool:
    return McpTool.model_validate({"name": "files", "kind": "mcp", **parts})


def find(declared: McpTool, registry: Registry = DEFAULT) -> KnownServer:
    kind = registry[TOOL_KINDS].get("mcp")
    assert isinstance(kind, McpKind)
    return kind.servers.find(declared)


@pytest.mark.process
def test_the_sdk_is_imported_when_a_server_is_used() -> None:
    code = "import sys, prompty.tools.mcp as m; m.register_mcp_server('x', command=['y']); print('mcp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603  our own code
    assert done.stdout == "False\n"


def test_a_registered_server_is_found_by_the_names_a_file_may_use() -> None:
    register_mcp_server("files", command=["files"])
    register_mcp_server("other", url="https://other.example/mcp", headers={"X-Key": "1"})
    assert find(tool()).address == ServerAddress(command=("files",))
    other = ServerAddress(url="https://other.example/mcp", headers=(("X-Key", "1"),))
    assert find(tool(serverName="other")).address == other
    assert find(tool(connection={"kind": "reference", "name": "other"})).address == other
    # what the host registered under the name wins over the address of the file
    assert find(tool(serverName="other", connection={"endpoint": "https://x.example"})).address == other
    # a tool that only happens to be called like a server goes where its file says
    assert find(tool(connection={"endpoint": "https://x.example"})).address == ServerAddress(
        url="https://x.example", is_declared=True
    )


def test_a_server_belongs_to_a_registry() -> None:
    first, second = Registry(), Registry()
    register_mcp_server("files", command=["first"], registry=first)
    register_mcp_server("files", command=["second"], registry=second)
    assert [find(tool(), registry).address.command for registry in (first, second)] == [("first",), ("second",)]
    with pytest.raises(ToolError, match="no MCP server named 'files'"):
        find(tool())


def test_a_server_of_a_file_has_the_same_pins_each_time() -> None:
    connection = {"endpoint": "https://x.example", "apiKey": "made-up"}
    assert find(tool(connection=connection)).pins is find(tool(connection={**connection, "apiKey": "other"})).pins
    address = find(tool(connection=connection)).address
    assert address.headers == (("Authorization", "Bearer made-up"),)
    assert "made-up" not in repr(address)


def test_an_unknown_server_is_reported_with_the_registered_ones() -> None:
    register_mcp_server("one", command=["x"])
    register_mcp_server("another", command=["x"])
    with pytest.raises(ToolError, match=r"no MCP server named 'files' .*; registered: another, one"):
        find(tool())


WRONG: dict[str, dict[str, Any]] = {
    "nothing": {},
    "both": {"command": ["x"], "url": "https://x.example"},
    "a command line": {"command": "x --all"},
    "no words": {"command": []},
    "another protocol": {"url": "ws://x.example"},
    "no host": {"url": "https://"},
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_a_server_is_either_a_command_or_an_address(given: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="the MCP server 'x'"):
        register_mcp_server("x", **given)


def test_servers_are_read_from_the_common_file(tmp_path: Path) -> None:
    servers = {
        "files": {"command": "npx", "args": ["-y", "files"], "env": {"A": "1"}, "cwd": "/tmp"},  # noqa: S108  a name only
        "web": {"type": "http", "url": "https://x.example", "headers": {"X": "1"}},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert load_mcp_servers(tmp_path / "mcp.json") == ["files", "web"]
    files = ServerAddress(command=("npx", "-y", "files"), environment=(("A", "1"),), folder="/tmp")  # noqa: S108  a name only
    assert find(tool()).address == files
    web = ServerAddress(url="https://x.example", headers=(("X", "1"),))
    assert find(tool(serverName="web")).address == web


BROKEN = ["", "[]", "{}", '{"mcpServers": 1}', '{"mcpServers": {"x": {}}}', '{"mcpServers": {"x": {"type": "sse"}}}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_registers_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(text)
    with pytest.raises(ToolError, match=r"mcp\.json: cannot read MCP servers"):
        load_mcp_servers(tmp_path / "mcp.json")
    with pytest.raises(ToolError, match=r"none\.json: cannot read MCP servers"):
        load_mcp_servers(tmp_path / "none.json")
    with pytest.raises(ToolError, match="registered: none"):
        find(tool())


def test_a_process_inherits_what_it_needs_and_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        os, "environ", {"PATH": "/bin", "LC_ALL": "C", "SystemRoot": "C", "OPENAI_API_KEY": "x", "PATH_KEY": "x"}
    )
    address = ServerAddress(command=("x",), environment=(("GIVEN", "1"), ("PATH", "/mine")))
    assert address.process_environment() == {"PATH": "/mine", "LC_ALL": "C", "SystemRoot": "C", "GIVEN": "1"}


def test_an_error_without_words_is_an_error() -> None:
    with pytest.raises(McpError, match="an error without a message"):
        to_parts(types.CallToolResult(content=[], is_error=True))


def test_a_definition_is_known_by_all_that_is_told_of_it() -> None:
    plain = types.Tool(name="a", description="b", input_schema={"type": "object", "properties": {"x": {}, "y": {}}})
    turned = types.Tool(name="a", description="b", input_schema={"properties": {"y": {}, "x": {}}, "type": "object"})
    others = [
        types.Tool(name="c", description="b", input_schema=plain.input_schema),
        types.Tool(name="a", description="d", input_schema=plain.input_schema),
        types.Tool(name="a", description="b", input_schema={"type": "object"}),
    ]
    assert fingerprint(plain) == fingerprint(turned)
    assert len({fingerprint(one) for one in [plain, *others]}) == 4


class Coded(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def test_mistakes_of_a_server_are_no_reason_to_leave_it() -> None:
    assert is_lost(Coded(-32000, "Connection closed"))
    assert is_lost(Coded(-32600, "Session terminated"))
    assert not is_lost(Coded(-32000, "no such customer"))
    assert not is_lost(Coded(-32603, "Connection closed by the bank"))
    assert not is_lost(ValueError("Connection closed"))


def test_closing_when_nothing_is_open_starts_nothing() -> None:
    before = threading.active_count()
    prompty.close()
    assert threading.active_count() <= before
