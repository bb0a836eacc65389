"""Connections: how to reach a provider and authenticate (§2.5). `kind` selects one of six forms."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WithJsonSchema

from prompty.model.definition import Definition

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Headers that a connection has other fields for, or that belong to the transport.
_OWN_HEADERS = frozenset(
    {
        "accept-encoding",
        "anthropic-version",
        "api-key",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
        "x-api-key",
    }
)


def _check_headers(headers: dict[str, str] | None) -> dict[str, str] | None:
    names = [name.lower() for name in headers or ()]
    for name in names:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"'{name}' is not the name of a header")
        if name in _OWN_HEADERS:
            raise ValueError(f"the header '{name}' cannot be set; a key belongs under `apiKey`")
        if names.count(name) > 1:
            raise ValueError(f"duplicate header '{name}'")
    return headers


Headers = Annotated[
    dict[str, str] | None,
    AfterValidator(_check_headers),
    Field(repr=False, description="Additional headers of requests to a model, such as anthropic-beta."),
]


class ConnectionDefinition(Definition):
    """Fields that every connection may have. They are for readers: no provider here uses them."""

    authentication_mode: str | None = None
    usage_description: str | None = Field(None, description="What the connection is for.")


class ApiKeyConnection(ConnectionDefinition):
    """An endpoint and its key."""

    kind: Literal["key"] = "key"
    endpoint: str | None = None
    api_key: SecretStr | None = None
    api_version: str | None = Field(None, description="Azure's api-version (an extension).")
    headers: Headers = None


class ReferenceConnection(ConnectionDefinition):
    """A connection that the host registered under a name."""

    kind: Literal["reference"] = "reference"
    name: str | None = None
    target: str | None = None
    headers: Headers = None


class RemoteConnection(ConnectionDefinition):
    """A connection stored elsewhere, with its authentication mode."""

    kind: Literal["remote"] = "remote"
    name: str | None = None
    endpoint: str | None = None
    target: str | None = None


class AnonymousConnection(ConnectionDefinition):
    """An endpoint without a credential."""

    kind: Literal["anonymous"] = "anonymous"
    endpoint: str | None = None
    headers: Headers = None


class FoundryConnection(ConnectionDefinition):
    """A Microsoft Foundry project."""

    kind: Literal["foundry"] = "foundry"
    endpoint: str | None = None
    name: str | None = None
    connection_type: str | None = None
    api_version: str | None = Field(None, description="Azure's api-version (an extension).")
    headers: Headers = None


class OAuthConnection(ConnectionDefinition):
    """An endpoint behind OAuth."""

    kind: Literal["oauth"] = "oauth"
    endpoint: str | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    token_url: str | None = None
    scopes: tuple[str, ...] | None = None


# The kind of a connection without `kind`, by the first of these fields that it has. An endpoint alone is anonymous, so
# that its server receives no credential.
_KIND_BY_FIELD = (
    ("apiKey", "key"),
    ("clientId", "oauth"),
    ("tokenUrl", "oauth"),
    ("target", "remote"),
    ("connectionType", "foundry"),
    ("endpoint", "anonymous"),
    ("name", "reference"),
)


def infer_connection_kind(value: Mapping[str, Any]) -> Any:
    """Return the `kind` of a connection, or the kind that its fields imply, or None."""
    return value.get("kind") or next((kind for field, kind in _KIND_BY_FIELD if field in value), None)


def _add_kind(value: Any) -> Any:
    if isinstance(value, dict) and "kind" not in value and (kind := infer_connection_kind(value)):
        return {**value, "kind": kind}
    return value


_ByKind = Annotated[
    ApiKeyConnection
    | ReferenceConnection
    | RemoteConnection
    | AnonymousConnection
    | FoundryConnection
    | OAuthConnection,
    Field(discriminator="kind"),
]
_WithoutKind = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "not": {"required": ["kind"]}})]

Connection = Annotated[_ByKind, BeforeValidator(_add_kind, json_schema_input_type=_ByKind | _WithoutKind)]
