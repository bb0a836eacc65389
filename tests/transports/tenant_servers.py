"""Model providers, MCP servers and services of a process with many tenants. Prints their ports.

Usage: python -m tests.transports.tenant_servers ORIGINS
"""

import asyncio
import json
import sys
from typing import Any

INITIALIZED = {"capabilities": {"tools": {}}, "serverInfo": {"name": "own", "version": "1"}}
TOOLS = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
CALLS = [
    {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}
    for name in ("look", "get_status")
]


def answer(path: str, content: bytes) -> object:
    """Answer a chat request with calls of both tools and then with a text, and an MCP request with what it asks for."""
    if path == "/status":
        return {"status": "well"}
    request: dict[str, Any] = json.loads(content)
    if path != "/mcp":
        has_results = request["messages"][-1]["role"] == "tool"
        said = {"content": "Fine."} if has_results else {"tool_calls": CALLS}
        return {"choices": [{"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}]}
    if "id" not in request:
        return None
    match request["method"]:
        case "initialize":
            result = {**INITIALIZED, "protocolVersion": request["params"]["protocolVersion"]}
        case "tools/list":
            result = TOOLS
        case "tools/call":
            result = {"content": [{"type": "text", "text": "seen"}]}
        case _:
            return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "unknown"}}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            method, path, _ = head.decode("latin-1").split(" ", 2)
            lines = (line.partition(":") for line in head.decode("latin-1").splitlines()[1:])
            headers = {name.lower(): value.strip() for name, _, value in lines}
            content = await reader.readexactly(int(headers.get("content-length", 0)))
            if method == "GET" and path == "/mcp":
                status, body = "405 No stream", b""
            elif method == "DELETE":
                status, body = "200 OK", b""
            else:
                payload = answer(path, content)
                status, body = ("202 Accepted", b"") if payload is None else ("200 OK", json.dumps(payload).encode())
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            )
            writer.write(body)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def main(origins: int) -> None:
    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(origins)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)  # noqa: T201  for the program that started it
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
