"""Rows of a JSONL or CSV file, read one at a time.

An invalid row has a problem instead of inputs. After an error of CSV itself, such as a quote that is never closed,
nobody knows where the next row begins, so that is an error of the file.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from prompty.errors import InputError, RequestError
from prompty.model.agent import PromptAgent
from prompty.model.property import Property
from prompty.pipeline.validate import find_misfits, read_union
from prompty.safety.json import MAX_JSON_CHARACTERS, read_json

# Kinds of inputs by name. The branches of a union decide how its cells are read, so it is here as a whole.
Kinds = Mapping[str, str | Property]
_TEXT_KINDS = frozenset({"string", "image", "audio", "file"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHARD = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")
_CSV_ERRORS = {"unexpected end of data": "a quote that opens in it is never closed"}
_SEED = 0  # the same sample of a file every time


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The inputs of one call. `number` counts from 1; `problem` says why a row has no inputs."""

    number: int
    inputs: dict[str, object] = field(default_factory=dict)
    problem: InputError | None = None


def get_input_kinds(agent: PromptAgent) -> Kinds:
    """Return the declared kind of each input, which decides how a CSV cell is parsed."""
    return {declared.name: declared if declared.branches else declared.kind for declared in agent.inputs}


def read_rows(path: Path, kinds: Kinds) -> Iterator[Row]:
    """Yield the rows of a file, with one in memory at a time. Raise RequestError if a file is not CSV."""
    return _FORMATS[_get_format(path)](path, kinds)


def check_columns(path: Path, agent: PromptAgent) -> None:
    """Raise RequestError if a CSV file lacks the column of a required input, before its rows fail one by one."""
    header = next(_read_csv_cells(path, header=True), []) if _get_format(path) == ".csv" else None
    if not header:
        return
    for declared in agent.inputs:
        if declared.required and declared.default is None and declared.name not in header:
            columns = ", ".join(f"'{name}'" for name in header[:10])
            raise RequestError(
                f"'{path.name}' has no column for the required input '{declared.name}': it has {columns}",
                "Rename a column in its first line.",
            )


def count_rows(path: Path) -> int:
    """Return the number of rows. Raise RequestError if a file is not CSV, before any of its rows has run."""
    return sum(1 for _ in (_read_csv_cells(path) if _get_format(path) == ".csv" else _read_json_lines(path)))


class Shard(NamedTuple):
    """Part of the rows: every `parts`-th, starting with row `number`. Parts 1 to `parts` have each row once."""

    number: int
    parts: int


def parse_shard(text: str) -> Shard:
    """Parse `2/8`. Raise RequestError unless it is a part that exists."""
    found = _SHARD.fullmatch(text)
    shard = Shard(*map(int, found.groups())) if found else Shard(0, 0)
    if not 1 <= shard.number <= shard.parts:
        fix = "Write --shard 1/4, 2/4, 3/4 and 4/4 for four parts."
        raise RequestError(f"--shard is '{text}', which is not a part of the rows", fix)
    return shard


def select_rows(
    total: int, *, limit: int | None = None, sample: int | None = None, shard: Shard | None = None
) -> range | frozenset[int]:
    """Return the numbers of the rows to run: all, the first `limit`, or a random `sample` of those. A `shard` is a part
    of these."""
    numbers = range(1, min(total, total if limit is None else limit) + 1)
    own = numbers[shard.number - 1 :: shard.parts] if shard else numbers
    if sample is None or sample >= len(numbers):
        return own
    return frozenset(Random(_SEED).sample(numbers, sample)).intersection(own)  # noqa: S311  not for secrets


def _get_format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise RequestError(f"'{path.name}' has neither the suffix .jsonl nor .csv", "Rename the file.")
    return suffix


def _read_json_rows(path: Path, _: Kinds) -> Iterator[Row]:
    for number, line in enumerate(_read_json_lines(path), 1):
        yield _parse_json_row(number, line)


def _parse_json_row(number: int, line: bytes) -> Row:
    try:
        value = read_json(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except ValueError as error:  # including undecodable bytes
        return _unreadable(number, f"it is not JSON: {error}", "Write one JSON object per line.")
    if not isinstance(value, dict):
        return _unreadable(number, "it is not a JSON object", 'Write one object per line: {"name": "value"}.')
    return Row(number=number, inputs=value)


def _read_json_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines that are not blank. A line that is too long is truncated, so that it is invalid JSON."""
    with path.open("rb") as file:
        while line := file.readline(MAX_JSON_CHARACTERS + 2):
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(MAX_JSON_CHARACTERS)
            if line.strip():
                yield line


def _read_csv_rows(path: Path, kinds: Kinds) -> Iterator[Row]:
    lines = _read_csv_cells(path, header=True)
    header = next(lines, [])
    if len(set(header)) < len(header) or not all(header):
        raise RequestError(
            f"the first line of '{path.name}' must name the inputs", "Write each name once, separated by commas."
        )
    for number, cells in enumerate(lines, 1):
        yield _parse_csv_row(number, header, cells, kinds)


def _parse_csv_row(number: int, header: list[str], cells: list[str], kinds: Kinds) -> Row:
    if len(cells) != len(header):
        cause = f"it has {len(cells)} cells, but the first line has {len(header)}"
        return _unreadable(number, cause, "Write one cell for each name.")
    if any(_SURROGATE.search(cell) for cell in cells):
        return _unreadable(number, "it is not UTF-8", "Save the file as UTF-8.")
    try:
        return Row(number=number, inputs=dict(_parse_cells(header, cells, kinds)))
    except ValueError as error:
        return _unreadable(number, str(error), "Write the value as JSON, or leave the cell empty.")


def _parse_cells(header: list[str], cells: list[str], kinds: Kinds) -> Iterator[tuple[str, object]]:
    """Yield names and values. Cells of kinds other than text are JSON, and an empty one has no value. A union's are
    text if a branch takes it."""
    for name, text in zip(header, cells, strict=True):
        kind = kinds.get(name, "string")
        union = kind if isinstance(kind, Property) else None
        if union is None and kind in _TEXT_KINDS:
            yield name, text
        elif text.strip() or (union and not find_misfits(union, text)):
            try:
                yield name, read_union(union, text) if union else read_json(text)
            except ValueError as error:
                raise ValueError(f"'{name}' is declared as {'union' if union else kind}: {error}") from None


def _read_csv_cells(path: Path, *, header: bool = False) -> Iterator[list[str]]:
    """Yield the cells of each row that is not empty."""
    # The module's limit is one for the process, and low for a letter in a cell. It is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_JSON_CHARACTERS))
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        first, is_wanted = 1, header
        try:
            for cells in reader:
                first = reader.line_num + 1
                if cells and is_wanted:
                    yield cells
                is_wanted |= bool(cells)
        except csv.Error as error:
            place = f"the row that begins in line {first} of '{path.name}'"
            fix = "Close each quote, double the quotes inside a cell, or write the rows as JSONL."
            raise RequestError(f"{place} is not CSV: {_CSV_ERRORS.get(str(error), error)}", fix) from None


def _unreadable(number: int, cause: str, fix: str) -> Row:
    return Row(number=number, problem=InputError(f"row {number}", f"row {number} is invalid: {cause}", fix))


_FORMATS: dict[str, Callable[[Path, Kinds], Iterator[Row]]] = {
    ".jsonl": _read_json_rows,
    ".ndjson": _read_json_rows,
    ".csv": _read_csv_rows,
}
