"""`prompty trace`: list, show and export recorded runs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from rich.cells import cell_len
from rich.text import Text
from typer import Argument, Option, Typer

from prompty.cli.console import err, fail, out, print_json
from prompty.cli.options import AsJson
from prompty.safety.visible import visible
from prompty.viewer.page import trace_to_json, write_page
from prompty.viewer.trace import (
    Frame,
    RecordedTrace,
    TraceUnreadable,
    find_traces,
    format_cost,
    format_duration,
    format_tokens,
    format_transcript,
    read_trace,
)

trace_app: Typer = Typer(name="trace", help="List, show and export recorded runs.", no_args_is_help=True)

TraceFile = Annotated[Path, Argument(metavar="FILE", help="A recorded trace, or a folder to use its newest trace.")]
_STYLES = {"ok": "green", "failed": "bold red", "unfinished": "yellow"}
_MAX_INDENT = 30
_HOW_TO_RECORD = "Record a run with --trace file:FOLDER, or name a folder with traces."


@trace_app.command("list")
def list_traces(
    folder: Annotated[Path, Argument(help="The folder with the traces.")] = Path(), as_json: AsJson = False
) -> None:
    """List the recorded runs in FOLDER, newest first."""
    traces = list(_read_all(_find_files(folder)))
    if as_json:
        print_json([{**trace_to_json(trace), "file": str(trace.path), "frames": len(trace.frames)} for trace in traces])
    elif traces:
        _print_columns(
            ["when", "name", "duration", "tokens", "cost", "status", "file"], [_build_row(trace) for trace in traces]
        )


@trace_app.command("show")
def show_trace(
    file: TraceFile,
    content: Annotated[bool, Option("--content", "-c", help="Include messages, arguments and results.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the spans of a recorded run as a tree."""
    trace = open_trace(file)
    if as_json:
        print_json(trace_to_json(trace))
        return
    for frame, first, rest in _indent(trace.frames):
        out.print(Text.assemble((first, "dim"), *_format_frame(frame)))
        for line in format_transcript(frame) if content else ():
            out.print(Text.assemble((f"{rest}    ", "dim"), visible(line)))


@trace_app.command()
def html(
    file: TraceFile,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="PATH", help="The page to write. Defaults to FILE with the suffix .html."),
    ] = None,
) -> None:
    """Write a recorded run as one self-contained HTML page that only you can read."""
    trace = open_trace(file)
    target = output or trace.path.with_suffix(".html")
    try:
        write_page(trace, target)
    except OSError as error:
        fail(f"{target}: the page cannot be written: {error.strerror}\n    Choose another file with --output.")
    out.print(visible(str(target)))


def _find_files(folder: Path) -> list[Path]:
    try:
        files = find_traces(folder)
    except OSError as error:
        raise TraceUnreadable(str(folder), f"the folder cannot be read: {error.strerror}", _HOW_TO_RECORD) from error
    if not files:
        raise TraceUnreadable(str(folder), "there are no traces in this folder", _HOW_TO_RECORD)
    return files


def open_trace(file: Path) -> RecordedTrace:
    """Read a trace, or the newest in a folder."""
    return read_trace(_find_files(file)[0] if file.is_dir() else file)


def _read_all(files: Iterable[Path]) -> Iterator[RecordedTrace]:
    """Yield the traces in these files, and warn about each that cannot be read."""
    for file in files:
        try:
            yield read_trace(file)
        except TraceUnreadable as error:
            err.print(Text.assemble(("warning", "yellow"), f": {visible(str(error))}"))


def _build_row(trace: RecordedTrace) -> list[Text]:
    root = trace.root
    cells = [
        f"{root.start.astimezone():%Y-%m-%d %H:%M:%S}" if root.start else "",
        root.title,
        "" if root.duration is None else format_duration(root.duration),
        format_tokens(root.usage),
        format_cost(root),
        root.status,
        str(trace.path),
    ]
    return [Text(_flatten_text(cell), _STYLES.get(cell, "")) for cell in cells]


def _flatten_text(text: str) -> str:
    """Escape text and remove its newlines, which could imitate lines of the output."""
    return visible(" ".join(text.split("\n")))


def _print_columns(heads: list[str], rows: list[list[Text]]) -> None:
    """Print columns at full width: a truncated path would be useless."""
    table = [[Text(head, "bold") for head in heads], *rows]
    widths = [max(cell_len(row[column].plain) for row in table) for column in range(len(heads))]
    for row in table:
        for cell, width in zip(row, widths, strict=True):
            cell.pad_right(width - cell_len(cell.plain))
        out.print(Text("  ").join(row))


def _format_frame(frame: Frame) -> Iterator[tuple[str, str]]:
    """Yield title, figures and error, each with its style."""
    yield _flatten_text(frame.title), _STYLES[frame.status] if frame.status != "ok" else "bold"
    yield f"  {format_duration(frame.duration)}", "dim"
    yield f"  {tokens} tokens" if (tokens := format_tokens(frame.usage)) else "", "cyan"
    yield f"  {cost}" if (cost := format_cost(frame)) else "", "green"
    if frame.error:
        yield _flatten_text(f"  {frame.error['type']}: {frame.error['message']}"), "red"


def _indent(frames: list[Frame]) -> Iterator[tuple[Frame, str, str]]:
    """Yield each frame with the prefixes of its first and other lines. A deep frame shows its level instead."""
    last = {frame.parent: position for position, frame in enumerate(frames)}
    below: list[str] = []
    for position, frame in enumerate(frames):
        is_last = last[frame.parent] == position
        above = "" if frame.parent is None else below[frame.parent]
        first, rest = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        if frame.depth > _MAX_INDENT:
            first, rest = f"({frame.depth}) ", ""
        below.append("" if frame.parent is None else above + rest)
        yield frame, "" if frame.parent is None else above + first, below[position]
