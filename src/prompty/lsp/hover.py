"""Hover: what a key means, an input with its default, and the facts about a model."""

from pathlib import PurePosixPath
from typing import Any

from prompty.lsp.completion import describe_input
from prompty.lsp.diagnostics import Workspace
from prompty.lsp.documents import Text
from prompty.lsp.models import describe_model
from prompty.lsp.names import Names
from prompty.lsp.outline import Occurrence
from prompty.lsp.schema import find_place, list_fitting_keys


def hover(uri: str, text: Text, offset: int, workspace: Workspace) -> dict[str, Any] | None:
    """Return an explanation of the word at an offset, if there is one."""
    names = Names(uri, workspace)
    start, end = _find_word(text.text, offset)
    name = names.own.find(offset)
    about = _explain_name(names, name) if name else ""
    if not about and offset <= names.own.end:
        about = _explain_yaml(names, text, start, end)
    elif name:
        start, end = name.start, name.end
    if not about:
        return None
    return {"contents": {"kind": "markdown", "value": about}, "range": text.to_range(start, end)}


def _find_word(text: str, offset: int) -> tuple[int, int]:
    start = end = offset
    while start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_-./"):
        start -= 1
    while end < len(text) and (text[end].isalnum() or text[end] in "_-./"):
        end += 1
    return start, end


def _explain_name(names: Names, name: Occurrence) -> str:
    if name.kind not in ("input", "tool"):
        return f"`{PurePosixPath(name.text).name}`" if name.kind == "file" else ""
    for uri in [names.uri, *names.list_prompts(), *names.list_partials()]:
        outline = names.read(uri)
        entries = outline.list_inputs() if name.kind == "input" else outline.list_tools()
        if name.text in entries:
            note, about = describe_input(entries[name.text])
            return f"**{name.text}** ({name.kind}): {note}" + (f"\n\n{about}" if about else "")
    return ""


def _explain_yaml(names: Names, text: Text, start: int, end: int) -> str:
    row = text.to_position(start)["line"]
    place = find_place(text.lines, row, text.text[text.starts[row] : start])
    word = text.text[start:end]
    if place.key is None:
        about = list_fitting_keys(place.keys, is_test=names.own.is_test).get(word)
        return "" if about is None else f"**{word}**" + (f"\n\n{about}" if about else "")
    if (*place.keys, place.key) in (("model",), ("model", "id")):
        model = names.own.data.get("model")
        provider = model.get("provider", "openai") if isinstance(model, dict) else "openai"
        return describe_model(str(provider), word)
    return ""
