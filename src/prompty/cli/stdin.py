"""Standard input, which has one reader: a prompt, an input, or a chat's messages."""

import sys

from prompty.errors import InputError


class StandardInput:
    def __init__(self) -> None:
        self._reader: str | None = None

    def claim(self, reader: str) -> None:
        """Reserve standard input. Raise InputError if it is already reserved."""
        if self._reader is not None:
            raise InputError(
                "",
                f"standard input is used for {self._reader}, so {reader} cannot be read from it",
                "Use - only once, and name a file for the other.",
            )
        self._reader = reader

    def read_text(self, reader: str) -> str:
        self.claim(reader)
        try:
            return sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                "", f"{reader}, read from standard input, is not UTF-8: {error}", "Convert it to UTF-8."
            ) from None


STDIN: StandardInput = StandardInput()
