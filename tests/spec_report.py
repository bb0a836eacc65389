"""The conformance report: which tests prove which requirement of the documents (`make conformance`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import pytest

from tests.requirements import REQUIREMENTS

Proofs = Mapping[str, Mapping[str, list[str]]]  # section → requirement → ids of tests


def report(items: Iterable[pytest.Item]) -> str:
    """Return the report. Raise UsageError if a requirement has no test or a mark names an unknown requirement."""
    proofs = collect_proofs(items)
    unproved = [
        f"{section}: {requirement}"
        for section, requirements in REQUIREMENTS.items()
        for requirement in requirements
        if requirement not in proofs.get(section, ())
    ]
    unknown = [
        f"{section}: {requirement}"
        for section, requirements in proofs.items()
        for requirement in requirements
        if requirement not in REQUIREMENTS.get(section, ())
    ]
    if unproved or unknown:
        raise pytest.UsageError(f"requirements without a test: {unproved}; tests of unknown requirements: {unknown}")
    return format_proofs(proofs)


def collect_proofs(items: Iterable[pytest.Item]) -> Proofs:
    proofs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        for mark in item.iter_markers("spec"):
            section, requirement = parse_mark(mark, item.nodeid)
            proofs[section][requirement].append(item.nodeid)
    return proofs


def parse_mark(mark: pytest.Mark, nodeid: str) -> tuple[str, str]:
    """Return the section and the requirement of a spec mark."""
    match mark.args, mark.kwargs:
        case (str(section), str(requirement)), {**others} if not others:
            return section, requirement
    raise pytest.UsageError(
        f"{nodeid}: pytest.mark.spec takes a section and a requirement, and this one has {mark.args or mark.kwargs}. "
        "Take both from tests/requirements.py, for example @pytest.mark.spec('000 §7.1.3', 'no tools means no key')."
    )


def format_proofs(proofs: Proofs) -> str:
    lines = []
    for section, requirements in sorted(proofs.items()):
        lines.append(section)
        for requirement, tests in requirements.items():
            names = sorted({test.partition("::")[2].partition("[")[0] for test in tests})
            lines.append(f"    {requirement}: {', '.join(names)} ({len(tests)})")
    return "\n".join(lines)
