"""The planned room of each source file, from `rooms.tsv`."""

from pathlib import Path
from typing import NamedTuple

ROOMS = Path(__file__).with_name("rooms.tsv")
GOING = "-"
# The planned order of rooms, from the top. pyproject.toml has the order of today's folders.
ORDER = (
    ("__main__",),
    ("cli",),
    ("dev", "lsp"),
    ("evals",),
    ("analysis", "batches", "durable", "testing"),
    ("runtime",),
    ("tools", "providers"),
    ("prompt",),
    ("templates",),
    ("tracing",),
    ("events",),
    ("messages", "registry"),
    ("_internal",),
    ("errors",),
)


class Row(NamedTuple):
    """One line of the map."""

    room: str
    """The planned room, or `GOING` for a file that will be removed."""
    was: tuple[str, ...] = ()
    """Paths under which the file's coverage is stored, if it has moved since."""


def read_rooms(file: Path = ROOMS) -> dict[str, Row]:
    """Return the line of each file, by its path in the package."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("#"):
            continue
        path, room, *was = line.split("\t")
        if path in rows:
            raise ValueError(f"{file}:{number}: a second line for {path}; remove one")
        rows[path] = Row(room, tuple(" ".join(was).split()))
    return rows


def get_folder(path: str) -> str:
    """Return today's room of a file: its folder at the top of the package, or its own name."""
    first, slash, _ = path.partition("/")
    return first if slash else first.removesuffix(".py")
