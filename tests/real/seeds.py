"""One llama.cpp server as several models: the number at the end of a model's name is the seed of its answers."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

SECONDS = 120.0
_NUMBER = re.compile(r"-(\d+)$")


@contextmanager
def serve_seeds(url: str) -> Iterator[str]:
    """Yield the URL of a server that passes requests on to the one at `url`, with the seed of their model."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found = _NUMBER.search(str(body.get("model")))
            content = json.dumps({**body, "seed": int(found[1])} if found else body).encode()
            connection = HTTPConnection(urlsplit(url).netloc, timeout=SECONDS)
            try:
                connection.request("POST", self.path, content, {"content-type": "application/json"})
                answer = connection.getresponse()
                read = answer.read()
            finally:
                connection.close()
            self.send_response(answer.status)
            self.send_header("content-type", answer.headers["content-type"])
            self.send_header("content-length", str(len(read)))
            self.end_headers()
            self.wfile.write(read)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
