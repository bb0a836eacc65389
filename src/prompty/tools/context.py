"""What a tool may know about the run it works for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from logging import Logger, getLogger
from typing import Any

from prompty.cancellation import CancelToken
from prompty.model.event import ToolProgress

_LOGGER = getLogger("prompty.tools")


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
