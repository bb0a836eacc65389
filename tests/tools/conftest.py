"""Services for OpenAPI tools to call."""

from collections.abc import Iterator

import pytest

from tests.loopback import Server, json_reply
from tests.tools.openapi_parts import own_kind


@pytest.fixture
def service() -> Iterator[Server]:
    """A service that the host allows."""
    with Server() as server, own_kind(f"127.0.0.1:{server.port}"):
        server.answer(json_reply({"ok": True}))
        yield server


@pytest.fixture
def elsewhere() -> Iterator[Server]:
    """A service that nobody speaks of."""
    with Server() as server:
        server.answer(json_reply({"stolen": True}))
        yield server
