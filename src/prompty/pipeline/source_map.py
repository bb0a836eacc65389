"""Positions: from a key path of the frontmatter to a range of text, and from a range to lines and columns.

A `Finding` counts from the start of its half of the file, so it stays true while the other half changes.
`Source.problems` puts findings at their lines and columns of the whole file.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import yaml

from prompty.errors import Problem, Severity, TextEdit
from prompty.safety.redaction import MASK, is_credential_name, mask_line

KeyPath = Sequence[str | int]


class Edit(NamedTuple):
    """Replace the characters from `start` up to `end`."""

    start: int
    end: int
    text: str


class Finding(NamedTuple):
    """A problem, without its position, from the character `start` up to `end` of one half of a file."""

    start: int
    end: int
    problem: Problem
    edits: tuple[Edit, ...] = ()


class Line(NamedTuple):
    """A line of a text, and the character that it begins at."""

    start: int
    text: str

    @property
    def content(self) -> tuple[int, int]:
        """The range without the whitespace around it."""
        indented = len(self.text) - len(self.text.lstrip())
        return self.start + indented, self.start + max(indented, len(self.text.rstrip()))


def split_lines(text: str) -> list[Line]:
    """Split a text at its newlines."""
    lines = text.split("\n")
    return list(map(Line, accumulate((len(line) + 1 for line in lines), initial=0), lines))


@dataclass(frozen=True)
class Source:
    """The text of a file, with newlines normalized."""

    path: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.text.split("\n"))]

    def problems(self, findings: Iterable[Finding], offset: int) -> list[Problem]:
        """Return findings of the half that begins at `offset` as problems of the file."""
        problems = []
        for start, end, problem, edits in findings:
            place = self._range(offset + start, offset + end)
            line_start, next_start = self._line_starts[place["line"] - 1 : place["line"] + 1]
            text = mask_line(self.text[line_start : next_start - 1])[:200]
            text_edits = [
                TextEdit(**self._range(offset + edit.start, offset + edit.end), text=edit.text) for edit in edits
            ]
            problems.append(replace(problem, path=self.path, text=text, edits=tuple(text_edits), **place))
        return problems

    def _range(self, start: int, end: int) -> dict[str, Any]:
        line, end_line = (bisect_right(self._line_starts, at) for at in (start, end))
        column, end_column = start - self._line_starts[line - 1] + 1, end - self._line_starts[end_line - 1] + 1
        return {"line": line, "column": column, "end_line": end_line, "end_column": end_column}


class SourceMap:
    """The keys and values of a frontmatter by their positions. It is built once a position is needed."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _root(self) -> yaml.Node | None:
        # Composing again is safe: the text has passed the limits of the YAML reader before a position is needed.
        root: yaml.Node | None = yaml.compose(self.text, yaml.CSafeLoader)
        return root

    def locate(
        self,
        keys: KeyPath,
        code: str,
        message: str,
        fix: str,
        *,
        severity: Severity = "error",
        on_key: bool = False,
        replacement: str | None = None,
    ) -> Finding:
        """Return a finding at the value (or the key itself) of a key path, or as near to it as the file goes.

        `replacement`, in which `{}` is the text itself, becomes an edit if the path leads to plain text of the file:
        not to an alias, a merged key, a reference or a secret.
        """
        node, key_node, known = self._find(keys)
        target = key_node if on_key and key_node is not None else node
        start, end = self._range(target)
        problem = Problem(code=code, message=message, fix=fix, key=".".join(map(str, known or keys)), severity=severity)
        if replacement and isinstance(target, yaml.ScalarNode) and self.text[start:end].strip("\"'") == target.value:
            shown = f"`{target.value}`" == self.describe(keys) and "${" not in target.value
            if len(known) == len(keys) if on_key else shown:
                return Finding(start, end, problem, (Edit(start, end, replacement.format(target.value)),))
        return Finding(start, end, problem)

    def describe(self, keys: KeyPath) -> str:
        """Return the text at a key path for a message; secrets are masked."""
        node, _, _ = self._find(keys)
        if isinstance(node, yaml.MappingNode):
            return "a mapping"
        if isinstance(node, yaml.SequenceNode):
            return "a list"
        if node is None or not node.value:
            return "nothing"
        secret = any(isinstance(key, str) and is_credential_name(key) for key in keys)
        return MASK if secret else f"`{mask_line(node.value.splitlines()[0])[:60]}`"

    def _range(self, node: yaml.Node | None) -> tuple[int, int]:
        """Return the range of a node; of a list or a mapping the first line, which is enough to see it."""
        if node is None:
            return 0, 0
        text = self.text[node.start_mark.index : node.end_mark.index]
        if not isinstance(node, yaml.ScalarNode):
            text = text.partition("\n")[0]
        return node.start_mark.index, node.start_mark.index + len(text.rstrip())

    def _find(self, keys: KeyPath) -> tuple[yaml.Node | None, yaml.Node | None, list[str | int]]:
        """Follow a key path as deep as the file goes, skipping steps it does not have (the tag of a union, say)."""
        node, key_node, known = self._root, None, list[str | int]()
        for key in keys:
            step = _step(node, key)
            if step is not None:
                key_node, node, name = step
                known.append(name)
        return node, key_node, known


def _step(node: yaml.Node | None, key: str | int) -> tuple[yaml.Node, yaml.Node, str | int] | None:
    if isinstance(node, yaml.MappingNode):
        entries = [(name, value) for name, value in node.value if isinstance(name, yaml.ScalarNode)]
        if isinstance(key, int):  # the nth entry of a mapping that stands for a list
            return (*entries[key], entries[key][0].value) if key < len(entries) else None
        return next(((name, value, key) for name, value in entries if name.value == key), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key], key
    return None
