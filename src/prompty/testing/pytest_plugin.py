"""The pytest plugin: a script or a recording for a test. pytest loads it in every project, so it imports little."""

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest

from prompty import testing

LONGEST_NAME = 100
_UNFIT_FOR_A_FILE = re.compile(r"[^\w\[\]., =+-]")
_passed = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("prompty").addoption(
        "--prompty-live", action="store_true", help="call the models, and record anew what `prompty_recording` plays"
    )


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
    """Makes a `Script(…)` that answers for the rest of the test."""
    with ExitStack() as entered:
        yield lambda *items: entered.enter_context(testing.Script(*items))


@pytest.fixture
def prompty_recording(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Answers from `recordings/<module>/<test>.jsonl` beside the test's file. With `--prompty-live` the models answer,
    and their answers take the place of the recording if the test passes."""
    path = request.path.parent / "recordings" / request.path.stem / f"{_file_name(request.node)}.jsonl"
    if not request.config.getoption("--prompty-live"):
        with testing.Player(path):
            yield path
        return
    fresh = path.with_name(f"{path.name}.new")
    with testing.Recorder(fresh):
        yield path
    if fresh.exists() and request.node.stash.get(_passed, False):
        fresh.replace(path)
    fresh.unlink(missing_ok=True)


def _file_name(item: pytest.Item) -> str:
    """The name of a test with that of its class. Where that is no name for a file, a digest keeps it apart."""
    whole = ".".join(node.name for node in item.listchain() if isinstance(node, pytest.Class | pytest.Item))
    name = _UNFIT_FOR_A_FILE.sub("_", whole)[:LONGEST_NAME]
    return name if name == whole else f"{name}-{sha256(whole.encode()).hexdigest()[:8]}"
