"""Keyboard input of a chat: lines typed at any time, and Ctrl-C, which cancels the turn and not the program."""

import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from prompty.cancellation import CancelToken


class Keyboard:
    """Lines from the terminal, read on their own thread."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="keyboard", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def read_line(self) -> str | None:
        """Wait for the next line. Return None at the end of the input."""
        while True:
            try:
                return self._lines.get(timeout=0.5)  # so that signals are handled in between
            except queue.Empty:
                continue

    def read_pending(self) -> Iterator[str]:
        """Yield the lines that have been typed already."""
        while not self._lines.empty():
            line = self._lines.get()
            if line is None:
                self._lines.put(None)
                return
            yield line


@contextmanager
def cancel_on_interrupt(cancel: CancelToken) -> Iterator[None]:
    """Cancel the token on Ctrl-C, from another thread: a signal handler can interrupt code that holds a lock."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=cancel.cancel, args=("interrupted by Ctrl-C",), daemon=True).start()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
