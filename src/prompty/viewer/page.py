"""Render a trace as one self-contained HTML page that loads nothing."""

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from prompty.model.message import Json
from prompty.safety.write_files import replace_file
from prompty.viewer.trace import MODEL_CALL, TOOL_CALL, Frame, RecordedTrace, find_cached_shares

# `<` could end the script element. ASCII JSON already escapes everything else, U+2028 and U+2029 included.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def render_page(trace: RecordedTrace) -> str:
    """Return the HTML of a trace."""
    return build_page("prompty.viewer", "page", "Trace", trace_to_json(trace))


def build_page(package: str, name: str, title: str, data: Json) -> str:
    """Return a page from a package's `name`.html, .css and .js, on the base page. Its content security policy allows
    only this style and script, by their hashes, and loads nothing."""
    body, own_style, script = (_read_asset(package, f"{name}.{kind}") for kind in ("html", "css", "js"))
    style = _read_asset("prompty.viewer", "base.css") + own_style
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "TITLE": title,
        "STYLE": style,
        "BODY": body,
        "DATA": json.dumps(data, allow_nan=False).translate(_ESCAPES),
        "SCRIPT": script,
    }
    pieces = _read_asset("prompty.viewer", "base.html").split("%%")
    return "".join(parts[piece] if position % 2 else piece for position, piece in enumerate(pieces))


def trace_to_json(trace: RecordedTrace) -> Json:
    """Return totals and frames as JSON. `parent` is a position in the list of frames."""
    starts = [frame.start for frame in trace.frames if frame.start]
    first = min(starts, default=None)
    return {
        "file": trace.path.name,
        "runtime": trace.runtime,
        **_summary_to_json(trace.root),
        "modelCalls": trace.count(MODEL_CALL),
        "toolCalls": trace.count(TOOL_CALL),
        "cachedShares": find_cached_shares(trace),
        "frames": [
            {**_frame_to_json(frame), "offset": (frame.start - first).total_seconds() * 1000}
            if frame.start and first
            else _frame_to_json(frame)
            for frame in trace.frames
        ],
    }


def write_page(trace: RecordedTrace, file: Path) -> None:
    """Write the page, readable by its owner only: a trace can contain private conversations."""
    replace_file(file, render_page(trace).encode(), mode=0o600)


def _summary_to_json(frame: Frame) -> Json:
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
    position: Json = {"id": frame.id, "name": frame.name, "parent": frame.parent, "depth": frame.depth}
    details: Json = {"signature": frame.signature, "attributes": frame.attributes, "error": frame.error}
    return {
        **position,
        **_summary_to_json(frame),
        **{name: value for name, value in details.items() if value},
        **frame.content,
    }


def _read_asset(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
