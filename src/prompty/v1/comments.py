"""Copy comments from one YAML text to another, in which the same values may have other keys."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import yaml

from prompty.v1.draft import V1Keys

_HASH = re.compile(r"(?:(?<=\s)|^)#", re.MULTILINE)


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
