"""Write `docs/reference/conformance.md` from the table of requirements and the marks of the tests."""

from collections.abc import Iterable
from pathlib import Path

from tests.requirements import INFORMATIVE, REQUIREMENTS, Requirement
from tests.spec_report import Proofs, scan_marks

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "conformance.md"

TITLES = {
    "000": "Wire format",
    "001": "Messages and the loop",
    "002": "Processing",
    "003": "File format",
    "004": "Responses API",
}
STATES = ("implemented", "departs", "missing")

HEAD = """---
search:
  exclude: true # its rows would hide the pages that people look for
---

# Conformance

prompty implements five documents. This page lists every requirement in them, with the tests that prove it.
`make docs` writes the page from `tests/requirements.py` and from the marks of the tests.

- **Implemented**: the tests in the row prove the requirement.
- **Departs**: prompty does something else on purpose. The link leads to the reason.
  The tests in the row prove what happens instead.
- **Missing**: no test proves the requirement. The row names the gap.

## What counts as a requirement

A reader splits the documents into statements: sentences, items of lists, rows of tables and lines of pseudo-code.
It leaves out figures and samples of code.

- A statement with MUST, SHOULD, MAY or a related keyword always has a row.
- A statement with "must", "never", "always", "only" or "cannot" always has a row, because two documents are guides
  without keywords.
- Any other statement has a row if it describes behavior. Such a row counts as a MUST.
- The other {informative} statements ask for nothing: introductions, reasons, and headings of lists.

Statements can share a row, and one statement can have several rows. The words are ours, not the documents'.

## Summary
"""


def build_page(proofs: Proofs) -> str:
    """Return the text of the page."""
    parts = [HEAD.format(informative=sum(len(found.split()) for found in INFORMATIVE.values())), *build_summary(), ""]
    for number, title in TITLES.items():
        parts += [f"## {number} {title}", ""]
        for section, entries in REQUIREMENTS.items():
            if section.startswith(number):
                rows = (build_row(entry, proofs.get((section, entry.text), set())) for entry in entries)
                parts += [f"### {section}", "", "| requirement | strength | tests |", "|---|---|---|", *rows, ""]
    return "\n".join(parts).rstrip() + "\n"


def build_summary() -> list[str]:
    lines = ["| document | statements | requirements | implemented | departs | missing |", "|---|---|---|---|---|---|"]
    everything: list[Requirement] = []
    for number, title in TITLES.items():
        sections = [entries for section, entries in REQUIREMENTS.items() if section.startswith(number)]
        entries = [entry for section in sections for entry in section]
        lines.append(f"| {number} {title} | {count(entries)} |")
        everything += entries
    return [*lines, f"| **all** | {count(everything)} |"]


def count(entries: Iterable[Requirement]) -> str:
    """Return the cells of the summary for `entries`."""
    entries = list(entries)
    statements = {statement for entry in entries for statement in entry.statements}
    states = [get_state(entry) for entry in entries]
    return " | ".join(map(str, (len(statements), len(entries), *map(states.count, STATES))))


def get_state(entry: Requirement) -> str:
    return "missing" if entry.missing else "departs" if entry.departs else "implemented"


def find_reason(number: str) -> str:
    """Return the place that explains a departure. Those with a D are rows of a table, without a place of their own."""
    return (
        "../explanation/differences.md" if number.startswith("D") else f"../explanation/decisions.md#{number.lower()}"
    )


def build_row(entry: Requirement, files: set[str]) -> str:
    tests = ", ".join(f"`tests/{file}`" for file in sorted(files))
    departs = f"departs, [{entry.departs}]({find_reason(entry.departs)}): " if entry.departs else ""
    proof = f"**missing**: {entry.missing}" if entry.missing else f"{departs}{tests}"
    return f"| {entry.text.replace('<', '&lt;')} | {entry.strength} | {proof} |"


if __name__ == "__main__":
    PAGE.write_text(build_page(scan_marks()), encoding="utf-8")
