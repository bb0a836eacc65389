"""Tools that are services: the operations of an OpenAPI document, offered as functions (§2.9).

`document` reads, `schemas`, `bodies` and `operations` describe, `styles` and `request` make requests of arguments,
`credentials` adds what the connection has, and `client` alone talks HTTP.
"""

from collections.abc import Iterable

from prompty.errors import ToolError
from prompty.registry import DEFAULT, Registry
from prompty.tools.openapi.kind import OpenApiKind

__all__ = ["OpenApiKind", "allow"]


def allow(*, hosts: Iterable[str] = (), servers: Iterable[str] = (), registry: Registry = DEFAULT) -> None:
    """Let OpenAPI tools send requests to places that are refused by default.

    `hosts` are reached without https and at addresses that are not public: names, `name:port`, addresses or networks
    (`10.0.0.0/8`). `servers` are origins (`https://api.example.com`) that documents may name as their own.
    """
    kind = registry.tool_kinds.get("openapi")
    if not isinstance(kind, OpenApiKind):
        raise ToolError("the tool kind 'openapi' has been replaced by another", "Allow places where that one says.")
    kind.permissions.allow(hosts=hosts, servers=servers)
