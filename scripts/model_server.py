"""A model for the pages of the documentation: a server on loopback that answers from a file.

The file maps words to scripts, in the form of `provider: scripted`. The first entry whose words are in the request
answers it; an entry for `""` answers every request. The formats are chat, Responses and Messages. An entry with a
`payload` and the `events` of its stream is sent as it is, for answers that no script can write.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from prompty.model.request import WireRequest
from prompty.testing.encoding import WIRES
from prompty.testing.provider import parse_file_script
from prompty.testing.script import Responder, respond


class _Handler(BaseHTTPRequestHandler):
    scripts: dict[str, Responder | dict[str, Any]]

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"])).decode()
        body = json.loads(content)
        path = next((path for path in WIRES if self.path.endswith(path)), None)
        responder = next((script for words, script in self.scripts.items() if words in content), None)
        if path is None or responder is None:
            self.send_error(404, f"nothing is scripted for {self.path}")
            return
        streams = body.get("stream") is True
        if isinstance(responder, dict):
            answer = _write_answer(responder, streams=streams)
        else:
            answer = b"".join(respond(responder, WireRequest(path=path, body=body, headers={}, stream=streams)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streams else "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _write_answer(written: dict[str, Any], *, streams: bool) -> bytes:
    if not streams:
        return json.dumps(written["payload"]).encode()
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in written["events"])


@contextmanager
def serve_replies(file: Path) -> Iterator[str]:
    """Serve the scripts of a file, and yield the URL of the server."""
    scripts = yaml.safe_load(file.read_text(encoding="utf-8"))
    responders = {
        words: script if isinstance(script, dict) and "payload" in script else parse_file_script(script)
        for words, script in scripts.items()
    }
    handler = type("Handler", (_Handler,), {"scripts": responders})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
