"""Rows of a JSONL or CSV file as inputs of a prompt, one at a time. A row that cannot be read is a row all the same."""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from typing import BinaryIO

from prompty.errors import InputError, RequestError
from prompty.model.agent import PromptAgent
from prompty.wire.strict_json import MAX_CHARACTERS, read_json

Kinds = Mapping[str, str]
_TEXT_KINDS = frozenset({"string", "image", "audio", "file"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_SEED = 0  # the same choice for the same file, whenever it is made


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The inputs of one call. `number` counts rows from 1; `problem` is why a row has none."""

    number: int
    inputs: dict[str, object] = field(default_factory=dict)
    problem: InputError | None = None


def kinds_of(agent: PromptAgent) -> Kinds:
    """What a prompt's inputs are, by their names: the cells of a CSV file are read so."""
    return {declared.name: declared.kind for declared in agent.inputs}


def read_rows(path: Path, kinds: Kinds) -> Iterator[Row]:
    """The rows of a file, never more than one in memory."""
    return _FORMATS[_format(path)](path, kinds)


def count_rows(path: Path) -> int:
    """How many rows a file has."""
    return sum(1 for _ in (_csv_lines(path) if _format(path) == ".csv" else _json_lines(path)))


def chosen_numbers(total: int, *, limit: int | None = None, sample: int | None = None) -> range | frozenset[int]:
    """Which rows are meant, by their numbers: all, the first so many, or so many of those chosen at random."""
    numbers = range(1, min(total, total if limit is None else limit) + 1)
    if sample is None or sample >= len(numbers):
        return numbers
    return frozenset(Random(_SEED).sample(numbers, sample))  # noqa: S311  not for secrets


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise RequestError(
            f"the rows '{path.name}' are neither JSONL nor CSV, going by the name", "Name the file .jsonl or .csv."
        )
    return suffix


def _json_rows(path: Path, _: Kinds) -> Iterator[Row]:
    for number, line in enumerate(_json_lines(path), 1):
        yield _json_row(number, line)


def _json_row(number: int, line: bytes) -> Row:
    try:
        value = read_json(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except ValueError as error:  # bytes that are no text are one too
        return _unreadable(number, f"it is not JSON: {error}", "Write one JSON object in each line.")
    if not isinstance(value, dict):
        return _unreadable(number, "it is not a JSON object", 'Write one object in each line: {"name": "value"}.')
    return Row(number=number, inputs=value)


def _json_lines(path: Path) -> Iterator[bytes]:
    """Lines with something in them. Of one that is too long no more is kept than shows that it is."""
    with path.open("rb") as file:
        while line := file.readline(MAX_CHARACTERS + 2):
            if not line.endswith(b"\n"):
                _skip_line(file)
            if line.strip():
                yield line


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_CHARACTERS)) and not rest.endswith(b"\n"):
        pass


def _csv_rows(path: Path, kinds: Kinds) -> Iterator[Row]:
    lines = _csv_lines(path, header=True)
    header = next(lines, [])
    if isinstance(header, csv.Error) or len(set(header)) < len(header) or not all(header):
        raise RequestError(
            f"the first line of '{path.name}' does not name the inputs", "Write each name once, between commas."
        )
    for number, cells in enumerate(lines, 1):
        yield _csv_row(number, header, cells, kinds)


def _csv_row(number: int, header: list[str], cells: list[str] | csv.Error, kinds: Kinds) -> Row:
    if isinstance(cells, csv.Error):
        return _unreadable(number, f"it is not CSV: {cells}", "Quote cells, or write the rows as JSONL.")
    if len(cells) != len(header):
        cause = f"it has {len(cells)} cells, and the first line has {len(header)}"
        return _unreadable(number, cause, "Write as many cells as there are names.")
    if any(_SURROGATE.search(cell) for cell in cells):
        return _unreadable(number, "it is not UTF-8", "Save the file as UTF-8.")
    try:
        return Row(number=number, inputs=dict(_typed_cells(header, cells, kinds)))
    except ValueError as error:
        return _unreadable(number, str(error), "Write the values of such inputs as JSON, or leave the cell empty.")


def _typed_cells(header: list[str], cells: list[str], kinds: Kinds) -> Iterator[tuple[str, object]]:
    """JSON for every kind that is not written as text; an empty cell of such a kind gives no value."""
    for name, text in zip(header, cells, strict=True):
        kind = kinds.get(name, "string")
        if kind in _TEXT_KINDS:
            yield name, text
        elif text.strip():
            try:
                yield name, read_json(text)
            except ValueError as error:
                raise ValueError(f"'{name}' is declared as {kind}: {error}") from None


def _csv_lines(path: Path, *, header: bool = False) -> Iterator[list[str] | csv.Error]:
    """The rows of cells, with the first one if asked for. What cannot be read is given as the reason."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        yield from islice(_each(reader.__next__), 0 if header else 1, None)


def _each(read: Callable[[], list[str]]) -> Iterator[list[str] | csv.Error]:
    while True:
        try:
            if cells := read():
                yield cells
        except csv.Error as error:
            yield error
        except StopIteration:
            return


def _unreadable(number: int, cause: str, fix: str) -> Row:
    return Row(number=number, problem=InputError(f"row {number}", f"row {number} cannot be read: {cause}", fix))


_FORMATS: dict[str, Callable[[Path, Kinds], Iterator[Row]]] = {
    ".jsonl": _json_rows,
    ".ndjson": _json_rows,
    ".csv": _csv_rows,
}
