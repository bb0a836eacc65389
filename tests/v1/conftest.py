"""A server on loopback, as what every connection of the v1 files leads to."""

import time
from collections.abc import Iterator

import azure.identity
import openai
import pytest
from azure.core.credentials import AccessToken

from prompty.providers import register_connection
from tests.loopback import Server, json_reply
from tests.v1.corpus import ENDPOINTS, set_variables

ANSWER = {"choices": [{"message": {"role": "assistant", "content": '{"score": 5}'}, "finish_reason": "stop"}]}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch)


class Credential:
    """A login on this machine."""

    def get_token(self, *_: str, **__: object) -> AccessToken:
        return AccessToken("token-of-entra", int(time.time()) + 3600)

    def close(self) -> None: ...


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture
def provider(
    server: Server, monkeypatch: pytest.MonkeyPatch, environment: None, clean_registry: None
) -> Iterator[Server]:
    """The server, as what every connection of the corpus leads to."""
    for name in ENDPOINTS:
        monkeypatch.setenv(name, server.url)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("PROMPTY_TRUSTED_ENDPOINTS", server.url)  # with tokens, too
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Credential)
    server.answer(json_reply(ANSWER))
    server.requests.clear()
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key="host") as client:
        for name in ("open_ai_connection", "azure_open_ai_connection"):
            register_connection(name, client)
        yield server
