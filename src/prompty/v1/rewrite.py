"""Write a translated frontmatter as YAML, with the comments, the quotes and the order of the v1 file."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import StringIO
from typing import Any, NamedTuple

import yaml

from prompty.extras import require
from prompty.safety.yaml import YamlError, read_yaml
from prompty.v1.draft import V1Data, V1Keys

_WIDTH = 100_000  # do not wrap the lines of texts
_HASH = re.compile(r"(?:(?<=\s)|^)#", re.MULTILINE)


def rewrite_frontmatter(text: str, source: V1Data, data: V1Data, moves: Mapping[V1Keys, V1Keys]) -> str:
    """Return the YAML of v2 data that was translated from `source`, whose YAML is `text`.

    `moves` maps key paths of the data to those of the source.
    """
    ruamel, editor = require("ruamel.yaml", extra="cli"), create_editor(text)
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


def create_editor(text: str) -> Any:
    """Return an editor of YAML that keeps comments and quotes, and the way in which this text indents lists."""
    editor = require("ruamel.yaml", extra="cli").YAML()
    editor.preserve_quotes = True
    editor.width = _WIDTH
    if _indents_lists(text):
        editor.indent(mapping=2, sequence=4, offset=2)
    return editor


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


class _Site(NamedTuple):
    """A key or an entry of a list: its line, and whether a comment can follow on that line."""

    line: int
    keys: V1Keys
    is_open: bool


class _Comment(NamedTuple):
    text: str
    keys: V1Keys | None  # of the key on or below its line; None at the end of the text
    is_beside: bool


def insert_comments(source: str, target: str, moves: Mapping[V1Keys, V1Keys]) -> str:
    """Return the target with every comment of the source, at the key that its own key became. The comment of a dropped
    key goes above the nearest key.

    `moves` maps key paths of the target to those of the source.
    """
    comments = list(_find_comments(source))
    if not comments:
        return target
    places = {site.keys: site for site in _find_sites(target)}
    origins: dict[V1Keys, V1Keys] = {}
    exact = {origin for keys, origin in moves.items() if keys in places}
    for keys, origin in moves.items():
        if keys in places:
            for length in range(len(origin), 0, -1):
                origins.setdefault(origin[:length], keys)
    lines = target.split("\n")
    above: dict[int, list[str]] = {}
    beside: dict[int, str] = {}
    for comment in comments:
        site = _find_place(comment.keys, places, origins) if comment.keys is not None else None
        number = site.line if site else len(lines) - 1
        is_own = comment.keys in exact or (comment.keys in places and comment.keys not in origins)
        if site and is_own and comment.is_beside and site.is_open and number not in beside:
            beside[number] = comment.text
        else:
            above.setdefault(number, []).append(comment.text)
    written = []
    for number, line in enumerate(lines):
        indent = line[: len(line) - len(line.lstrip())]
        written += [f"{indent}{text}" for text in above.get(number, ())]
        written.append(f"{line}  {beside[number]}" if number in beside else line)
    return "\n".join(written)


def _find_place(keys: V1Keys, places: Mapping[V1Keys, _Site], origins: Mapping[V1Keys, V1Keys]) -> _Site | None:
    """Return the new site of a source key, or of its nearest parent."""
    for length in range(len(keys), 0, -1):
        moved = origins.get(keys[:length], keys[:length])
        for kept in (moved + keys[length:], moved):
            if kept in places:
                return places[kept]
    return None


def _find_comments(text: str) -> Iterator[_Comment]:
    """Yield the comments of a text. A `#` inside a scalar does not start one."""
    if "#" not in text:
        return
    sites = _find_sites(text)
    starts = [site.line for site in sites]
    scalars = _find_scalars(text)
    begins = [start for start, _ in scalars]
    done, line, counted = -1, 0, 0
    for found in _HASH.finditer(text):
        at = found.start()
        before = bisect_right(begins, at) - 1
        if at <= done or (before >= 0 and at < scalars[before][1]):
            continue
        done = text.find("\n", at)
        done = len(text) if done < 0 else done
        line += text.count("\n", counted, at)
        counted = at
        is_beside = bool(text[text.rfind("\n", 0, at) + 1 : at].strip())
        below = bisect_right(starts, line)  # the first key below the line
        index = below - 1 if is_beside else below
        keys = sites[index].keys if 0 <= index < len(sites) else None
        yield _Comment(text[at:done].rstrip(), keys, is_beside)


def _find_scalars(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of every scalar that can contain a `#`, in order."""
    found = []
    stack = [yaml.compose(text, yaml.CSafeLoader)]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            start, end = node.start_mark.index, node.end_mark.index
            if node.style in ("|", ">"):  # comments may follow the sign and the block
                start = text.find("\n", start)
                end = start + len(text[start:end].rstrip())
            found.append((start, end))
        elif isinstance(node, yaml.MappingNode):
            stack += [part for pair in node.value for part in pair]
        else:
            stack += node.value
    return sorted(found)


def _find_sites(text: str) -> list[_Site]:
    """Return the keys and list entries in the order of their lines, the outer first."""
    sites: list[_Site] = []
    stack: list[tuple[yaml.Node | None, V1Keys]] = [(yaml.compose(text, yaml.CSafeLoader), ())]
    seen: set[int] = set()
    while stack:
        node, keys = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        entries: list[tuple[yaml.Node, yaml.Node, str | int]] = []
        if isinstance(node, yaml.MappingNode):
            entries = [(key, value, str(key.value)) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            entries = [(value, value, index) for index, value in enumerate(node.value)]
        for first, value, name in entries:
            line = first.start_mark.line
            is_block = isinstance(value, yaml.ScalarNode) and value.style in ("|", ">")
            is_nested = isinstance(value, yaml.CollectionNode) and not value.flow_style
            is_open = is_block or is_nested or value.end_mark.line == line
            sites.append(_Site(line, (*keys, name), is_open and not (is_nested and value.start_mark.line == line)))
            stack.append((value, (*keys, name)))
    return sorted(sites, key=lambda site: (site.line, len(site.keys)))
