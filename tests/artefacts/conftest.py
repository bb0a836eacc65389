"""Databases for the stored runs."""

from collections.abc import Iterator

import pytest

from tests.durable.databases import Databases


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    found = Databases(tmp_path_factory.mktemp("databases"))
    yield found
    found.close()
