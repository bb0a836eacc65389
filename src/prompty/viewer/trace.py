"""A recorded trace in memory: its frames in the order of the tree, parents before children.

The list is flat on purpose. A tree as deep as a trace may be cannot be walked, written or compared by recursion.
"""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

from prompty.errors import PromptyError
from prompty.model.message import Json

Status = Literal["ok", "failed", "unfinished"]

MODEL_CALL = "execute"
TOOL_CALL = "execute_tool"


class TraceUnreadable(PromptyError, ValueError):
    """A recorded trace cannot be read; `place` is the file, and the line where it is known."""

    def __init__(self, place: str, cause: str, fix: str) -> None:
        super().__init__(f"{place}: {cause}\n    {fix}")
        self.place, self.cause, self.fix = place, cause, fix


@dataclass(kw_only=True, slots=True)
class Frame:
    """One span. `parent` is a position in the list of frames; `usage` and `cost` include what is below."""

    id: str
    name: str
    title: str
    parent: int | None = None
    depth: int = 0
    start: datetime | None = None
    duration: float | None = None
    finished: bool = True
    signature: str = ""
    attributes: Json = field(default_factory=dict)
    content: Json = field(default_factory=dict)
    """`inputs`, `result` and `wire`, as far as they were recorded."""
    error: dict[str, str] | None = None
    usage: dict[str, int] = field(default_factory=dict)
    cost: Decimal | None = None
    cost_is_partial: bool = False

    @property
    def status(self) -> Status:
        if self.error is not None:
            return "failed"
        return "ok" if self.finished else "unfinished"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """All frames of one file; there is at least one."""

    path: Path
    runtime: str
    frames: list[Frame]

    @property
    def root(self) -> Frame:
        return self.frames[0]

    def count(self, name: str) -> int:
        return sum(frame.name == name for frame in self.frames)
