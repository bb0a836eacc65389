"""`prompty trace`: look at what was recorded of runs."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

from rich.cells import cell_len
from rich.text import Text
from typer import Argument, Option, Typer

from prompty.cli.console import err, fail, out, show_json
from prompty.cli.options import AsJson
from prompty.errors import PromptyError
from prompty.safety.visible import visible
from prompty.viewer.page import trace_to_json, write_page
from prompty.viewer.reading import find_traces, read_trace
from prompty.viewer.trace import Frame, Trace, TraceUnreadable
from prompty.viewer.transcript import transcript
from prompty.viewer.words import cost_in_words, duration_in_words, tokens_in_words

trace_app = Typer(name="trace", help="Look at recorded runs.", no_args_is_help=True)

TraceFile = Annotated[Path, Argument(metavar="FILE", help="A recorded trace, or a folder for the newest in it.")]
_STYLES = {"ok": "green", "failed": "bold red", "unfinished": "yellow"}
_DEEPEST = 30
_RECORD = "Record a run with tracing to a file, or name the folder with its .tracy files."


@trace_app.command("list")
def list_traces(
    folder: Annotated[Path, Argument(help="Where the traces are.")] = Path(), as_json: AsJson = False
) -> None:
    """List the recorded runs of FOLDER, newest first."""
    try:
        files = _files_in(folder)
    except PromptyError as error:
        fail(error)
    traces = list(_readable(files))
    if as_json:
        show_json([{**trace_to_json(trace), "file": str(trace.path), "frames": len(trace.frames)} for trace in traces])
    elif traces:
        _print_columns(["when", "name", "duration", "tokens", "cost", "status", "file"], [_line(one) for one in traces])


@trace_app.command()
def show(
    file: TraceFile,
    content: Annotated[bool, Option("--content", "-c", help="Also what was said, asked and answered.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the steps of a recorded run as a tree."""
    trace = _opened(file)
    if as_json:
        show_json(trace_to_json(trace))
        return
    for frame, first, rest in _guided(trace.frames):
        out.print(Text.assemble((first, "dim"), *_told(frame)))
        for line in transcript(frame) if content else ():
            out.print(Text.assemble((f"{rest}    ", "dim"), visible(line)))


@trace_app.command()
def html(
    file: TraceFile,
    output: Annotated[Path | None, Option("--output", "-o", help="Where to write; beside FILE if not told.")] = None,
) -> None:
    """Write a recorded run as one HTML page that can be opened, kept and sent; only you may read the file."""
    trace = _opened(file)
    target = output or trace.path.with_suffix(".html")
    try:
        write_page(trace, target)
    except OSError as error:
        fail(f"{target}: the page cannot be written: {error.strerror}\n    Name another place with --output.")
    out.print(visible(str(target)))


def _files_in(folder: Path) -> list[Path]:
    try:
        files = find_traces(folder)
    except OSError as error:
        raise TraceUnreadable(str(folder), f"the folder cannot be read: {error.strerror}", _RECORD) from error
    if not files:
        raise TraceUnreadable(str(folder), "no traces are in this folder", _RECORD)
    return files


def _opened(file: Path) -> Trace:
    try:
        return read_trace(_files_in(file)[0] if file.is_dir() else file)
    except PromptyError as error:
        fail(error)


def _readable(files: Iterable[Path]) -> Iterator[Trace]:
    """The traces of files; one that cannot be read does not hide the others."""
    for file in files:
        try:
            yield read_trace(file)
        except TraceUnreadable as error:
            err.print(Text.assemble(("warning", "yellow"), f": {visible(str(error))}"))


def _line(trace: Trace) -> list[Text]:
    root = trace.root
    cells = [
        f"{root.start.astimezone():%Y-%m-%d %H:%M:%S}" if root.start else "",
        root.title,
        "" if root.duration is None else duration_in_words(root.duration),
        tokens_in_words(root.usage),
        cost_in_words(root),
        root.status,
        str(trace.path),
    ]
    return [Text(_on_one_line(cell), _STYLES.get(cell, "")) for cell in cells]


def _on_one_line(text: str) -> str:
    """Text that cannot draw lines of its own between ours."""
    return visible(" ".join(text.split("\n")))


def _print_columns(heads: list[str], lines: list[list[Text]]) -> None:
    """Columns as wide as what is in them: a path that is cut off could not be used."""
    table = [[Text(head, "bold") for head in heads], *lines]
    widths = [max(cell_len(line[column].plain) for line in table) for column in range(len(heads))]
    for line in table:
        for cell, width in zip(line, widths, strict=True):
            cell.pad_right(width - cell_len(cell.plain))
        out.print(Text("  ").join(line))


def _told(frame: Frame) -> Iterator[tuple[str, str]]:
    """Title, figures and how it went, each with its style."""
    yield _on_one_line(frame.title), _STYLES[frame.status] if frame.status != "ok" else "bold"
    yield f"  {duration_in_words(frame.duration)}", "dim"
    yield f"  {tokens} tokens" if (tokens := tokens_in_words(frame.usage)) else "", "cyan"
    yield f"  {cost}" if (cost := cost_in_words(frame)) else "", "green"
    if frame.error:
        yield _on_one_line(f"  {frame.error['type']}: {frame.error['message']}"), "red"


def _guided(frames: list[Frame]) -> Iterator[tuple[Frame, str, str]]:
    """Each frame with the lines that lead to it, and those that go on below it; far down its level is told."""
    last = {frame.parent: position for position, frame in enumerate(frames)}
    below: list[str] = []
    for position, frame in enumerate(frames):
        is_last = last[frame.parent] == position
        above = "" if frame.parent is None else below[frame.parent]
        first, rest = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        if frame.depth > _DEEPEST:
            first, rest = f"({frame.depth}) ", ""
        below.append("" if frame.parent is None else above + rest)
        yield frame, "" if frame.parent is None else above + first, below[position]
