"""Databases and servers that all tests of durable runs share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from prompty import PromptAgent, load
from tests.durable.databases import Databases
from tests.durable.secret_agent import BOUND, FILE, KEY, USER
from tests.durable.temporal import TemporalServer


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    found = Databases(tmp_path_factory.mktemp("databases"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    server = TemporalServer(tmp_path_factory.mktemp("temporal"))
    yield server
    server.close()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PromptAgent:
    monkeypatch.setenv("DURABLE_TEST_KEY", KEY)
    monkeypatch.setenv("DURABLE_TEST_TOKEN", BOUND)
    monkeypatch.setenv("DURABLE_TEST_USER", USER)
    (tmp_path / "look.prompty").write_text(FILE)
    return load(tmp_path / "look.prompty")
