"""Databases and servers that all tests of durable runs share."""

from collections.abc import Iterator

import pytest

from tests.durable.databases import Databases
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
