"""A summary in Markdown, for the summary of a GitHub job."""

import re
from collections.abc import Mapping, Sequence
from html import escape

from prompty.cases.results import Status, TrialResult, count_statuses

MAX_LISTED = 50
_MAX_REASON = 300
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")


def write_summary(results: Sequence[TrialResult], notes: Sequence[str] = ()) -> str:
    """Return a table of the files, and the cases that did not pass with their reasons. Text of results stays text."""
    counts = count_statuses(results)
    lines = ["## Prompt tests", "", _describe_counts(counts), ""]
    lines += ["| file | passed | failed | could not run | skipped |", "|---|---|---|---|---|"]
    for suite in dict.fromkeys(result.suite for result in results):
        own = count_statuses([result for result in results if result.suite == suite])
        lines.append(f"| {_escape(suite)} | {own['passed']} | {own['failed']} | {own['error']} | {own['skipped']} |")
    failed = [result for result in results if result.status in ("failed", "error")]
    if failed:
        lines += ["", "### Not passed", ""]
        lines += [f"- **{_escape(result.key)}**: {_escape(_get_reason(result))}" for result in failed[:MAX_LISTED]]
    if len(failed) > MAX_LISTED:
        lines.append(f"- and {len(failed) - MAX_LISTED} more")
    if notes:
        lines += ["", *[_escape(note) + "  " for note in notes]]
    return "\n".join(lines) + "\n"


def _describe_counts(counts: Mapping[Status, int]) -> str:
    words: dict[Status, str] = {"passed": "passed", "failed": "failed", "error": "could not run", "skipped": "skipped"}
    return ", ".join(f"{counts[status]} {word}" for status, word in words.items() if counts[status]) or "no cases"


def _get_reason(result: TrialResult) -> str:
    reason = " ".join(next(iter(result.reasons), "no reason").split())
    return reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]}…"


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", escape(" ".join(text.split()), quote=False))
