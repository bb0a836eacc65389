"""A model on loopback that calls every tool it is offered."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import prompty
from tests.concurrency.nesting import CHAT, ToolCaller


@pytest.fixture
def server() -> Iterator[ToolCaller]:
    with ToolCaller() as server:
        yield server


@pytest.fixture
def ask(server: ToolCaller) -> Callable[..., Any]:
    """Run a turn in which the model calls each of the tools once, and then repeats their results."""
    return lambda *tools, **options: prompty.turn(CHAT.agent(server), tools=tools, **options)
