"""Results for others: one HTML page that loads nothing, JUnit XML for CI services, and Markdown for GitHub.

All of them, and the terminal, start with what got worse. A failure that a baseline accepts fails no build, and is
reported as such.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Literal
from xml.etree import ElementTree

from prompty.cases.comparison import Comparison, SuiteReport, Totals, get_case_key
from prompty.cases.results import TrialResult, count_statuses
from prompty.model.message import Json
from prompty.safety.visible import visible
from prompty.viewer.page import build_page

# Worst first. "failed" is a failure that is not accepted and has no earlier verdict, "accepted" one that failed before.
Standing = Literal["worse", "failed", "error", "accepted", "better", "passed", "skipped"]
STANDINGS: dict[Standing, str] = {
    "worse": "worse",
    "failed": "failed",
    "error": "could not run",
    "accepted": "failed as before",
    "better": "better",
    "passed": "passed",
    "skipped": "skipped",
}
_RANKS = {standing: rank for rank, standing in enumerate(STANDINGS)}


def find_standings(results: Iterable[TrialResult], comparison: Comparison | None) -> dict[str, Standing]:
    """Return how each result compares with the earlier run, by key."""
    found: dict[str, Standing] = {result.key: result.status for result in results}
    if comparison is not None:
        failing = frozenset(comparison.failing)
        found |= {key: "accepted" for key, status in found.items() if status == "failed" and key not in failing}
        found |= dict.fromkeys(comparison.better, "better")
        found |= dict.fromkeys(comparison.worse, "worse")
    return found


def sort_results(results: Sequence[TrialResult], standings: dict[str, Standing]) -> list[TrialResult]:
    """Return the results with the worst files first, and in a file the worst cases. A case's results stay together."""
    files: dict[str, int] = {}
    cases: dict[tuple[str, str], int] = {}
    for result in results:
        rank = min(_RANKS[standings[result.key]], _RANKS["better"])
        files[result.suite] = min(rank, files.get(result.suite, rank))
        case = result.suite, result.case
        cases[case] = min(rank, cases.get(case, rank))
    order = {suite: position for position, suite in enumerate(files)}
    return sorted(
        results,
        key=lambda result: (files[result.suite], order[result.suite], cases[result.suite, result.case]),
    )


def count_standings(results: Iterable[TrialResult], standings: dict[str, Standing]) -> str:
    """Return the counts in words, such as `52 passed, 6 failed, 2 failed as before`."""
    groups = {"worse": "failed", "better": "passed"}
    counts = Counter(groups.get(standing := standings[result.key], standing) for result in results)
    shown: tuple[Standing, ...] = ("passed", "failed", "accepted", "error", "skipped")
    return ", ".join(f"{counts[name]} {STANDINGS[name]}" for name in shown if counts[name]) or "no cases"


def name_column(totals: Totals) -> str:
    """Return the name of a model and variant."""
    return ", ".join(filter(None, (totals.variant, totals.model))) or totals.own_model or "each file's model"


def describe_totals(totals: Totals) -> str:
    """Return a model's results in words, such as `30 of 35 passed (86%), 2 could not run, 6 worse`."""
    decided = totals.passed + totals.failed
    share = [f"{totals.passed} of {decided} passed ({totals.passed / decided:.0%})"] if decided else []
    counts = {"could not run": totals.error, "skipped": totals.skipped}
    counts |= {name: getattr(totals, name) for name in ("worse", "better", "added", "gone")}
    return ", ".join([*share, *(f"{number} {word}" for word, number in counts.items() if number)])


def report_to_json(report: SuiteReport) -> Json:
    """Return a report for other programs: what changed first, then the results in the order of the files."""
    standings = find_standings(report.results, report.comparison)
    return {
        "comparison": _comparison_to_json(report, standings),
        "summary": count_statuses(report.results),
        "totals": [{**one._asdict(), "interval": one.interval} for one in report.totals],
        "notes": report.notes,
        "results": [{**result_to_json(result), **_standing_to_json(result, standings)} for result in report.results],
    }


def _comparison_to_json(report: SuiteReport, standings: dict[str, Standing]) -> Json | None:
    if report.comparison is None or report.earlier is None:
        return None
    accepted = [key for key, standing in standings.items() if standing == "accepted"]
    shown = report.comparison._asdict()
    return {"with": report.earlier.name, **shown, "accepted": accepted, "interval": report.comparison.interval}


def _standing_to_json(result: TrialResult, standings: dict[str, Standing]) -> Json:
    standing = standings[result.key]
    return {
        "key": result.key,
        "flip": standing if standing in ("worse", "better") else None,
        "accepted": standing == "accepted",
    }


def render_report(report: SuiteReport, origin: str = "") -> str:
    """Return the page. `origin` says when it was made, by which command and of which commit."""
    standings = find_standings(report.results, report.comparison)
    before, reference = (report.earlier.results, report.earlier.name) if report.earlier else ({}, "")
    summary = count_standings(report.results, standings)
    data: Json = {
        "origin": origin,
        "summary": summary,
        "totals": [{"name": name_column(one), "text": describe_totals(one)} for one in report.totals],
        "notes": report.notes,
        "reference": reference,
        "results": [
            {
                **result_to_json(result),
                **_standing_to_json(result, standings),
                "standing": standings[result.key],
                "before": _show_first_run(before.get(result.key)),
            }
            for result in sort_results(report.results, standings)
        ],
    }
    return build_page("prompty.cases", "report", f"Prompt tests: {summary}", data)


def _show_first_run(earlier: TrialResult | None) -> Json | None:
    first = earlier.runs[0] if earlier and earlier.runs else None
    return {"answer": first.answer, "messages": list(first.messages)} if first else None


def result_to_json(result: TrialResult) -> Json:
    """Return a result for other programs and for the page."""
    return {
        "suite": result.suite,
        "case": result.case,
        "variant": result.variant,
        "model": result.model,
        "own_model": result.own_model,
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
_JUNIT_TAGS: dict[Standing, str] = {
    "worse": "failure",
    "failed": "failure",
    "error": "error",
    "accepted": "skipped",
    "skipped": "skipped",
}


def write_junit(report: SuiteReport) -> str:
    """Return a document with one test suite for each test file, the worst first. Accepted failures are skipped tests,
    since CI services show every failure as a broken build."""
    standings = find_standings(report.results, report.comparison)
    root = ElementTree.Element("testsuites", {"name": "prompty test", **_count(report.results, standings)})
    for name, group in groupby(sort_results(report.results, standings), key=lambda result: result.suite):
        own = list(group)
        suite = ElementTree.SubElement(root, "testsuite", {"name": _clean(name), **_count(own, standings)})
        for result in own:
            _add_case(suite, result, standings[result.key])
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _count(results: Sequence[TrialResult], standings: dict[str, Standing]) -> dict[str, str]:
    tags = Counter(_JUNIT_TAGS.get(standings[result.key]) for result in results)
    numbers = {"tests": len(results), "failures": tags["failure"], "errors": tags["error"], "skipped": tags["skipped"]}
    seconds = sum(result.seconds or 0 for result in results)
    return {**{name: str(number) for name, number in numbers.items()}, "time": f"{seconds:.3f}"}


def _add_case(suite: ElementTree.Element, result: TrialResult, standing: Standing) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_clean(result.suite),
        name=_clean(get_case_key(result)),
        time=f"{result.seconds or 0:.3f}",
    )
    reasons = [_clean(reason) for reason in result.reasons]
    if tag := _JUNIT_TAGS.get(standing):
        prefix = {"worse": "passed before: ", "accepted": "also failed before: "}.get(standing, "")
        message = prefix + next(iter(reasons), "").partition("\n")[0]
        ElementTree.SubElement(case, tag, message=message, type=standing).text = "\n".join(reasons)
    elif reasons:
        ElementTree.SubElement(case, "system-out").text = "\n".join(reasons)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)


MAX_LISTED = 50
_MAX_REASON = 300
_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@-])")
# GitHub turns bare URLs, addresses and mentions into links, even if escaped. A comment inside them prevents it.
_LINKED = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=[@#])", re.IGNORECASE)
_LISTED: dict[Standing, str] = {
    "worse": "Worse",
    "failed": "Failed",
    "error": "Could not run",
    "better": "Better",
}


def write_summary(report: SuiteReport) -> str:
    """Return what changed with its reasons, and tables of models and files. Text from results is escaped.

    Of the accepted failures, only the number is shown.
    """
    standings = find_standings(report.results, report.comparison)
    lines = ["## Prompt tests", "", count_standings(report.results, standings)]
    left = MAX_LISTED
    for standing, title in _LISTED.items():
        found = [result for result in report.results if standings[result.key] == standing]
        if found:
            lines += ["", f"### {title}", ""]
            lines += [_list_result(result) for result in found[:left]]
            lines += [f"- and {len(found) - left} more"] if len(found) > left else []
            left = max(0, left - len(found))
    if report.notes:
        lines += ["", *[_escape(note) + "  " for note in report.notes]]
    if len(report.totals) > 1:
        lines += ["", "| model and variant | results |", "|---|---|"]
        lines += [f"| {_escape(name_column(one))} | {describe_totals(one)} |" for one in report.totals]
    lines += ["", "| file | results |", "|---|---|"]
    for suite in dict.fromkeys(result.suite for result in report.results):
        own = [result for result in report.results if result.suite == suite]
        lines.append(f"| {_escape(suite)} | {count_standings(own, standings)} |")
    return "\n".join(lines) + "\n"


def _list_result(result: TrialResult) -> str:
    reason = " ".join(next(iter(result.reasons), "").split())
    shown = reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]}…"
    return f"- **{_escape(result.key)}**" + (f": {_escape(shown)}" if shown else "")


def _escape(text: str) -> str:
    shown = escape(" ".join(visible(text).split()), quote=False)
    return _LINKED.sub("<!-- -->", _SPECIAL.sub(r"\\\1", shown))
