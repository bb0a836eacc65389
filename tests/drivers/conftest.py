"""What every test of the drivers runs with: a scripted server, a time limit, and waits too short to notice."""

import os
import signal
from collections.abc import Iterator
from importlib import import_module
from types import FrameType
from typing import NoReturn

import pytest

from tests.drivers.clients import close_clients
from tests.drivers.wires import WIRES, Wire
from tests.loopback import Server
from tests.ways import STREAMED, WAYS, WHOLE, Way

TIME_LIMIT = 120.0  # a busy machine takes ten times as long


@pytest.fixture(scope="session", autouse=True)
def loaded_sdks() -> None:
    """Importing them may take longer than any test."""
    for name in ("openai", "anthropic"):
        import_module(name)


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """A test that hangs fails."""

    def give_up(_: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"the test hangs in {frame}")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server does not say how long to wait, a hundredth of a second is long enough."""
    monkeypatch.setattr("prompty.loop.model_step.FIRST_WAIT", 0.01)


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no credential of whoever runs the tests."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_")):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    """A scripted server, to which no connection may be left in the middle of an answer, nor more than one idle, nor any
    when all clients are closed."""
    with Server() as server:
        yield server
        assert server.wait_until(lambda: server.busy == 0 and server.open <= 1), (
            f"{server.busy} of {server.open} connections are left in the middle of an answer"
        )
        close_clients()
        assert server.wait_until(lambda: server.open == 0), f"{server.open} connections of closed clients are left"


@pytest.fixture(params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.fixture(params=STREAMED, ids=str)
def stream_way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.fixture(params=WHOLE, ids=str)
def whole_way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found
