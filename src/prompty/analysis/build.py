"""Build a file that any runtime reads from one with partials."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from prompty.extras import require
from prompty.model.property import Property
from prompty.pipeline.frontmatter import read_frontmatter
from prompty.pipeline.load import StrPath, load, open_source, read_prompt

_WIDTH = 100_000  # do not wrap the lines of texts


def build_text(path: StrPath, *, allowed_roots: Sequence[StrPath] = ()) -> str:
    """Return a prompt as one file: its partials are inserted, and their inputs are declared. The frontmatter and its
    comments are kept. Raise LoadError if the file cannot be used."""
    agent = load(path, allowed_roots=allowed_roots)
    text, _ = read_prompt(Path(path).absolute(), str(path))
    source, parts = open_source(text, str(path))
    if not agent.partials:
        return source.text
    head, frontmatter = source.text[: parts.body_start], parts.frontmatter
    declared = _list_names((read_frontmatter(frontmatter or "").data or {}).get("inputs"))
    if more := [entry for entry in agent.inputs if entry.name not in declared]:
        start = parts.frontmatter_start
        after = head[start + len(frontmatter) :] if frontmatter is not None else "---\n"
        head = (head[:start] or "---\n") + _add_inputs(frontmatter or "", more) + after
    return f"{head}{agent.instructions}\n"


def _list_names(inputs: Any) -> set[str]:
    if isinstance(inputs, list):
        return {str(entry.get("name")) for entry in inputs if isinstance(entry, dict)}
    return set(inputs or ())


def _add_inputs(frontmatter: str, inputs: Sequence[Property]) -> str:
    editor = require("ruamel.yaml", extra="cli").YAML()
    editor.preserve_quotes = True
    editor.width = _WIDTH
    tree = editor.load(frontmatter) if frontmatter.strip() else {}
    declared = tree.get("inputs")
    if declared is None:
        declared = tree["inputs"] = {}
    for entry in inputs:
        data = entry.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if isinstance(declared, list):
            declared.append(data)
        else:
            declared[data.pop("name")] = data
    stream = StringIO()
    editor.dump(tree, stream)
    return stream.getvalue()
