"""The files that version 0.1.0 left, and the tools that its turns use."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from prompty import tool

OLD = Path(__file__).parent / "v0.1.0"
WIRES = ("chat", "responses", "messages")

# Sentences that the package writes into a conversation and that were worded otherwise in 0.1.0: old → new.
REWORDED: dict[str, str] = {}


def expected(name: str) -> Any:
    """Return what version 0.1.0 made of its own files, in today's words."""
    text = (OLD / name).read_text(encoding="utf-8")
    for before, after in REWORDED.items():
        assert json.dumps(before)[1:-1] in text, f"{before!r} is not in {name}"
        text = text.replace(json.dumps(before)[1:-1], json.dumps(after)[1:-1])
    return json.loads(text)


def restore_sqlite(name: str, file: Path) -> None:
    """Make a SQLite file of a dump."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript((OLD / name).read_text(encoding="utf-8"))


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"seen {at}"


@tool
async def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(idempotent=True)
async def read(page: int) -> str:
    """Read a page, as often as one likes."""
    return f"page {page}"


TOOLS: list[Any] = [look, pay, read]
