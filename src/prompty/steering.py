"""Messages that a user sends to a running turn."""

import threading

from prompty.errors import WrongArgument


class Steering:
    """A queue of messages for a running turn. Any thread may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: list[str] = []
        self._follow_ups: list[str] = []

    def send(self, text: str) -> None:
        """Queue a message for the next model call, or for after the answer if there is none."""
        _check_text(text)
        with self._lock:
            self._messages.append(text)

    def follow_up(self, text: str) -> None:
        """Queue a message for after the answer. The turn continues with it."""
        _check_text(text)
        with self._lock:
            self._follow_ups.append(text)

    def drain(self, *, follow_ups: bool) -> list[str]:
        """Remove and return the queued messages, with `follow_ups` also the follow-ups."""
        with self._lock:
            drained, self._messages = self._messages, []
            if follow_ups:
                drained, self._follow_ups = drained + self._follow_ups, []
        return drained


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise WrongArgument("a steering message", text, "text", "Pass a str.")
