"""A real browser for the page, spoken to over two pipes in the DevTools protocol; nothing but the standard library."""

import json
import os
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from pathlib import Path
from typing import Any

Answer = dict[str, Any]

NEEDED = "the page is tested in Chromium, which is not installed; run: apt-get install chromium"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# The browser reads commands from descriptor 3 and answers on 4; subprocess cannot renumber what it hands down.
_RENUMBER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_KEY_CODES = {"ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Escape": 27, "End": 35}


def chromium() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """One headless browser with one tab: opening a page closes the one before."""

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(  # noqa: S603  the browser that was found
            [
                sys.executable,
                "-c",
                _RENUMBER,
                str(commands),
                str(answers),
                program,
                *flags,
                f"--user-data-dir={profile}",
            ],
            pass_fds=(commands, answers),
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number, self._unread = 0, b""
        self.events: list[Answer] = []
        self._target: str | None = None

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Answer:
        """Send a command and wait for its answer; what happens meanwhile is kept in `events`."""
        self._number += 1
        command: Answer = {"id": self._number, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(command | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: Answer = answer["result"]
        return result

    def _read(self) -> Answer:
        while b"\0" not in self._unread:
            received = os.read(self._answers, 1 << 20)
            assert received, "the browser ended"
            self._unread += received
        message, _, self._unread = self._unread.partition(b"\0")
        answer: Answer = json.loads(message)
        return answer

    def open(
        self,
        file: Path,
        *,
        fragment: str = "",
        width: int = 1440,
        height: int = 900,
        dark: bool = False,
        ready: str = "document.documentElement?.dataset.ready !== undefined",
    ) -> "Page":
        if self._target:
            self.call("Target.closeTarget", targetId=self._target)
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        address = file.resolve().as_uri() + fragment
        return Page(self, session, address, width, height, "dark" if dark else "light", ready)

    def close(self) -> None:
        self.call("Browser.close")
        self._process.wait(timeout=20)
        os.close(self._commands)
        os.close(self._answers)


class Page:
    """A tab. Its page is ready when the expression `ready` is true."""

    def __init__(
        self, browser: Browser, session: str, address: str, width: int, height: int, scheme: str, ready: str
    ) -> None:
        self._browser, self._session = browser, session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=address)
        self.wait_for(f"location.href !== 'about:blank' && ({ready})")

    def call(self, method: str, **parameters: Any) -> Answer:
        return self._browser.call(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < until, f"never became true: {expression}"

    def press(self, *keys: str) -> None:
        for key in keys:
            code = _KEY_CODES.get(key, ord(key.upper()) if len(key) == 1 else 0)
            typed = {"text": key} if len(key) == 1 else {}
            event = {"key": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def text(self, selector: str) -> str:
        found: str = self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return found

    def screenshot(self, file: Path) -> None:
        file.write_bytes(b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self) -> list[Answer]:
        """Everything the console would show in red: errors, uncaught exceptions, violations of the policy."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        bad = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
        return [event for event in self._own() if event["method"] in bad]

    def requests(self) -> list[str]:
        """The addresses of everything the page loaded."""
        return [one["params"]["request"]["url"] for one in self._own() if one["method"] == "Network.requestWillBeSent"]

    def _own(self) -> list[Answer]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]
