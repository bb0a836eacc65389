"""The page of a trace: one HTML file that needs nothing else and asks nobody for anything."""

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from prompty.model.message import Json
from prompty.viewer.trace import MODEL_CALL, TOOL_CALL, Frame, Trace

# Inside a script element `<` could end it. ASCII JSON has everything else, U+2028 and U+2029 too, escaped already.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def page(trace: Trace) -> str:
    """The page as HTML. Only our own style and script may run in it, by their hashes; nothing may be loaded."""
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"POLICY": policy, "STYLE": style, "DATA": _data(trace), "SCRIPT": script}
    pieces = _asset("page.html").split("%%")
    return "".join(parts[piece] if position % 2 else piece for position, piece in enumerate(pieces))


def trace_to_json(trace: Trace) -> Json:
    """All of a trace as plain JSON: totals, and the frames as a list in which `parent` is a position."""
    root = trace.root
    starts = [frame.start for frame in trace.frames if frame.start]
    first = min(starts, default=None)
    return {
        "file": trace.path.name,
        "runtime": trace.runtime,
        **_summary(root),
        "modelCalls": trace.count(MODEL_CALL),
        "toolCalls": trace.count(TOOL_CALL),
        "frames": [
            {**_frame_to_json(frame), "offset": (frame.start - first).total_seconds() * 1000}
            if frame.start and first
            else _frame_to_json(frame)
            for frame in trace.frames
        ],
    }


def write_page(trace: Trace, file: Path) -> None:
    """Write the page for its owner only: a trace holds what people and models said."""
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(page(trace), encoding="utf-8", newline="\n")


def _summary(frame: Frame) -> Json:
    return {
        "title": frame.title,
        "status": frame.status,
        "start": frame.start.isoformat() if frame.start else None,
        "duration": frame.duration,
        "usage": frame.usage,
        "cost": None if frame.cost is None else float(frame.cost),
        "costIsPartial": frame.cost_is_partial,
    }


def _frame_to_json(frame: Frame) -> Json:
    place: Json = {"id": frame.id, "name": frame.name, "parent": frame.parent, "depth": frame.depth}
    told: Json = {"signature": frame.signature, "attributes": frame.attributes, "error": frame.error}
    return {**place, **_summary(frame), **{name: value for name, value in told.items() if value}, **frame.content}


def _data(trace: Trace) -> str:
    return json.dumps(trace_to_json(trace), allow_nan=False).translate(_ESCAPES)


def _asset(name: str) -> str:
    return files("prompty.viewer").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
