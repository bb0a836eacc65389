"""The names in a document: inputs, tools, cases and files, where they are declared and where they are used.

A document is read as far as it is valid. Offsets are those of its text as the client has it.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, NamedTuple

import yaml

from prompty.cases.reading import RULES
from prompty.errors import RenderError, UnknownName
from prompty.pipeline.frontmatter import Unclosed, read_frontmatter, split
from prompty.pipeline.source_map import SourceMap
from prompty.registry import DEFAULT
from prompty.renderers import RENDERERS
from prompty.safety.yaml import YamlError, read_yaml

NameKind = Literal["input", "tool", "case", "file"]
_FILE = re.compile(r"\$\{file:([^{}\n]+)\}")
_FILE_KEYS = frozenset({"path", "specification", "prompt", "judge"})
_INPUT_LINE = re.compile(r"^[ ]+(?:- name:[ ]*)?([A-Za-z_]\w*)[ ]*(?::|$)", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:---|\+\+\+)[ \t]*\n")


class Occurrence(NamedTuple):
    """A name in a document. `is_local` is True for one that the template itself gives a value."""

    kind: NameKind
    text: str
    start: int
    end: int
    is_declaration: bool = False
    is_local: bool = False


class FileOutline:
    """The parts of a prompt or of a test file."""

    def __init__(self, text: str, *, is_test: bool) -> None:
        # The same length as the text, so that offsets stay valid.
        flat = text.replace("\r\n", " \n").replace("\r", "\n")
        self.text: str = " " + flat[1:] if flat.startswith("\ufeff") else flat
        self.is_test = is_test
        self.start: int = 0  # of the YAML
        self.end: int = len(flat)
        self.body_start: int = len(flat)
        if not is_test:
            try:
                parts = split(self.text)
                self.start, self.body_start = parts.frontmatter_start, parts.body_start
                self.end = self.start + len(parts.frontmatter or "")
            except Unclosed:
                opening = _OPENING.match(self.text)
                self.start = opening.end() if opening else len(flat)

    @property
    def body(self) -> str:
        return self.text[self.body_start :]

    @cached_property
    def _parsed(self) -> tuple[dict[str, Any], yaml.Node | None]:
        source = self.text[self.start : self.end]
        try:
            data = read_yaml(source, RULES)[0] if self.is_test else read_frontmatter(source).data
        except YamlError:
            data = None
        if not isinstance(data, dict):
            return {}, None
        return data, SourceMap(source).find(())[0]

    @property
    def data(self) -> dict[str, Any]:
        """The data of the YAML, or nothing if it is invalid."""
        return self._parsed[0]

    @cached_property
    def engine(self) -> Any:
        template = self.data.get("template")
        format = template.get("format", template.get("type")) if isinstance(template, dict) else template
        kind = format.get("kind") if isinstance(format, dict) else format
        try:
            return DEFAULT[RENDERERS].get(kind if isinstance(kind, str) else "jinja2")
        except UnknownName:
            return None

    @cached_property
    def names(self) -> list[Occurrence]:
        root = self._parsed[1]
        found = (
            [*self._find_in_tests(root)] if self.is_test else [*self._find_in_frontmatter(root), *self._find_in_body()]
        )
        files = (Occurrence("file", one[1], *one.span(1)) for one in _FILE.finditer(self.text, self.start, self.end))
        paths = (self._name("file", value) for key, value in _walk(root) if key in _FILE_KEYS)
        return sorted([*found, *files, *filter(None, paths)], key=lambda name: name.start)

    def list_inputs(self) -> dict[str, Any]:
        """Return the declared inputs by name. While the YAML is invalid, they are found by their lines."""
        if not self.data and (above := re.search(r"^inputs:[ ]*\n((?:[ -].*\n|\n)*)", self.text, re.MULTILINE)):
            indents = [len(line) - len(line.lstrip(" ")) for line in above[1].splitlines() if line.strip()]
            lines = [
                line for line in above[1].splitlines() if len(line) - len(line.lstrip(" ")) == min(indents, default=0)
            ]
            return dict.fromkeys(_INPUT_LINE.findall("\n".join(lines)))
        return self._list_entries("inputs")

    def list_tools(self) -> dict[str, Any]:
        return self._list_entries("tools")

    def _list_entries(self, key: str) -> dict[str, Any]:
        entries = self.data.get(key)
        if isinstance(entries, dict):
            return entries
        named = entries if isinstance(entries, list) else []
        return {
            entry["name"]: entry for entry in named if isinstance(entry, dict) and isinstance(entry.get("name"), str)
        }

    def find(self, offset: int) -> Occurrence | None:
        """Return the name at an offset."""
        return next((name for name in self.names if name.start <= offset <= name.end), None)

    def _name(self, kind: NameKind, node: yaml.Node | None, *, is_declaration: bool = False) -> Occurrence | None:
        """Return the name that a scalar is, if its text is plain."""
        if not isinstance(node, yaml.ScalarNode) or not node.value or "${" in node.value:
            return None
        start, end = self.start + node.start_mark.index, self.start + node.end_mark.index
        if self.text[start : start + 1] in ("'", '"'):
            start, end = start + 1, end - 1
        text = self.text[start:end]
        return Occurrence(kind, text, start, end, is_declaration) if text == node.value else None

    def _find_in_frontmatter(self, root: yaml.Node | None) -> Iterator[Occurrence]:
        top = _get_entries(root)
        declared = set(self.list_inputs())
        kinds: tuple[tuple[str, NameKind], ...] = (("inputs", "input"), ("tools", "tool"))
        for key, kind in kinds:
            for node, _ in _list_named(top.get(key)):
                if name := self._name(kind, node, is_declaration=True):
                    yield name
        for _, tool in _list_named(top.get("tools")):
            bindings = _get_entries(tool).get("bindings")
            values = [value for _, value in _list_named(bindings)]
            for value in [_get_entries(value).get("input", value) for value in values]:
                if (name := self._name("input", value)) and (name.text in declared):
                    yield name

    def _find_in_body(self) -> Iterator[Occurrence]:
        body, at = self.body, self.body_start
        for text, start, end, is_local in getattr(self.engine, "names", lambda _: ())(body):
            yield Occurrence("input", text, at + start, at + end, is_local=is_local)
        try:
            for include in getattr(self.engine, "includes", lambda _: ())(body):
                start = body.find(include.name, include.start, include.end)
                yield Occurrence("file", include.name, at + start, at + start + len(include.name))
        except RenderError:
            return

    def _find_in_tests(self, root: yaml.Node | None) -> Iterator[Occurrence]:
        top = _get_entries(root)
        cases = top.get("cases")
        for part in [top.get("defaults"), *(cases.value if isinstance(cases, yaml.SequenceNode) else ())]:
            entries = _get_entries(part)
            names = [self._name("case", entries.get("name"), is_declaration=True)]
            names += [self._name("input", key) for key, _ in _list_pairs(entries.get("inputs"))]
            names += [self._name("tool", key) for key, _ in _list_pairs(entries.get("tools"))]
            for key, value in _walk(entries.get("expect")):
                if key == "tools":
                    calls = _get_entries(value)
                    lists = [calls[one] for one in ("equals", "contains", "not_contains") if one in calls] or [value]
                    names += [self._name("tool", call) for one in lists for call in _list_calls(one)]
            yield from filter(None, names)


def _list_pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _get_entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    return {key.value: value for key, value in _list_pairs(node) if isinstance(key, yaml.ScalarNode)}


def _list_named(node: yaml.Node | None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Yield the name and the value of each entry of a mapping, or of a list whose entries have a `name`."""
    yield from _list_pairs(node)
    for entry in node.value if isinstance(node, yaml.SequenceNode) else ():
        if name := _get_entries(entry).get("name"):
            yield name, entry


def _list_calls(node: yaml.Node) -> Iterator[yaml.Node]:
    for call in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        yield from (key for key, _ in _list_pairs(call)) if isinstance(call, yaml.MappingNode) else [call]


def _walk(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    """Yield each key with its value, at any depth. An alias is visited once."""
    waiting, seen = [node], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen or isinstance(node, yaml.ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        for key, value in _list_pairs(node):
            if isinstance(key, yaml.ScalarNode):
                yield key.value, value
            waiting.append(value)
