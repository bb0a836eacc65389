"""A turn that waits for a person's decision, as plain data (L2)."""

from dataclasses import asdict, dataclass, field
from typing import Any

from prompty.model.message import Json

PAUSED_VERSION = 1
# The names of `carry_over` and of its entries in the stored JSON.
_STORED = {"carry_over": "standing", "repair_used": "corrected", "chars_per_token": "ratio", "dropped": "gone"}
_LOADED = {stored: name for name, stored in _STORED.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedCall:
    """A call as the gate sees it: final arguments, bound values masked.

    The key identifies this call alone, whatever ids the model gives. The outcome of an `unknown` call is unknown: it
    had started when its process died.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    key: str
    needs_approval: bool = False
    unknown: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused:
    """A paused turn: plain data that `resume` continues from, in any process.

    `pending` are the calls that wait for a verdict. The value holds the conversation, and no bound values. `results`
    are the messages of the answer's calls that have one. `pauses` counts the earlier pauses, so that no two pauses of
    a turn are equal. `carry_over` is the rest of the loop's state.
    """

    run_id: str
    iteration: int
    messages: tuple[Json, ...]
    reply: Json
    usage: Json
    pending: tuple[GatedCall, ...]
    decided: dict[str, tuple[bool, str]] = field(default_factory=dict)
    results: tuple[Json | None, ...] = ()
    carry_over: Json = field(default_factory=dict)
    cost: str | None = None
    session_id: str | None = None
    saved: int = 0
    pauses: int = 0
    version: int = PAUSED_VERSION

    def to_json(self) -> Json:
        """Return plain JSON for `from_json`."""
        value = {_STORED.get(name, name): entry for name, entry in asdict(self).items()}
        return {**value, "standing": {_STORED.get(name, name): entry for name, entry in self.carry_over.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Paused":
        """Read what `to_json` wrote."""
        if value.get("version") != PAUSED_VERSION:
            raise ValueError(f"a paused turn of version {value.get('version')!r} cannot be read by this release")
        carry_over = {_LOADED.get(name, name): entry for name, entry in value["standing"].items()}
        lists = {
            "messages": tuple(value["messages"]),
            "results": tuple(value.get("results", ())),
            "pending": tuple(GatedCall(**call) for call in value["pending"]),
            "decided": {key: (bool(allowed), str(reason)) for key, (allowed, reason) in value["decided"].items()},
        }
        loaded = {_LOADED.get(name, name): entry for name, entry in value.items()}
        return cls(**{**loaded, **lists, "carry_over": carry_over})
