"""Shared by all tests: where the public vectors are, and the report of which section each test proves."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from secrets import randbelow, token_hex
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from prompty.registry import DEFAULT, PromptCache, Registry
from tests.machine import TIMED, Neighbours
from tests.public_data import DOCUMENT, NO_DOCUMENT
from tests.soak import SOAK, keep as keep, keep_counts
from tests.spec_report import report
from tests.tiers import fail_if_unmarked, forget_processes, mark_tiers

# A busy machine, or coverage, makes generated tests slow. That is no failure: tests of the tier `timing` measure time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("patient"), max_examples=25)  # `make test`
settings.load_profile("patient")

NEIGHBOURS = Neighbours()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spec-report", action="store_true", help="print section → tests; fail on one without a test")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its options, and before workers start with ours
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of searches here, so that a failure can name it. Variables are needed, as in programs."""
    os.environ["PROMPTY_MISSING_ENV"] = "raise"
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = randbelow(2**32)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Say how a search that failed is repeated."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if report.failed and call.when == "call" and getattr(getattr(item, "obj", None), "hypothesis", None):
        seed = item.config.getoption("hypothesis_seed")
        repeat = f"pytest --hypothesis-seed={seed} '{item.nodeid}'"
        text = f"Its examples are random, so this may not be your change. Repeat it: {repeat}"
        report.sections.append(("a search that failed", text))


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_tiers(items)
    if config.getoption("--spec-report"):
        print(report(items))  # noqa: T201  the report is what the option asks for


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of garbage collection, which would search ten thousand of them again and again."""
    # Hypothesis warns if it does not find what refers to its random numbers. From Python 3.14 on, freezing hides that.
    given(strategies.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before fixtures, which may start processes
def pytest_runtest_setup(item: pytest.Item) -> None:
    forget_processes()
    if TIMED and item.get_closest_marker("timing"):
        NEIGHBOURS.wait_until_quiet()


@pytest.hookimpl(trylast=True)  # after the test itself
def pytest_runtest_call(item: pytest.Item) -> None:
    fail_if_unmarked(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how the public vectors fared, and keep how tests at their full size did."""
    if not DOCUMENT.is_file():
        terminalreporter.write_line(f"{NO_DOCUMENT} (CONTRIBUTING.md, Test data)")
    if SOAK:
        keep_counts(terminalreporter.stats)
    reports = [
        (outcome, report)
        for outcome in ("passed", "failed", "skipped")
        for report in terminalreporter.stats.get(outcome, [])
        if report.nodeid.startswith("tests/conformance/") and "_vectors.py" in report.nodeid and "[" in report.nodeid
    ]
    counts = Counter((report.nodeid.partition("::test_")[2].partition("[")[0], outcome) for outcome, report in reports)
    waived = [value for _, report in reports for name, value in report.user_properties if name == "waived"]
    if counts:
        terminalreporter.section("public vectors")
        for (stage, outcome), number in counts.items():
            terminalreporter.write_line(f"{stage}: {number} {outcome}")
        terminalreporter.write_line(f"of these waived: {', '.join(dict.fromkeys(waived))}")


@pytest.fixture(autouse=True)
def no_stored_keys(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keys that the person who runs the tests has stored are not used, and no test stores one among them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / f"config-{token_hex(8)}"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    yield
    if keyring := sys.modules.get("keyring"):
        keyring.set_keyring(import_module("keyring.backends.null").Keyring())


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start with an empty default registry, and undo what the test registers."""
    for name, table in vars(Registry()).items():
        monkeypatch.setattr(DEFAULT, name, table)


@pytest.fixture(autouse=True)
def no_loaded_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test starts with nothing cached."""
    monkeypatch.setattr(DEFAULT, "prompts", PromptCache())
