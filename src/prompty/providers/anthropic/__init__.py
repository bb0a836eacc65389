"""Anthropic."""

from prompty.providers import Provider
from prompty.providers.anthropic import messages
from prompty.providers.anthropic.connection import CONNECTOR, HOSTS, address

PROVIDER = Provider(
    key="anthropic",
    apis={"chat": messages.API},
    transport=CONNECTOR.transport,
    transport_async=CONNECTOR.transport_async,
    address=address,
    hosts=HOSTS,
    connection_kinds=("key", "anonymous", "reference"),
    models_path="/v1/models?limit=1000",
)
