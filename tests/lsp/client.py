"""A client of the language server: in this process, or over the standard input of `prompty lsp`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, cast

from prompty.lsp.documents import to_uri
from prompty.lsp.server import LanguageServer
from prompty.lsp.wire import RpcConnection, read_message, write_frame

Json = dict[str, Any]
PULLING: Json = {
    "textDocument": {"diagnostic": {"dynamicRegistration": True}},
    "workspace": {"diagnostics": {"refreshSupport": True}, "textDocumentContent": {"dynamicRegistration": True}},
}


class Editor:
    """An editor with a server in this process. Messages pass through JSON, as on the wire."""

    def __init__(self, capabilities: Json | None = None) -> None:
        self.received: list[Json] = []
        self.connection = RpcConnection(lambda message: self.received.append(json.loads(json.dumps(message))))
        self.server = LanguageServer(self.connection)
        self.diagnostics: dict[str, list[Json]] = {}
        self._id = 0
        self.capabilities = self.request("initialize", {"capabilities": capabilities or {}})["capabilities"]
        self.notify("initialized", {})

    def send(self, message: object) -> list[Json]:
        """Send a message, let the server work, and return what it sent."""
        start = len(self.received)
        self.connection.receive(json.loads(json.dumps(message)), self.server)
        while self.server.work():
            pass
        sent = self.received[start:]
        for one in sent:
            if one.get("method") == "textDocument/publishDiagnostics":
                self.diagnostics[one["params"]["uri"]] = one["params"]["diagnostics"]
        return sent

    def request(self, method: str, params: Json | None = None) -> Any:
        self._id += 1
        sent = self.send({"id": self._id, "method": method, "params": params})
        [answer] = [one for one in sent if one.get("id") == self._id and "method" not in one]
        if "error" in answer:
            raise ServerError(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def notify(self, method: str, params: Json) -> None:
        self.send({"method": method, "params": params})

    def open(self, path: Path, text: str | None = None, language: str = "prompty") -> str:
        """Open a file, with a text that may not be saved, and return its URI."""
        uri = to_uri(path)
        text = path.read_bytes().decode() if text is None else text
        self.notify(
            "textDocument/didOpen",
            {"textDocument": {"uri": uri, "languageId": language, "version": 1, "text": text}},
        )
        return uri

    def change(self, uri: str, *changes: Json, version: int = 2) -> None:
        document = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def ask(self, method: str, uri: str, line: int, character: int, **more: Any) -> Any:
        place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}, **more}
        return self.request(f"textDocument/{method}", place)


class ServerError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Process:
    """`prompty lsp` in a process of its own."""

    def __init__(self, folder: Path, stderr: int = subprocess.DEVNULL) -> None:
        command = [sys.executable, "-m", "prompty", "lsp"]
        self.process = subprocess.Popen(  # noqa: S603  our own command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, cwd=folder, env={**os.environ}
        )
        self.messages: SimpleQueue[Json] = SimpleQueue()
        self._id = 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while (content := read_message(cast(BinaryIO, self.process.stdout))) is not None:
            self.messages.put(json.loads(content))

    def write(self, content: bytes) -> None:
        stdin = cast(BinaryIO, self.process.stdin)
        stdin.write(content)
        stdin.flush()

    def notify(self, method: str, params: Json) -> None:
        write_frame(cast(BinaryIO, self.process.stdin), {"method": method, "params": params})

    def send_request(self, method: str, params: Json) -> int:
        self._id += 1
        write_frame(cast(BinaryIO, self.process.stdin), {"id": self._id, "method": method, "params": params})
        return self._id

    def wait(self, timeout: float = 60) -> Iterator[Json]:
        """Yield messages as they arrive, until none comes for a while."""
        while True:
            try:
                yield self.messages.get(timeout=timeout)
            except Empty:
                return

    def request(self, method: str, params: Json) -> Any:
        id = self.send_request(method, params)
        return next(message["result"] for message in self.wait() if message.get("id") == id and "method" not in message)

    def wait_for_diagnostics(self, uri: str, version: int | None = None) -> list[Json]:
        for message in self.wait():
            params = message.get("params") or {}
            is_about = message.get("method") == "textDocument/publishDiagnostics" and params["uri"] == uri
            if is_about and version in (None, params.get("version")):
                return list(params["diagnostics"])
        raise AssertionError("no diagnostics")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.send_request("shutdown", {})
            self.notify("exit", {})
        code = self.process.wait(60)
        self._reader.join(60)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        return code
