"""OpenAPI services as tools: allow hosts and servers."""

from prompty.tools.openapi import allow

__all__ = ["allow"]
