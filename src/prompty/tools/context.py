"""What a tool may know about the run it works for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import Logger, getLogger
from typing import Any

from prompty.errors import Cancelled
from prompty.model.event import ToolProgress

_LOGGER = getLogger("prompty.tools")


class CancelToken:
    """Ends a turn from anywhere: `cancel()` may be called from any thread, more than once."""

    def __init__(self) -> None:
        self.reason = ""
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def cancel(self, reason: str = "the turn was cancelled") -> None:
        with self._lock:
            if self.cancelled:
                return
            self.reason = reason
            self._cancelled.set()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def check(self) -> None:
        """Raise `Cancelled` if somebody has cancelled."""
        if self.cancelled:
            raise Cancelled(self.reason)

    def wait(self, seconds: float) -> None:
        """Let time pass, unless somebody cancels."""
        self._cancelled.wait(seconds)
        self.check()

    @contextmanager
    def listening(self, listener: Callable[[], object]) -> Iterator[None]:
        """Call `listener` once if it is cancelled meanwhile, at once if it already is; from the thread that cancels."""
        with self._lock:
            already = self.cancelled
            self._listeners.append(listener)
        try:
            if already:
                listener()
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """Given to a tool that has a parameter of this type; the model does not see that parameter.

    `key` is the same whenever this very call is made again, and of no other call: give it to services that take an
    idempotency key. `run` is the turn itself, for tools that run others.
    """

    run_id: str
    call_id: str
    name: str
    key: str
    cancel: CancelToken = field(default_factory=CancelToken)
    logger: Logger = _LOGGER
    tell: Callable[[Any], object] | None = field(default=None, repr=False)
    run: Any = field(default=None, repr=False)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the call has come; whoever listens to the turn hears it."""
        if self.tell:
            self.tell(ToolProgress(self.name, self.call_id, done, total, message))
