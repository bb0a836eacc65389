"""A terminal for tests: keys are typed into it, and its screen is read. It is tmux."""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

PATIENCE = 40.0
PROMPTY = Path(sys.executable).parent / "prompty"
TMUX = shutil.which("tmux")
PASSED = ("PYTHONPATH", "PATH", "HOME")


class Terminal:
    """A terminal with a command of ours in it. What it prints when it ends is followed by its exit code."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.name = f"prompty-{uuid4().hex[:8]}"
        command = f"{shlex.join([str(PROMPTY), *arguments])}; echo exit code $?; cat"
        # A tmux server keeps the environment that it was started in, so what matters is passed on.
        passed = {**{name: os.environ[name] for name in PASSED if name in os.environ}, "XDG_STATE_HOME": str(folder)}
        settings = [word for name, value in passed.items() for word in ("-e", f"{name}={value}")]
        size = ("-x", "100", "-y", "40")
        self.tmux("new-session", "-d", "-s", self.name, *size, *settings, "-c", str(folder), command)

    def tmux(self, *arguments: str) -> str:
        assert TMUX, "tmux is not installed"
        # Each terminal has its server: one that they share ends with its last session, often just as the next begins.
        done = subprocess.run([TMUX, "-L", self.name, *arguments], capture_output=True, text=True, check=True)  # noqa: S603  our own arguments
        return done.stdout

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", self.name, "-l", text)
        self.tmux("send-keys", "-t", self.name, "Enter")

    def press(self, key: str) -> None:
        self.tmux("send-keys", "-t", self.name, key)

    @property
    def screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", self.name).rstrip()

    def until(self, text: str, times: int = 1) -> str:
        """The screen, once this text stands on it so often."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.screen.count(text) >= times:
                return self.screen
            time.sleep(0.05)
        pytest.fail(f"{text!r} did not appear:\n{self.screen}")

    def close(self) -> None:
        self.tmux("kill-session", "-t", self.name)
