"""Where requests to Microsoft Foundry and Azure OpenAI go: with a key or with Entra tokens."""

import os
import re
import time
from collections.abc import Mapping
from threading import Lock
from typing import Any, NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote

from prompty.errors import RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.connection import ApiKeyConnection, FoundryConnection, ReferenceConnection
from prompty.providers import Api, RequestPreview
from prompty.providers.credentials import (
    check_environment_url,
    check_header,
    get_required_key,
    load_key_store,
    unusable_connection,
)
from prompty.providers.endpoint import Endpoint, create_endpoint
from prompty.providers.http.transports import Transports
from prompty.providers.openai.connection import SDK
from prompty.providers.profiles import AZURE, AZURE_BEFORE_2024_09, Profile
from prompty.safety.origins import RESOURCE_HOSTS

HOSTS = RESOURCE_HOSTS
_KEY, _ENDPOINT = "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"
_SCOPE = "https://cognitiveservices.azure.com/.default"
_PROJECT_SCOPE = "https://ai.azure.com/.default"
_SPARE_SECONDS = 300  # for which a token must still hold
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@runtime_checkable
class QueryClient(Protocol):
    """An SDK client with a query that each of its requests has. Azure's has the version of the API there."""

    @property
    def default_query(self) -> Mapping[str, object]: ...


class Resource(NamedTuple):
    """An endpoint and its credential: a key, a token, or without either, Entra tokens."""

    endpoint: str
    api_key: str | None
    api_version: str | None
    token: str | None = None

    @property
    def is_project(self) -> bool:
        return "/api/projects/" in self.endpoint

    @property
    def is_dated(self) -> bool:
        """True if requests go to a deployment, with a dated version of the API."""
        return bool(self.api_version) and not self.is_project and not self.endpoint.endswith("/openai/v1")

    @property
    def base_url(self) -> str:
        if self.is_dated:
            return f"{self.endpoint}/openai?api-version={quote(self.api_version or '')}"
        return self.endpoint if self.endpoint.endswith("/openai/v1") else f"{self.endpoint}/openai/v1"


def route_to_deployment(path: str, model: str) -> str:
    """Return the path of a request with a dated version. Responses and the list of models belong to no deployment."""
    return path if path.startswith(("/responses", "/models")) else f"/deployments/{quote(model, safe='')}{path}"


def find_resource(agent: PromptAgent) -> Resource:
    """Return where a prompt's connection leads."""
    match agent.model.connection:
        case None:
            return _find_in_environment(agent)
        case ApiKeyConnection(endpoint=endpoint, api_key=key, api_version=version):
            url = endpoint or _find_environment_endpoint(agent)
            secret = get_required_key(agent, key, _KEY, url, HOSTS)
            return Resource(_trim(url), secret, _get_version(version))
        case FoundryConnection(endpoint=endpoint, api_version=version):
            return Resource(_trim(endpoint or _find_environment_endpoint(agent)), None, _get_version(version))
        case other:
            raise unusable_connection(other.kind, agent.model.provider, ("key", "foundry", "reference"))


def _find_in_environment(agent: PromptAgent) -> Resource:
    """Return the resource in Azure's environment variables. A token takes precedence over a key."""
    endpoint = _find_environment_endpoint(agent)
    token = os.environ.get("AZURE_OPENAI_AD_TOKEN")
    key = None if token else os.environ.get(_KEY) or agent.registry.dotenv.get(_KEY)
    if not key and not token:
        key = load_key_store().find_stored_key(_KEY, agent.registry.clients)
    named = [value and check_header(name, value) for name, value in (("the key", key), ("the token", token))]
    return Resource(_trim(endpoint), named[0], _get_version(None), named[1])


def _find_environment_endpoint(agent: PromptAgent) -> str:
    endpoint = os.environ.get(_ENDPOINT)
    if not endpoint:
        raise RequestError(
            "the prompt names no `endpoint`", f"Set {_ENDPOINT}, or write endpoint: https://… in its `connection:`."
        )
    check_environment_url(agent, _ENDPOINT, endpoint)
    return endpoint


def _trim(endpoint: str) -> str:
    return endpoint.rstrip("/")


def _get_version(version: str | None) -> str | None:
    return version or os.environ.get("OPENAI_API_VERSION") or None


def find_server(agent: PromptAgent) -> Profile:
    """Return the profile of the API version that an agent's requests go to."""
    version = _find_version(agent) or ""
    return AZURE_BEFORE_2024_09 if _DATE.match(version) and version < "2024-09-01" else AZURE


def _find_version(agent: PromptAgent) -> str | None:
    """Return the dated version that requests go to, or None for version one. A client that the host has registered
    keeps its own."""
    connection = agent.model.connection
    if isinstance(connection, ReferenceConnection):
        return _find_client_version(agent, connection)
    endpoint = getattr(connection, "endpoint", None) or os.environ.get(_ENDPOINT) or ""
    resource = Resource(_trim(endpoint), None, _get_version(getattr(connection, "api_version", None)))
    return resource.api_version if resource.is_dated else None


def _find_client_version(agent: PromptAgent, connection: ReferenceConnection) -> str | None:
    try:
        client: QueryClient = agent.registry.connections.find(connection.name, QueryClient)
    except RequestError:  # the call says what is missing
        return None
    version = client.default_query.get("api-version")
    return version if isinstance(version, str) else None


def find_endpoint(agent: PromptAgent) -> Endpoint:
    """Return the endpoint of a prompt's connection."""
    resource = find_resource(agent)
    headers: dict[str, str] = {}
    if resource.api_key:
        headers = {"api-key": resource.api_key}
    elif resource.token:
        headers = {"authorization": f"Bearer {resource.token}"}
    tokens = None
    if not headers:
        scope = _PROJECT_SCOPE if resource.is_project else _SCOPE
        tokens = agent.registry.clients.get((EntraTokens, scope), lambda key: EntraTokens(key[1]))
    route = route_to_deployment if resource.is_dated else None
    return create_endpoint(resource.base_url, headers, credential=tokens, route=route)


class EntraTokens:
    """Tokens of the identity that `azure-identity` finds on this machine, kept until they expire."""

    def __init__(self, scope: str) -> None:
        self._scope, self._lock = scope, Lock()
        self._identity: Any = None
        self._token: Any = None

    @property
    def is_busy(self) -> bool:
        """True while the token is valid: another one takes seconds on some machines."""
        return self.is_ready()

    def is_ready(self) -> bool:
        token = self._token
        return token is not None and token.expires_on - time.time() > _SPARE_SECONDS

    def headers(self, _: str, __: str, ___: Mapping[str, str], ____: bytes, /) -> Mapping[str, str]:
        with self._lock:
            if not self.is_ready():
                self._renew()
            return {"authorization": f"Bearer {self._token.token}"}

    def _renew(self) -> None:
        if self._identity is None:
            self._identity = require("azure.identity", extra="azure").DefaultAzureCredential()
        self._token = self._identity.get_token(self._scope)

    def close(self) -> None:
        """Forget the token, and close the connections of the identity. A call under way finds it again."""
        with self._lock:
            identity, self._identity, self._token = self._identity, None, None
        if identity is not None:
            identity.close()


def preview(agent: PromptAgent, api: Api) -> RequestPreview:
    """Return the URL and headers of a request for people to read."""
    connection = agent.model.connection
    endpoint = _trim(getattr(connection, "endpoint", None) or "https://resource.openai.azure.com")
    key = isinstance(connection, ApiKeyConnection)
    headers = ("api-key: $AZURE_OPENAI_API_KEY",) if key else ("Authorization: Bearer $AZURE_TOKEN",)
    resource = Resource(endpoint, None, _get_version(getattr(connection, "api_version", None)))
    route = route_to_deployment if resource.is_dated else None
    return RequestPreview(
        url=Endpoint(base_url=resource.base_url, route=route).get_url(api.path, agent.model.id), headers=headers
    )


TRANSPORTS = Transports(find_endpoint, HOSTS, SDK)
