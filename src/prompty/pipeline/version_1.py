"""Read a Prompty v1 file as the equivalent v2 file. Imported only for such files.

The mapping is in `prompty.v1`. This module reads the files it needs, and locates its notes.
"""

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from yaml import Node

from prompty.errors import Problem
from prompty.model.property import Kind
from prompty.pipeline.files import Unreadable
from prompty.pipeline.frontmatter import ParsedFrontmatter, Unclosed, normalize, split
from prompty.pipeline.references import References
from prompty.pipeline.source_map import MAX_PROBLEMS, Finding, KeyPath, SourceMap, first_findings
from prompty.safety.yaml import YamlError, read_yaml
from prompty.v1.body import BodyEdit, find_original
from prompty.v1.draft import V1Keys, is_file_reference
from prompty.v1.translate import lower_protocols, translate

_MAX_BASES = 16
# Values whose structure the mapping reads. Other file references are resolved later, as in v2.
_STRUCTURES: tuple[V1Keys, ...] = (
    ("model",),
    ("model", "configuration"),
    ("model", "parameters"),
    ("model", "parameters", "tools"),
    ("model", "parameters", "response_format"),
    ("inputs",),
    ("outputs",),
    ("sample",),
)
_Failures = list[tuple[V1Keys, Unreadable]]


class TranslatedSourceMap(SourceMap):
    """Positions in a v1 file by the key paths of the v2 file."""

    def __init__(self, positions: SourceMap, moves: Mapping[V1Keys, V1Keys], data: Mapping[str, Any]) -> None:
        super().__init__(positions.text)
        self._positions, self._moves = positions, moves
        self._names = {group: list(data[group]) for group in ("inputs", "outputs") if isinstance(data.get(group), dict)}

    def find(self, keys: KeyPath) -> tuple[Node | None, Node | None, list[str | int]]:
        path = tuple(keys)
        names = self._names.get(str(path[0])) if path else None
        if names and len(path) > 1 and isinstance(index := path[1], int) and index < len(names):
            path = (path[0], names[index], *path[2:])
        for length in range(len(path), 0, -1):
            if (origin := self._moves.get(path[:length])) is not None:
                path = origin + path[length:]
                break
        return self._positions.find(path)


class Reading(NamedTuple):
    """A v1 file as a v2 file. `notes` and `body_notes` have positions in the two halves of the v1 file; `edits` map the
    new body to the old."""

    frontmatter: ParsedFrontmatter
    body: str
    notes: list[Finding]
    body_notes: list[Finding]
    edits: list[BodyEdit]
    moves: dict[V1Keys, V1Keys]

    def locate_in_body(self, finding: Finding) -> Finding:
        """Return a finding in the new body with its position in the v1 body, without edits."""
        if not self.edits:
            return finding
        start, end = (find_original(offset, self.edits) for offset in finding[:2])
        return Finding(start, max(start, end), finding.problem)


def read_version_1(
    frontmatter: ParsedFrontmatter, body: str, references: References, name: str, first_key: KeyPath
) -> Reading:
    """Translate a v1 file, named `name` in errors. Problems of the files it needs are added to the findings.

    `first_key` is the first v1 key, where the file is reported as v1.
    """
    failures: _Failures = []
    own, positions = lower_protocols(dict(frontmatter.data or {})), frontmatter.source_map
    data = _merge_bases(_insert_files(own, references, failures), references, failures)
    translation = translate(data, body)
    findings = [
        *frontmatter.findings,
        *(positions.locate(keys, error.code, error.message, error.fix) for keys, error in failures[:MAX_PROBLEMS]),
    ]
    message = "this is a Prompty v1 file, which prompty reads as v2"
    file = "FILE" if name.startswith("<") else shlex.quote(name)
    fix = f"Run `prompty migrate {file}` to see the v2 file, and add --write to rewrite this one."
    is_kind = first_key[-1] == "type" and _get(frontmatter.data, first_key) in get_args(Kind)
    warning = positions.locate(
        first_key, "version-1", message, fix, severity="warning", on_key=True, replacement="kind" if is_kind else None
    )
    notes = first_findings(
        positions.locate(note.keys, "version-1-part", note.message, note.fix, severity="warning", on_key=True)
        for note in translation.notes
        if note.start < 0
    )
    body_notes = first_findings(
        Finding(
            note.start,
            note.end,
            Problem(code="version-1-part", message=note.message, fix=note.fix, severity="warning"),
        )
        for note in translation.notes
        if note.start >= 0
    )
    source_map = TranslatedSourceMap(positions, translation.moves, translation.data)
    translated = ParsedFrontmatter(translation.data, source_map, findings)
    return Reading(translated, translation.body, [warning, *notes], body_notes, translation.edits, translation.moves)


def _get(data: Any, keys: KeyPath) -> Any:
    for key in keys:
        data = data[key]
    return data


def _insert_files(data: dict[str, Any], references: References, failures: _Failures) -> dict[str, Any]:
    """Replace file references with their data where the mapping reads structure."""
    for keys in _STRUCTURES:
        *parents, last = keys
        target: Any = data
        for key in parents:
            target = target.get(key) if isinstance(target, dict) else None
        file = _get_file(keys, target.get(last)) if isinstance(target, dict) else None
        if file is None:
            continue
        try:
            content = references.read_data(file)
            if _refers_to_files(content):
                message = f"{file} refers to another file, which an included file cannot do"
                raise Unreadable("file-content", message, "Copy the content into it.")
            target[last] = lower_protocols(content)
        except Unreadable as error:
            failures.append((keys, error))
            del target[last]
    return data


def _get_file(keys: V1Keys, value: object) -> str | None:
    if not isinstance(value, str):
        return None
    if is_file_reference(value):
        return value.removeprefix("${file:").removesuffix("}")
    is_name = keys == ("sample",) and value.lower().endswith((".json", ".yaml", ".yml"))
    return value if is_name and "${" not in value else None


def _refers_to_files(value: object) -> bool:
    if isinstance(value, str):
        return "${file:" in value.lower()
    if isinstance(value, dict):
        return any(map(_refers_to_files, value.values()))
    return isinstance(value, list) and any(map(_refers_to_files, value))


def _merge_bases(data: dict[str, Any], references: References, failures: _Failures) -> dict[str, Any]:
    """Merge the file that `base` names, and its bases. The file's own keys take precedence."""
    seen: set[str] = set()
    while isinstance(base := data.get("base"), str):
        own = {key: value for key, value in data.items() if key != "base"}
        try:
            path, text = references.read_text(base)
            if str(path) in seen or len(seen) == _MAX_BASES:
                message = f"`base` leads back to {base}" if str(path) in seen else f"more than {_MAX_BASES} bases"
                raise Unreadable("base-cycle", message, "Remove one `base:`.")
            seen.add(str(path))
            data = _merge(_insert_files(_read_base(text, base), references, failures), own)
        except Unreadable as error:
            failures.append((("base",), error))
            return own
    return data


def _read_base(text: str, name: str) -> dict[str, Any]:
    try:
        content, problems = read_yaml(split(normalize(text)).frontmatter or "")
    except (YamlError, Unclosed) as error:
        raise Unreadable("file-content", f"{name} cannot be read: {error}", "Correct that file.") from None
    if problems or not isinstance(content, dict):
        raise Unreadable("file-content", f"{name} has no valid frontmatter", "Correct that file.")
    data: dict[str, Any] = lower_protocols(content)
    return data


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = dict(own)
    for key, value in base.items():
        if key not in own:
            merged[key] = value
        elif isinstance(value, dict) and isinstance(own[key], dict):
            merged[key] = _merge(value, own[key])
    return merged
