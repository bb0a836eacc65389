"""Analysis of a body: secrets in its text, roles that are not markers, its template's syntax and variables."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from prompty.errors import RenderError
from prompty.model.marker import mark, read_marker
from prompty.pipeline.source_map import Finding
from prompty.redaction import find_secret

_EXPRESSION = re.compile(r"\{\{[^{}]*\}\}")
_TAG = re.compile(r"\{%[^{}]*%\}")

FindVariables = Callable[[str], Mapping[str, int]]


class BodyAnalysis(NamedTuple):
    """Findings in a body, and the range of each variable's first use: None if the template could not be read."""

    findings: tuple[Finding, ...]
    variables: Mapping[str, tuple[int, int]] | None


@lru_cache(maxsize=16)
def analyze_body(body: str, find_variables: FindVariables | None) -> BodyAnalysis:
    """Analyze a body; `find_variables` belongs to its template engine and returns the line of each variable."""
    lines: list[tuple[int, str]] = []
    start = 0
    for line in body.split("\n"):
        lines.append((start, line))
        start += len(line) + 1
    findings = list(_check_lines(lines))
    if find_variables is None:
        return BodyAnalysis(tuple(findings), None)
    try:
        used = find_variables(mark(body))
    except RenderError as error:
        start, end = _content_range(*lines[min(error.line or 1, len(lines)) - 1])
        findings.append(Finding(start=start, end=end, code="template-syntax", message=error.cause, fix=error.fix))
        return BodyAnalysis(tuple(findings), None)
    ranges = {name: _variable_range(name, *lines[min(line, len(lines)) - 1]) for name, line in used.items()}
    return BodyAnalysis(tuple(findings), ranges)


def _check_lines(lines: list[tuple[int, str]]) -> Iterator[Finding]:
    for start, line in lines:
        if secret := find_secret(line):
            yield Finding(
                start=start + secret.start(),
                end=start + secret.end(),
                code="secret-in-prompt",
                message="this looks like a secret, and it would be sent to the model",
                fix="Remove it. Put credentials into a connection or the bindings of a tool.",
                severity="warning",
            )
        if "{" in line and read_marker(_TAG.sub("", _EXPRESSION.sub("user", line)).strip()):
            marker_start, marker_end = _content_range(start, line)
            yield Finding(
                start=marker_start,
                end=marker_end,
                code="role-from-variable",
                message="this is text, not a role marker: nothing on the line of a marker may be computed",
                fix="Write the role out on a line of its own, or take the conversation as an input of kind `thread`.",
                severity="warning",
            )


def _content_range(start: int, line: str) -> tuple[int, int]:
    """Return the range of a line without the whitespace around it."""
    return start + len(line) - len(line.lstrip()), start + max(len(line.rstrip()), len(line) - len(line.lstrip()))


def _variable_range(name: str, start: int, line: str) -> tuple[int, int]:
    use = name_pattern(name).search(line, max(line.find("{"), 0))
    return (start + use.start(), start + use.end()) if use else _content_range(start, line)


def name_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for a name as a whole word."""
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
