"""Microsoft Foundry and Azure OpenAI through the OpenAI SDK, with a key or with Entra tokens (W12)."""

import os
from typing import Any, NamedTuple

from prompty.errors import RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.connection import ApiKeyConnection, FoundryConnection
from prompty.providers import Address, Api
from prompty.providers.clients import SdkConnector, connection_limits, required_endpoint, required_key, wrong_kind
from prompty.providers.destination import check_environment_url, takes_environment

DEFAULT_API_VERSION = "2024-10-21"
HOSTS = ("*.openai.azure.com", "*.services.ai.azure.com", "*.cognitiveservices.azure.com")
TOKEN_SCOPE = "https://cognitiveservices.azure.com/.default"  # noqa: S105  a scope is no secret


class AzureEndpoint(NamedTuple):
    """An endpoint and its credential: a key, a token, or without either, Entra tokens."""

    endpoint: str
    api_key: str | None
    api_version: str
    token: str | None = None
    ambient: bool = True


def locate(agent: PromptAgent) -> AzureEndpoint:
    """Return the endpoint of a prompt's connection."""
    match agent.model.connection:
        case None:
            return _from_environment(agent)
        case ApiKeyConnection(endpoint=endpoint, api_key=key, api_version=version):
            secret, endpoint = required_key(key, "AZURE_OPENAI_API_KEY"), required_endpoint(endpoint)
            ambient = takes_environment(agent, endpoint, HOSTS)
            return AzureEndpoint(endpoint, secret, _get_version(version), ambient=ambient)
        case FoundryConnection(endpoint=endpoint, api_version=version):
            return AzureEndpoint(required_endpoint(endpoint), None, _get_version(version))
        case other:
            raise wrong_kind(other.kind, agent.model.provider, "key, foundry or reference")


def _from_environment(agent: PromptAgent) -> AzureEndpoint:
    """Return the endpoint in the SDK's environment variables. A token takes precedence over a key."""
    endpoint = os.environ.get("AZURE_OPENAI_ENDPOINT")
    if not endpoint:
        raise RequestError(
            "the prompt has no connection", "Set AZURE_OPENAI_ENDPOINT, or write a `connection:` in the file."
        )
    check_environment_url(agent, endpoint)
    token = os.environ.get("AZURE_OPENAI_AD_TOKEN")
    key = None if token else os.environ.get("AZURE_OPENAI_API_KEY") or agent.registry.dotenv.get("AZURE_OPENAI_API_KEY")
    return AzureEndpoint(endpoint, key, _get_version(None), token)


def _get_version(version: str | None) -> str:
    return version or os.environ.get("OPENAI_API_VERSION") or DEFAULT_API_VERSION


def build(place: AzureEndpoint, asynchronous: bool) -> Any:
    """Return the plain OpenAI client for an endpoint that ends in `/openai/v1`, Azure's for any other."""
    sdk = require("openai", extra="foundry")
    http_class = sdk.DefaultAsyncHttpxClient if asynchronous else sdk.DefaultHttpxClient
    options: dict[str, Any] = {"max_retries": 0, "http_client": http_class(**connection_limits())}
    if place.endpoint.rstrip("/").endswith("/openai/v1"):
        client_class = sdk.AsyncOpenAI if asynchronous else sdk.OpenAI
        credential = place.api_key or place.token or _token_provider(asynchronous)
        return client_class(base_url=place.endpoint, api_key=credential, **options)
    client_class = sdk.AsyncAzureOpenAI if asynchronous else sdk.AzureOpenAI
    if place.api_key:
        options["api_key"] = place.api_key
    elif place.token:
        options["azure_ad_token"] = place.token
    else:
        options["azure_ad_token_provider"] = _token_provider(asynchronous)
    return client_class(azure_endpoint=place.endpoint, api_version=place.api_version, **options)


def _token_provider(asynchronous: bool) -> Any:
    identity = require("azure.identity.aio" if asynchronous else "azure.identity", extra="foundry")
    return identity.get_bearer_token_provider(identity.DefaultAzureCredential(), TOKEN_SCOPE)


def address(agent: PromptAgent, api: Api) -> Address:
    """Return the URL and headers of a request as a person would write them."""
    connection = agent.model.connection
    endpoint = (getattr(connection, "endpoint", None) or "https://resource.openai.azure.com").rstrip("/")
    key = isinstance(connection, ApiKeyConnection)
    headers = ("api-key: $AZURE_OPENAI_API_KEY",) if key else ("Authorization: Bearer $AZURE_TOKEN",)
    if endpoint.endswith("/openai/v1"):
        return Address(url=endpoint + api.path, headers=headers)
    deployment = "" if api.path == "/responses" else f"/deployments/{agent.model.id}"
    version = _get_version(getattr(connection, "api_version", None))
    return Address(url=f"{endpoint}/openai{deployment}{api.path}?api-version={version}", headers=headers)


CONNECTOR = SdkConnector("openai", ("OpenAI", "AsyncOpenAI"), locate, build)
