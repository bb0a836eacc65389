"""What the tests of OpenAPI tools share: documents, a service on loopback, and turns that call it."""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from prompty import PromptAgent
from prompty.errors import ToolError
from prompty.registry import DEFAULT
from prompty.testing import Script
from prompty.testing.script import create_call
from prompty.tools.kinds import TOOL_KINDS
from prompty.tools.openapi import OpenApiKind
from prompty.tools.openapi.document import ApiDocument, parse_document
from prompty.tools.openapi.operations import Operation, list_operations
from tests.conversations.turns import scripted
from tests.ways import SYNC, Seen, Way

KEY = "kq-7fd0c1e5a9b3"


def document(paths: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths, **parts}


def one_operation(
    operation: Mapping[str, Any], path: str = "/thing", method: str = "get", **parts: Any
) -> dict[str, Any]:
    """A document of one operation, called `act`."""
    return document({path: {method: {"operationId": "act", **operation}}}, **parts)


PLAIN = one_operation({})


def read(data: Mapping[str, Any]) -> ApiDocument:
    return parse_document(json.dumps(data).encode(), "api.json")


def operation_of(data: Mapping[str, Any]) -> Operation:
    [found] = list_operations(read(data))
    return found


def agent_of(folder: Path, data: Mapping[str, Any] | str, **tool: Any) -> PromptAgent:
    """An agent with the tool `api`, whose document is a file beside it, or a URL."""
    place = data if isinstance(data, str) else "api.json"
    if not isinstance(data, str):
        (folder / place).write_text(json.dumps(data))
    tools = [{"name": "api", "kind": "openapi", "specification": place, **tool}]
    return scripted(tools=tools, path=folder / "agent.prompty")


@contextmanager
def own_kind(*hosts: str, servers: tuple[str, ...] = ()) -> Iterator[OpenApiKind]:
    """A kind that allows these hosts, for as long as it lasts."""
    kind = OpenApiKind()
    kind.permissions.allow(hosts=hosts, servers=servers)
    DEFAULT[TOOL_KINDS].register("openapi", kind)
    try:
        yield kind
    finally:
        DEFAULT[TOOL_KINDS].unregister("openapi")


def called(agent: PromptAgent, arguments: Mapping[str, Any], *, name: str = "act", way: Way = SYNC) -> Seen:
    """A turn in which the model calls an operation once."""
    with Script(create_call(name, arguments), "Done."):
        return way.turn(agent)


def result_of(seen: Seen) -> str:
    """What the model read of the call."""
    assert seen.error is None, seen.error
    return seen.texts[-2]


def refusal(agent: PromptAgent) -> str:
    """Why a turn did not begin."""
    with Script("never") as script:
        seen = SYNC.turn(agent)
    assert isinstance(seen.error, ToolError)
    assert script.requests == []
    return str(seen.error)


def resolve(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Answer questions for names in this order; the result has the names."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked
