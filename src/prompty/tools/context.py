"""The context of a tool call."""

from collections.abc import Callable
from dataclasses import dataclass, field
from logging import Logger, getLogger
from typing import Any

from prompty.cancellation import CancelToken
from prompty.model.event import ToolProgress

_LOGGER = getLogger("prompty.tools")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """Passed to a tool that has a parameter of this type. The model does not see that parameter.

    `key` is unique to this call and stays the same when the call is repeated: pass it to services that take an
    idempotency key. `run` is the run itself, for tools that start other runs.
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
        """Report progress to the run's listeners."""
        if self.tell:
            self.tell(ToolProgress(self.name, self.call_id, done, total, message))
