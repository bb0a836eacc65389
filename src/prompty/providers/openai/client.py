"""The OpenAI SDK as transport. No other module of this provider uses it."""

from typing import Any

from prompty.errors import RequestError
from prompty.extras import require
from prompty.model.agent import PromptAgent
from prompty.model.connection import AnonymousConnection
from prompty.providers import Address, Api, join_url
from prompty.providers.clients import (
    Endpoint,
    EnvironmentNames,
    SdkConnector,
    connection_limits,
    locate_endpoint,
    split_query,
)

HOSTS = ("api.openai.com", "*.api.openai.com")
_VARIABLES = EnvironmentNames(
    keys=("OPENAI_API_KEY",), base_url="OPENAI_BASE_URL", others=("OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
)


def locate(agent: PromptAgent) -> Endpoint:
    return locate_endpoint(agent, _VARIABLES, HOSTS)


def build(endpoint: Endpoint, asynchronous: bool) -> Any:
    """Return an SDK client without retries of its own."""
    sdk = require("openai", extra="openai")
    client_class, http_class = (
        (sdk.AsyncOpenAI, sdk.DefaultAsyncHttpxClient) if asynchronous else (sdk.OpenAI, sdk.DefaultHttpxClient)
    )
    options: dict[str, Any] = {"max_retries": 0, "http_client": http_class(**connection_limits())}
    key = "nobody" if endpoint.base_url and endpoint.api_key is None else endpoint.api_key
    try:
        return client_class(**split_query(endpoint.base_url), api_key=key, **options)
    except sdk.OpenAIError as error:
        raise RequestError(f"{error}", "Set OPENAI_API_KEY, or write a `connection:` in the file.") from None


def address(agent: PromptAgent, api: Api) -> Address:
    """Return the URL and headers of a request as a person would write them."""
    connection = agent.model.connection
    endpoint = getattr(connection, "endpoint", None) or "https://api.openai.com/v1"
    anonymous = isinstance(connection, AnonymousConnection)
    headers = () if anonymous else ("Authorization: Bearer $OPENAI_API_KEY",)
    return Address(url=join_url(endpoint, api.path), headers=headers)


CONNECTOR = SdkConnector("openai", ("OpenAI", "AsyncOpenAI"), locate, build)
