"""Compare what two versions show of the same scene.

What a sentence of an error says is not compared: sentences get better. Its type, its fields and its conversation are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from prompty.model.message import Message

PARTS = ("steps", "requests", "spans")

# Events that only the new version tells, and fields that only its values have, each with the reason.
ADDED_EVENTS = {
    "ModelRequested": "spans are made of events, so the loop tells when a model is asked",
    "ModelFailed": "spans are made of events, so the loop tells when an attempt has failed",
}
ADDED_FIELDS: dict[tuple[str, str], str] = {
    ("ToolStarted", "key"): "spans of tools are found by the key of the call, which no other call has",
    ("ToolFinished", "key"): "spans of tools are found by the key of the call, which no other call has",
    ("ToolFinished", "error"): "the developer gets the exception of a tool that raised",
}

ADDED_ATTRIBUTES = {"prompty.provider": "the name of a provider in telemetry is not always its key in the file"}
# Every answer is processed (§8), so an answer of a turn that calls tools has a `process` span with its calls.

# `invoke` and `run` are to become the loop of `turn` without tools, and then tell when they begin and end. What the
# model said, what was tried again, and the result must stay.
SINGLE_CALLS = ("invoke", "run")
SINGLE_CALL_EVENTS = ("TextDelta", "ReasoningDelta", "ToolCallDelta", "ModelReply", "Retry")

# Sentences of a conversation, a request or a trace that were worded otherwise in the old version: old → new.
REWORDED: dict[str, str] = {
    # A prompt that ran as a tool and failed was reported as "not run".
    "the history goes here": "history <id>",
    "Tool 'ask' was not run: gone": "Tool 'ask' failed: gone",
    "Tool 'ask' was not run: the turn has used": "Tool 'ask' failed: the turn has used",
    # The sentence was the SDK's.
    "Error code: 429 - busy": "HTTP 429: busy",
    "Error code: 500 - broken": "HTTP 500: broken",
}


# The keys of a message in the JSON of the old version. The new one reads that, and writes the form of document 001.
_OLD_MESSAGE = {"role", "content", "metadata", "local"}


@dataclass(frozen=True)
class Known:
    """A part of some scenes (a pattern) that differs on purpose. One that does not differ is out of date, and fails."""

    scenes: str
    part: str
    reason: str


KNOWN: tuple[Known, ...] = (
    *(
        Known("invoke_bad_inputs*", part, "inputs are validated before a run begins: kinds, names and required values")
        for part in ("steps", "requests", "spans")
    ),
    *(
        Known("a_single_child*", part, "a child of the mode single is invoked once, and its tools are offered")
        for part in ("requests", "spans")
    ),
    *(
        Known(scenes, "requests", "an `output_type` tells the model its schema")
        for scenes in ("invoke_output_type*", "run_structured*", "turn_repairs_its_answer*")
    ),
    *(
        Known("half_a_pair*", part, "a provider's processor keeps the id, usage and finish reason of a host's answer")
        for part in ("steps", "spans")
    ),
    Known("sessions*", "spans", "the placeholder for the history of a session is not recorded as an input"),
    Known("context_budget*", "spans", "a prompt that sums up is invoked like any other, so it has a span of its own"),
    Known("options_that_do_not_fit*", "spans", "options are checked before the run starts, so a wrong one has no span"),
    Known("turn_declared_and_bound_tools*", "spans", "tools are connected after the messages are prepared"),
    Known(
        "approval_pauses*",
        "spans",
        "a trace has the pause as it is stored, and that keeps final arguments and policies",
    ),
    Known("gate_answers_later*", "spans", "a trace has the pause as it is stored, and that keeps its policies"),
    Known("approval_of_the_file*", "spans", "a turn is described before its verdicts are read, also if they are wrong"),
)


def compared(old: dict[str, Any], new: dict[str, Any], known: tuple[Known, ...] = KNOWN) -> list[str]:
    """Return every difference between two versions, with its scene and its place."""
    found = [f"{name}: only one version has this scene" for name in sorted(old.keys() ^ new.keys())]
    used: set[Known] = set()
    for name in sorted(old.keys() & new.keys()):
        for part in PARTS:
            places = list(differences(view(part, old[name][part], reword=True), view(part, new[name][part]), part))
            meant = {one for one in known if one.part == part and fnmatchcase(name, one.scenes)}
            used |= meant if places else set()
            found += [] if meant else [f"{name}: {place}" for place in places]
    return found + [f"{one}: nothing differs any more, remove it" for one in known if one not in used]


def differences(old: Any, new: Any, place: str) -> Iterator[str]:
    """Tell where two values of JSON differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if name not in old or name not in new:
                side, value = ("new", new[name]) if name in new else ("old", old[name])
                yield f"{place}.{name}: only in the {side} version: {_short(value)}"
            else:
                yield from differences(old[name], new[name], f"{place}.{name}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{place}: {len(old)} became {len(new)}: {_short(_kinds(old))} → {_short(_kinds(new))}"
        for number, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from differences(before, after, f"{place}[{number}]")
    elif old != new:
        yield f"{place}: {_short(old)} → {_short(new)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:300]}…"


def _kinds(values: list[Any]) -> list[Any]:
    return [value.get("type") or value.get("name") or "…" if isinstance(value, dict) else value for value in values]


def view(part: str, value: Any, *, reword: bool = False) -> Any:
    """Return what of a part has to be the same."""
    shown = _without_added(_reworded(value) if reword else value)
    if part == "steps":
        return [_step(step) for step in shown]
    return [_span(span) for span in shown] if part == "spans" else shown


def _reworded(value: Any) -> Any:
    match value:
        case str():
            for before, after in REWORDED.items():
                value = value.replace(before, after)
            return value
        case list():
            return [_reworded(entry) for entry in value]
        case {"role": str(), "content": list(parts)} if value.keys() <= _OLD_MESSAGE and all(
            "kind" in one for one in parts
        ):
            return Message.from_json(_reworded_entries(value)).to_json()
        case dict():
            return _reworded_entries(value)
    return value


def _reworded_entries(value: dict[str, Any]) -> dict[str, Any]:
    return {name: _reworded(entry) for name, entry in value.items()}


def _without_added(value: Any) -> Any:
    match value:
        case list():
            return [_without_added(entry) for entry in value if not _is_added(entry)]
        case {"role": str(), "content": [{"kind": "text", "value": str(text), **others}]} if not others:
            return _without_added({**value, "content": text})  # one text part, as a message may be written
        case dict():
            kind = value.get("type")
            return {name: _without_added(entry) for name, entry in value.items() if (kind, name) not in ADDED_FIELDS}
    return value


def _is_added(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    nested = value.get("event") if value.get("type") == "Nested" else None
    return value.get("type") in ADDED_EVENTS or (nested is not None and _is_added(nested))


def _step(step: dict[str, Any]) -> dict[str, Any]:
    if "verb" not in step:
        return step
    step = {
        **step,
        "events": [_event(event) for event in step["events"]],
        "heard": [_event(one) for one in step["heard"]],
    }
    if "error" in step:
        step["error"] = {name: value for name, value in step["error"].items() if name != "text"}
    if step["verb"] in SINGLE_CALLS:
        step["events"] = [event for event in step["events"] if event["type"] in SINGLE_CALL_EVENTS]
        step.pop("messages", None)
        if "error" in step:
            step["error"].pop("messages", None)
    return step


def _event(event: dict[str, Any]) -> dict[str, Any]:
    if event["type"] == "Nested":
        return {**event, "event": _event(event["event"])}
    return {"type": "RunFailed"} if event["type"] == "RunFailed" else event


def _span(span: dict[str, Any]) -> dict[str, Any]:
    error = span["error"] and span["error"][0]
    attributes = {name: value for name, value in span["attributes"].items() if name not in ADDED_ATTRIBUTES}
    inside = [_span(one) for one in span["inside"] if span["name"] != "turn" or not _has_calls(one)]
    return {**span, "error": error, "attributes": attributes, "inside": inside}


def _has_calls(span: dict[str, Any]) -> bool:
    result = span["content"].get("result") if span["name"] == "process" else None
    return isinstance(result, list) and all("arguments" in call for call in result)
