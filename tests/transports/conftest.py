"""What every transport is given: a scripted server, no proxy and no certificate of whoever runs the tests, and a time
limit."""

import os
from collections.abc import Iterator

import pytest

from tests.drivers.clients import close_clients
from tests.drivers.conftest import short_waits as short_waits, time_limit as time_limit
from tests.loopback import Server
from tests.transports.subject import NAMES, Subject


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for a `subject` on every transport."""
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("transport", NAMES)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "SSL_CERT_", "PROMPTY_CLIENT_")):
            monkeypatch.delenv(name)


@pytest.fixture
def subject(transport: str) -> Iterator[Subject]:
    """The transport under test."""
    found = Subject(transport)
    yield found
    found.close()
    close_clients()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
