"""Microsoft Foundry and Azure OpenAI: OpenAI's wire, their own routing and credentials."""

from dataclasses import replace

from prompty.providers import Provider
from prompty.providers.foundry.connection import HOSTS, TRANSPORTS, find_endpoint, find_server, preview
from prompty.providers.openai import chat, embeddings, responses

PROVIDER = Provider(
    key="foundry",
    apis={"chat": chat.API, "responses": responses.API, "embedding": embeddings.API},
    transport=TRANSPORTS.get,
    transport_async=TRANSPORTS.get_async,
    preview=preview,
    hosts=HOSTS,
    connection_kinds=("key", "foundry", "reference"),
    profile=find_server,
    models_path="/models",
    endpoint=find_endpoint,
)
AZURE = replace(PROVIDER, key="azure")
