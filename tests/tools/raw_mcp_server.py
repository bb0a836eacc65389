"""An MCP server in raw lines. The first process of a command answers the call of `act` in the way of its argument."""

import json
import sys

MODE = sys.argv[1]


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def reply(number: object, result: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}) + "\n")


def act(number: object) -> None:
    head = f'{{"jsonrpc": "2.0", "id": {json.dumps(number)}, "result": '
    match MODE:
        case "deep":
            write(head + "[" * 20_000 + "]" * 20_000 + "}\n")
        case "endless":
            while True:
                write(head + "x" * 1_000_000)
        case "long":
            write(head + '{"content": [{"type": "text", "text": "' + "x" * 17_000_000 + '"}]}}\n')
        case "odd":
            write('{"jsonrpc": "1.0", "neither": "one nor the other"}\n')
        case "noisy":
            write("starting up…\n\n[debug] called\n")
            reply(number, {"content": [{"type": "text", "text": "act"}]})


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "raw", "version": "1"}
            reply(message["id"], {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("act", "fine")]
            reply(message["id"], {"tools": tools})
        case "tools/call" if message["params"]["name"] == "fine":
            reply(message["id"], {"content": [{"type": "text", "text": "fine"}]})
        case "tools/call":
            act(message["id"])
        case _ if "id" in message:
            error = {"code": -32601, "message": "Method not found"}
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}) + "\n")
