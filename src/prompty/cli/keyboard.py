"""What a person types, also while something else happens; and Ctrl-C, which is for the turn and not for the program."""

import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from prompty.cancellation import CancelToken


class Keyboard:
    """Lines from the terminal, read on a thread of their own."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="keyboard", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self) -> str | None:
        """The next line; None at the end of the input."""
        while True:
            try:
                return self._lines.get(timeout=0.5)  # so that a signal is seen in between
            except queue.Empty:
                continue

    def typed_meanwhile(self) -> Iterator[str]:
        """The lines that are there already."""
        while not self._lines.empty():
            line = self._lines.get()
            if line is None:
                self._lines.put(None)
                return
            yield line


@contextmanager
def interrupts(cancel: CancelToken) -> Iterator[None]:
    """Ctrl-C cancels this. It does so from another thread: a handler runs in the middle of whatever holds a lock."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=cancel.cancel, args=("interrupted by Ctrl-C",), daemon=True).start()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
