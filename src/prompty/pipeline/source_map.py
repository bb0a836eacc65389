"""The text of a file, and where in it things stand: from a key path to a line a person can go to."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import yaml

from prompty.errors import Problem, Severity
from prompty.pipeline.frontmatter import Parts
from prompty.redaction import MASK, masked_line, names_a_credential

KeyPath = Sequence[str | int]


@dataclass(frozen=True)
class Source:
    """A file that was split. Positions are looked up only once there is something to say about them."""

    path: str
    text: str
    parts: Parts

    @cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def root(self) -> yaml.Node | None:
        # Composing again is safe: the frontmatter passed the limits of `yaml_data` before anything asks for this.
        root: yaml.Node | None = yaml.compose(self.parts.frontmatter or "", yaml.CSafeLoader)
        return root

    def at(
        self,
        line: int,
        column: int,
        code: str,
        message: str,
        fix: str,
        *,
        key: str = "",
        severity: Severity = "error",
    ) -> Problem:
        """A problem at a line and column of the file, counted from 1."""
        shown = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return Problem(
            code=code,
            message=message,
            fix=fix,
            path=self.path,
            line=line,
            column=column,
            key=key,
            text=masked_line(shown)[:200],
            severity=severity,
        )

    def at_key(
        self,
        keys: KeyPath,
        code: str,
        message: str,
        fix: str,
        *,
        severity: Severity = "error",
        on_key: bool = False,
    ) -> Problem:
        """A problem at the value (or the key itself) that a key path leads to, or as near to it as the file has."""
        node, key_node, known = self._find(keys)
        shown = key_node if on_key and key_node is not None else node
        mark = shown.start_mark if shown is not None else None
        line, column = (mark.line, mark.column) if mark is not None else (0, 0)
        return self.at(
            line + self.parts.frontmatter_line,
            column + 1,
            code,
            message,
            fix,
            key=".".join(map(str, known or keys)),
            severity=severity,
        )

    def written(self, keys: KeyPath) -> str:
        """What the file says at a key path, as far as it may be shown."""
        node, _, _ = self._find(keys)
        if isinstance(node, yaml.MappingNode):
            return "a mapping"
        if isinstance(node, yaml.SequenceNode):
            return "a list"
        if node is None or not node.value:
            return "nothing"
        secret = any(isinstance(key, str) and names_a_credential(key) for key in keys)
        return MASK if secret else f"`{masked_line(node.value.splitlines()[0])[:60]}`"

    def body_problem(self, line: int, code: str, message: str, fix: str, severity: Severity = "error") -> Problem:
        """A problem at a line of the body, counted from 1."""
        file_line = self.parts.body_line + line - 1
        shown = self.lines[file_line - 1] if 0 < file_line <= len(self.lines) else ""
        column = len(shown) - len(shown.lstrip()) + 1
        return self.at(file_line, column, code, message, fix, severity=severity)

    def _find(self, keys: KeyPath) -> tuple[yaml.Node | None, yaml.Node | None, list[str | int]]:
        """Walk as deep as the file goes, passing over steps it does not have (the tag of a union, say)."""
        node, key_node, known = self.root, None, list[str | int]()
        for key in keys:
            step = _step(node, key)
            if step is not None:
                key_node, node, name = step
                known.append(name)
        return node, key_node, known


def _step(node: yaml.Node | None, key: str | int) -> tuple[yaml.Node, yaml.Node, str | int] | None:
    if isinstance(node, yaml.MappingNode):
        entries = [(name, value) for name, value in node.value if isinstance(name, yaml.ScalarNode)]
        if isinstance(key, int):  # the nth entry of a map that stands for a list
            return (*entries[key], entries[key][0].value) if key < len(entries) else None
        return next(((name, value, key) for name, value in entries if name.value == key), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key], key
    return None
