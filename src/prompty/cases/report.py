"""Results for others: one HTML page that loads nothing, JUnit XML for CI services, and Markdown for GitHub."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from xml.etree import ElementTree

from prompty.cases.comparison import Comparison
from prompty.cases.results import Status, TrialResult, count_statuses
from prompty.model.message import Json
from prompty.safety.visible import visible
from prompty.viewer.page import build_page


def render_report(
    results: Sequence[TrialResult],
    notes: Sequence[str] = (),
    comparison: Comparison | None = None,
    before: Mapping[str, TrialResult] | None = None,
    reference: str = "",
) -> str:
    """Return the page. `before` has another version's results by key, to show differences."""
    data: Json = {
        "summary": count_statuses(results),
        "notes": list(notes),
        "reference": reference,
        "results": [_result_to_json(result, comparison, before or {}) for result in results],
    }
    return build_page("prompty.cases", "report", "Prompt tests", data)


def _result_to_json(result: TrialResult, comparison: Comparison | None, before: Mapping[str, TrialResult]) -> Json:
    flip = None
    if comparison is not None:
        flip = "worse" if result.key in comparison.worse else "better" if result.key in comparison.better else None
    earlier = before.get(result.key)
    first = earlier.runs[0] if earlier and earlier.runs else None
    shown = {"answer": first.answer, "messages": list(first.messages)} if first else None
    return {**result_to_json(result), "flip": flip, "before": shown}


def result_to_json(result: TrialResult) -> Json:
    """Return a result for other programs and for the page."""
    return {
        "suite": result.suite,
        "case": result.case,
        "variant": result.variant,
        "model": result.model,
        "status": result.status,
        "passes": result.passes,
        "needed": result.needed,
        "cost": result.cost,
        "seconds": result.seconds,
        "reasons": result.reasons,
        "runs": [run.to_json() for run in result.runs],
    }


# Characters that XML 1.0 does not allow, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(results: Sequence[TrialResult]) -> str:
    """Return a document with one test suite for each test file."""
    root = ElementTree.Element("testsuites", {"name": "prompty test", **_count(results)})
    for name, group in groupby(results, key=lambda result: result.suite):
        own = list(group)
        skipped = str(count_statuses(own)["skipped"])
        suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(name), "skipped": skipped, **_count(own)})
        for result in own:
            _add_case(suite, result)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _count(results: Sequence[TrialResult]) -> dict[str, str]:
    counts, seconds = count_statuses(results), sum(result.seconds or 0 for result in results)
    numbers = {"tests": len(results), "failures": counts["failed"], "errors": counts["error"]}
    return {**{name: str(number) for name, number in numbers.items()}, "time": f"{seconds:.3f}"}


def _add_case(suite: ElementTree.Element, result: TrialResult) -> None:
    name = _clean(result.key.removeprefix(f"{result.suite}::"))
    case = ElementTree.SubElement(
        suite, "testcase", classname=_clean(result.suite), name=name, time=f"{result.seconds or 0:.3f}"
    )
    reasons = [_clean(reason) for reason in result.reasons]
    tag = {"failed": "failure", "error": "error", "skipped": "skipped"}.get(result.status)
    if tag:
        message = next(iter(reasons), "").partition("\n")[0]
        ElementTree.SubElement(case, tag, message=message).text = "\n".join(reasons)
    elif reasons:
        ElementTree.SubElement(case, "system-out").text = "\n".join(reasons)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


MAX_LISTED = 50
_MAX_REASON = 300
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")
# GitHub turns bare URLs, addresses and mentions into links, even if escaped. A comment inside them prevents it.
_LINKED = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=[@#])", re.IGNORECASE)


def write_summary(results: Sequence[TrialResult], notes: Sequence[str] = ()) -> str:
    """Return a table of the files, and the cases that did not pass with their reasons. Text from results is escaped."""
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
    shown = escape(" ".join(visible(text).split()), quote=False)
    return _LINKED.sub("<!-- -->", _SPECIAL.sub(r"\\\1", shown))
