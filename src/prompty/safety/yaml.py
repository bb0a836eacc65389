"""YAML reader: plain data, without YAML's dangerous features.

libyaml parses events, and this module builds the data from them. That is faster than PyYAML's constructor, and every
limit applies while reading: depth, the number of values with aliases expanded (the nine-level alias bomb is 324 bytes),
no tags that construct objects, no timestamps and times of day. Keys are always text, as written.
"""

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple

import yaml
from yaml._yaml import CParser
from yaml.events import AliasEvent, MappingStartEvent, ScalarEvent, SequenceStartEvent

Data = object
YamlEvent = Any  # PyYAML's types lack the fields of each kind of event
_TAG_PREFIX = "tag:yaml.org,2002:"


class YamlProblem(NamedTuple):
    """A mistake and its position. Lines and columns count from 0, as in libyaml."""

    message: str
    fix: str
    line: int
    column: int


class YamlError(ValueError):
    """The text is not YAML, or exceeds the rules."""

    def __init__(self, problem: YamlProblem) -> None:
        super().__init__(f"{problem.message} (line {problem.line + 1})")
        self.problem = problem


class Schema(NamedTuple):
    """The types of plain scalars: patterns by first character, and constructors by tag. `merges` enables `<<`."""

    patterns: Mapping[str, list[tuple[str, re.Pattern[str]]]]
    constructors: Mapping[str, Callable[[str], Data]]
    merges: bool


class Rules(NamedTuple):
    """A schema and limits. `max_nodes` counts values with their aliases expanded."""

    schema: Schema
    max_depth: int
    max_nodes: int


def _build_yaml_1_1() -> Schema:
    """Build the schema from PyYAML's patterns, without timestamps."""
    constructor = yaml.constructor.SafeConstructor()
    methods = {tag: getattr(constructor, f"construct_yaml_{tag}") for tag in ("bool", "int", "float", "null")}
    patterns = {
        first: wanted
        for first, resolvers in yaml.resolver.Resolver.yaml_implicit_resolvers.items()
        if (wanted := [(tag, p) for name, p in resolvers if (tag := name.removeprefix(_TAG_PREFIX)) in methods])
    }
    constructors = {
        tag: lambda text, tag=tag, method=method: method(yaml.ScalarNode(_TAG_PREFIX + tag, text))
        for tag, method in methods.items()
    }
    return Schema(patterns, constructors, merges=True)


def _build_json() -> Schema:
    rows = (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("int", r"[-+]?[0-9]{1,300}", "-+0123456789"),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    )
    patterns: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in rows:
        for first in starts:
            patterns.setdefault(first, []).append((tag, re.compile(rf"(?:{pattern})\Z")))
    booleans = {"true": True, "false": False}
    constructors: dict[str, Callable[[str], Data]] = {
        "null": lambda text: None,
        "bool": lambda text: booleans[text.lower()],
        "int": int,
        "float": _read_finite,
    }
    return Schema(patterns, constructors, merges=False)


def _read_finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


YAML_1_1 = _build_yaml_1_1()  # `no` is a boolean
JSON = _build_json()  # only JSON's types: `no` is a word
_MAX_BITS = 14_000  # Python parses hexadecimal numbers of any length, but cannot format long ones in decimal
PROMPT_FILE = Rules(YAML_1_1, max_depth=64, max_nodes=100_000)


def read_yaml(text: str, rules: Rules = PROMPT_FILE) -> tuple[Data, list[YamlProblem]]:
    """Return the data, and a problem for each duplicate key. The first value wins."""
    try:
        reader = _Reader(text, rules)
        return reader.document(), reader.problems
    except yaml.MarkedYAMLError as error:
        raise YamlError(_from_libyaml(error)) from None
    except UnicodeEncodeError as error:
        line, column = text.count("\n", 0, error.start), error.start - text.rfind("\n", 0, error.start) - 1
        raise YamlError(
            YamlProblem("a lone surrogate (half a character)", "Remove it, or write the whole character.", line, column)
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        raise YamlError(
            YamlProblem(f"a character YAML does not allow: {error.reason}", "Remove it.", line, 0)
        ) from None


def _from_libyaml(error: yaml.MarkedYAMLError) -> YamlProblem:
    mark = error.problem_mark or error.context_mark
    message = ", ".join(part for part in (error.problem, error.context) if part)
    fix = next((fix for part, fix in _FIXES.items() if part in message), _GENERAL_FIX)
    return YamlProblem(message, fix, *((mark.line, mark.column) if mark else (0, 0)))


_FIXES = {
    "mapping values are not allowed": "Put the value in quotes if it contains a colon, or check the indentation.",
    "cannot start any token": "Indent with spaces, not tabs. Quote values that start with @, ` or %.",
    "could not find expected ':'": "Write `key: value` on this line, or indent it under the key above.",
    "did not find expected ',' or ']'": "Close the list with `]`.",
    "did not find expected ',' or '}'": "Close the mapping with `}`.",
    "found undefined tag": "Remove the `!tag`.",
    "undefined alias": "Define the anchor with `&name` before using `*name`.",
}
_GENERAL_FIX = "Check the indentation, the quotes and the colons in this line and the one above."


class _Anchor(NamedTuple):
    value: Data
    nodes: int


class _Reader:
    def __init__(self, text: str, rules: Rules) -> None:
        self.schema, self.max_depth, self.max_nodes = rules
        self.next_event: Callable[[], YamlEvent] = CParser(text).get_event
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
            raise _error(event, "a second YAML document", "Keep one document.")
        return value

    def value(self, event: YamlEvent, depth: int) -> Data:
        before = self.nodes
        self.count(event, 1)
        kind = type(event)
        value: Data
        if kind is ScalarEvent:
            value = self.scalar(event)
        elif depth >= self.max_depth:
            raise _error(event, f"nested more than {self.max_depth} levels deep", "Flatten it.")
        elif kind is MappingStartEvent:
            value = self.mapping(event, depth + 1)
        elif kind is SequenceStartEvent:
            value = self.sequence(event, depth + 1)
        else:
            return self.alias(event)
        if event.anchor:
            self.anchors[event.anchor] = _Anchor(value, self.nodes - before)
        return value

    def count(self, event: YamlEvent, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > self.max_nodes:
            raise _error(event, f"more than {self.max_nodes:,} values with aliases expanded", "Move data elsewhere.")

    def alias(self, event: YamlEvent) -> Data:
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            raise _error(event, f"the alias *{event.anchor} has no anchor before it", "Define `&name` first.")
        self.count(event, anchor.nodes)
        return anchor.value

    def sequence(self, start: YamlEvent, depth: int) -> list[Data]:
        _check_tag(start, "seq")
        values = []
        while type(event := self.next_event()) is not yaml.SequenceEndEvent:
            values.append(self.value(event, depth))
        return values

    def mapping(self, start: YamlEvent, depth: int) -> dict[str, Data]:
        _check_tag(start, "map")
        entries: dict[str, Data] = {}
        merged: dict[str, Data] = {}
        while type(event := self.next_event()) is not yaml.MappingEndEvent:
            key = self.key(event)
            value = self.value(self.next_event(), depth)
            if key == "<<" and self.schema.merges and event.implicit[0]:
                self.merge(event, merged, value)
            elif key in entries:
                self.problems.append(_error(event, f"duplicate key `{key}`", "Keep one of them.").problem)
            else:
                entries[key] = value
        return {**merged, **entries} if merged else entries

    def key(self, event: YamlEvent) -> str:
        if type(event) is AliasEvent:
            value = self.alias(event)
            if isinstance(value, str):
                return value
        if type(event) is not ScalarEvent:
            raise _error(event, "a key that is not text", "Use a word as the key.")
        if event.anchor:
            self.anchors[event.anchor] = _Anchor(event.value, 1)
        return str(event.value)

    def merge(self, event: YamlEvent, merged: dict[str, Data], value: Data) -> None:
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise _error(event, "`<<` needs a mapping", "Use an anchor of a mapping in `<<: *anchor`.")
            self.count(event, len(source))
            for key, entry in source.items():
                merged.setdefault(key, entry)

    def scalar(self, event: YamlEvent) -> Data:
        text: str = event.value
        if event.tag is not None and event.tag != "!":
            return self.tagged(event, text)
        if not event.implicit[0] or ":" in text:  # YAML 1.1 would read 12:30 as a base-60 number
            return text
        for tag, pattern in self.schema.patterns.get(text[:1], ()):
            if pattern.match(text):
                return self.constructed(event, tag, text)
        return text

    def tagged(self, event: YamlEvent, text: str) -> Data:
        tag = str(event.tag).removeprefix(_TAG_PREFIX)
        if tag == "str":
            return text
        if tag not in self.schema.constructors:
            raise _tag_error(event)
        return self.constructed(event, tag, text)

    def constructed(self, event: YamlEvent, tag: str, text: str) -> Data:
        try:
            value = self.schema.constructors[tag](text)
        except (ValueError, LookupError, OverflowError):
            raise _error(event, f"`{text[:40]}` is not a valid {tag}", "Put it in quotes if it is text.") from None
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise _error(event, f"a number of more than {_MAX_BITS:,} bits", "Put it in quotes if it is text.")
        return value


def _check_tag(event: YamlEvent, allowed: str) -> None:
    if event.tag not in (None, "!", _TAG_PREFIX + allowed):
        raise _tag_error(event)


def _tag_error(event: YamlEvent) -> YamlError:
    return _error(event, f"the YAML tag `{event.tag}` is not allowed", "Remove the tag.")


def _error(event: YamlEvent, message: str, fix: str) -> YamlError:
    mark = event.start_mark
    return YamlError(YamlProblem(message, fix, mark.line, mark.column))
