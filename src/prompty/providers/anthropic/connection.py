"""Where Anthropic's requests go, and as whom."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection
from prompty.model.request import WireRequest
from prompty.providers import Address, Api, join_url
from prompty.providers.http.endpoint import Endpoint, check_header, create_endpoint
from prompty.providers.http.transports import Transports
from prompty.providers.place import EnvironmentNames, Place, find_place
from prompty.providers.profiles import ANTHROPIC, find_profile
from prompty.providers.sdk import SdkClients

HOSTS = ANTHROPIC.hosts
_TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105  the name of a variable
_VARIABLES = EnvironmentNames(
    key="ANTHROPIC_API_KEY",
    base_url="ANTHROPIC_BASE_URL",
    default_url=ANTHROPIC.base_url,
    custom="ANTHROPIC_CUSTOM_HEADERS",
    token=_TOKEN,
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key. The older API version, the only one with sampling options or on Bedrock, has it in a header of its own
    (W11)."""

    key: str

    def is_ready(self) -> bool:
        return True

    def headers(self, _: str, __: str, headers: Mapping[str, str], ___: bytes, /) -> Mapping[str, str]:
        if headers.get("anthropic-version") == ANTHROPIC.api_version:
            return {"authorization": f"Bearer {self.key}"}
        return {"x-api-key": self.key}


def find_endpoint(agent: PromptAgent) -> Endpoint:
    """Return the endpoint of a prompt's connection."""
    place = find_place(agent, _VARIABLES, HOSTS)
    if not place.is_anonymous or isinstance(agent.model.connection, AnonymousConnection):
        return _build_endpoint(place, None)
    token = os.environ.get(_TOKEN)
    if not token:
        fix = "Set ANTHROPIC_API_KEY, run `prompty keys set anthropic`, or write a `connection:` in the file."
        raise RequestError("there is no key for Anthropic", fix)
    return _build_endpoint(place, check_header(_TOKEN, token))


@lru_cache(maxsize=64)
def _build_endpoint(place: Place, token: str | None) -> Endpoint:
    version = find_profile(place.base_url, "anthropic").api_version
    return create_endpoint(
        place.base_url,
        {"authorization": f"Bearer {token}"} if token else {},
        headers=(*place.headers, ("anthropic-version", str(version))),
        credential=place.signature if place.api_key is None else ApiKey(place.api_key),
        secrets=(place.api_key or "", *dict(place.headers).values()),
    )


def address(agent: PromptAgent, api: Api) -> Address:
    """Return the URL and headers of a request as a person would write them."""
    endpoint = getattr(agent.model.connection, "endpoint", None) or _VARIABLES.default_url
    version = api.headers(agent).get("anthropic-version") or "2023-06-01"
    return Address(
        url=join_url(endpoint, api.path), headers=("x-api-key: $ANTHROPIC_API_KEY", f"anthropic-version: {version}")
    )


def _write_client_headers(connection: Any, request: WireRequest) -> Mapping[str, Any]:
    """Return the headers for a registered client. The older API version has the key in a header of its own (W11)."""
    client = connection.client
    if "anthropic-version" in request.headers and client.api_key:
        return {**request.headers, "x-api-key": client.api_key, "Authorization": connection.sdk.Omit()}
    return request.headers


SDK = SdkClients(
    package="anthropic", sync_class="Anthropic", async_class="AsyncAnthropic", headers=_write_client_headers
)
TRANSPORTS = Transports(find_endpoint, SDK)
