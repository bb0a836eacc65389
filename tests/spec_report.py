"""The conformance report: which tests prove which requirement of the documents (`make conformance`)."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.requirements import REQUIREMENTS, Requirement

TESTS = Path(__file__).parent

Proofs = Mapping[tuple[str, str], set[str]]  # section and requirement → files of tests, relative to TESTS
Table = Mapping[str, tuple[Requirement, ...]]


def report(items: Iterable[pytest.Item]) -> str:
    """Return the report of the collected tests. Raise UsageError if the table and the marks disagree."""
    names: dict[tuple[str, str], set[str]] = defaultdict(set)
    files: dict[tuple[str, str], set[str]] = defaultdict(set)
    for item in items:
        for mark in item.iter_markers("spec"):
            proved = parse_mark(mark, item.nodeid)
            names[proved].add(item.nodeid.partition("::")[2].partition("[")[0])
            files[proved].add(item.path.relative_to(TESTS).as_posix())
    written = scan_marks()
    unread = [f"{key}: {found ^ written[key]}" for key, found in files.items() if found != written[key]]
    if faults := [*find_faults(files), *unread]:
        raise pytest.UsageError("\n".join(faults))
    return format_report(names)


def parse_mark(mark: pytest.Mark, nodeid: str) -> tuple[str, str]:
    """Return the section and the requirement of a spec mark."""
    match mark.args, mark.kwargs:
        case (str(section), str(requirement)), {**others} if not others:
            return section, requirement
    raise pytest.UsageError(
        f"{nodeid}: pytest.mark.spec takes a section and a requirement, and this one has {mark.args or mark.kwargs}. "
        "Take both from tests/requirements.py, for example @pytest.mark.spec('000 §7.1.3', 'no tools means no key')."
    )


def scan_marks(folder: Path = TESTS) -> Proofs:
    """Return the files whose text has a mark, without importing them: `report` compares this with the real marks."""
    proofs: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in sorted(folder.rglob("test_*.py")):
        if "mark.spec" in (text := path.read_text(encoding="utf-8")):
            for proved in _find_marks(ast.parse(text)):
                proofs[proved].add(path.relative_to(folder).as_posix())
    return proofs


def _find_marks(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="spec"),
                args=[ast.Constant(value=str(section)), ast.Constant(value=str(requirement))],
                keywords=[],
            ):
                yield section, requirement


def find_faults(proofs: Proofs, table: Table = REQUIREMENTS) -> list[str]:
    """Return what is wrong with the table: marks it does not know, and gaps it does not admit or that are closed."""
    known = {(section, entry.text) for section, entries in table.items() for entry in entries}
    faults = [f"{section}: a test proves {text!r}, which is no requirement" for section, text in proofs.keys() - known]
    for section, entries in table.items():
        for entry in entries:
            is_proved = bool(proofs.get((section, entry.text)))
            if not is_proved and not entry.missing:
                faults.append(f"{section}: no test proves {entry.text!r}. Mark one, or say what is missing.")
            if is_proved and entry.missing:
                faults.append(f"{section}: {entry.text!r} has a test. Remove what is said to be missing.")
    return faults


def format_report(names: Proofs, table: Table = REQUIREMENTS) -> str:
    lines = []
    for section, entries in table.items():
        lines.append(section)
        for entry in entries:
            state = f"missing: {entry.missing}" if entry.missing else ", ".join(sorted(names[section, entry.text]))
            departs = f" (departs, {entry.departs})" if entry.departs else ""
            lines.append(f"    {entry.text}{departs}: {state}")
    return "\n".join(lines)
