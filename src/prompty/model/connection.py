"""How to reach and authenticate with a provider (§2.5): six kinds, told apart by `kind`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, WithJsonSchema

from prompty.model.definition import Definition


class ApiKeyConnection(Definition):
    """An endpoint and its key."""

    kind: Literal["key"] = "key"
    endpoint: str | None = None
    api_key: SecretStr | None = None
    api_version: str | None = Field(None, description="Azure's api-version (an extension).")


class ReferenceConnection(Definition):
    """A connection the host has registered under a name."""

    kind: Literal["reference"] = "reference"
    name: str | None = None
    target: str | None = None


class RemoteConnection(Definition):
    """A connection kept elsewhere, with its mode of authentication."""

    kind: Literal["remote"] = "remote"
    name: str | None = None
    endpoint: str | None = None
    target: str | None = None
    authentication_mode: str | None = None


class AnonymousConnection(Definition):
    """An endpoint that asks for no credential; none is sent."""

    kind: Literal["anonymous"] = "anonymous"
    endpoint: str | None = None


class FoundryConnection(Definition):
    """A Microsoft Foundry project."""

    kind: Literal["foundry"] = "foundry"
    endpoint: str | None = None
    name: str | None = None
    connection_type: str | None = None
    api_version: str | None = Field(None, description="Azure's api-version (an extension).")


class OAuthConnection(Definition):
    """An endpoint behind OAuth."""

    kind: Literal["oauth"] = "oauth"
    endpoint: str | None = None
    authentication_mode: str | None = None
    client_id: str | None = None
    client_secret: SecretStr | None = None
    token_url: str | None = None
    scopes: tuple[str, ...] | None = None


# The first field of this list that a connection without a `kind` has tells what it is. An endpoint alone is
# anonymous: nothing secret is sent to a server that the file gave no credential for.
_TELLING = (
    ("apiKey", "key"),
    ("clientId", "oauth"),
    ("tokenUrl", "oauth"),
    ("target", "remote"),
    ("connectionType", "foundry"),
    ("endpoint", "anonymous"),
    ("name", "reference"),
)


def kind_of_connection(value: Mapping[str, Any]) -> Any:
    """The kind that a connection says or shows, if any."""
    return value.get("kind") or next((kind for field, kind in _TELLING if field in value), None)


def _with_kind(value: Any) -> Any:
    if isinstance(value, dict) and "kind" not in value and (kind := kind_of_connection(value)):
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

Connection = Annotated[_ByKind, BeforeValidator(_with_kind, json_schema_input_type=_ByKind | _WithoutKind)]
