"""One reader of a model's name, in five places: what each name calls, with which key, or that nothing leaves."""

from collections.abc import Iterator

import httpx2
import pytest

from prompty import PromptAgent, Registry, invoke, loads
from prompty.cases.project_file import Project, override_in_project
from prompty.errors import PromptyError
from prompty.pipeline.model_override import override_model
from prompty.providers import use_client

OPENAI, ANTHROPIC, GROQ = (
    ("api.openai.com", "key-openai"),
    ("api.anthropic.com", "key-anthropic"),
    ("api.groq.com", "key-groq"),
)
HERE = ("localhost", "")
NOTHING = ("", "")
# name → the host and the key that a call uses, and the id that it sends
NAMES: dict[str, tuple[tuple[str, str], str]] = {
    # servers and providers
    "ollama:llama3.2": (HERE, "llama3.2"),
    "ollama:hf.co/org/model": (HERE, "hf.co/org/model"),
    "llama.cpp:tiny": (HERE, "tiny"),
    "vllm:Qwen/Qwen3-8B": (HERE, "Qwen/Qwen3-8B"),
    "lm-studio:tiny": (HERE, "tiny"),
    "groq:llama-3.3-70b-versatile": (GROQ, "llama-3.3-70b-versatile"),
    "groq:openai/gpt-oss-120b": (GROQ, "openai/gpt-oss-120b"),
    "anthropic:claude-sonnet-4-5": (ANTHROPIC, "claude-sonnet-4-5"),
    "anthropic:claude-haiku-5-5": (ANTHROPIC, "claude-haiku-5-5"),
    "mistral:mistral-large-latest": (("api.mistral.ai", "key-mistral"), "mistral-large-latest"),
    "mistral:codestral-latest": (("api.mistral.ai", "key-mistral"), "codestral-latest"),
    "deepseek:deepseek-chat": (("api.deepseek.com", "key-deepseek"), "deepseek-chat"),
    "xai:grok-4": (("api.x.ai", "key-xai"), "grok-4"),
    "gemini:gemini-2.5-pro": (("generativelanguage.googleapis.com", "key-gemini"), "gemini-2.5-pro"),
    "openrouter:anthropic/claude-sonnet-4": (("openrouter.ai", "key-openrouter"), "anthropic/claude-sonnet-4"),
    "cerebras:qwen-3-32b": (("api.cerebras.ai", "key-cerebras"), "qwen-3-32b"),
    "openai:gpt-6-luna": (OPENAI, "gpt-6-luna"),
    "openai:chatgpt-4o-latest": (OPENAI, "chatgpt-4o-latest"),
    "openai:codex-mini-latest": (OPENAI, "codex-mini-latest"),
    "openai:ft:gpt-4o:acme::x": (OPENAI, "ft:gpt-4o:acme::x"),
    # ids of OpenAI, and unknown prefixes
    "gpt-6-luna": (OPENAI, "gpt-6-luna"),
    "o3": (OPENAI, "o3"),
    "chatgpt-4o-latest": (OPENAI, "chatgpt-4o-latest"),
    "ft:gpt-4o:acme::x": (OPENAI, "ft:gpt-4o:acme::x"),
    "arn:aws:bedrock:x/y": (OPENAI, "arn:aws:bedrock:x/y"),
    "house:model-1": (OPENAI, "house:model-1"),
    # families and tags without a provider
    "claude-sonnet-4-5": (NOTHING, ""),
    "Claude-3-Opus": (NOTHING, ""),
    "anthropic/claude-sonnet-4-5": (NOTHING, ""),
    "meta-llama/Llama-3-8b": (NOTHING, ""),
    "gemini-2.5-pro": (NOTHING, ""),
    "mistral-large-latest": (NOTHING, ""),
    "deepseek-chat": (NOTHING, ""),
    "qwen3": (NOTHING, ""),
    "grok-4": (NOTHING, ""),
    "llama3.2:1b": (NOTHING, ""),
    "mistral:7b": (NOTHING, ""),
    "mistral:7b-instruct-v0.3": (NOTHING, ""),
    "mistral:latest": (NOTHING, ""),
    "gpt-oss:20b": (NOTHING, ""),
    "phi:q4_0": (NOTHING, ""),
    # misspelt
    "antropic:claude": (NOTHING, ""),
    "olama:llama3.2": (NOTHING, ""),
}
EMPTY = "---\nname: x\n---\nuser:\nHi"


class Sent:
    """What left for a server, over clients that answer with an error."""

    def __init__(self, registry: Registry) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self.registry = registry
        self.client = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        for provider in ("openai", "anthropic"):
            use_client(self.client, for_=provider, registry=registry)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        key = request.headers.get("authorization", "").removeprefix("Bearer ") or request.headers.get("x-api-key", "")
        self.calls.append((request.url.host, key, request.read().decode()))
        return httpx2.Response(400, json={"error": {"message": "no"}})


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    for name in ("OPENAI", "ANTHROPIC", "GROQ", "MISTRAL", "DEEPSEEK", "XAI", "GEMINI", "OPENROUTER", "CEREBRAS"):
        monkeypatch.setenv(f"{name}_API_KEY", f"key-{name.lower()}")
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "PROMPTY_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    sent = Sent(Registry())
    yield sent
    sent.client.close()


def in_file(name: str, registry: Registry) -> PromptAgent:
    return loads(f"---\nname: x\nmodel: '{name}'\n---\nuser:\nHi", registry=registry)


def in_call(name: str, registry: Registry) -> PromptAgent:
    return override_model(loads(EMPTY, registry=registry), name)


def in_project_file(name: str, registry: Registry) -> PromptAgent:
    return override_in_project(loads(EMPTY, registry=registry), Project(model=name))


def in_test(name: str, registry: Registry) -> PromptAgent:
    return override_in_project(loads(EMPTY, registry=registry), Project(), name)


def in_fallback(name: str, registry: Registry) -> PromptAgent:
    text = "---\nmodel: {id: first, connection: {kind: anonymous, endpoint: 'http://127.0.0.1:9/v1'}}\n"
    return loads(f"{text}metadata: {{fallbacks: ['{name}']}}\n---\nuser:\nHi", registry=registry)


@pytest.mark.parametrize("place", [in_file, in_call, in_project_file, in_test])
@pytest.mark.parametrize(("name", "expected"), NAMES.items(), ids=NAMES)
def test_a_name_calls_the_same_server_with_the_same_key_wherever_it_stands(
    place: object, name: str, expected: tuple[tuple[str, str], str], sent: Sent
) -> None:
    (host, key), id = expected
    with pytest.raises(PromptyError) as caught:
        invoke(place(name, sent.registry), max_retries=0)  # type: ignore[operator]  # one of the functions above
    assert [call[:2] for call in sent.calls] == ([(host, key)] if host else [])
    assert all(f'"model":"{id}"' in call[2] for call in sent.calls)
    if not host:
        assert ":" in str(caught.value)


@pytest.mark.parametrize(("name", "expected"), NAMES.items(), ids=NAMES)
def test_a_fallback_stays_at_the_endpoint_of_the_file_unless_it_names_a_server(
    name: str, expected: tuple[tuple[str, str], str], sent: Sent
) -> None:
    (host, key), id = expected
    with pytest.raises(PromptyError):
        invoke(in_fallback(name, sent.registry), max_retries=0)
    called = [call[:2] for call in sent.calls]
    if ":" in name and name.split(":")[0] in ("antropic", "olama"):
        assert called == []
    elif id == name or not host:
        assert called == [("127.0.0.1", "")] * len(called)
    else:
        assert set(called) <= {("127.0.0.1", ""), (host, key)}


def test_the_tag_of_a_local_model_stays_beside_its_endpoint(sent: Sent) -> None:
    text = "---\nmodel: {id: 'mistral:7b', connection: {kind: anonymous, endpoint: 'http://127.0.0.1:11434/v1'}}\n"
    with pytest.raises(PromptyError):
        invoke(loads(f"{text}---\nuser:\nHi", registry=sent.registry), max_retries=0)
    assert [call[:2] for call in sent.calls] == [("127.0.0.1", "")]


def test_a_mapping_takes_a_known_server_as_its_provider(sent: Sent) -> None:
    own = "{provider: groq, id: llama-3, connection: {kind: key, apiKey: own}}"
    for model in ("{provider: groq, id: llama-3}", own):
        with pytest.raises(PromptyError):
            invoke(loads(f"---\nmodel: {model}\n---\nuser:\nHi", registry=sent.registry), max_retries=0)
    assert [call[:2] for call in sent.calls] == [("api.groq.com", "key-groq"), ("api.groq.com", "own")]


@pytest.mark.parametrize("written", ["{provider: openai, id: claude-x}", "{id: claude-x, provider: openai}"])
def test_an_author_who_names_openai_means_it(written: str, sent: Sent) -> None:
    with pytest.raises(PromptyError):
        invoke(loads(f"---\nmodel: {written}\n---\nuser:\nHi", registry=sent.registry), max_retries=0)
    assert [call[:2] for call in sent.calls] == [OPENAI]


def test_any_id_is_fine_at_another_server_that_speaks_the_format(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://gateway.example/v1")
    with pytest.raises(PromptyError):
        invoke(in_file("claude-sonnet-4-5", sent.registry), max_retries=0)
    assert sent.calls[0][0] == "gateway.example"
