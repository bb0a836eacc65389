"""Tools that are services: the operations of an OpenAPI document, offered as functions (§2.9).

`document` reads, `schemas`, `bodies` and `operations` describe, `styles` and `request` make requests of arguments,
`credentials` adds what the connection has, and `client` alone talks HTTP.
"""

from collections.abc import Iterable

from prompty.tools.openapi.kind import OpenApiKind

__all__ = ["KIND", "OpenApiKind", "allow"]

KIND = OpenApiKind()


def allow(*, hosts: Iterable[str] = (), servers: Iterable[str] = ()) -> None:
    """Let OpenAPI tools of this process go where they may not by default.

    `hosts` are reached without https and at addresses that are not public: names, `name:port`, addresses or networks
    (`10.0.0.0/8`). `servers` are origins (`https://api.example.com`) that documents may name as their own.
    """
    KIND.permissions.allow(hosts=hosts, servers=servers)
