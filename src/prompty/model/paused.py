"""A turn that waits for a decision, as plain data.

The stored JSON has a version and a checksum, which detects damage and accidental edits. To detect tampering by anyone
who can write to the store, the host signs it with a key.
"""

import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from hashlib import sha256
from math import isfinite
from typing import Any

from prompty.errors import PausedRefused
from prompty.model.message import Json, Message, Reply, Usage
from prompty.safety.html import to_text, write_table
from prompty.safety.redaction import MASK

PAUSED_VERSION = 1
_CHECKSUM = "checksum"
_NAMED_MASK = f"{MASK} from "
# Raised when a value does not have the written shape.
_MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedCall:
    """A call as the gate sees it: final arguments, with defaults filled in.

    The values in `bound` are masks. A mask names the environment variables in the value: `•••• from BANK_KEY`.
    The key is unique, even if the model repeats an id. `definition` is a hash of the tool as the model sees it. The
    outcome of an `unknown` call is unknown: it had started when its process died.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    key: str
    needs_approval: bool = False
    unknown: bool = False
    bound: tuple[str, ...] = ()
    definition: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused:
    """A paused turn: plain data that `resume` continues from, in any process.

    `calls` are the answer's calls without a result, with their final arguments. `pending` are those without a verdict.
    The value contains the conversation, but no bound values. `results` are the messages of the other calls. `policy`
    names the turn's guardrails, its gate and the host's approval policies. `stored` is the number of messages in the
    session. `pauses` counts earlier pauses, so that no two pauses of a turn are equal. `carry_over` is the rest of the
    loop's state. `signature` is set if the host passed a key.
    """

    run_id: str
    iteration: int
    messages: tuple[Json, ...] = field(repr=False)
    reply: Json = field(repr=False)
    usage: Json = field(repr=False)
    calls: tuple[GatedCall, ...]
    results: tuple[Json | None, ...] = field(repr=False)
    policy: Json = field(repr=False)
    decided: dict[str, tuple[bool, str]] = field(default_factory=dict)
    carry_over: Json = field(default_factory=dict, repr=False)
    cost: str | None = None
    session_id: str | None = None
    saved: int = 0
    stored: int | None = None
    pauses: int = 0
    signature: str = ""
    version: int = PAUSED_VERSION

    @property
    def pending(self) -> tuple[GatedCall, ...]:
        """The calls that wait for a verdict."""
        return tuple(call for call in self.calls if call.key not in self.decided)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        calls = [
            (
                f"{call.name}, {'decided' if call.key in self.decided else 'waits for a decision'}",
                to_text(call.arguments),
            )
            for call in self.calls
        ]
        return write_table([("paused run", self.run_id), *calls])

    def to_json(self) -> Json:
        """Return plain JSON for `from_json`."""
        value = asdict(self)
        return {**value, _CHECKSUM: sha256(_write_canonical(value)).hexdigest()}

    @classmethod
    def from_json(cls, value: Any) -> "Paused":
        """Parse the result of `to_json`. Raise PausedRefused for anything else."""
        version = value.get("version") if isinstance(value, Mapping) else None
        if type(version) is not int or version != PAUSED_VERSION:
            raise PausedRefused(
                f"its version is {version!r}, and this release reads version {PAUSED_VERSION}",
                "Resume it with the release that wrote it, or start a new turn.",
            )
        try:
            paused = _read(value)
        except _MISREAD as error:
            if isinstance(error, PausedRefused):
                raise
            raise _unreadable(error) from None
        paused.check()
        return paused

    def check(self) -> None:
        """Raise PausedRefused unless all parts have the right types and are consistent."""
        try:
            problem = next(_find_problems(self), None)
        except _MISREAD as error:
            raise _unreadable(error) from None
        if problem:
            raise PausedRefused(problem, _RESTORE)

    def sign(self, key: bytes) -> "Paused":
        """Return a copy signed with the host's key."""
        return replace(self, signature=self._compute_signature(key))

    def verify(self, key: bytes) -> None:
        """Raise PausedRefused unless it is signed with this key."""
        if not hmac.compare_digest(self.signature.encode(), self._compute_signature(key).encode()):
            cause = "its signature does not match the key" if self.signature else "it has no signature"
            raise PausedRefused(cause, "Pass the turn's paused_key. If you did, the value was changed: do not use it.")

    def _compute_signature(self, key: bytes) -> str:
        return hmac.new(key, _write_canonical({**asdict(self), "signature": ""}), sha256).hexdigest()


_RESTORE = "Pass it as `turn` returned it, or start a new turn."


def _unreadable(error: Exception) -> PausedRefused:
    return PausedRefused(f"it is malformed ({type(error).__name__}: {error!s:.200})", _RESTORE)


def _write_canonical(value: object) -> bytes:
    """Return the same bytes for equal values, even if a store has sorted keys or written 4.0 as 4."""
    return json.dumps(_normalize(value), sort_keys=True, separators=(",", ":"), default=str).encode()


def _normalize(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _normalize(entry) for key, entry in value.items()}
    return [_normalize(entry) for entry in value] if isinstance(value, list | tuple) else value


def _read(value: Mapping[str, Any]) -> Paused:
    kept = {name: entry for name, entry in value.items() if name != _CHECKSUM}
    if value.get(_CHECKSUM) != sha256(_write_canonical(kept)).hexdigest():
        raise PausedRefused("it was changed after prompty wrote it", _RESTORE)
    return Paused(
        **{
            **kept,
            "messages": tuple(kept["messages"]),
            "calls": tuple(GatedCall(**{**call, "bound": tuple(call["bound"])}) for call in kept["calls"]),
            "results": tuple(kept["results"]),
            "decided": {key: (allowed, reason) for key, (allowed, reason) in kept["decided"].items()},
        }
    )


_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "run_id": (str,),
    "iteration": (int,),
    "cost": (str, type(None)),
    "session_id": (str, type(None)),
    "saved": (int,),
    "stored": (int, type(None)),
    "pauses": (int,),
    "signature": (str,),
}
_CALL_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "name": (str,),
    "arguments": (dict,),
    "key": (str,),
    "needs_approval": (bool,),
    "unknown": (bool,),
    "bound": (tuple,),
    "definition": (str,),
}
_REPLY_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "reasoning": (str,),
    "refusal": (str, type(None)),
    "finish_reason": (str, type(None)),
    "id": (str, type(None)),
    "model": (str, type(None)),
    "opaque": (dict,),
}
_TOOL_CALL_TYPES: dict[str, tuple[type, ...]] = {"id": (str,), "name": (str,), "arguments": (str,), "extra": (dict,)}
_CARRY_OVER_TYPES: dict[str, tuple[type, ...]] = {
    "model": (int,),
    "repair_used": (bool,),
    "chars_per_token": (int, float),
    "overhead": (int,),
    "dropped": (list, tuple),
    "summary": (str,),
    "provider_calls": (list, tuple),
}
_POLICY_TYPES: dict[str, tuple[type, ...]] = {"gate": (bool,), "guardrails": (list, tuple), "approval": (list, tuple)}
_GUARDRAILS = frozenset({"input", "output", "tool"})


def _find_problems(paused: Paused) -> Iterator[str]:
    """Yield the problems of a value. A wrong type may raise instead."""
    yield from _wrong_types(paused, _FIELD_TYPES, "it")
    if paused.iteration < 1 or min(paused.saved, paused.pauses, paused.stored or 0) < 0:
        yield "one of its counts is negative"
    if paused.saved > len(paused.messages):
        yield "it has fewer messages than it counts as stored"
    if paused.cost is not None and not Decimal(paused.cost).is_finite():
        yield "its cost is not a number"
    for message in paused.messages:
        Message.from_json(message)
    yield from _find_usage_problems(paused.usage)
    yield from _find_carry_over_problems(paused.carry_over, len(paused.messages))
    yield from _find_policy_problems(paused.policy)
    yield from _find_call_problems(paused)


def _wrong_types(value: object, types: Mapping[str, tuple[type, ...]], subject: str) -> Iterator[str]:
    for name, allowed in types.items():
        entry = value[name] if isinstance(value, dict) else getattr(value, name)
        if type(entry) not in allowed:
            yield f"`{name}` of {subject} has the wrong type ({type(entry).__name__})"


def mask_bound(variables: Sequence[str] | None) -> str:
    """Return what the gate sees instead of a bound value: a mask, with the names of the variables in the value."""
    return f"{_NAMED_MASK}{' and '.join(variables)}" if variables else MASK


def _is_mask(value: object) -> bool:
    return value == MASK or (isinstance(value, str) and value.startswith(_NAMED_MASK))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _find_usage_problems(usage: Json) -> Iterator[str]:
    counts = Usage(**usage)  # type: ignore[arg-type]  # checked below
    types = {entry.name: (int, type(None)) if entry.name != "requests" else (dict,) for entry in fields(Usage)}
    yield from _wrong_types(counts, types, "its usage")
    if any(type(count) not in (int, type(None)) for count in counts.requests.values()):
        yield "a count of its usage has the wrong type"


def _find_carry_over_problems(carry_over: Json, messages: int) -> Iterator[str]:
    if not carry_over.keys() <= _CARRY_OVER_TYPES.keys():
        yield "its state has unknown entries"
    yield from _wrong_types(carry_over, {name: _CARRY_OVER_TYPES[name] for name in carry_over}, "its state")
    numbers: Any = carry_over
    ratio, model, dropped = numbers.get("chars_per_token", 1), numbers.get("model", 0), numbers.get("dropped", ())
    if not isfinite(ratio) or ratio <= 0 or model < 0 or numbers.get("overhead", 0) < 0:
        yield "its state has a number out of range"
    if any(type(at) is not int or not 0 <= at < messages for at in dropped):
        yield "its state drops messages that it does not have"


def _find_policy_problems(policy: Json) -> Iterator[str]:
    if policy.keys() != _POLICY_TYPES.keys():
        yield "its policies have unknown or missing entries"
    yield from _wrong_types(policy, _POLICY_TYPES, "its policies")
    guardrails: Any = policy["guardrails"]
    if not _GUARDRAILS.issuperset(guardrails):
        yield "it names unknown guardrails"


def _find_call_problems(paused: Paused) -> Iterator[str]:
    """Yield the problems of the calls: each must be in the reply, and be decided, pending or answered."""
    reply = Reply.from_json(paused.reply)
    yield from _wrong_types(reply, _REPLY_TYPES, "its reply")
    yield from _find_usage_problems(reply.usage.to_json())
    for tool_call in reply.tool_calls:
        yield from _wrong_types(tool_call, _TOOL_CALL_TYPES, "a call in its reply")
    if len(paused.results) != len(reply.tool_calls):
        yield "the number of its results differs from that of its calls"
    for result in paused.results:
        if result is not None and Message.from_json(result).role != "tool":
            yield "one of its results is not a tool message"
    keys = [f"{paused.run_id}:{paused.iteration}:{position}" for position in range(len(reply.tool_calls))]
    unanswered = {key: reply.tool_calls[at] for at, key in enumerate(keys) if paused.results[at] is None}
    for call in paused.calls:
        yield from _wrong_types(call, _CALL_TYPES, "a call")
        source = unanswered.pop(call.key, None)
        if source is None or (source.id, source.name) != (call.id, call.name):
            yield f"the call '{call.name}' is not in its reply"
        if not all(map(_is_text, call.arguments)) or not all(_is_mask(call.arguments[name]) for name in call.bound):
            yield f"the call '{call.name}' shows other arguments than it runs with"
    known = {call.key for call in paused.calls}
    if unanswered:
        yield "a call in its reply is neither answered nor pending"
    for key, (allowed, reason) in paused.decided.items():
        if key not in known or (type(allowed), type(reason)) != (bool, str):
            yield "it has a verdict without a call"
    if not paused.pending:
        yield "none of its calls is pending"
