"""Where OpenAI's requests go, and as whom."""

from functools import lru_cache

from prompty.errors import RequestError
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection
from prompty.providers import Address, Api, join_url
from prompty.providers.http.connections import Connector
from prompty.providers.http.endpoint import Endpoint, create_endpoint
from prompty.providers.place import EnvironmentNames, Place, find_place
from prompty.providers.sdk import SdkClients

HOSTS = ("api.openai.com", "*.api.openai.com")
_VARIABLES = EnvironmentNames(
    key="OPENAI_API_KEY",
    base_url="OPENAI_BASE_URL",
    default_url="https://api.openai.com/v1",
    headers=(("OPENAI_ORG_ID", "openai-organization"), ("OPENAI_PROJECT_ID", "openai-project")),
    custom="OPENAI_CUSTOM_HEADERS",
)
SDK = SdkClients(package="openai", sync_class="OpenAI", async_class="AsyncOpenAI")


def locate(agent: PromptAgent) -> Endpoint:
    """Return the endpoint of a prompt's connection."""
    place = find_place(agent, _VARIABLES, HOSTS)
    if place.api_key is None and not isinstance(agent.model.connection, AnonymousConnection):
        raise RequestError("there is no key for OpenAI", "Set OPENAI_API_KEY, or write a `connection:` in the file.")
    return _build_endpoint(place)


@lru_cache(maxsize=64)
def _build_endpoint(place: Place) -> Endpoint:
    credential = {} if place.api_key is None else {"authorization": f"Bearer {place.api_key}"}
    return create_endpoint(place.base_url, credential, headers=place.headers)


def address(agent: PromptAgent, api: Api) -> Address:
    """Return the URL and headers of a request as a person would write them."""
    connection = agent.model.connection
    endpoint = getattr(connection, "endpoint", None) or _VARIABLES.default_url
    anonymous = isinstance(connection, AnonymousConnection)
    headers = () if anonymous else ("Authorization: Bearer $OPENAI_API_KEY",)
    return Address(url=join_url(endpoint, api.path), headers=headers)


CONNECTOR = Connector(locate, SDK)
