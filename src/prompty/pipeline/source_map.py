"""Positions: map a key path of the frontmatter to a range of text, and a range to lines and columns.

A `Finding` counts from the start of its half of the file, so it stays valid when the other half changes.
`Source.problems` converts it to lines and columns of the whole file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Any, NamedTuple

import yaml

from prompty.errors import Problem, Severity, TextEdit
from prompty.safety.redaction import MASK, is_credential_name, mask_line

KeyPath = Sequence[str | int]
MAX_PROBLEMS = 100  # per file, which can have 100,000


class Edit(NamedTuple):
    """Replace the characters from `start` up to `end`."""

    start: int
    end: int
    text: str


class Finding(NamedTuple):
    """A problem without its position, and the range of characters in one half of a file."""

    start: int
    end: int
    problem: Problem
    edits: tuple[Edit, ...] = ()


class Line(NamedTuple):
    """A line of a text, and its start position."""

    start: int
    text: str

    @property
    def content(self) -> tuple[int, int]:
        """The range without surrounding whitespace."""
        indented = len(self.text) - len(self.text.lstrip())
        return self.start + indented, self.start + max(indented, len(self.text.rstrip()))


def split_lines(text: str) -> list[Line]:
    lines = text.split("\n")
    return list(map(Line, accumulate((len(line) + 1 for line in lines), initial=0), lines))


def first_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding more than the limit at most, so that `first_problems` sees if there are too many."""
    return list(islice(findings, MAX_PROBLEMS + 1))


def first_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in line order. If there are too many, return the first, with errors preferred, and a note."""
    ordered = sorted(problems, key=_get_position)
    if len(ordered) <= MAX_PROBLEMS:
        return ordered
    ranked = sorted(ordered, key=lambda problem: problem.severity != "error")
    shown, left = sorted(ranked[:MAX_PROBLEMS], key=_get_position), ranked[MAX_PROBLEMS]
    message = f"the file has more than {MAX_PROBLEMS} problems; the rest are not shown"
    fix = "Fix these, then check the file again."
    last = shown[-1]
    code, severity = "too-many-problems", left.severity
    note = Problem(code=code, message=message, fix=fix, path=last.path, line=last.line, severity=severity)
    return [*shown, replace(note, column=last.column, end_line=last.end_line, end_column=last.end_column)]


def _get_position(problem: Problem) -> tuple[int, int]:
    return problem.line, problem.column


class SourceText:
    """The text of a file, with newlines normalized."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self._cursor = (0, 1)

    def describe(self, at: int) -> str:
        """Return the path, the line and the column of a character."""
        line, column = self._position(at)
        return f"{self.path}:{line}:{column}"

    def problems(self, findings: Iterable[Finding], offset: int) -> list[Problem]:
        """Return findings in the half that starts at `offset` as problems of the file."""
        problems = []
        for start, end, problem, edits in findings:
            text_edits = [
                TextEdit(**self._range(offset + edit.start, offset + edit.end), text=edit.text) for edit in edits
            ]
            place = self._range(offset + start, offset + end)
            line_start = offset + start - place["column"] + 1
            line_end = self.text.find("\n", line_start)
            line = self.text[line_start : None if line_end < 0 else line_end]
            # A credential may be on the line below its key, where nothing marks it as one.
            hidden = [name for name in problem.key.split(".") if is_credential_name(name) and name not in line]
            text = MASK if hidden else mask_line(line)[:200]
            problems.append(replace(problem, path=self.path, text=text, edits=tuple(text_edits), **place))
        return problems

    def _range(self, start: int, end: int) -> dict[str, Any]:
        (line, column), (end_line, end_column) = self._position(start), self._position(end)
        return {"line": line, "column": column, "end_line": end_line, "end_column": end_column}

    def _position(self, at: int) -> tuple[int, int]:
        # Count lines from the last position: findings are nearly in order, and there may be many.
        # Threads may share the text, so position and line change together.
        last, line = self._cursor
        line += self.text.count("\n", last, at) if at >= last else -self.text.count("\n", at, last)
        self._cursor = (at, line)
        return line, at - self.text.rfind("\n", 0, at)


class SourceMap:
    """Positions of a frontmatter's keys and values, computed on first use."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._entry_names: dict[yaml.Node, dict[str, int]] = {}
        self._mappings: dict[yaml.Node, tuple[dict[str, tuple[yaml.Node, yaml.Node]], list[str]]] = {}

    @cached_property
    def _root(self) -> yaml.Node | None:
        # Composing again is safe: the text has already passed the YAML reader's limits.
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
        """Return a finding at the value (or the key itself) of a key path, or at its nearest parent in the file.

        `replacement`, with `{}` for the current text, becomes an edit if the path leads to plain text, not to an alias,
        a merged key, a reference or a secret.
        """
        node, key_node, known = self.find(keys)
        target = key_node if on_key and key_node is not None else node
        start, end = self._range(target)
        problem = Problem(code=code, message=message, fix=fix, key=".".join(map(str, known or keys)), severity=severity)
        if replacement and isinstance(target, yaml.ScalarNode) and self.text[start:end].strip("\"'") == target.value:
            is_plain = f"`{target.value}`" == self.describe(keys) and "${" not in target.value
            if len(known) == len(keys) if on_key else is_plain:
                return Finding(start, end, problem, (Edit(start, end, replacement.format(target.value)),))
        return Finding(start, end, problem)

    def describe(self, keys: KeyPath) -> str:
        """Return the text at a key path for a message; secrets are masked."""
        node, _, _ = self.find(keys)
        if isinstance(node, yaml.MappingNode):
            return "a mapping"
        if isinstance(node, yaml.SequenceNode):
            return "a list"
        if node is None or not node.value:
            return "nothing"
        secret = any(isinstance(key, str) and is_credential_name(key) for key in keys)
        return MASK if secret else f"`{mask_line(node.value.splitlines()[0])[:60]}`"

    def _range(self, node: yaml.Node | None) -> tuple[int, int]:
        """Return the range of a node, or of the first line for a list or a mapping."""
        if node is None:
            return 0, 0
        text = self.text[node.start_mark.index : node.end_mark.index]
        if not isinstance(node, yaml.ScalarNode):
            text = text.partition("\n")[0]
        return node.start_mark.index, node.start_mark.index + len(text.rstrip())

    def find(self, keys: KeyPath) -> tuple[yaml.Node | None, yaml.Node | None, list[str | int]]:
        """Follow a key path as deep as possible, skipping steps that the file lacks, like the tag of a union."""
        node, key_node, known = self._root, None, list[str | int]()
        for key in keys:
            if isinstance(key, int) and known[-1:] == ["parameters"]:
                node = self._unwrap_properties(node)
            step = self._step(node, key)
            if step is not None:
                key_node, node, name = step
                known.append(name)
        return node, key_node, known

    def _unwrap_properties(self, node: yaml.Node | None) -> yaml.Node | None:
        """Return the list in `parameters: {properties: […]}`, or the node itself."""
        entries = self._entries(node)[0] if isinstance(node, yaml.MappingNode) else {}
        inner = entries["properties"][1] if entries.keys() == {"properties"} else None
        return inner if isinstance(inner, yaml.SequenceNode) else node

    def _step(self, node: yaml.Node | None, key: str | int) -> tuple[yaml.Node, yaml.Node, str | int] | None:
        if isinstance(node, yaml.MappingNode):
            entries, names = self._entries(node)
            if isinstance(key, int):  # the nth entry of a mapping in place of a list
                key = names[key] if key < len(names) else ""
            return (*entries[key], key) if key in entries else None
        if isinstance(node, yaml.SequenceNode):
            index = key if isinstance(key, int) else self._find_entry(node, key)
            if index is not None and index < len(node.value):
                return node.value[index], node.value[index], index
        return None

    def _find_entry(self, node: yaml.SequenceNode, name: str) -> int | None:
        """Return the index of the entry with this name: a list in place of a mapping."""
        names = self._entry_names.get(node)
        if names is None:
            mappings = (self._entries(entry)[0] if isinstance(entry, yaml.MappingNode) else {} for entry in node.value)
            named = [entries["name"][1] if "name" in entries else None for entries in mappings]
            names = self._entry_names[node] = {
                found.value: index
                for index, found in reversed([*enumerate(named)])
                if isinstance(found, yaml.ScalarNode)  # YAML may have a list as a name
            }
        return names.get(name, int(name) if name.isdecimal() and len(name) < 9 else None)

    def _entries(self, node: yaml.MappingNode) -> tuple[dict[str, tuple[yaml.Node, yaml.Node]], list[str]]:
        """Return the keys and values of a mapping by name, and the names by index.

        The lookup must not be linear.
        """
        indexed = self._mappings.get(node)
        if indexed is None:
            entries = dict[str, tuple[yaml.Node, yaml.Node]]()
            for name, value in node.value:
                if isinstance(name, yaml.ScalarNode):
                    entries.setdefault(name.value, (name, value))
            indexed = self._mappings[node] = entries, list(entries)
        return indexed
