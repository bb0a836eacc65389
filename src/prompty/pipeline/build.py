"""Build a file that any runtime can read from one with partials, or from a variant and its base."""

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import yaml

from prompty.model.property import Property
from prompty.pipeline.frontmatter import open_document, read_frontmatter
from prompty.pipeline.load import StrPath, load, read_document, read_prompt
from prompty.pipeline.references import References
from prompty.v1.rewrite import create_editor

_WIDTH = 100_000  # do not wrap the lines of texts


def build_text(path: StrPath, *, variant: str | None = None, allowed_roots: Sequence[StrPath] = ()) -> str:
    """Return a prompt, or a variant of it, as one file: partials are inserted, and their inputs are declared.

    Comments in the frontmatter are kept if possible. Raise LoadError if the file is invalid.
    """
    agent = load(path, variant=variant, allowed_roots=allowed_roots)
    file = agent.path or Path(path)
    source, parts, frontmatter, base = read_document(file, str(file), References(file.parent))
    if not agent.files:
        return source.text
    data, declared = dict(frontmatter.data or {}), _list_names((frontmatter.data or {}).get("inputs"))
    added = [entry for entry in agent.inputs if entry.name not in declared]
    if base is None and not added:
        return f"{source.text[: parts.body_start]}{agent.instructions}\n"
    own, before = parts.frontmatter or "", ""
    if base is not None:
        before, own = (
            own,
            open_document(read_prompt(base.path, base.path.name)[0], base.path.name).parts.frontmatter or "",
        )
    return f"---\n{_merge_text(own, before, data, added)}---\n{agent.instructions}\n"


def _list_names(inputs: Any) -> set[str]:
    if isinstance(inputs, list):
        return {str(entry.get("name")) for entry in inputs if isinstance(entry, dict)}
    return set(inputs or ())


def _merge_text(text: str, patch: str, merged: Mapping[str, Any], inputs: Sequence[Property]) -> str:
    """Return a patched frontmatter, whose data is `merged`, with more inputs.

    If the text cannot be edited, for example because values share an anchor, the data is written without comments.
    """
    editor = create_editor(text)
    tree: Any = editor.load(text) or {}
    _patch(tree, editor.load(patch) or {})
    if read_frontmatter(_dump(editor, tree)).data != merged:
        tree = editor.load(yaml.safe_dump(merged, allow_unicode=True, sort_keys=False, width=_WIDTH))
    _declare(tree, inputs)
    return _dump(editor, tree) if tree else ""


def _patch(tree: Any, patch: Any) -> None:
    """Merge a patch into a tree as `merge_patch` does, with its comments."""
    comments = getattr(getattr(patch, "ca", None), "items", {})
    for key, value in patch.items():
        if value is None:
            tree.pop(key, None)
        elif isinstance(value, dict) and isinstance(tree.get(key), dict):
            _patch(tree[key], value)
        else:
            tree[key] = value
            if isinstance(value, dict):
                _remove_nulls(value)
            if hasattr(tree, "ca"):
                _replace_comment(tree.ca.items, key, comments.get(key))


def _replace_comment(comments: Any, key: str, new: Any) -> None:
    """Replace the comment after a value, which was about the old value. Comments on the lines below stay."""
    old = comments.get(key)
    if new is not None:
        comments[key] = new
    elif old and old[2] is not None and old[2].value.count("\n") <= 1:
        del comments[key]


def _remove_nulls(tree: Any) -> None:
    for key, value in list(tree.items()):
        if value is None:
            del tree[key]
        elif isinstance(value, dict):
            _remove_nulls(value)


def _declare(tree: Any, inputs: Sequence[Property]) -> None:
    if inputs and tree.get("inputs") is None:
        tree["inputs"] = {}
    for entry in inputs:
        data = entry.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if isinstance(tree["inputs"], list):
            tree["inputs"].append(data)
        else:
            tree["inputs"][data.pop("name")] = data


def _dump(editor: Any, tree: Any) -> str:
    stream = StringIO()
    editor.dump(tree, stream)
    return stream.getvalue()
