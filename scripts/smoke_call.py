"""Try an installed wheel with the extra `openai`: it calls a server on this machine, and brings no SDK."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from threading import Thread

import prompty

TEXT = """---
name: smoke
model: {id: m, connection: {kind: anonymous, endpoint: "http://127.0.0.1:PORT/v1"}}
---
user:
Hello
"""
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}


class Handler(BaseHTTPRequestHandler):
    """Answers every request in the same way."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        content = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if found := [name for name in ("openai", "anthropic", "httpx") if find_spec(name)]:
    sys.exit(f"the extra `openai` brings {found}")

os.environ["NO_PROXY"] = "127.0.0.1"
with HTTPServer(("127.0.0.1", 0), Handler) as server:
    Thread(target=server.serve_forever, daemon=True).start()
    told = prompty.invoke(prompty.loads(TEXT.replace("PORT", str(server.server_port))))
    server.shutdown()
if told != "Hi.":
    sys.exit(f"invoke gave {told!r}")
print("a call needs no SDK")
