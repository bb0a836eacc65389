"""Write a translated frontmatter as YAML, with the comments, the quotes and the order of the v1 file."""

from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from typing import Any

import yaml

from prompty.extras import require
from prompty.safety.yaml import YamlError, read_yaml
from prompty.v1.comments import insert_comments
from prompty.v1.draft import V1Data, V1Keys

_WIDTH = 100_000  # do not wrap the lines of texts


def rewrite_frontmatter(text: str, source: V1Data, data: V1Data, moves: Mapping[V1Keys, V1Keys]) -> str:
    """Return the YAML of v2 data that was translated from `source`, whose YAML is `text`.

    `moves` maps key paths of the data to those of the source.
    """
    ruamel = require("ruamel.yaml", extra="cli")
    editor = ruamel.YAML()
    editor.preserve_quotes = True
    editor.width = _WIDTH
    if _indents_lists(text):
        editor.indent(mapping=2, sequence=4, offset=2)
    stream, drafts = StringIO(), list[str]()
    try:
        tree = editor.load(text)
        editor.dump(_Builder(tree, source, moves, ruamel).build(data, ()), stream)
        drafts.append(stream.getvalue())
    except (ruamel.error.YAMLError, ValueError):
        pass  # it parses the text differently
    plain: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=_WIDTH)
    for draft in (*drafts, plain):
        written = insert_comments(text, draft, moves)
        with suppress(YamlError):
            if _is_same(read_yaml(written)[0] or {}, data):
                return written
    return plain


def _indents_lists(text: str) -> bool:
    """Return True if the first list is indented below its key."""
    above = ""
    for line in text.split("\n"):
        if line.lstrip().startswith("- ") and above.rstrip().endswith(":"):
            return len(line) - len(line.lstrip()) > len(above) - len(above.lstrip())
        above = line if line.strip() else above
    return False


def _is_same(first: Any, second: Any) -> bool:
    """Compare data: true is not 1, and 1.0 is not 1."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(first) == list(second) and all(_is_same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_is_same, first, second))
    return bool(first == second) or first != first  # not a number


class _Builder:
    """Builds a tree for ruamel.yaml. A scalar from the source keeps its style, a mapping or a list its form."""

    def __init__(self, tree: Any, source: V1Data, moves: Mapping[V1Keys, V1Keys], ruamel: Any) -> None:
        self._tree, self._source, self._moves = tree, source, moves
        self._types, self._quoted = ruamel.comments, ruamel.scalarstring.DoubleQuotedScalarString

    def build(self, value: Any, keys: V1Keys) -> Any:
        origin = next(
            (
                self._moves[keys[:length]] + keys[length:]
                for length in range(len(keys), 0, -1)
                if keys[:length] in self._moves
            ),
            keys,
        )
        node = _get(self._tree, origin)
        if isinstance(value, dict):
            target = self._types.CommentedMap((key, self.build(entry, (*keys, key))) for key, entry in value.items())
        elif isinstance(value, list):
            target = self._types.CommentedSeq([self.build(entry, (*keys, at)) for at, entry in enumerate(value)])
        elif node is not None and not isinstance(node, dict | list) and _is_same(_get(self._source, origin), value):
            return node
        else:
            return self._quoted(value) if isinstance(value, str) and _needs_quotes(value) else value
        if isinstance(node, type(target)) and node.fa.flow_style():
            target.fa.set_flow_style()
        return target


def _get(data: Any, keys: V1Keys) -> Any:
    for key in keys:
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            return None
    return data


def _needs_quotes(text: str) -> bool:
    """Return True if prompty's reader, which follows YAML 1.1, would not read plain YAML as this text."""
    try:
        return bool(read_yaml(text)[0] != text)
    except YamlError:
        return "\n" not in text
