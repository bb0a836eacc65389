"""Databases that all tests of durable runs share."""

from collections.abc import Iterator

import pytest

from tests.durable.databases import Databases


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """DBOS leaves some of its connections to the garbage collector, which complains about them in whatever test it
    happens to run."""
    left_open = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    for item in items:
        if item.nodeid.startswith(("tests/durable/", "tests/batch/", "tests/cli/test_durable")):
            item.add_marker(left_open)


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    found = Databases(tmp_path_factory.mktemp("databases"))
    yield found
    found.close()
