"""The caller chooses the model: `model=`, `options=` and PROMPTY_MODEL, in every function that runs a prompt."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

import prompty
from prompty import Message, PromptAgent, loads, pipeline
from prompty.durable.record import new_record, record_from, stored_agent
from prompty.errors import ModelError, RequestError, WrongArgument
from prompty.model.connection import AnonymousConnection, ApiKeyConnection
from prompty.pipeline.model_override import override_model, split_model
from prompty.providers import PROVIDERS, register_executor, register_processor, register_provider
from prompty.providers.anthropic.connection import find_endpoint as find_anthropic_endpoint
from prompty.providers.openai import PROVIDER
from prompty.providers.openai.connection import find_endpoint
from prompty.providers.profiles import PROFILES
from prompty.registry import DEFAULT, Registry
from prompty.testing import Script, call

FILE = """---
model:
  id: gpt-4o
  provider: openai
  connection: {kind: key, endpoint: "https://models.example/v1", apiKey: sk-written-in-the-file}
  options: {temperature: 0.5, maxOutputTokens: 9, additionalProperties: {store: true}}
---
user:
Hi
"""
BARE = "user:\nHi"
SERVERS = [profile for profile in PROFILES if profile.hosts and not DEFAULT[PROVIDERS].has(profile.name)]


@pytest.fixture(autouse=True)
def _no_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMPTY_MODEL", raising=False)


@pytest.mark.parametrize(
    ("model", "provider", "id"),
    [
        ("gpt-5", "openai", "gpt-5"),
        ("llama3:8b", "openai", "llama3:8b"),
        ("openai:gpt-5", "openai", "gpt-5"),
        ("openai:ft:gpt-5:mine", "openai", "ft:gpt-5:mine"),
        ("anthropic:claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("azure:gpt-5", "azure", "gpt-5"),
        ("groq:llama-3.3-70b", "openai", "llama-3.3-70b"),
        ("ollama:llama3:8b", "openai", "llama3:8b"),
        ("llama.cpp:tiny", "openai", "tiny"),
        ("bedrock-anthropic:claude", "anthropic", "claude"),
        ("meta-llama/llama-3:free", "openai", "meta-llama/llama-3:free"),
        ("compatible:m", "openai", "compatible:m"),
        ("llama:7b", "openai", "llama:7b"),
        ("llava:latest", "openai", "llava:latest"),
        ("mixtral:8x7b-instruct-q4_0", "openai", "mixtral:8x7b-instruct-q4_0"),
        ("ft:gpt-6-luna:acme", "openai", "ft:gpt-6-luna:acme"),
        ("anthropic.claude-v1:0", "openai", "anthropic.claude-v1:0"),
    ],
)
def test_a_prefix_is_split_off_only_if_it_is_a_provider_or_a_known_server(model: str, provider: str, id: str) -> None:
    chosen = override_model(loads(FILE), model).model
    assert (chosen.provider, chosen.id) == (provider, id)


@given(st.text() | st.builds("{}:{}".format, st.sampled_from([one.name for one in PROFILES]) | st.text(), st.text()))
@example(":")
@example("openai:")
def test_splitting_loses_nothing(model: str) -> None:
    try:
        provider, id = split_model(model, DEFAULT)
    except RequestError as error:
        assert "Did you mean" in error.fix
        return
    assert model == (id if provider is None else f"{provider}:{id}")
    assert provider is None or ":" not in provider


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("opnai:gpt-5", "openai:gpt-5"),
        ("Groq:m", "groq:m"),
        ("antropic:claude", "anthropic:claude"),
        ("olama:llama3.2:3b", "ollama:llama3.2:3b"),
        ("azrue:gpt-5", "azure:gpt-5"),
    ],
)
def test_a_misspelt_provider_is_an_error_with_the_right_one(model: str, meant: str) -> None:
    with pytest.raises(RequestError, match=f"Did you mean '{meant}'"):
        override_model(loads(FILE), model)
    assert override_model(loads(FILE), model, provider="openai").model.id == model
    assert override_model(loads(FILE), f"openai:{model}").model.id == model


def test_a_provider_of_the_host_is_a_prefix_and_takes_precedence_over_a_known_server() -> None:
    registry = Registry()
    register_provider("groq", PROVIDER, registry=registry)
    register_provider("mine", PROVIDER, registry=registry)
    agent = loads(FILE, registry=registry)
    assert override_model(agent, "mine:m").model.provider == "mine"
    assert override_model(agent, "groq:m").model.provider == "groq"
    assert override_model(agent, "groq:m").model.connection is None


def test_another_provider_gets_neither_the_connection_nor_the_special_options_of_the_file() -> None:
    agent = loads(FILE)
    other = override_model(agent, "anthropic:claude").model
    assert other.connection is None
    assert (other.options.temperature, other.options.additional_properties) == (0.5, None)
    same = override_model(agent, "openai:gpt-5").model
    assert (same.connection, same.options) == (agent.model.connection, agent.model.options)


@pytest.mark.parametrize("profile", SERVERS, ids=lambda one: str(one.name))
def test_a_known_server_is_reached_at_its_own_address_with_its_own_key(
    profile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in PROFILES:
        monkeypatch.setenv(one.key or "UNUSED", f"key-of-{one.key}")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-openai")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for agent in (loads(FILE), PromptAgent.model_validate({"model": "m", "instructions": "user:\nHi"})):
        chosen = override_model(agent, f"{profile.name}:m")
        provider = chosen.registry[PROVIDERS].get(chosen.model.provider)
        endpoint = (find_anthropic_endpoint if profile.provider == "anthropic" else find_endpoint)(chosen)
        provider.connect(chosen)
        assert endpoint.base_url.rstrip("/") == profile.base_url.rstrip("/")
        sent = repr(endpoint.headers) + repr(getattr(endpoint.credential, "key", ""))
        if profile.base_url.startswith("http://localhost"):
            assert isinstance(chosen.model.connection, AnonymousConnection)
            assert "key-of" not in sent
        else:
            assert isinstance(chosen.model.connection, ApiKeyConnection)
            assert f"key-of-{profile.key}" in sent
        assert "org-of-openai" not in sent
        assert "key-of" not in repr(chosen)


def test_a_known_server_without_its_key_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-openai-only")
    with pytest.raises(RequestError, match="Set GROQ_API_KEY"):
        prompty.invoke(loads(BARE), model="groq:m")


CALLS: dict[str, Any] = {
    "invoke": prompty.invoke,
    "turn": prompty.turn,
    "stream": lambda agent, **options: prompty.invoke(agent, stream=True, **options).result,
    "invoke_async": lambda agent, **options: asyncio.run(prompty.invoke_async(agent, **options)),
    "turn_async": lambda agent, **options: asyncio.run(prompty.turn_async(agent, **options)),
    "run": lambda agent, **options: pipeline.run(agent, prompty.prepare(agent), **options),
    "run_async": lambda agent, **options: asyncio.run(pipeline.run_async(agent, prompty.prepare(agent), **options)),
}


@pytest.mark.parametrize("call_prompt", CALLS.values(), ids=CALLS)
def test_every_function_takes_a_model_and_options(call_prompt: Any) -> None:
    with Script("Hello.") as script:
        assert call_prompt(loads(FILE), model="ollama:llama3:8b", options={"temperature": 0, "seed": 7}) == "Hello."
    (body,) = script.requests
    assert (body["model"], body["temperature"], body["seed"], body["max_tokens"]) == ("llama3:8b", 0, 7, 9)


def test_a_turn_is_resumed_with_the_model_that_is_passed_again() -> None:
    agent = loads(FILE)
    with Script(call("look"), "Done.") as script:
        options: dict[str, Any] = {"model": "m2", "tools": {"look": lambda: "seen"}, "approval": "always"}
        paused = prompty.turn(agent, **options)
        assert prompty.resume(agent, paused, [True], **options) == "Done."
    assert [body["model"] for body in script.requests] == ["m2", "m2"]


def test_options_are_named_as_in_a_file_or_as_in_python() -> None:
    for options in ({"maxOutputTokens": 3}, {"max_output_tokens": 3}):
        assert override_model(loads(FILE), options=options).model.options.max_output_tokens == 3


def test_an_option_of_none_is_removed_and_options_of_one_provider_are_joined() -> None:
    changed = override_model(loads(FILE), options={"temperature": None, "additionalProperties": {"user": "u"}})
    assert changed.model.options.temperature is None
    assert changed.model.options.additional_properties == {"store": True, "user": "u"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 1}, "unknown model option `temprature`\n    Did you mean `temperature`?"),
        ({"max_tokens": 1}, "unknown model option `max_tokens`\n    Did you mean `maxOutputTokens`?"),
        ({"zzz": 1}, "unknown model option `zzz`\n    Provider-specific options go under `additionalProperties`."),
        ({"temperature": "warm"}, "the model option `temperature` is invalid: Input should be a valid number"),
    ],
)
def test_options_are_checked_before_anything_is_sent(options: Mapping[str, object], words: str) -> None:
    with Script() as script, pytest.raises(RequestError) as caught:
        prompty.invoke(loads(FILE), options=options)
    assert words in str(caught.value)
    assert script.requests == []


@pytest.mark.parametrize("options", [{"model": 3}, {"options": ["temperature"]}])
def test_a_model_and_options_of_another_type_are_refused(options: Any) -> None:
    with pytest.raises(WrongArgument):
        prompty.invoke(loads(FILE), **options)


def test_the_file_is_not_changed() -> None:
    agent = loads(FILE)
    override_model(agent, "groq:m", {"temperature": 1})
    assert agent == loads(FILE)
    assert agent.trust.uses == loads(FILE).trust.uses


@pytest.mark.parametrize("call_prompt", CALLS.values(), ids=CALLS)
def test_the_default_model_fills_only_a_gap(call_prompt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_MODEL", "ollama:from:environment")
    with Script("1", "2", "3") as script:
        call_prompt(loads(BARE))
        call_prompt(loads(FILE))
        call_prompt(loads(BARE), model="from-the-caller")
    assert [body["model"] for body in script.requests] == ["from:environment", "gpt-4o", "from-the-caller"]


def test_the_default_model_may_come_from_a_dotenv_file() -> None:
    registry = Registry()
    registry.dotenv = {"PROMPTY_MODEL": "from-dotenv"}
    with Script("1") as script:
        prompty.invoke(loads(BARE, registry=registry))
    assert script.requests[0]["model"] == "from-dotenv"


class _Executor:
    """A model of the host that knows its own name."""

    def execute(self, agent: PromptAgent, messages: list[Message], /) -> object:
        return f"{agent.model.provider}/{agent.model.id}"

    async def execute_async(self, agent: PromptAgent, messages: list[Message], /) -> object:
        return self.execute(agent, messages)

    def process(self, agent: PromptAgent, response: object, /) -> object:
        return response

    async def process_async(self, agent: PromptAgent, response: object, /) -> object:
        return response


def test_the_default_model_does_not_replace_an_executor_that_knows_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTY_MODEL", "openai:gpt-5")
    registry = Registry()
    register_executor("own", _Executor(), registry=registry)  # type: ignore[arg-type]  # a list is a sequence
    register_processor("own", _Executor(), registry=registry)
    agent = loads("---\nmodel: {provider: own}\n---\nuser:\nHi", registry=registry)
    assert prompty.invoke(agent) == "own/"
    assert prompty.invoke(agent, model="own:big") == "own/big"


def test_without_a_model_the_error_names_every_way_to_choose_one() -> None:
    with Script(), pytest.raises(RequestError) as caught:
        prompty.invoke(loads(BARE))
    assert caught.value.fix == "Pass model='provider:id', write `model: <id>` in the file, or set PROMPTY_MODEL."
    assert "--model" not in str(caught.value)
    assert "Pass --model provider:id, write" in caught.value.for_command_line()
    assert "model='" not in caught.value.for_command_line()


def test_the_error_of_a_file_without_a_model_has_its_place_and_the_fix_of_the_caller(tmp_path: Any) -> None:
    file = tmp_path / "bare.prompty"
    file.write_text(BARE)
    with Script(), pytest.raises(RequestError) as caught:
        prompty.invoke(file)
    assert str(caught.value).startswith(f"{file}:1:1: ")
    assert "Pass model='provider:id'" in str(caught.value)
    assert "Pass --model provider:id" in caught.value.for_command_line()


def test_a_fallback_is_named_like_a_model() -> None:
    def fail(_: object) -> Any:
        raise ModelError("away", retryable=False, status=503)

    with Script(fail, "Hello.") as script:
        assert prompty.invoke(loads(FILE), fallbacks=["ollama:llama3:8b"], max_retries=0) == "Hello."
    assert script.requests[-1]["model"] == "llama3:8b"


def test_a_durable_record_has_the_model_that_the_run_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk-for-groq-only")
    chosen = override_model(loads(FILE), "groq:llama", {"temperature": 0})
    stored = new_record("run", chosen, None, {}, {}).to_json()
    assert "gsk-for-groq-only" not in repr(stored)
    agent = stored_agent(record_from(stored, "run"), {})
    assert (agent.model.id, agent.model.provider, agent.model.options.temperature) == ("llama", "openai", 0)
    assert "gsk-for-groq-only" in repr(find_endpoint(agent).headers)


def test_a_provider_with_the_same_format_gets_the_special_options_of_the_file() -> None:
    other = override_model(loads(FILE), "azure:gpt-4o").model
    assert (other.provider, other.connection) == ("azure", None)
    assert other.options.additional_properties == {"store": True}
