"""Positions: from a key path of the frontmatter to a range of text, and from a range to lines and columns.

A `Finding` counts from the start of its half of the file, so it stays true while the other half changes. A `Problem`
is a finding at its lines and columns of the whole file.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import yaml

from prompty.errors import Problem, Severity, TextEdit
from prompty.redaction import MASK, masked_line, names_a_credential

KeyPath = Sequence[str | int]


class Edit(NamedTuple):
    """Replace the characters from `start` up to `end`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A problem of one half of a file, from the character `start` up to `end` of that half."""

    start: int
    end: int
    code: str
    message: str
    fix: str
    key: str = ""
    severity: Severity = "error"
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Source:
    """The text of a file, with newlines normalized."""

    path: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.text.split("\n")), initial=0))

    def problems(self, findings: Iterable[Finding], offset: int) -> list[Problem]:
        """Locate findings of the half that begins at `offset`."""
        return [self._problem(finding, offset) for finding in findings]

    def _problem(self, finding: Finding, offset: int) -> Problem:
        (line, column), (end_line, end_column) = (self._position(offset + at) for at in (finding.start, finding.end))
        start, end = self._line_starts[line - 1], self._line_starts[line] - 1
        return Problem(
            code=finding.code,
            message=finding.message,
            fix=finding.fix,
            path=self.path,
            line=line,
            column=column,
            end_line=end_line,
            end_column=end_column,
            key=finding.key,
            text=masked_line(self.text[start:end])[:200],
            severity=finding.severity,
            edits=tuple(self._text_edit(edit, offset) for edit in finding.edits),
        )

    def _text_edit(self, edit: Edit, offset: int) -> TextEdit:
        (line, column), (end_line, end_column) = (self._position(offset + at) for at in (edit.start, edit.end))
        return TextEdit(line=line, column=column, end_line=end_line, end_column=end_column, text=edit.text)

    def _position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, min(offset, len(self.text)))
        return line, min(offset, len(self.text)) - self._line_starts[line - 1] + 1


class SourceMap:
    """Where the keys and values of a frontmatter are. It is composed only once a position is needed."""

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
        edits: tuple[Edit, ...] = ()
        if replacement and isinstance(target, yaml.ScalarNode) and self.text[start:end].strip("\"'") == target.value:
            shown = f"`{target.value}`" == self.describe(keys) and "${" not in target.value
            if len(known) == len(keys) if on_key else shown:
                edits = (Edit(start, end, replacement.format(target.value)),)
        return Finding(
            start=start,
            end=end,
            code=code,
            message=message,
            fix=fix,
            key=".".join(map(str, known or keys)),
            severity=severity,
            edits=edits,
        )

    def describe(self, keys: KeyPath) -> str:
        """Return the text at a key path for a message; secrets are masked."""
        node, _, _ = self._find(keys)
        if isinstance(node, yaml.MappingNode):
            return "a mapping"
        if isinstance(node, yaml.SequenceNode):
            return "a list"
        if node is None or not node.value:
            return "nothing"
        secret = any(isinstance(key, str) and names_a_credential(key) for key in keys)
        return MASK if secret else f"`{masked_line(node.value.splitlines()[0])[:60]}`"

    def _range(self, node: yaml.Node | None) -> tuple[int, int]:
        """Return the range of a node; of a list or a mapping only the first line, which is enough to see it."""
        if node is None:
            return 0, 0
        start, end = node.start_mark.index, node.end_mark.index
        written = self.text[start:end]
        if not isinstance(node, yaml.ScalarNode):
            written = written.partition("\n")[0]
        return start, start + len(written.rstrip())

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
