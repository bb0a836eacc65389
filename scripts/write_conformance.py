"""Write `docs/reference/conformance.md` from the table of requirements and the marks of the tests."""

from collections.abc import Iterable
from pathlib import Path

from scripts.pages import read_head
from tests.requirements import REQUIREMENTS, Requirement
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


def build_page(proofs: Proofs) -> str:
    """Return the text of the page."""
    parts = [read_head(PAGE), "## Summary", "", *build_summary(), ""]
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
    states = ["missing" if one.missing else "departs" if one.departs else "implemented" for one in entries]
    return " | ".join(map(str, (len(statements), len(entries), *map(states.count, STATES))))


def build_row(entry: Requirement, files: set[str]) -> str:
    tests = ", ".join(f"`tests/{file}`" for file in sorted(files))
    # Those with a D are rows of a table, without a place of their own.
    page = "differences.md" if entry.departs.startswith("D") else f"decisions.md#{entry.departs.lower()}"
    departs = f"departs, [{entry.departs}](../explanation/{page}): " if entry.departs else ""
    proof = f"**missing**: {entry.missing}" if entry.missing else f"{departs}{tests}"
    return f"| {entry.text.replace('<', '&lt;')} | {entry.strength} | {proof} |"


if __name__ == "__main__":
    PAGE.write_text(build_page(scan_marks()), encoding="utf-8")
