"""Where OpenAI's requests go, and as whom."""

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection, ReferenceConnection
from prompty.providers import Api, RequestPreview
from prompty.providers.credentials import Access, Variables, find_access, find_url
from prompty.providers.endpoint import Endpoint, append_path, create_endpoint
from prompty.providers.families import refuse_family
from prompty.providers.http.transports import Transports
from prompty.providers.profiles import OPENAI, Profile, find_profile
from prompty.providers.sdk import SdkClients

HOSTS = OPENAI.hosts
_VARIABLES = Variables(
    key="OPENAI_API_KEY",
    base_url="OPENAI_BASE_URL",
    default_url=OPENAI.base_url,
    headers=(("OPENAI_ORG_ID", "openai-organization"), ("OPENAI_PROJECT_ID", "openai-project")),
    custom="OPENAI_CUSTOM_HEADERS",
)
SDK = SdkClients(package="openai", sync_class="OpenAI", async_class="AsyncOpenAI")


def find_endpoint(agent: PromptAgent) -> Endpoint:
    """Return the endpoint of a prompt's connection."""
    access = find_access(agent, _VARIABLES, HOSTS)
    if find_profile(access.base_url) is OPENAI and (refusal := refuse_family(agent)):
        raise refusal
    if access.is_anonymous and not isinstance(agent.model.connection, AnonymousConnection):
        fix = "Set OPENAI_API_KEY, run `prompty keys set openai`, or write a `connection:` in the file."
        raise RequestError("there is no key for OpenAI", fix)
    return _build_endpoint(access)


def _build_endpoint(access: Access) -> Endpoint:
    credential = {} if access.api_key is None else {"authorization": f"Bearer {access.api_key}"}
    secrets = dict(access.headers).values()
    return create_endpoint(
        access.base_url, credential, headers=access.headers, credential=access.signature, secrets=secrets
    )


def preview(agent: PromptAgent, api: Api) -> RequestPreview:
    """Return the URL and headers of a request for people to read."""
    connection = agent.model.connection
    key = find_server(agent).key if getattr(connection, "endpoint", None) else None
    anonymous = isinstance(connection, AnonymousConnection)
    headers = () if anonymous else (f"Authorization: Bearer ${key or _VARIABLES.key}",)
    return RequestPreview(
        url=append_path(find_url(agent, _VARIABLES) or _VARIABLES.default_url, api.path), headers=headers
    )


def is_at_openai(agent: PromptAgent) -> bool:
    """Return True if an agent's requests go to OpenAI."""
    return not isinstance(agent.model.connection, ReferenceConnection) and find_server(agent) is OPENAI


def find_server(agent: PromptAgent) -> Profile:
    """Return the profile of the server that an agent's requests go to."""
    return find_profile(find_url(agent, _VARIABLES))


TRANSPORTS = Transports(find_endpoint, HOSTS, SDK)
