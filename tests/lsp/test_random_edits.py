"""Random edits end in the diagnostics of a fresh start, within a bounded memory. `make soak` makes 2,000 of them."""

import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.lsp.client import Editor
from tests.lsp.corpus import BROKEN, GOOD, RIGHT
from tests.soak import SOAK

EDITS = 2000 if SOAK else 60
TYPED = [
    "a",
    "\n",
    "\r\n",
    "{{ who }}",
    "{{ ",
    "}}",
    "{% if who %}",
    "---\n",
    "user:\n",
    "😀",
    "e\u0301",
    "  ",
    ": ",
    "[",
]
PASTED = [text for sample in [*BROKEN.values(), *RIGHT.values()] for text in sample.files.values() if len(text) < 400]


def make_edit(chance: random.Random, lines: list[str]) -> dict[str, Any]:
    """Return an edit with a range in units of UTF-16."""
    rows = sorted(chance.choices(range(len(lines)), k=2))
    rows[1] = min(rows[1], rows[0] + chance.choice((0, 0, 0, 1, 5)))
    sides = [{"line": row, "character": chance.randint(0, len(lines[row].encode("utf-16-le")) // 2)} for row in rows]
    if rows[0] == rows[1]:
        sides.sort(key=lambda side: side["character"])
        sides[1]["character"] = min(sides[1]["character"], sides[0]["character"] + chance.choice((0, 1, 4)))
    text = chance.choice(TYPED if chance.random() < 0.9 else PASTED)
    return {"range": {"start": sides[0], "end": sides[1]}, "text": text}


@pytest.mark.slow
def test_random_edits_end_in_the_diagnostics_of_a_fresh_start(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311  no secret
    (tmp_path / "_p.md").write_text("Be kind, {{ who }}.\n")
    files = [tmp_path / "a.prompty", tmp_path / "_p.md", tmp_path / "a.test.yaml"]
    start = GOOD.replace("Be kind.", '{% include "_p.md" %}')
    editor = Editor()
    uris = [editor.open(files[0], start), editor.open(files[1]), editor.open(files[2], "cases: [{name: x}]\n", "yaml")]
    for number in range(EDITS):
        uri = chance.choice(uris)
        text = editor.server.workspace.texts[uri]
        if len(text.text) > 5000 or chance.random() < 0.02:
            editor.change(uri, {"text": start if uri == uris[0] else "x\n"}, version=number + 2)
        else:
            editor.change(uri, make_edit(chance, text.lines), version=number + 2)
        if number % 20 == 19:
            fresh = Editor()
            for file, known in zip(files, uris, strict=True):
                fresh.open(file, editor.server.workspace.texts[known].text)
            for known in uris:
                assert editor.diagnostics.get(known, []) == fresh.diagnostics.get(known, [])


@pytest.mark.slow
def test_memory_does_not_grow_with_keystrokes(tmp_path: Path) -> None:
    chance = random.Random(7)  # noqa: S311  no secret
    start = GOOD + "".join(f"Line {number} says {{{{ who }}}} and more.\n" for number in range(500))
    editor = Editor()
    uri = editor.open(tmp_path / "a.prompty", start)
    for _ in range(20):  # what is loaded once
        editor.change(uri, make_edit(chance, editor.server.workspace.texts[uri].lines))
    tracemalloc.start()
    try:
        for number in range(EDITS):
            is_reset = number % 20 == 19  # most edits break the text
            text = editor.server.workspace.texts[uri]
            editor.change(uri, {"text": f"{start}{number}"} if is_reset else make_edit(chance, text.lines))
            editor.received.clear()
        kept = tracemalloc.get_traced_memory()[0] / 1_000_000
    finally:
        tracemalloc.stop()
    print(f"{kept:.1f} MB more after {EDITS} edits")  # noqa: T201  the figure
    assert kept < (30 if SOAK else 10)
