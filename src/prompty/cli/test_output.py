"""The output of `prompty test`: lines for people, JSON, JUnit, an HTML page, and a GitHub summary."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from rich.text import Text

from prompty.cases.comparison import Comparison, SuiteReport, get_case_key
from prompty.cases.report import render_report, result_to_json, write_junit, write_summary
from prompty.cases.results import TrialResult, count_statuses
from prompty.cli.console import err, out, print_json
from prompty.errors import RequestError
from prompty.safety.visible import visible
from prompty.viewer.page import write_page
from prompty.viewer.reader import read_trace
from prompty.viewer.trace import TraceUnreadable

_MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "error": ("!", "bold red"), "skipped": ("-", "dim")}
_SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


def print_results(results: Sequence[TrialResult], report: SuiteReport | None = None, *, as_json: bool) -> None:
    notes = report.notes if report else []
    if as_json:
        listed = [result_to_json(result) for result in results]
        print_json({"results": listed, "summary": count_statuses(results), "notes": notes})
        return
    suite = ""
    for result in results:
        if result.suite != suite:
            suite = result.suite
            out.print(Text(visible(suite), "bold"))
        _print_result(result, report.comparison if report else None)
    for note in notes:
        out.print(visible(note))
    out.print(_summarize(results))


def _print_result(result: TrialResult, comparison: Comparison | None) -> None:
    mark, style = _MARKS[result.status]
    line = Text.assemble((f"  {mark} ", style), visible(get_case_key(result)))
    if len(result.runs) > 1 or result.needed > 1:
        line.append(f"  {result.passes} of {len(result.runs)} passed, {result.needed} needed", "dim")
    if paid := _get_paid(result):
        line.append(f"  {_show_dollars(paid)}", "dim")
    if comparison and result.key in comparison.worse:
        line.append("  passed before", "bold red")
    elif comparison and result.key in comparison.better:
        line.append("  failed before", "green")
    elif comparison and result.status == "failed" and result.key not in comparison.failing:
        line.append("  also failed before", "dim")
    out.print(line)
    for reason in result.reasons:
        text = "\n".join(f"      {part}" for part in visible(reason).splitlines())
        out.print(Text(text, "dim" if result.status == "passed" else ""))


def _summarize(results: Sequence[TrialResult]) -> str:
    words = {"error": "could not run"}
    counts = {status: number for status, number in count_statuses(results).items() if number}
    parts = [f"{number} {words.get(status, status)}" for status, number in counts.items()]
    paid = sum(map(_get_paid, results))
    return ", ".join(parts or ["no cases"]) + (f", {_show_dollars(paid)}" if paid else "")


def _get_paid(result: TrialResult) -> float:
    """Return the cost of a result in this run. A recorded answer, which has no time, was paid for earlier."""
    return (result.cost or 0) if result.seconds is not None else 0


def _show_dollars(amount: float) -> str:
    return f"${amount:.4f}" if amount >= 0.0001 else "less than $0.0001"


def write_reports(report: SuiteReport, *, junit: Path | None, html: Path | None, github: bool) -> None:
    """Write the requested reports, creating their folders."""
    for file in filter(None, (junit, html)):
        file.parent.mkdir(parents=True, exist_ok=True)
    if junit is not None:
        junit.write_text(write_junit(report.results), encoding="utf-8", newline="\n")
    if html is not None:
        earlier = report.earlier
        before, name = (earlier.results, earlier.name) if earlier else ({}, "")
        results = [_link_traces(result, html.parent) for result in report.results]
        page = render_report(results, report.notes, report.comparison, before, name)
        html.touch(mode=0o600)  # answers can be private
        html.write_text(page, encoding="utf-8", newline="\n")
        err.print(visible(f"Wrote {html}."))
    if github:
        path = os.environ.get(_SUMMARY_VARIABLE)
        if not path:
            raise RequestError(f"--github needs the variable {_SUMMARY_VARIABLE}", "Run it in a GitHub workflow.")
        with Path(path).open("a", encoding="utf-8") as summary:
            summary.write(write_summary(report.results, report.notes))


def _link_traces(result: TrialResult, folder: Path) -> TrialResult:
    """Write the trace of each run as a page, and return the result with links to the pages."""
    return result._replace(runs=tuple(run._replace(trace=_write_trace_page(run.trace, folder)) for run in result.runs))


def _write_trace_page(trace: str | None, folder: Path) -> str | None:
    if trace is None:
        return None
    page = Path(trace).with_suffix(".html")
    try:
        write_page(read_trace(trace), page)
    except (TraceUnreadable, OSError) as error:
        err.print(visible(f"A trace is not linked: {error}"))
        return None
    return quote(Path(os.path.relpath(page, folder)).as_posix())
