"""Selection of runs by state, prompt and age, as data. The engine finds them without reading what they stored."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Literal, NamedTuple, Self

from prompty.errors import RequestError

RunState = Literal["waiting", "running", "paused", "done", "failed", "cancelled", "quarantined", "refused"]
Outcome = Literal["paused", "failed", "cancelled"]
ENDED: tuple[RunState, ...] = ("done", "failed", "cancelled")


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Filter of runs: in one of these states (or any), of this prompt, and in their state since before a moment."""

    states: tuple[RunState, ...] = ()
    prompt: str | None = None
    before: datetime | None = None

    def prompt_labels(self) -> list[str]:
        """Return the labels that `prompt` can mean: a name, a file, or a file without its ending."""
        name = PurePath(self.prompt or "").name
        return [name, f"{name}.prompty"]


class Position(NamedTuple):
    """Place of a run in the order of all runs: when its last workflow was created, in milliseconds, and its id."""

    created: int
    id: str

    def to_cursor(self) -> str:
        return f"{self.created}-{self.id}"

    @classmethod
    def from_cursor(cls, text: str) -> Self:
        created, _, id = text.partition("-")
        if not (created.isascii() and created.isdigit() and id):
            raise RequestError(f"{text!r} is not a position in the list of runs", "Copy it from the page before.")
        return cls(int(created), id)
