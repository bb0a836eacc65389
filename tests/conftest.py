"""Shared by all tests: where the public vectors are, and the report of which section each test proves."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from prompty.parsers import parsers
from prompty.renderers import renderers
from tests.requirements import REQUIREMENTS
from tests.soak import SOAK, keep_counts
from tests.soak import keep as keep


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-report", action="store_true", help="print section → tests; fail on one without a test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--spec-report"):
        return
    proofs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        for mark in item.iter_markers("spec"):
            section, requirement = mark.args
            proofs[section][requirement].append(item.nodeid)
    print_report(proofs)
    unproved = [
        f"{section}: {requirement}"
        for section, requirements in REQUIREMENTS.items()
        for requirement in requirements
        if not proofs[section][requirement]
    ]
    unknown = [
        f"{section}: {requirement}"
        for section, requirements in proofs.items()
        for requirement in requirements
        if requirements[requirement] and requirement not in REQUIREMENTS.get(section, ())
    ]
    if unproved or unknown:
        raise pytest.UsageError(f"requirements without a test: {unproved}; tests of unknown requirements: {unknown}")


def print_report(proofs: dict[str, dict[str, list[str]]]) -> None:
    lines = []
    for section, requirements in sorted(proofs.items()):
        lines.append(section)
        for requirement, tests in requirements.items():
            names = sorted({test.partition("::")[2].partition("[")[0] for test in tests})
            lines.append(f"    {requirement}: {', '.join(names)} ({len(tests)})")
    print("\n".join(lines))  # noqa: T201  the report is what the option asks for


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how the public vectors fared, and keep how tests at their full size did."""
    if SOAK:
        keep_counts(terminalreporter.stats)
    reports = [
        (outcome, report)
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        if report.nodeid.startswith("tests/conformance/") and "[" in report.nodeid
    ]
    counts = Counter((report.nodeid.partition("::test_")[2].partition("[")[0], outcome) for outcome, report in reports)
    waived = [value for _, report in reports for name, value in report.user_properties if name == "waived"]
    if counts:
        terminalreporter.section("public vectors")
        for (stage, outcome), number in counts.items():
            terminalreporter.write_line(f"{stage}: {number} {outcome}")
        terminalreporter.write_line(f"of these waived: {', '.join(dict.fromkeys(waived))}")


@pytest.fixture
def clean_registries() -> Iterator[None]:
    """Undo what a test registered."""
    before = [(registry, dict(registry._found)) for registry in (renderers, parsers)]
    yield
    for registry, found in before:
        registry._found = found  # type: ignore[assignment]  # each registry gets its own kind back


@pytest.fixture(autouse=True)
def no_loaded_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts with nothing cached."""
    monkeypatch.setattr("prompty.pipeline.load._cache", {})
