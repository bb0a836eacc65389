"""The Anthropic SDK as transport. No other module of this provider uses it."""

from collections.abc import Mapping
from typing import Any

from prompty.errors import RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.request import WireRequest
from prompty.providers import Address, Api, join_url
from prompty.providers.clients import (
    Endpoint,
    EnvironmentNames,
    SdkConnector,
    connection_limits,
    locate_endpoint,
    split_query,
)
from prompty.providers.transport import AsyncSdkTransport, SdkConnection, SdkTransport

_NO_KEY = "Set ANTHROPIC_API_KEY, or write a `connection:` in the file."
HOSTS = ("api.anthropic.com",)
_VARIABLES = EnvironmentNames(keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), base_url="ANTHROPIC_BASE_URL")


class _OlderVersion(SdkConnection):
    """Sends the key in the header of the older API version, the only one with sampling options (W11)."""

    def headers_for(self, request: WireRequest) -> Mapping[str, Any]:
        headers = super().headers_for(request)
        if "anthropic-version" in request.headers and self.client.api_key and not self.anonymous:
            return {**headers, "x-api-key": self.client.api_key, "Authorization": self.sdk.Omit()}
        return headers


class AnthropicTransport(_OlderVersion, SdkTransport):
    pass


class AsyncAnthropicTransport(_OlderVersion, AsyncSdkTransport):
    pass


def locate(agent: PromptAgent) -> Endpoint:
    return locate_endpoint(agent, _VARIABLES, HOSTS)


def build(endpoint: Endpoint, asynchronous: bool) -> Any:
    """Return an SDK client without retries of its own."""
    sdk = require("anthropic", extra="anthropic")
    client_class, http_class = (
        (sdk.AsyncAnthropic, sdk.DefaultAsyncHttpxClient) if asynchronous else (sdk.Anthropic, sdk.DefaultHttpxClient)
    )
    options: dict[str, Any] = {"max_retries": 0, "http_client": http_class(**connection_limits())}
    key = "nobody" if endpoint.base_url and endpoint.api_key is None else endpoint.api_key
    try:
        client = client_class(**split_query(endpoint.base_url), api_key=key, **options)
    except sdk.AnthropicError as error:
        raise RequestError(f"{error}", _NO_KEY) from None
    if not (client.api_key or client.auth_token or client.credentials):
        raise RequestError("there is no credential for Anthropic", _NO_KEY)
    return client


def address(agent: PromptAgent, api: Api) -> Address:
    """Return the URL and headers of a request as a person would write them."""
    endpoint = getattr(agent.model.connection, "endpoint", None) or "https://api.anthropic.com"
    version = api.headers(agent).get("anthropic-version") or "2023-06-01"
    return Address(
        url=join_url(endpoint, api.path), headers=("x-api-key: $ANTHROPIC_API_KEY", f"anthropic-version: {version}")
    )


CONNECTOR = SdkConnector(
    "anthropic", ("Anthropic", "AsyncAnthropic"), locate, build, (AnthropicTransport, AsyncAnthropicTransport)
)
