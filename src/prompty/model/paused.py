"""A turn that waits for a person: plain data, to be kept anywhere and gone on with anywhere (L2)."""

from dataclasses import asdict, dataclass, field
from typing import Any

from prompty.model.message import Json

PAUSED_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedCall:
    """What a gate sees of a call: final arguments, with what the host fills in masked. The key belongs to this call
    alone, whatever ids a model gives. One that is `unknown` had begun when its process died: it may have happened."""

    id: str
    name: str
    arguments: dict[str, Any]
    key: str
    needs_approval: bool = False
    unknown: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused:
    """Where a turn stands. `pending` are the calls that wait for a verdict; `resume` goes on with it.

    It holds the conversation, and nothing of what the host fills in. `results` are the messages of the open calls, for
    those that have one; `pauses` is how often the turn was paused before, so that no two pauses are equal. `standing`
    is what else a turn has settled: which model answers, whether an answer was sent back, and what was summed up.
    """

    run_id: str
    iteration: int
    messages: tuple[Json, ...]
    reply: Json
    usage: Json
    pending: tuple[GatedCall, ...]
    decided: dict[str, tuple[bool, str]] = field(default_factory=dict)
    results: tuple[Json | None, ...] = ()
    standing: Json = field(default_factory=dict)
    cost: str | None = None
    session_id: str | None = None
    saved: int = 0
    pauses: int = 0
    version: int = PAUSED_VERSION

    def to_json(self) -> Json:
        """Plain JSON; `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Paused":
        """Read what `to_json` wrote."""
        if value.get("version") != PAUSED_VERSION:
            raise ValueError(f"a paused turn of version {value.get('version')!r} cannot be read by this release")
        lists = {
            "messages": tuple(value["messages"]),
            "results": tuple(value.get("results", ())),
            "pending": tuple(GatedCall(**call) for call in value["pending"]),
            "decided": {key: (bool(allowed), str(reason)) for key, (allowed, reason) in value["decided"].items()},
        }
        return cls(**{**value, **lists})
