"""From a connection to the request that arrives: which client, which URL, which credential (F11, W11, W12)."""

import asyncio
import os
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import azure.identity
import openai
import pytest
from azure.core.credentials import AccessToken

from prompty import PromptAgent, invoke, invoke_async, user
from prompty.errors import ModelError, RequestError
from prompty.model.message import Json
from prompty.pipeline import executor_of
from prompty.providers import PROVIDERS, register_connection
from prompty.registry import DEFAULT, Registry
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat, Messages, Responses, Wire
from tests.loopback import Request, Server, json_reply

CHAT, RESPONSES, MESSAGES = Chat(), Responses(), Messages()
KEY: Json = {"kind": "key", "apiKey": "the-key"}


@pytest.fixture(autouse=True)
def only_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """No proxy and no credential of whoever runs the tests."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


pytestmark = pytest.mark.usefixtures("clean_registry")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.answer(json_reply(CHAT.whole("Hello")))
        yield server
        close_clients()


def agent_of(provider: str = "openai", api_type: str = "chat", **model: Any) -> PromptAgent:
    whole = {"id": "m", "provider": provider, "apiType": api_type, **model}
    return PromptAgent.model_validate({"model": whole, "instructions": "user:\nHi"})


def sent(server: Server, agent: PromptAgent, asynchronous: bool) -> Request:
    """The request that arrives when a prompt is run."""
    assert asyncio.run(invoke_async(agent)) if asynchronous else invoke(agent)
    return server.requests[-1]


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# One pool of connections for each origin.


def pool_of(connection: Json, provider: str = "openai", registry: Registry = DEFAULT) -> object:
    agent = agent_of(provider, connection=connection).model_copy(update={"registry": registry})
    return DEFAULT[PROVIDERS].get(provider).transport(agent).pool  # type: ignore[attr-defined]  # ours have one


async def pool_async_of(connection: Json) -> object:
    return DEFAULT[PROVIDERS].get("openai").transport_async(agent_of(connection=connection)).pool  # type: ignore[attr-defined]  # ours have one


@pytest.mark.parametrize(
    "other", [{"apiKey": "another-key"}, {"endpoint": "http://127.0.0.1:9/v2"}, {"kind": "anonymous"}], ids=str
)
def test_all_keys_and_paths_at_an_origin_share_connections(other: Json) -> None:
    place = {**KEY, "endpoint": "http://127.0.0.1:9/v1"}
    changed = {**place, **other}
    if changed["kind"] == "anonymous":
        del changed["apiKey"]
    assert pool_of(place) is pool_of(changed) is pool_of(place, "anthropic")


def test_another_origin_or_registry_has_connections_of_its_own() -> None:
    place = {**KEY, "endpoint": "http://127.0.0.1:9/v1"}
    assert pool_of(place) is not pool_of({**place, "endpoint": "http://127.0.0.1:8/v1"})
    assert pool_of(place) is not pool_of({**place, "endpoint": "https://127.0.0.1:9/v1"})
    assert pool_of(place) is not pool_of(place, registry=Registry())


def test_an_event_loop_has_connections_of_its_own() -> None:
    place = {**KEY, "endpoint": "http://127.0.0.1:9/v1"}

    async def main() -> object:
        first = await pool_async_of(place)
        assert first is await pool_async_of(place)
        return first

    assert asyncio.run(main()) is not asyncio.run(main())


def test_a_changed_environment_is_seen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for connection in (None, KEY):
        for name in ("first-key", "second-key"):
            monkeypatch.setenv("OPENAI_API_KEY", name)
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/{name}")
            assert sent(server, agent_of(connection=connection), False).path == f"/{name}/chat/completions"


# Clients that the host has built.


def named(provider: str = "openai", api_type: str = "chat") -> PromptAgent:
    return agent_of(provider, api_type, connection={"kind": "reference", "name": "mine"})


def sent_by(server: Server, agent: PromptAgent, client_class: Any, **options: Any) -> Request:
    """The request that arrives by way of a client that the host builds, registers, and closes."""

    async def main() -> None:
        async with client_class(**options) as client:
            register_connection("mine", "not a client", client)
            assert await invoke_async(agent)

    if "Async" in client_class.__name__:
        asyncio.run(main())
    else:
        with client_class(**options) as client:
            register_connection("mine", "not a client", client)
            assert invoke(agent)
    return server.requests[-1]


@pytest.mark.spec("003 §2.5", "a reference is what the host registered under that name")
@pytest.mark.parametrize("client_class", [openai.OpenAI, openai.AsyncOpenAI])
def test_a_registered_client_is_used(server: Server, client_class: Any) -> None:
    options = {"base_url": f"{server.url}/v1", "api_key": "host", "default_headers": {"x-host": "yes"}}
    request = sent_by(server, named(), client_class, **options)
    assert (request.headers["authorization"], request.headers["x-host"]) == ("Bearer host", "yes")
    assert request.headers["user-agent"].startswith("prompty/")


@pytest.mark.parametrize("client_class", [anthropic.Anthropic, anthropic.AsyncAnthropic])
def test_a_registered_client_of_anthropic_is_used(server: Server, client_class: Any) -> None:
    server.answer(json_reply(MESSAGES.whole("Hello")))
    request = sent_by(server, named("anthropic"), client_class, base_url=server.url, api_key="host")
    assert (request.path, request.headers["authorization"]) == ("/v1/messages", "Bearer host")


def test_a_registered_client_does_not_retry_by_itself(server: Server) -> None:
    server.answer(json_reply({}, 500, {"retry-after": "0"}))
    with openai.OpenAI(base_url=server.url, api_key="host", max_retries=5) as client:
        register_connection("mine", client)
        with pytest.raises(ModelError):
            invoke(named(), max_retries=0)
    assert len(server.requests) == 1


class OurClient(openai.AzureOpenAI):
    """A client of the host's with a name that does not say that it is Azure's."""


class OurAsyncClient(openai.AsyncAzureOpenAI):
    """The same for async code."""


@pytest.mark.parametrize("client_class", [openai.AzureOpenAI, openai.AsyncAzureOpenAI, OurClient, OurAsyncClient])
@pytest.mark.parametrize("provider", ["openai", "azure", "foundry"])
def test_a_registered_client_of_azure_finds_its_deployment(server: Server, provider: str, client_class: Any) -> None:
    options = {"azure_endpoint": server.url, "api_version": "v", "azure_ad_token_provider": lambda: "a-token"}
    request = sent_by(server, named(provider), client_class, **options)
    assert request.path == "/openai/deployments/m/chat/completions?api-version=v"
    assert request.headers["authorization"] == "Bearer a-token"
    assert "api-key" not in request.headers


def test_a_connection_that_nobody_registered() -> None:
    register_connection("other", openai.OpenAI(api_key="host"))
    with pytest.raises(RequestError, match=r"'mine' \(registered: other\)") as caught:
        invoke(named())
    assert caught.value.fix == "Call prompty.providers.register_connection('mine', client) before running the prompt."


def test_a_registered_client_that_this_call_cannot_use() -> None:
    register_connection("mine", openai.OpenAI(api_key="host"))
    with pytest.raises(RequestError, match="no client that this call can use") as caught:
        asyncio.run(invoke_async(named()))
    assert "AsyncOpenAI" in caught.value.fix
    with pytest.raises(RequestError) as caught:
        invoke(named("anthropic"))
    assert "Anthropic" in caught.value.fix


# Keys, and no keys.


@pytest.mark.spec("003 §2.5", "a connection with a key sends it to its endpoint")
def test_a_key_is_sent_to_its_endpoint(server: Server, asynchronous: bool) -> None:
    request = sent(server, agent_of(connection={**KEY, "endpoint": f"{server.url}/v1"}), asynchronous)
    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", "Bearer the-key")
    assert request.body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.spec("003 §2.5", "a connection without its required fields does not load")
@pytest.mark.parametrize("provider", ["openai", "anthropic", "azure", "foundry"])
@pytest.mark.parametrize("key", ["", None])
def test_a_connection_of_kind_key_needs_one(provider: str, key: str | None) -> None:
    connection = {"kind": "key", "endpoint": "http://127.0.0.1:9", "apiKey": key}
    with pytest.raises(RequestError, match="no `apiKey`" if key is None else "is blank") as caught:
        invoke(agent_of(provider, connection=connection))
    assert "_API_KEY" in caught.value.fix


@pytest.mark.parametrize("key", ["the-key\n", "der-schlüssel", "the\x00key"])
def test_a_key_that_no_header_can_carry(key: str) -> None:
    with pytest.raises(RequestError, match="cannot be sent") as caught:
        invoke(agent_of(connection={**KEY, "endpoint": "http://127.0.0.1:9", "apiKey": key}))
    assert key not in str(caught.value)


def test_a_key_of_the_environment_that_no_header_can_carry(
    server: Server, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-key-of-the-environment\n")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    with pytest.raises(RequestError, match="OPENAI_API_KEY cannot be sent") as caught:
        sent(server, agent_of(), asynchronous)
    assert "the-key" not in str(caught.value)
    assert server.requests == []


@pytest.mark.spec("003 §2.5", "an anonymous connection sends no credential")
@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=lambda wire: wire.name)
@pytest.mark.parametrize("options", [{}, {"temperature": 0.5}], ids=str)
def test_an_anonymous_connection_sends_no_credential(
    server: Server, monkeypatch: pytest.MonkeyPatch, wire: Wire, options: Json, asynchronous: bool
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "not-for-you")
    server.answer(json_reply(wire.whole("Hello")))
    connection = {"kind": "anonymous", "endpoint": server.url + wire.base}
    request = sent(server, agent_of(wire.provider, connection=connection, options=options), asynchronous)
    assert request.path == wire.path
    assert not {"authorization", "x-api-key", "api-key"} & request.headers.keys()
    assert "not-for-you" not in str(request.headers)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=lambda wire: wire.name)
def test_an_anonymous_connection_sends_nothing_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch, wire: Wire, asynchronous: bool
) -> None:
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "X-Api-Key: not-for-you\nX-Gateway-Key: not-for-you\nAuthorization: not-for-you")
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "not-for-you")
    server.answer(json_reply(wire.whole("Hello")))
    connection = {"kind": "anonymous", "endpoint": server.url + wire.base}
    assert "not-for-you" not in str(sent(server, agent_of(wire.provider, connection=connection), asynchronous).headers)


def test_cookies_of_a_provider_are_not_sent_back(server: Server, asynchronous: bool) -> None:
    server.answer(json_reply(CHAT.whole("Hello"), headers={"set-cookie": "user=ada; Path=/"}))
    agent = agent_of(connection={**KEY, "endpoint": f"{server.url}/v1"})

    async def twice() -> None:
        await invoke_async(agent)
        await invoke_async(agent)

    _ = asyncio.run(twice()) if asynchronous else (invoke(agent), invoke(agent))
    assert all("cookie" not in request.headers for request in server.requests)


def test_an_anonymous_connection_needs_an_endpoint() -> None:
    with pytest.raises(RequestError, match="no `endpoint`"):
        invoke(agent_of(connection={"kind": "anonymous"}))


KINDS = {
    "openai": "key, anonymous or reference",
    "anthropic": "key, anonymous or reference",
    "azure": "key, foundry or reference",
    "foundry": "key, foundry or reference",
}


@pytest.mark.spec("003 §2.5", "a remote connection can be used")
@pytest.mark.spec("003 §2.5", "an OAuth connection can be used")
@pytest.mark.spec("003 §2.5", "every provider takes an anonymous connection")
@pytest.mark.parametrize(
    ("provider", "offered", "kind"),
    [(provider, offered, kind) for provider, offered in KINDS.items() for kind in ("oauth", "remote")]
    + [(provider, KINDS[provider], "anonymous") for provider in ("azure", "foundry")],
)
def test_a_kind_that_a_provider_cannot_use(provider: str, offered: str, kind: str) -> None:
    with pytest.raises(RequestError, match=f"'{provider}' cannot use a connection of kind '{kind}'") as caught:
        invoke(agent_of(provider, connection={"kind": kind, "endpoint": "http://127.0.0.1:9"}))
    assert caught.value.fix == f"Write `kind:` one of {offered}."


OFFERED = {
    ("anthropic", "responses"): "chat",
    ("foundry", "image"): "chat, responses, embedding",
    ("azure", "image"): "chat, responses, embedding",
    ("openai", "completion"): "chat, responses, embedding, image",
}


@pytest.mark.parametrize(("pair", "offered"), OFFERED.items(), ids=str)
def test_an_api_that_a_provider_does_not_have(pair: tuple[str, str], offered: str) -> None:
    provider, api_type = pair
    with pytest.raises(RequestError, match=f"'{provider}' has no API of type '{api_type}'") as caught:
        invoke(agent_of(provider, api_type))
    assert caught.value.fix == f"Write `apiType:` with one of {offered}."


# No connection at all: the SDK's own variables.


def test_openai_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch, asynchronous: bool) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-outside")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/there")
    request = sent(server, agent_of(), asynchronous)
    assert (request.path, request.headers["authorization"]) == ("/there/chat/completions", "Bearer from-outside")


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_anthropic_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str, asynchronous: bool
) -> None:
    server.answer(json_reply(MESSAGES.whole("Hello")))
    monkeypatch.setenv(name, "from-outside")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    assert sent(server, agent_of("anthropic"), asynchronous).headers["authorization"] == "Bearer from-outside"


AZURE_CREDENTIALS = {
    "AZURE_OPENAI_API_KEY": ("api-key", "from-outside"),
    "AZURE_OPENAI_AD_TOKEN": ("authorization", "Bearer from-outside"),
}


@pytest.mark.parametrize(("name", "header"), AZURE_CREDENTIALS.items(), ids=AZURE_CREDENTIALS)
def test_azure_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str, header: tuple[str, str], asynchronous: bool
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
    monkeypatch.setenv(name, "from-outside")
    request = sent(server, agent_of("azure"), asynchronous)
    assert request.path == "/openai/v1/chat/completions"
    assert request.headers[header[0]] == header[1]
    assert len({"api-key", "authorization"} & request.headers.keys()) == 1


MISSING = {
    "openai": "Set OPENAI_API_KEY, run `prompty keys set openai`, or write a `connection:` in the file.",
    "anthropic": "Set ANTHROPIC_API_KEY, run `prompty keys set anthropic`, or write a `connection:` in the file.",
    "azure": "Set AZURE_OPENAI_ENDPOINT, or write endpoint: https://… in its `connection:`.",
}


@pytest.mark.parametrize(("provider", "fix"), MISSING.items())
def test_an_environment_without_a_credential(provider: str, fix: str, asynchronous: bool) -> None:
    agent = agent_of(provider)
    with pytest.raises(RequestError) as caught:
        _ = asyncio.run(invoke_async(agent)) if asynchronous else invoke(agent)
    assert caught.value.fix == fix


# Anthropic's two versions (W11).


def anthropic_request(server: Server, asynchronous: bool, **options: object) -> Request:
    server.answer(json_reply(MESSAGES.whole("Hello")))
    connection = {**KEY, "endpoint": server.url}
    return sent(server, agent_of("anthropic", connection=connection, options=options), asynchronous)


def test_anthropic_gets_its_own_version_and_a_bearer(
    server: Server, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "not-for-you")
    request = anthropic_request(server, asynchronous, maxOutputTokens=7)
    assert request.headers["authorization"] == "Bearer the-key"
    assert request.headers["anthropic-version"] != "2023-06-01"
    assert "x-api-key" not in request.headers
    assert request.body["max_tokens"] == 7


@pytest.mark.parametrize("option", [{"temperature": 0.5}, {"topP": 0.5}, {"topK": 5}], ids=str)
def test_sampling_options_take_the_version_that_has_them(
    server: Server, option: dict[str, object], asynchronous: bool
) -> None:
    request = anthropic_request(server, asynchronous, **option)
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert request.headers["x-api-key"] == "the-key"
    assert "authorization" not in request.headers
    assert {"temperature", "top_p", "top_k"} & request.body.keys()


# Azure and Foundry (W12).


def azure_agent(server: Server, path: str = "", api_type: str = "chat", **connection: str) -> PromptAgent:
    whole = {**KEY, "endpoint": server.url + path, **connection}
    if whole["kind"] == "foundry":
        del whole["apiKey"]
    return agent_of("foundry", api_type, connection=whole)


@pytest.mark.parametrize("provider", ["azure", "foundry"])
def test_azure_without_a_version_has_the_path_of_version_one(server: Server, provider: str, asynchronous: bool) -> None:
    agent = azure_agent(server)
    request = sent(
        server, agent.model_copy(update={"model": agent.model.model_copy(update={"provider": provider})}), asynchronous
    )
    assert request.path == "/openai/v1/chat/completions"
    assert request.headers["api-key"] == "the-key"
    assert "authorization" not in request.headers
    assert request.body == {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert request.headers["user-agent"].startswith("prompty/")


@pytest.mark.spec("004 Basic Configuration", "the printed file reaches the Responses API of Microsoft Foundry")
@pytest.mark.parametrize("version", [{}, {"apiVersion": "2024-10-21"}], ids=str)
def test_a_project_of_foundry_has_the_path_of_version_one(
    server: Server, monkeypatch: pytest.MonkeyPatch, version: dict[str, str], asynchronous: bool
) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    server.answer(json_reply(RESPONSES.whole("Hello")))
    request = sent(server, azure_agent(server, "/api/projects/p", "responses", **version), asynchronous)
    assert request.path == "/api/projects/p/openai/v1/responses"


def test_whose_version_counts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_VERSION", "outside")
    assert sent(server, azure_agent(server), False).path.endswith("?api-version=outside")
    assert sent(server, azure_agent(server, apiVersion="inside"), False).path.endswith("?api-version=inside")


def test_responses_of_azure_have_no_deployment(server: Server, asynchronous: bool) -> None:
    server.answer(json_reply(RESPONSES.whole("Hello")))
    request = sent(server, azure_agent(server, api_type="responses", apiVersion="v"), asynchronous)
    assert request.path == "/openai/responses?api-version=v"
    assert request.body["model"] == "m"


def test_embeddings_of_azure_have_one(server: Server, asynchronous: bool) -> None:
    server.answer(json_reply({"data": [{"embedding": [0.5], "index": 0}]}))
    request = sent(server, azure_agent(server, api_type="embedding", apiVersion="v"), asynchronous)
    assert request.path == "/openai/deployments/m/embeddings?api-version=v"
    assert request.body["input"] == "Hi"


@pytest.mark.parametrize("slash", ["", "/"])
def test_an_endpoint_of_version_one_is_used_as_it_is(server: Server, slash: str, asynchronous: bool) -> None:
    request = sent(server, azure_agent(server, f"/openai/v1{slash}", apiVersion="v"), asynchronous)
    assert request.path == "/openai/v1/chat/completions"
    assert request.headers["api-key"] == "the-key"


@pytest.mark.parametrize("provider", ["azure", "foundry"])
@pytest.mark.parametrize("kind", ["key", "foundry"])
def test_azure_needs_an_endpoint(provider: str, kind: str) -> None:
    with pytest.raises(RequestError, match="no `endpoint`"):
        invoke(agent_of(provider, connection={**KEY, "kind": kind}))


class Credential:
    """Stands in for the login of whoever runs the program."""

    asked: tuple[str, ...] = ()
    closed = 0

    def close(self) -> None:
        type(self).closed += 1

    def get_token(self, *scopes: str, **_: object) -> Any:
        type(self).asked = scopes
        return AccessToken("token-of-entra", int(time.time()) + 3600)


class NoLogin(Credential):
    def get_token(self, *scopes: str, **_: object) -> Any:
        raise azure.identity.CredentialUnavailableError("please run 'az login'")


AZURE, PROJECT = "https://cognitiveservices.azure.com/.default", "https://ai.azure.com/.default"
PATHS = {
    "": ("/openai/v1/chat/completions", AZURE),
    "/openai/v1": ("/openai/v1/chat/completions", AZURE),
    "/api/projects/p": ("/api/projects/p/openai/v1/chat/completions", PROJECT),
}


@pytest.mark.spec("003 §2.5", "a foundry connection reaches Microsoft Foundry with a token")
@pytest.mark.parametrize(("path", "arriving"), PATHS.items())
def test_a_foundry_connection_asks_entra_for_a_token(
    server: Server, monkeypatch: pytest.MonkeyPatch, asynchronous: bool, path: str, arriving: tuple[str, str]
) -> None:
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Credential)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "not-for-you")
    request = sent(server, azure_agent(server, path, kind="foundry"), asynchronous)
    assert (request.path, *Credential.asked) == arriving
    assert request.headers["authorization"] == "Bearer token-of-entra"
    assert "api-key" not in request.headers


def test_a_token_is_asked_for_once_while_it_holds(
    server: Server, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    asked: list[object] = []

    class Counting(Credential):
        def get_token(self, *scopes: str, **_: object) -> Any:
            asked.append(scopes)
            return AccessToken(f"token-{len(asked)}", int(time.time()) + (60 if len(asked) == 1 else 3600))

    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", Counting)
    agent = azure_agent(server, kind="foundry")
    tokens = [sent(server, agent, asynchronous).headers["authorization"] for _ in range(4)]
    assert tokens == ["Bearer token-1", "Bearer token-2", "Bearer token-2", "Bearer token-2"]


def test_nobody_is_logged_in(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", NoLogin)
    with pytest.raises(ModelError, match="az login") as caught:
        invoke(azure_agent(server, kind="foundry"))
    assert not caught.value.retryable
    assert server.requests == []


# The interface of §7.8 has the same clients below it.


@pytest.mark.spec("000 §7.8", "every request has the user agent prompty/<version>")
@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=lambda wire: wire.name)
def test_executors_say_who_sends_a_request(server: Server, wire: Wire, asynchronous: bool) -> None:
    server.answer(json_reply(wire.whole("Hello")))
    agent = wire.agent(server)
    executor = executor_of(agent)
    raw = asyncio.run(_executed(agent)) if asynchronous else executor.execute(agent, [user("Hi")])
    assert raw == wire.whole("Hello")
    assert server.requests[0].headers["user-agent"].startswith("prompty/")


async def _executed(agent: PromptAgent) -> object:
    return await executor_of(agent).execute_async(agent, [user("Hi")])


@pytest.mark.parametrize(("provider", "key"), [("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")])
def test_what_the_environment_sends_is_masked_where_a_server_repeats_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, provider: str, key: str, asynchronous: bool
) -> None:
    secret, header = f"plain-words-of-{provider}-{asynchronous}", f"gateway-words-of-{provider}-{asynchronous}"
    monkeypatch.setenv(key, secret)
    monkeypatch.setenv(key.replace("API_KEY", "BASE_URL"), server.url)
    monkeypatch.setenv(key.replace("API_KEY", "CUSTOM_HEADERS"), f"X-Gateway: {header}")
    server.answer(json_reply({"error": {"message": f"no {secret} {header}"}}, 401))
    with pytest.raises(ModelError) as caught:
        sent(server, agent_of(provider), asynchronous)
    assert header in str(server.requests[0].headers)
    assert secret not in str(caught.value)
    assert header not in str(caught.value)
