"""The output of `prompty test`: results and totals in the terminal, and the reports for files and GitHub."""

import os
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from rich.text import Text

from prompty.cases.comparison import SuiteReport, get_case_key
from prompty.cases.report import (
    STANDINGS,
    Standing,
    count_standings,
    describe_totals,
    find_standings,
    name_column,
    render_report,
    report_to_json,
    write_junit,
    write_summary,
)
from prompty.cases.results import TrialResult
from prompty.cli.console import err, out, print_json, show
from prompty.errors import RequestError
from prompty.safety.redaction import mask_secrets
from prompty.safety.write_files import create_folder, open_to_append, replace_file
from prompty.viewer.page import write_page
from prompty.viewer.trace import TraceUnreadable, read_trace

_MARKS = {"passed": ("✓", "green"), "failed": ("✗", "bold red"), "error": ("!", "bold red"), "skipped": ("-", "dim")}
_BEFORE: dict[Standing, tuple[str, str]] = {
    "worse": ("passed before", "bold red"),
    "better": ("failed before", "green"),
    "accepted": ("also failed before", "dim"),
}
_SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
_COMMIT_VARIABLE = "GITHUB_SHA"


def print_report(report: SuiteReport, *, as_json: bool, quiet: bool = False) -> None:
    """Print the results, then totals and what flipped. If `quiet`, print only what failed or flipped, and totals."""
    if as_json:
        print_json(report_to_json(report))
        return
    standings = find_standings(report.results, report.comparison)
    suite = ""
    for result in () if quiet else report.results:
        if result.suite != suite:
            suite = result.suite
            out.print(Text(show(suite), "bold"))
        _print_result(result, get_case_key(result), standings)
        _print_reasons(result)
    if len(report.totals) > 1:
        out.print(Text("By model and variant", "bold"))
        width = max(len(show(name_column(one))) for one in report.totals)
        for one in report.totals:
            out.print(f"  {show(name_column(one)):<{width}}  {describe_totals(one)}")
    _print_listed(report, standings, quiet=quiet)
    for note in report.notes:
        out.print(show(note))
    paid = sum(result.paid for result in report.results)
    out.print(count_standings(report.results, standings) + (f", {_show_dollars(paid)}" if paid else ""))


def _print_listed(report: SuiteReport, standings: dict[str, Standing], *, quiet: bool) -> None:
    """List what flipped or newly failed together, the worst first. If `quiet`, these lines are the only ones."""
    listed: tuple[Standing, ...] = ("worse", "failed", "error", "better") if quiet else ("worse", "better")
    for standing in listed:
        found = [result for result in report.results if standings[result.key] == standing]
        if found:
            out.print(Text(STANDINGS[standing].capitalize(), "bold"))
        for result in found:
            _print_result(result, result.key, {})
            if quiet:
                _print_reasons(result)


def _print_result(result: TrialResult, name: str, standings: dict[str, Standing]) -> None:
    mark, style = _MARKS[result.status]
    line = Text.assemble((f"  {mark} ", style), show(name))
    if len(result.runs) > 1 or result.needed > 1:
        line.append(f"  {result.passes} of {len(result.runs)} passed, {result.needed} needed", "dim")
    if paid := result.paid:
        line.append(f"  {_show_dollars(paid)}", "dim")
    if before := _BEFORE.get(standings.get(result.key, "passed")):
        line.append(f"  {before[0]}", before[1])
    out.print(line)


def _print_reasons(result: TrialResult) -> None:
    for reason in result.reasons:
        text = "\n".join(f"      {part}" for part in show(reason).splitlines())
        out.print(Text(text, "dim" if result.status == "passed" else ""))


def _show_dollars(amount: float) -> str:
    return f"${amount:.4f}" if amount >= 0.0001 else "less than $0.0001"


def write_reports(report: SuiteReport, *, junit: Path | None, html: Path | None, github: bool) -> None:
    """Write the requested reports, creating their folders."""
    for file in filter(None, (junit, html)):
        create_folder(file.parent)
    if junit is not None:
        _write_report(junit, write_junit(report))
    if html is not None:
        linked = [_link_traces(result, html.parent) for result in report.results]
        page = render_report(report._replace(results=linked), _describe_origin(report))
        _write_report(html, page, mode=0o600)  # answers can be private
        err.print(show(f"Wrote {html}."))
    if github:
        path = os.environ.get(_SUMMARY_VARIABLE)
        if not path:
            raise RequestError(f"--github needs the variable {_SUMMARY_VARIABLE}", "Run it in a GitHub workflow.")
        with os.fdopen(open_to_append(Path(path).resolve()), "ab") as summary:
            summary.write(write_summary(report).encode())


def _describe_origin(report: SuiteReport) -> str:
    """Return when the page was made, of which commit if a workflow names it, compared with which, and by which command.

    git is not asked for the commit of the working folder: whether files differ from it cannot be asked safely.
    """
    commit, before = os.environ.get(_COMMIT_VARIABLE, ""), report.earlier.commit if report.earlier else ""
    parts = [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        commit and f"commit {commit[:7]}",
        before and f"compared with commit {before[:7]}",
    ]
    return " · ".join(filter(None, [*parts, mask_secrets(shlex.join(["prompty", *sys.argv[1:]]))]))


def _write_report(path: Path, content: str, mode: int = 0o666) -> None:
    try:
        replace_file(path, content.encode(), mode)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}", "Name another file.") from None


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
        err.print(show(f"A trace is not linked: {error}"))
        return None
    return quote(Path(os.path.relpath(page, folder)).as_posix())
