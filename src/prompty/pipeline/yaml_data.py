"""YAML into plain data, without what makes YAML dangerous.

libyaml's parser gives events; this module builds the data from them. That is faster than PyYAML's own
constructor and lets every limit strike while reading: depth, the number of nodes with aliases expanded (the
nine-level alias bomb is 324 bytes), no key twice, no tags that construct things, no timestamps and
times of day. Keys are always text, as written.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml
from yaml._yaml import CParser
from yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent

MAX_DEPTH = 64
MAX_NODES = 100_000

Data = object
Event = Any  # PyYAML's types do not say what the events of each kind carry


class YamlProblem(NamedTuple):
    """What is wrong, and where; lines and columns count from 0, as libyaml's do."""

    message: str
    fix: str
    line: int
    column: int


class YamlError(ValueError):
    """The text is not YAML, or not YAML we read."""

    def __init__(self, problem: YamlProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def read_yaml(text: str) -> tuple[Data, list[YamlProblem]]:
    """The data, and problems that did not keep the rest from being read (keys that stand twice)."""
    try:
        reader = _Reader(text)
        return reader.document(), reader.problems
    except yaml.MarkedYAMLError as error:
        raise YamlError(_from_libyaml(error)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise YamlError(
            YamlProblem(f"a character YAML does not allow: {error.reason}", "Remove it.", line, 0)
        ) from None


def _from_libyaml(error: yaml.MarkedYAMLError) -> YamlProblem:
    mark = error.problem_mark or error.context_mark
    message = ", ".join(part for part in (error.problem, error.context) if part)
    line, column = (mark.line, mark.column) if mark else (0, 0)
    return YamlProblem(message, _advice(message), line, column)


_ADVICE = {
    "mapping values are not allowed": "Put the value in quotes if it contains a colon, or check the indentation.",
    "cannot start any token": "Indent with blanks, not tabs; quote values that begin with @, ` or %.",
    "could not find expected ':'": "Write `key: value` on this line, or indent it under the key above.",
    "did not find expected ',' or ']'": "Close the list with `]`.",
    "did not find expected ',' or '}'": "Close the mapping with `}`.",
    "found undefined tag": "Remove the `!tag`.",
    "undefined alias": "Define the anchor with `&name` before using `*name`.",
}


def _advice(message: str) -> str:
    for part, advice in _ADVICE.items():
        if part in message:
            return advice
    return "Check the indentation, the quotes and the colons of this line and the one above."


class _Anchor(NamedTuple):
    value: Data
    nodes: int


class _Reader:
    def __init__(self, text: str) -> None:
        self.next_event: Callable[[], Event] = CParser(text).get_event
        self.anchors: dict[str, _Anchor] = {}
        self.nodes = 0
        self.problems: list[YamlProblem] = []

    def document(self) -> Data:
        self.next_event()
        event = self.next_event()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        value = self.value(self.next_event(), 0)
        self.next_event()
        event = self.next_event()
        if not isinstance(event, yaml.StreamEndEvent):
            raise _refused(event, "a second YAML document", "Keep one document between the delimiters.")
        return value

    def value(self, event: Event, depth: int) -> Data:
        before = self.nodes
        self.count(event, 1)
        kind = type(event)
        value: Data
        if kind is ScalarEvent:
            value = _scalar(event)
        elif depth >= MAX_DEPTH:
            raise _refused(event, f"nested more than {MAX_DEPTH} levels deep", "Make it flatter.")
        elif kind is MappingStartEvent:
            value = self.mapping(event, depth + 1)
        elif kind is SequenceStartEvent:
            value = self.sequence(event, depth + 1)
        else:
            return self.alias(event)
        if event.anchor:
            self.anchors[event.anchor] = _Anchor(value, self.nodes - before)
        return value

    def count(self, event: Event, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _refused(event, f"more than {MAX_NODES:,} values, aliases expanded", "Move data out of the file.")

    def alias(self, event: Event) -> Data:
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            raise _refused(event, f"the alias *{event.anchor} has no anchor before it", "Define `&name` first.")
        self.count(event, anchor.nodes)
        return anchor.value

    def sequence(self, start: Event, depth: int) -> list[Data]:
        _no_tag(start, "tag:yaml.org,2002:seq")
        values = []
        while type(event := self.next_event()) is not yaml.SequenceEndEvent:
            values.append(self.value(event, depth))
        return values

    def mapping(self, start: Event, depth: int) -> dict[str, Data]:
        _no_tag(start, "tag:yaml.org,2002:map")
        found: dict[str, Data] = {}
        merged: dict[str, Data] = {}
        while type(event := self.next_event()) is not yaml.MappingEndEvent:
            key = self.key(event)
            value = self.value(self.next_event(), depth)
            if key == "<<" and event.implicit[0]:
                self.merge(event, merged, value)
            elif key in found:
                self.problems.append(_twice(event, key))
            else:
                found[key] = value
        return {**merged, **found} if merged else found

    def key(self, event: Event) -> str:
        if type(event) is AliasEvent:
            value = self.alias(event)
            if isinstance(value, str):
                return value
        if type(event) is not ScalarEvent:
            raise _refused(event, "a key that is not text", "Use a word as the key.")
        if event.anchor:
            self.anchors[event.anchor] = _Anchor(event.value, 1)
        return str(event.value)

    def merge(self, event: Event, merged: dict[str, Data], value: Data) -> None:
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise _refused(event, "`<<` needs a mapping", "Write `<<: *anchor` of a mapping.")
            self.count(event, len(source))
            for key, entry in source.items():
                merged.setdefault(key, entry)


def _scalar(event: Event) -> Data:
    text: str = event.value
    if event.tag is not None and event.tag != "!":
        return _tagged(event, text)
    if not event.implicit[0]:
        return text
    if ":" in text:  # YAML 1.1 would read 12:30 as a number to base sixty
        return text
    for tag, pattern in _IMPLICIT.get(text[:1], ()):
        if pattern.match(text):
            return _constructed(event, tag, text)
    return text


def _tagged(event: Event, text: str) -> Data:
    tag = str(event.tag).removeprefix("tag:yaml.org,2002:")
    if tag == "str":
        return text
    if tag not in _CONSTRUCTORS:
        raise _refused(event, f"the YAML tag `{event.tag}`", "Remove the tag.")
    return _constructed(event, tag, text)


def _constructed(event: Event, tag: str, text: str) -> Data:
    try:
        value: Data = _CONSTRUCTORS[tag](yaml.ScalarNode(f"tag:yaml.org,2002:{tag}", text))
    except (ValueError, LookupError, OverflowError):
        raise _refused(event, f"`{text[:40]}` is not a {tag}", "Put it in quotes if it is text.") from None
    return value


_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_CONSTRUCTORS = {
    "bool": _CONSTRUCTOR.construct_yaml_bool,
    "int": _CONSTRUCTOR.construct_yaml_int,
    "float": _CONSTRUCTOR.construct_yaml_float,
    "null": _CONSTRUCTOR.construct_yaml_null,
}


def _implicit_tags() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """YAML 1.1's plain scalars by first character, as PyYAML knows them, without timestamps."""
    return {
        first: wanted
        for first, resolvers in yaml.resolver.Resolver.yaml_implicit_resolvers.items()
        if (wanted := [(short, p) for tag, p in resolvers if (short := tag.rpartition(":")[2]) in _CONSTRUCTORS])
    }


_IMPLICIT = _implicit_tags()


def _no_tag(event: Event, allowed: str) -> None:
    if event.tag not in (None, "!", allowed):
        raise _refused(event, f"the YAML tag `{event.tag}`", "Remove the tag.")


def _twice(event: Event, key: str) -> YamlProblem:
    mark = event.start_mark
    return YamlProblem(f"the key `{key}` stands twice", "Keep one of them.", mark.line, mark.column)


def _refused(event: Event, message: str, fix: str) -> YamlError:
    mark = event.start_mark
    return YamlError(YamlProblem(message, fix, mark.line, mark.column))
