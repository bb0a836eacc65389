"""OpenAI, and every server that speaks its chat format (`endpoint:` says where)."""

from prompty.providers import Provider
from prompty.providers.openai import chat, embeddings, images, responses
from prompty.providers.openai.connection import HOSTS, TRANSPORTS, find_endpoint, find_server, preview

PROVIDER = Provider(
    key="openai",
    apis={"chat": chat.API, "responses": responses.API, "embedding": embeddings.API, "image": images.API},
    transport=TRANSPORTS.get,
    transport_async=TRANSPORTS.get_async,
    preview=preview,
    hosts=HOSTS,
    connection_kinds=("key", "anonymous", "reference"),
    profile=find_server,
    models_path="/models",
    endpoint=find_endpoint,
)
