"""Translate the frontmatter and the body of a v1 file."""

import re
from copy import deepcopy
from typing import Any, NamedTuple

from prompty.v1.body import BodyEdit, apply_edits, find_edits, find_untranslatable
from prompty.v1.draft import Draft, V1Data, V1Keys, V1Note
from prompty.v1.model import translate_model
from prompty.v1.properties import add_media_inputs, translate_inputs, translate_outputs

_REFERENCE = re.compile(r"\$\{(env|file):", re.IGNORECASE)
_OWN_KEYS = ("name", "displayName", "description", "tools", "template", "metadata")


class Translation(NamedTuple):
    """The v2 file: its data and body, notes, the v1 key path of each v2 key path, and the edits of the body."""

    data: V1Data
    body: str
    notes: list[V1Note]
    moves: dict[V1Keys, V1Keys]
    edits: list[BodyEdit]


def translate(source: V1Data, body: str) -> Translation:
    """Return the v2 file that corresponds to a v1 file. References are unchanged. Files with structure, such as
    `sample: ${file:…}`, and `base` must already be part of the data."""
    data = lower_protocols(deepcopy(source))
    draft, names = Draft(), list(data)
    edits = find_edits(body, data)
    draft.notes += find_untranslatable(body, edits)
    for key in names:
        value = data[key]
        if key == "model":
            translate_model(draft, value, data)
        elif key in ("inputs", "sample"):
            translate_inputs(draft, data, edits)
        elif key == "outputs":
            translate_outputs(draft, value, data)
        elif key == "template":
            _translate_template(draft, value)
        elif key in _OWN_KEYS:
            draft.put((key,), value, (key,))
        elif key == "base":
            draft.drop(("base",), "it does not name a file", "Copy the other file's keys here.")
        else:
            _keep_in_metadata(draft, key, value, data)
    add_media_inputs(draft, edits)
    return Translation(draft.data, apply_edits(body, edits), draft.notes, draft.moves, edits)


def lower_protocols(value: Any) -> Any:
    """Return data with `${ENV:…}` and `${File:…}` in lower case: v1 reads them in any case."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda found: found[0].lower(), value) if "${" in value else value
    if isinstance(value, dict):
        return {key: lower_protocols(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [lower_protocols(entry) for entry in value]
    return value


def _translate_template(draft: Draft, value: Any) -> None:
    """Translate `{type: jinja2, parser: prompty}`. A plain text is the same in both versions."""
    if not isinstance(value, dict):
        draft.put(("template",), value, ("template",))
        return
    for key, entry in value.items():
        name = "format" if key == "type" else key
        is_kind = name in ("format", "parser") and isinstance(entry, str)
        draft.put(("template", name), {"kind": entry} if is_kind else entry, ("template", key))


def _keep_in_metadata(draft: Draft, key: str, value: Any, data: V1Data) -> None:
    if isinstance(data.get("metadata", {}), dict):
        if "metadata" in data and "metadata" not in draft.data:
            draft.put(("metadata",), data["metadata"], ("metadata",))
        draft.put(("metadata", key), value, (key,))
    else:
        draft.put((key,), value, (key,))
