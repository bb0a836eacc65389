"""Anthropic."""

from prompty.providers import Provider
from prompty.providers.anthropic import messages
from prompty.providers.anthropic.connection import HOSTS, TRANSPORTS, find_endpoint, find_server, preview

PROVIDER = Provider(
    key="anthropic",
    apis={"chat": messages.API},
    transport=TRANSPORTS.get,
    transport_async=TRANSPORTS.get_async,
    preview=preview,
    hosts=HOSTS,
    connection_kinds=("key", "anonymous", "reference"),
    profile=find_server,
    models_path="/v1/models?limit=1000",
    endpoint=find_endpoint,
)
