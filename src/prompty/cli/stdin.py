"""Standard input, which only one thing can read: a prompt, an input, or the messages of a chat."""

import sys

from prompty.errors import InputError


class StandardInput:
    """Standard input of this process, with the name of its reader."""

    def __init__(self) -> None:
        self._reader: str | None = None

    def claim(self, reader: str) -> None:
        """Reserve standard input. Raise InputError if something else reads it."""
        if self._reader is not None:
            raise InputError(
                "",
                f"standard input is used for {self._reader}, so {reader} cannot be read from it",
                "Write - only once, and name a file for the others.",
            )
        self._reader = reader

    def read_text(self, reader: str) -> str:
        """Return all text of standard input."""
        self.claim(reader)
        try:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError("", f"{reader}, read from standard input, is not UTF-8: {error}", "Convert it.") from None


STDIN: StandardInput = StandardInput()
