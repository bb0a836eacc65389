"""What all tests against real llama.cpp share: one server and one event loop for each process."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.llama import llama_server
from tests.real.ways import Prompts


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for all tests of a process."""
    with llama_server(tmp_path_factory.mktemp("llama")) as address:
        yield address


@pytest.fixture
def prompts(url: str, tmp_path: Path) -> Prompts:
    return Prompts(url, tmp_path)


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """Clients belong to an event loop, and building one takes its time."""
    with asyncio.Runner() as found:
        yield found
