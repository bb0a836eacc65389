"""Every server gets requests as its documentation asks for them, whoever names its address."""

import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest

from prompty import Message, PromptAgent, Registry, ToolCall, assistant, loads, tool_result, turn, user
from prompty.analysis.explain import explain
from prompty.certificates import load_certificates
from prompty.pipeline import run
from prompty.providers import PROVIDERS, register_connection
from prompty.providers.fitting import fit_request
from prompty.providers.profiles import PROFILES, Profile, find_profile
from prompty.registry import DEFAULT, Connections
from tests.drivers.clients import close_clients
from tests.drivers.wires import Chat, Messages
from tests.internet import Arrival, Internet
from tests.loopback import Server, json_reply

LONG_ID = "call_" + "x" * 60
SIGNATURE: dict[str, object] = {"google": {"thought_signature": "signed"}}
HISTORY: list[Message] = [
    Message("developer", "Be brief."),
    Message("user", "Hi", name="ada"),
    assistant("", tool_calls=[ToolCall(id=LONG_ID, name="look", extra=SIGNATURE)], reasoning="hm"),
    tool_result(LONG_ID, "seen"),
    user("And now?"),
]
OPTIONS = "{maxOutputTokens: 50, seed: 7, frequencyPenalty: 0.5, presencePenalty: 0.1, temperature: 0.2}"
SENT: dict[str, Any] = {
    "max_completion_tokens": 50,
    "seed": 7,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.1,
    "temperature": 0.2,
}


@dataclass(frozen=True)
class Expected:
    """A request as the documentation of a server asks for it. `thoughts` are the fields for reasoning that go back, and
    `developer` is the role of a developer message."""

    url: str
    header: tuple[str, str] = ("authorization", "Bearer the-key")
    options: dict[str, Any] = field(default_factory=lambda: SENT)
    thoughts: dict[str, str] = field(default_factory=lambda: {"reasoning_content": "hm"})
    name: str | None = "ada"
    signed: bool = True
    id_length: int = len(LONG_ID)
    stream_options: bool = True
    developer: str = "system"


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {name: value for name, value in {**SENT, **more}.items() if name not in names}


MAX_TOKENS = without("max_completion_tokens", max_tokens=50)
EXPECTED = {
    "openai": Expected(
        "https://api.openai.com/v1/chat/completions", thoughts={}, signed=False, id_length=40, developer="developer"
    ),
    "azure": Expected(
        "https://resource.services.ai.azure.com/api/projects/project/openai/v1/chat/completions",
        ("api-key", "the-key"),
        thoughts={},
        signed=False,
        id_length=40,
        developer="developer",
    ),
    "gemini": Expected(
        "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        options=without("seed", "frequency_penalty"),
        thoughts={},
    ),
    "bedrock": Expected("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1/chat/completions"),
    "groq": Expected("https://api.groq.com/openai/v1/chat/completions", thoughts={"reasoning": "hm"}, name=None),
    "mistral": Expected(
        "https://api.mistral.ai/v1/chat/completions",
        options=without("max_completion_tokens", "seed", max_tokens=50, random_seed=7),
        thoughts={},
        name=None,
        signed=False,
        id_length=9,
        stream_options=False,
    ),
    "openrouter": Expected("https://openrouter.ai/api/v1/chat/completions", thoughts={"reasoning": "hm"}),
    "deepseek": Expected("https://api.deepseek.com/chat/completions", options=MAX_TOKENS),
    "cerebras": Expected("https://api.cerebras.ai/v1/chat/completions", thoughts={}, signed=False),
    "xai": Expected("https://api.x.ai/v1/chat/completions", options=without("frequency_penalty", "presence_penalty")),
    "vllm": Expected("http://localhost:8000/v1/chat/completions", thoughts={"reasoning": "hm"}),
    "llama.cpp": Expected("http://localhost:8080/v1/chat/completions"),
    "ollama": Expected("http://localhost:11434/v1/chat/completions", options=MAX_TOKENS, thoughts={"reasoning": "hm"}),
    "lm-studio": Expected("http://localhost:1234/v1/chat/completions", options=MAX_TOKENS),
    "compatible": Expected("https://host/v1/chat/completions"),
}
CHAT = [profile for profile in PROFILES if profile.provider != "anthropic"]
HOSTS = [expected.url.split("/")[2] for expected in EXPECTED.values()]


@pytest.fixture
def internet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """Every host behind a proxy, and for this machine, which no proxy serves, every port."""
    names = [*HOSTS, "api.anthropic.com", "bedrock-mantle.us-east-1.api.aws"]
    with Internet(tmp_path, names, Chat().whole("Hello")) as internet:
        internet.use(monkeypatch.setenv)
        monkeypatch.setenv("NO_PROXY", "")
        address, connect = urlsplit(internet.url), socket.create_connection
        monkeypatch.setattr(
            socket,
            "create_connection",
            lambda _, *rest, **more: connect((address.hostname, address.port), *rest, **more),
        )
        monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
        load_certificates.cache_clear()
        yield internet
        close_clients()
    load_certificates.cache_clear()


def load_for(profile: Profile, **host: Any) -> PromptAgent:
    """Return a prompt whose file names a server and the variable of its key."""
    key = profile.key or "LOCAL_KEY"
    connection = f"{{kind: key, endpoint: '{profile.base_url}', apiKey: '${{env:{key}}}'}}"
    return loads(
        f"---\nmodel:\n  id: m\n  provider: {profile.provider}\n  connection: {connection}\n"
        f"  options: {OPTIONS}\n---\nuser:\nHi",
        **host,
    )


def send(internet: Internet, agent: PromptAgent) -> Arrival:
    assert run(agent, HISTORY, max_retries=0) == "Hello"
    (arrival,) = internet.arrivals
    return arrival


def url_of(arrival: Arrival) -> str:
    return arrival.path if "://" in arrival.path else arrival.origin + arrival.path


def test_every_profile_is_expected_to_do_something() -> None:
    assert set(EXPECTED) == {profile.name for profile in CHAT}


@pytest.mark.parametrize("profile", CHAT, ids=lambda profile: profile.name)
def test_a_server_gets_the_request_it_documents(
    profile: Profile, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(profile.key or "LOCAL_KEY", "the-key")
    trusted = ["https://host"] if profile.name == "compatible" else []
    expected = EXPECTED[profile.name]
    agent = load_for(profile, trusted_endpoints=trusted)
    arrival = send(internet, agent)
    body = json.loads(arrival.body)
    assert url_of(arrival) == expected.url
    assert arrival.headers[expected.header[0]] == expected.header[1]
    assert {name: value for name, value in body.items() if name not in ("model", "messages")} == expected.options
    instructions, named, called, result, _ = body["messages"]
    assert instructions == {"role": expected.developer, "content": "Be brief."}
    assert named.get("name") == expected.name
    assert {name: value for name, value in called.items() if name.startswith("reasoning")} == expected.thoughts
    (call,) = called["tool_calls"]
    assert call.get("extra_content") == (SIGNATURE if expected.signed else None)
    assert call["id"] == result["tool_call_id"]
    assert len(call["id"]) == expected.id_length
    assert ("stream_options" in explain(agent, stream=True).body) == expected.stream_options


MESSAGES = {
    "anthropic": ("https://api.anthropic.com/v1/messages", "authorization", "Bearer the-key", "2026-10-21"),
    "bedrock-anthropic": (
        "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1/messages",
        "x-api-key",
        "the-key",
        "2023-06-01",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_server_of_messages_gets_its_version_and_its_key(
    name: str, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (profile,) = [profile for profile in PROFILES if profile.name == name]
    monkeypatch.setenv(str(profile.key), "the-key")
    internet.answer = json.dumps(Messages().whole("Hello")).encode()
    agent = load_for(profile)
    arrival = send(internet, agent.model_copy(update={"model": agent.model.model_copy(update={"options": NO_OPTIONS})}))
    url, header, value, version = MESSAGES[name]
    assert (url_of(arrival), arrival.headers[header], arrival.headers["anthropic-version"]) == (url, value, version)
    assert json.loads(arrival.body)["max_tokens"] == 4096


NO_OPTIONS = PromptAgent.model_validate({"model": "m"}).model.options

# Whoever names a server, it gets the same request.
ADDRESSES = ("file", "environment", "reference")


def agent_by(way: str, url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[PromptAgent, list[openai.OpenAI]]:
    connection: dict[str, Any] | None = None
    clients: list[openai.OpenAI] = []
    if way == "file":
        connection = {"kind": "key", "endpoint": url, "apiKey": "k"}
    elif way == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
    else:
        clients.append(openai.OpenAI(base_url=url, api_key="k"))
        monkeypatch.setattr(DEFAULT, "connections", Connections())
        register_connection("mine", *clients)
        connection = {"kind": "reference", "name": "mine"}
    model = {"id": "m", "connection": connection, "options": {"maxOutputTokens": 5}}
    tool = {"name": "look", "kind": "function", "parameters": []}
    return PromptAgent.model_validate({"model": model, "tools": [tool], "instructions": "user:\nHi"}), clients


def look() -> str:
    return "seen"


@pytest.mark.spec(
    "001 Interleaved Thinking",
    "thoughts go back to whatever server a request reaches, also one that the file does not name",
)
@pytest.mark.parametrize("way", ADDRESSES)
def test_thoughts_go_back_to_the_server_that_a_request_reaches(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"id": LONG_ID, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    signed = {**call, "extra_content": SIGNATURE}
    chat = Chat()
    thinking = chat.whole("", "tool_calls", tool_calls=[signed], reasoning_content="hm")
    with Server() as server:
        server.answer(json_reply(thinking), json_reply(chat.whole("Done")))
        agent, clients = agent_by(way, f"{server.url}/v1", monkeypatch)
        try:
            assert turn(agent, tools={"look": look}) == "Done"
        finally:
            for client in clients:
                client.close()
        close_clients()
    sent = server.requests[-1].body["messages"][1]
    assert (sent["reasoning_content"], sent["tool_calls"]) == ("hm", [signed])


@pytest.mark.parametrize("way", ADDRESSES)
def test_the_fields_of_a_server_follow_its_address(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, clients = agent_by(way, "https://api.mistral.ai/v1", monkeypatch)
    shown = explain(agent)
    for client in clients:
        client.close()
    assert (shown.body["max_tokens"], "max_completion_tokens" in shown.body) == (5, False)
    assert shown.url == "https://api.mistral.ai/v1/chat/completions"


def test_options_that_a_server_refuses_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    (gemini,) = [profile for profile in PROFILES if profile.name == "gemini"]
    assert set(explain(load_for(gemini)).dropped) == {"seed", "frequencyPenalty"}


# What a server documents beside chat, and whether its chat takes the schema of `outputs`.
FACTS = {
    "openrouter": (("chat", "responses", "embedding"), True),
    "deepseek": (("chat", "responses"), False),
    "xai": (("chat", "responses"), True),
}


@pytest.mark.parametrize(("name", "facts"), FACTS.items(), ids=list(FACTS))
def test_a_profile_knows_the_apis_of_its_server_and_whether_chat_takes_a_schema(
    name: str, facts: tuple[tuple[str, ...], bool]
) -> None:
    (profile,) = [profile for profile in PROFILES if profile.name == name]
    assert (profile.apis, profile.json_schema) == facts


def test_a_schema_that_a_server_refuses_is_still_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving it out would hide the mistake until an answer is not JSON."""
    monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
    (deepseek,) = [profile for profile in PROFILES if profile.name == "deepseek"]
    agent = load_for(deepseek)
    outputs = PromptAgent.model_validate({"model": "m", "outputs": {"city": {"kind": "string"}}}).outputs
    body: Any = explain(agent.model_copy(update={"outputs": outputs})).body
    assert body["response_format"]["type"] == "json_schema"


UNKNOWN = (
    "http://10.0.0.1:11434/v1",
    "http://vllm/v1",
    "https://api.groq.com.example/v1",
    "https://bedrock-runtime.s3.amazonaws.com/openai/v1",
    "https://api.openai.com@models.example/v1",
    "not a url",
)


@pytest.mark.parametrize("url", UNKNOWN)
def test_a_server_that_is_not_known_is_a_compatible_one(url: str) -> None:
    assert find_profile(url).name == "compatible"


def test_an_api_that_a_host_changed_stays_changed() -> None:
    openai_provider = DEFAULT[PROVIDERS].get("openai")
    changed = replace(openai_provider.api("chat"), headers=lambda _: {"x-own": "yes"})
    model = {"id": "m", "connection": {"endpoint": "https://api.mistral.ai/v1"}, "options": {"maxOutputTokens": 5}}
    agent = PromptAgent.model_validate({"model": model})
    api = replace(openai_provider, apis={"chat": changed}).api_for(agent)
    assert api.headers(fit_request(agent, api)) == {"x-own": "yes"}
    assert api.request(fit_request(agent, api), [user("Hi")], [])["max_tokens"] == 5
    own = replace(changed, request=lambda *_: {"own": True})
    assert replace(openai_provider, apis={"chat": own}).api_for(agent) is own


# Keys of a server go to that server.


@pytest.mark.parametrize(
    ("variable", "endpoint", "refused"),
    [
        ("GROQ_API_KEY", "https://api.groq.com/openai/v1", False),
        ("OTHER_KEY", "https://api.groq.com/openai/v1", True),
        ("GROQ_API_KEY", "https://api.mistral.ai/v1", True),
        ("GROQ_API_KEY", "https://api.groq.com:8443/openai/v1", True),
        ("GROQ_API_KEY", "http://api.groq.com/openai/v1", True),
        ("GROQ_API_KEY", "https://api.groq.com.example/openai/v1", True),
    ],
)
def test_a_key_from_the_environment_goes_to_the_server_it_is_for(
    variable: str, endpoint: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "for-groq")
    monkeypatch.setenv("OTHER_KEY", "for-another")
    connection = f"{{kind: key, endpoint: '{endpoint}', apiKey: '${{env:{variable}}}'}}"
    agent = loads(f"---\nmodel:\n  id: m\n  connection: {connection}\n---\nuser:\nHi", registry=Registry())
    assert (explain(agent).refused is not None) == refused
