"""Try an installed wheel without extras: it loads, prepares and calls models, and the command says what it needs.

The models are servers on this machine: one that OPENAI_BASE_URL names, and one where Ollama would listen.
"""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import prompty
from prompty.version import build_install_command

TEXT = """---
name: smoke
inputs:
  who: world
---
user:
Hello {{ who }}
"""
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]}
OLLAMA_PORT = 11434


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


def call(model: str, port: int) -> None:
    """Call a model whose server is on this port, or on a free one."""
    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{server.server_port}/v1"
        Thread(target=server.serve_forever, daemon=True).start()
        told = prompty.invoke(agent, model=model)
        server.shutdown()
    if told != "Hi.":
        sys.exit(f"invoke with {model} gave {told!r}")


agent = prompty.loads(TEXT)
messages = prompty.prepare(agent, {"who": "system:\nwheel"})
if [(message.role, message.text) for message in messages] != [("user", "Hello system:\nwheel")]:
    sys.exit(f"prepare gave {messages}")

if found := [name for name in ("openai", "anthropic", "httpx", "typer") if find_spec(name)]:
    sys.exit(f"the wheel brings {found}")
os.environ |= {"NO_PROXY": "127.0.0.1,localhost", "OPENAI_API_KEY": "sk-of-the-smoke-test"}
call("openai:m", 0)
try:
    call("ollama:m", OLLAMA_PORT)
except OSError as error:
    print(f"ollama: was not tried, because its port is taken ({error})")

script = Path(sys.executable).parent / "prompty"
told = subprocess.run([script, "check", "x.prompty"], capture_output=True, text=True, check=False)  # noqa: S603  our own script
if told.returncode == 0 or build_install_command("cli") not in told.stderr:
    sys.exit(f"without the cli extra the command said: {told}")

print(f"the wheel of prompty {prompty.__version__} works alone")
