"""Where Anthropic's requests go, and as whom."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection
from prompty.model.request import WireRequest
from prompty.providers import Api, RequestPreview
from prompty.providers.credentials import Access, Variables, check_header, find_access, find_url
from prompty.providers.endpoint import Endpoint, append_path, create_endpoint
from prompty.providers.fitting import fit_request
from prompty.providers.http.transports import Transports
from prompty.providers.profiles import ANTHROPIC, Profile, find_profile
from prompty.providers.sdk import SdkClients

HOSTS = ANTHROPIC.hosts
_TOKEN = "ANTHROPIC_AUTH_TOKEN"  # noqa: S105  the name of a variable
_VARIABLES = Variables(
    key="ANTHROPIC_API_KEY",
    base_url="ANTHROPIC_BASE_URL",
    default_url=ANTHROPIC.base_url,
    custom="ANTHROPIC_CUSTOM_HEADERS",
    token=_TOKEN,
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key. The older API version, the only one with sampling options or on Bedrock, has it in a separate header."""

    key: str

    def is_ready(self) -> bool:
        return True

    def headers(self, _: str, __: str, headers: Mapping[str, str], ___: bytes, /) -> Mapping[str, str]:
        if headers.get("anthropic-version") == ANTHROPIC.api_version:
            return {"authorization": f"Bearer {self.key}"}
        return {"x-api-key": self.key}


def find_endpoint(agent: PromptAgent) -> Endpoint:
    """Return the endpoint of a prompt's connection."""
    access = find_access(agent, _VARIABLES, HOSTS)
    if not access.is_anonymous or isinstance(agent.model.connection, AnonymousConnection):
        return _build_endpoint(access, None)
    token = os.environ.get(_TOKEN)
    if not token:
        fix = "Set ANTHROPIC_API_KEY, run `prompty keys set anthropic`, or write a `connection:` in the file."
        raise RequestError("there is no key for Anthropic", fix)
    return _build_endpoint(access, check_header(_TOKEN, token))


def _build_endpoint(access: Access, token: str | None) -> Endpoint:
    version = find_profile(access.base_url, "anthropic").api_version
    return create_endpoint(
        access.base_url,
        {"authorization": f"Bearer {token}"} if token else {},
        headers=(*access.headers, ("anthropic-version", str(version))),
        credential=access.signature if access.api_key is None else ApiKey(access.api_key),
        secrets=(access.api_key or "", *dict(access.headers).values()),
    )


def find_server(agent: PromptAgent) -> Profile:
    """Return the profile of the server that an agent's requests go to."""
    return find_profile(find_url(agent, _VARIABLES), "anthropic")


def preview(agent: PromptAgent, api: Api) -> RequestPreview:
    """Return the URL and headers of a request for people to read."""
    profile = find_server(agent)
    version = api.headers(fit_request(agent, api)).get("anthropic-version") or str(profile.api_version)
    key = f"${profile.key or _VARIABLES.key}"
    credential = f"Authorization: Bearer {key}" if version == ANTHROPIC.api_version else f"x-api-key: {key}"
    anonymous = isinstance(agent.model.connection, AnonymousConnection)
    return RequestPreview(
        url=append_path(find_url(agent, _VARIABLES) or _VARIABLES.default_url, api.path),
        headers=(*(() if anonymous else (credential,)), f"anthropic-version: {version}"),
    )


def _write_client_headers(connection: Any, request: WireRequest) -> Mapping[str, Any]:
    """Return the headers for a registered client. The older API version has the key in a separate header."""
    client = connection.client
    if "anthropic-version" in request.headers and client.api_key:
        return {**request.headers, "x-api-key": client.api_key, "Authorization": connection.sdk.Omit()}
    return request.headers


SDK = SdkClients(
    package="anthropic", sync_class="Anthropic", async_class="AsyncAnthropic", headers=_write_client_headers
)
TRANSPORTS = Transports(find_endpoint, HOSTS, SDK)
