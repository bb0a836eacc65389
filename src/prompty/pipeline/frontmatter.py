"""Split a file into frontmatter and body (§2.2), and read the frontmatter as data."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prompty.errors import LoadError, Problem
from prompty.pipeline.source_map import MAX_PROBLEMS, Edit, Finding, SourceMap, SourceText, split_lines
from prompty.safety.yaml import YamlError, YamlProblem, read_yaml

# A delimiter is a whole line. The specification's expression also matches inside values: `apiKey: sk---abc` would put
# the end of the key into the prompt.
_CLOSING = re.compile(r"^(?:---|\+\+\+)[ \t]*$", re.MULTILINE)
_TABS = re.compile(r"^\t[ \t]*", re.MULTILINE)


class Unclosed(ValueError):
    """The opening delimiter, at the character `start`, has no closing delimiter."""

    def __init__(self, start: int) -> None:
        super().__init__("malformed frontmatter: no closing delimiter")
        self.start = start


class Parts(NamedTuple):
    """The two halves of a file, and their start positions."""

    frontmatter: str | None
    body: str
    frontmatter_start: int
    body_start: int


class ParsedFrontmatter(NamedTuple):
    """The data of a frontmatter, or None if it is invalid, and the mistakes in its YAML."""

    data: Mapping[str, Any] | None
    source_map: SourceMap
    findings: list[Finding]


class BaseBody(NamedTuple):
    """The body of a variant's base, and its first line in the file."""

    path: Path
    text: str
    first_line: int
    hash: str


class Document(NamedTuple):
    """A file, or a variant merged with its base, whose body is `base`.

    `parts` are the halves of the file itself. The frontmatter is merged.
    """

    source: SourceText
    parts: Parts
    frontmatter: ParsedFrontmatter
    base: BaseBody | None = None


def open_document(text: str, name: str, read: "Callable[[str], ParsedFrontmatter] | None" = None) -> Document:
    """Split the text of a file, named `name` in errors, and parse its frontmatter. Raise LoadError."""
    source = SourceText(name, normalize(text))
    try:
        parts = split(source.text)
    except Unclosed as error:
        fix = "Add a line `---` after the last key, before the body."
        problem = Problem(code="unclosed-frontmatter", message=str(error), fix=fix)
        raise LoadError(source.problems([Finding(error.start, error.start + 3, problem)], 0)) from None
    return Document(source, parts, (read or read_frontmatter)(parts.frontmatter or ""))


def normalize(text: str) -> str:
    """Remove the byte order mark, and end every line with a newline."""
    text = text.removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def split(text: str) -> Parts:
    """Split normalized text. Without an opening delimiter all of it is body."""
    start = len(text) - len(text.lstrip())
    opening_end = text.find("\n", start)
    if opening_end < 0:
        opening_end = len(text)
    if text[start:opening_end].rstrip() not in ("---", "+++"):
        return Parts(None, text, 0, 0)
    closing = _CLOSING.search(text, opening_end + 1)
    if closing is None:
        raise Unclosed(start)
    rest = text[closing.end() :]
    body = rest.lstrip()
    body_start = closing.end() + len(rest) - len(body)
    return Parts(text[opening_end + 1 : closing.start()], body.rstrip("\n"), opening_end + 1, body_start)


def read_frontmatter(text: str) -> ParsedFrontmatter:
    """Parse a frontmatter. A duplicate key is a finding, and the rest is still parsed."""
    source_map = SourceMap(text)
    try:
        data, duplicates = read_yaml(text)
    except YamlError as error:
        return ParsedFrontmatter(None, source_map, _findings(text, "invalid-yaml", [error.problem]))
    findings = _findings(text, "duplicate-key", duplicates) if duplicates else []
    if data is None:
        return ParsedFrontmatter({}, source_map, findings)
    if not isinstance(data, dict):
        problem = YamlProblem("not a mapping", "Write `key: value` lines between the delimiters.", 0, 0)
        return ParsedFrontmatter(None, source_map, [*findings, *_findings(text, "invalid-yaml", [problem])])
    return ParsedFrontmatter(data, source_map, findings)


def _findings(text: str, code: str, problems: list[YamlProblem]) -> list[Finding]:
    """Locate problems of the YAML reader. Each extends to the end of its line."""
    lines = split_lines(text)
    findings = []
    for problem in problems[: MAX_PROBLEMS + 1]:
        line = lines[min(problem.line, len(lines) - 1)]
        start = line.start + min(problem.column, len(line.text))
        edits = _replace_tabs(text) if line.text.startswith("\t") else ()
        message = f"invalid frontmatter: {problem.message}"
        findings.append(
            Finding(start, max(start, line.content[1]), Problem(code=code, message=message, fix=problem.fix), edits)
        )
    return findings


def _replace_tabs(text: str) -> tuple[Edit, ...]:
    """Return edits that indent with spaces, if that makes the text valid YAML."""
    try:
        _, duplicates = read_yaml(_TABS.sub(lambda tabs: tabs[0].expandtabs(2), text))
    except YamlError:
        return ()
    edits = (Edit(tabs.start(), tabs.end(), tabs[0].expandtabs(2)) for tabs in _TABS.finditer(text))
    return () if duplicates else tuple(edits)
