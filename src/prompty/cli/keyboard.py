"""Lines that a user types: with editing and history on a terminal, plain from a pipe.

At the prompt of a terminal, prompt_toolkit reads the keys. While a turn runs, the terminal itself collects a line, and
nothing waits for it: `read_pending` takes the lines that are complete.
"""

import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rich.text import Text

from prompty.cli.console import out
from prompty.extras import require
from prompty.safety.write_files import create_folder, open_to_append

PROMPT = "you> "
_POLL_SECONDS = 0.2
_MAX_BYTES = 65_536


class Keyboard(Protocol):
    """Source of lines. A method that waits returns None at the end of the input, also if called again."""

    def read_message(self) -> str | None:
        """Show the prompt and wait for a line. Raise KeyboardInterrupt on Ctrl-C."""

    def read_reply(self, is_cancelled: Callable[[], bool]) -> str | None:
        """Wait for the answer to a question. Return None once `is_cancelled()`."""

    def read_pending(self) -> Iterator[str]:
        """Yield the lines typed so far."""


def open_keyboard(history: Path) -> Keyboard:
    """Return the keyboard of this process. A Windows console has its own line editing."""
    if sys.stdin.isatty() and sys.platform != "win32":
        return TerminalKeyboard(history)
    return PlainKeyboard()


class TerminalKeyboard:
    """Keyboard of a terminal. Lines typed at the prompt are saved in `history`, which only its owner can read."""

    def __init__(self, history: Path) -> None:
        toolkit: Any = require("prompt_toolkit", extra="cli")
        histories: Any = require("prompt_toolkit.history", extra="cli")
        try:
            _create_private(history)
            lines = histories.FileHistory(str(history))
        except OSError:  # the home folder cannot be written to
            lines = histories.InMemoryHistory()
        self._session = toolkit.PromptSession(history=lines)
        self._prompt = toolkit.formatted_text.FormattedText([("bold ansicyan", PROMPT)])
        self._ended = False

    def read_message(self) -> str | None:
        if self._ended:
            return None
        try:
            return str(self._session.prompt(self._prompt))
        except EOFError:
            return None

    def read_reply(self, is_cancelled: Callable[[], bool]) -> str | None:
        while not self._ended and not is_cancelled():
            if self._has_line(_POLL_SECONDS):
                return self._read_line()
        return None

    def read_pending(self) -> Iterator[str]:
        while not self._ended and self._has_line(0):
            line = self._read_line()
            if line is not None:
                yield line

    def _has_line(self, seconds: float) -> bool:
        return bool(select.select([sys.stdin], [], [], seconds)[0])

    def _read_line(self) -> str | None:
        """Read the line that the terminal has collected. Ctrl-D on an empty line ends the input."""
        data = os.read(sys.stdin.fileno(), _MAX_BYTES)
        self._ended = not data
        return data.decode(errors="replace").rstrip("\n") if data else None


def _create_private(file: Path) -> None:
    """Create the file if it does not exist, readable only by its owner."""
    create_folder(file.parent)
    os.close(open_to_append(file))
    file.chmod(0o600)


class PlainKeyboard:
    """Lines of standard input, read on a thread. A piped line waits for the turn before it to end; on a console, lines
    typed while the model works are sent to it."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="keyboard", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def read_message(self) -> str | None:
        out.print(Text(PROMPT, "bold cyan"), end="")
        return self.read_reply(lambda: False)

    def read_reply(self, is_cancelled: Callable[[], bool]) -> str | None:
        while not is_cancelled():
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)  # so that signals are handled in between
            except queue.Empty:
                continue
            if line is None:
                self._lines.put(None)
            return line
        return None

    def read_pending(self) -> Iterator[str]:
        while sys.stdin.isatty() and not self._lines.empty():
            line = self._lines.get()
            if line is None:
                self._lines.put(None)
                return
            yield line
