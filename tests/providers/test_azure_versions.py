"""Dated versions of Azure's API refuse fields that were added later, so requests to them have none (W12)."""

import os
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from prompty import PromptAgent, invoke
from prompty.analysis.explain import explain
from prompty.providers import register_connection
from prompty.providers.endpoint import create_endpoint
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat
from tests.loopback import Server, event, json_reply, stream

CHAT = Chat()
EARLY = ("2023-05-15", "2024-02-01", "2024-06-01", "2024-07-01-preview", "2024-08-01-preview")
LATE = ("2024-09-01-preview", "2024-10-21", "2025-04-01-preview", "preview", "latest")
LIMITS = {"maxOutputTokens": 128, "allowMultipleToolCalls": False}
LOOK = {"name": "look", "kind": "function", "parameters": []}
EARLY_FIELDS = {"model", "messages", "tools", "max_tokens"}
LATE_FIELDS = {"model", "messages", "tools", "max_completion_tokens", "parallel_tool_calls"}

pytestmark = pytest.mark.usefixtures("clean_registry")


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, credential or version of whoever runs the tests."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "AZURE_")):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.answer(json_reply(CHAT.whole("Hello")))
        yield server
        close_clients()


def agent_with(connection: dict[str, Any] | None, provider: str = "azure", **options: Any) -> PromptAgent:
    model = {"id": "m", "provider": provider, "connection": connection, "options": {**LIMITS, **options}}
    return PromptAgent.model_validate({"model": model, "tools": [LOOK], "instructions": "user:\nHi"})


def agent_at(endpoint: str, version: str | None, provider: str = "azure", **options: Any) -> PromptAgent:
    connection = {"kind": "key", "endpoint": endpoint, "apiKey": "the-key", "apiVersion": version}
    return agent_with(connection, provider, **options)


def sent_fields(server: Server, agent: PromptAgent) -> set[str]:
    """Return the names of the fields of the request that arrives."""
    invoke(agent, max_retries=0)
    return set(server.requests[-1].body)


@pytest.mark.parametrize("provider", ["azure", "foundry"])
@pytest.mark.parametrize("version", [*EARLY, *LATE])
def test_a_version_gets_the_fields_it_has(server: Server, version: str, provider: str) -> None:
    fields = sent_fields(server, agent_at(server.url, version, provider))
    assert fields == (EARLY_FIELDS if version in EARLY else LATE_FIELDS)
    assert server.requests[-1].path == f"/openai/deployments/m/chat/completions?api-version={version}"


def test_a_limit_is_the_same_under_both_names(server: Server) -> None:
    invoke(agent_at(server.url, "2024-06-01"))
    invoke(agent_at(server.url, "2024-10-21"))
    assert server.requests[0].body["max_tokens"] == server.requests[1].body["max_completion_tokens"] == 128


@pytest.mark.parametrize(("version", "role"), [("2024-08-01-preview", "system"), ("2024-10-21", "developer")])
def test_early_versions_get_no_developer_message(server: Server, version: str, role: str) -> None:
    agent = agent_at(server.url, version).model_copy(update={"instructions": "developer:\nBe brief.\n\nuser:\nHi"})
    invoke(agent)
    assert [message["role"] for message in server.requests[-1].body["messages"]] == [role, "user"]


@pytest.mark.parametrize("own", [{}, {"stream_options": {"include_usage": True}}], ids=["plain", "with stream_options"])
def test_a_stream_of_an_early_version_has_no_usage(server: Server, own: dict[str, Any]) -> None:
    parts = [*CHAT.said("Hel", "lo"), CHAT.chunk({}, "stop"), "[DONE]"]
    server.answer(stream(*map(event, parts)))
    streamed = invoke(agent_at(server.url, "2024-06-01", additionalProperties=own), stream=True)
    assert list(streamed) == ["Hel", "lo"]
    assert (streamed.result, streamed.usage.output_tokens) == ("Hello", None)
    assert set(server.requests[-1].body) == {*EARLY_FIELDS, "stream"}


@pytest.mark.parametrize("path", ["/api/projects/p", "/openai/v1", "/openai/v1/"])
def test_an_address_of_version_one_has_no_dated_version(
    server: Server, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-06-01")
    assert sent_fields(server, agent_at(server.url + path, "2024-06-01")) == LATE_FIELDS


def test_the_version_of_the_environment_counts_if_the_file_has_none(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-06-01")
    assert sent_fields(server, agent_at(server.url, None)) == EARLY_FIELDS
    assert sent_fields(server, agent_at(server.url, "2024-10-21")) == LATE_FIELDS
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "the-key")
    assert sent_fields(server, agent_with(None)) == EARLY_FIELDS
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", f"{server.url}/openai/v1")
    assert sent_fields(server, agent_with(None)) == LATE_FIELDS


REFERENCE = {"kind": "reference", "name": "mine"}


@pytest.mark.parametrize(("version", "fields"), [("2024-06-01", EARLY_FIELDS), ("2024-10-21", LATE_FIELDS)])
def test_a_registered_client_brings_its_version(
    server: Server, version: str, fields: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2023-05-15")  # which the client does not use
    with openai.AzureOpenAI(azure_endpoint=server.url, api_version=version, api_key="k") as client:
        register_connection("mine", "not a client", client)
        assert sent_fields(server, agent_with(REFERENCE)) == fields
    assert server.requests[-1].path.endswith(f"?api-version={version}")


def test_a_request_can_be_shown_before_its_client_is_registered() -> None:
    assert set(explain(agent_with(REFERENCE)).body) == LATE_FIELDS


def test_a_client_of_version_one_has_no_version(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-06-01")
    with openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key="k") as client:
        register_connection("mine", client)
        assert sent_fields(server, agent_with(REFERENCE)) == LATE_FIELDS


def test_a_version_in_the_url_is_no_secret() -> None:
    """A value that counts as a secret is masked everywhere, also in an error that names the version to use."""
    endpoint = create_endpoint("https://r.openai.azure.com/openai?api-version=2025-03-01-preview&sig=abc", {})
    assert "abc" in endpoint.secrets
    assert "2025-03-01-preview" not in endpoint.secrets
