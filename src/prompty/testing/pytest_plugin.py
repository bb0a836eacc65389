"""pytest plugin: fixtures with a script or a recording. pytest loads it in every project, so it imports little."""

import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest

from prompty import testing

MAX_FILE_NAME_LENGTH = 100
_UNSAFE_CHARACTERS = re.compile(r"[^\w\[\]., =+-]")
_OFFLINE = "PROMPTY_OFFLINE"
_passed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("prompty").addoption(
        "--prompty-live",
        action="store_true",
        help="call the real models, and replace the recordings of `prompty_recording` and of collected cases",
    )
    parser.addini("prompty_collect", "collect the cases of .test.yaml files", type="bool", default=False)
    parser.addini(
        "prompty_offline", "refuse calls to models outside of scripts and recordings", type="bool", default=False
    )
    parser.addini("prompty_checks", "Python files with functions for `python:` checks", type="paths", default=[])
    parser.addini("prompty_tools", "Python files with functions that models may call", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("PROMPTY_MISSING_ENV", "defer")  # modules of tests load prompts, often without keys
    if config.getini("prompty_offline") and not config.getoption("--prompty-live"):
        before = os.environ.get(_OFFLINE)
        os.environ[_OFFLINE] = "1"
        config.add_cleanup(lambda: _restore(before))
    if config.getini("prompty_collect"):
        config.pluginmanager.import_plugin("prompty.cases.pytest_items")


def _restore(before: str | None) -> None:
    """Set the variable to its value before the tests, for a program that runs pytest and goes on."""
    os.environ.pop(_OFFLINE, None)
    if before is not None:
        os.environ[_OFFLINE] = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture
def prompty_script() -> "Iterator[Callable[..., testing.Script]]":
    """Return a function that creates a `Script(…)` for the rest of the test."""
    with ExitStack() as scripts:
        yield lambda *items: scripts.enter_context(testing.Script(*items))


@pytest.fixture
def prompty_recording(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Replay `recordings/<module>/<test>.jsonl` in the folder of the test. With `--prompty-live`, call the models and
    replace the recording if the test passes."""
    path = request.path.parent / "recordings" / request.path.stem / f"{_get_file_name(request.node)}.jsonl"
    if not request.config.getoption("--prompty-live"):
        with testing.Player(path):
            yield path
        return
    from prompty.safety.write_files import name_temporary  # only tests that record need it

    fresh = name_temporary(path)
    with testing.Recorder(fresh):
        yield path
    if fresh.exists() and request.node.stash.get(_passed, False):
        fresh.replace(path)
    fresh.unlink(missing_ok=True)


def _get_file_name(item: pytest.Item) -> str:
    """Return class and test name. If they are not a valid file name, shorten them and add a hash."""
    whole = ".".join(node.name for node in item.listchain() if isinstance(node, pytest.Class | pytest.Item))
    name = _UNSAFE_CHARACTERS.sub("_", whole)[:MAX_FILE_NAME_LENGTH]
    return name if name == whole else f"{name}-{sha256(whole.encode()).hexdigest()[:8]}"
