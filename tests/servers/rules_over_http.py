"""The providers' rules over HTTP, under the providers' own names: a `RulesServer` behind a proxy on the loopback
interface, and prompts for it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from prompty import PromptAgent, loads
from prompty.certificates import load_certificates
from prompty.providers import facts
from tests.drivers.clients import close_clients
from tests.internet import Arrival, Internet, Response
from tests.servers.rules import Received
from tests.servers.rules_server import RulesServer

HOSTS = (
    "api.openai.com",
    "api.anthropic.com",
    "api.deepseek.com",
    "api.mistral.ai",
    "api.groq.com",
    "api.x.ai",
    "generativelanguage.googleapis.com",
    "api.cerebras.ai",
    "openrouter.ai",
    "res.openai.azure.com",
    "resource.services.ai.azure.com",
    "models.example",
)
KEYS = ("OPENAI", "ANTHROPIC", "AZURE_OPENAI", "DEEPSEEK", "MISTRAL", "GROQ", "GEMINI", "CEREBRAS", "OPENROUTER", "XAI")
TODAY = date(2026, 11, 17)
LOOK = {
    "name": "look",
    "kind": "function",
    "parameters": {
        "at": {"kind": "string", "required": True},
        "kind": {"kind": "string", "enumValues": ["near", "far"]},
        "times": {"kind": "integer"},
        "places": {"kind": "array", "items": {"kind": "object", "properties": {"name": {"kind": "string"}}}},
    },
}
WAIT = {"name": "wait", "kind": "function", "parameters": {"seconds": {"kind": "float", "required": True}}}
ENDPOINTS = {
    "openai": None,
    "deepseek": "https://api.deepseek.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "mistral": "https://api.mistral.ai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "xai": "https://api.x.ai/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "azure": "https://res.openai.azure.com",
    "local": "http://models.example:8000/v1",
}
# A server and a model: the provider of the file, where it goes, the API, the model.
SERVERS: dict[str, tuple[str, str | None, str, str]] = {
    "openai chat": ("openai", None, "chat", "gpt-4o"),
    "openai responses": ("openai", None, "responses", "gpt-6-luna"),
    "anthropic": ("anthropic", None, "chat", "claude-opus-5-5"),
    "deepseek": ("openai", ENDPOINTS["deepseek"], "chat", "deepseek-v4-pro"),
    "gemini": ("openai", ENDPOINTS["gemini"], "chat", "gemini-3-pro"),
    "mistral": ("openai", ENDPOINTS["mistral"], "chat", "mistral-large-latest"),
    "groq": ("openai", ENDPOINTS["groq"], "chat", "qwen/qwen3-32b"),
    "xai": ("openai", ENDPOINTS["xai"], "chat", "grok-4.6"),
    "cerebras": ("openai", ENDPOINTS["cerebras"], "chat", "gpt-oss-120b"),
    "openrouter": ("openai", ENDPOINTS["openrouter"], "chat", "openai/gpt-6-luna"),
    "azure": ("azure", ENDPOINTS["azure"], "chat", "deployed"),
    "local": ("openai", ENDPOINTS["local"], "responses", "gpt-6-luna"),
    "scripted": ("scripted", None, "messages", "m"),
}
every_server = pytest.mark.parametrize("name", SERVERS)


def agent_of(name: str, **parts: Any) -> PromptAgent:
    provider, endpoint, api, model = SERVERS[name]
    connection = {"kind": "key", "endpoint": endpoint} if endpoint else None
    made = {"id": model, "provider": provider, "apiType": api, "connection": connection, **parts.pop("model", {})}
    return PromptAgent.model_validate({"model": made, "instructions": "system:\nBe kind.\nuser:\nHi", **parts})


def load_with(model: str, options: str = "{}", provider: str = "openai", api: str = "chat") -> PromptAgent:
    header = f"model: {{id: {model}, provider: {provider}, apiType: {api}, options: {options}}}"
    return loads(f"---\n{header}\n---\nuser:\nHi")


def look(at: str, kind: str, times: int, places: list[Any]) -> str:
    assert (at, kind, times, places) == ("text", "near", 1, [{"name": "text"}])
    return "seen"


def wait(seconds: float) -> str:
    return f"waited {seconds}"


@contextmanager
def serve_rules(server: RulesServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    """Let a server answer for the hosts of the providers, and give each provider a key."""
    with Internet(folder, HOSTS, lambda arrival: answer(server, arrival)) as internet:
        internet.use(monkeypatch.setenv)
        monkeypatch.setenv("NO_PROXY", "")
        for name in KEYS:
            monkeypatch.setenv(f"{name}_API_KEY", "sk-of-a-test")
            monkeypatch.delenv(f"{name}_BASE_URL", raising=False)
        load_certificates.cache_clear()
        try:
            yield internet
        finally:
            close_clients()
            load_certificates.cache_clear()


def answer(server: RulesServer, arrival: Arrival) -> Response:
    """Let a server answer a request."""
    url = urlsplit(arrival.path if "://" in arrival.path else arrival.origin + arrival.path)
    body = json.loads(arrival.body) if arrival.body else {}
    received = Received(url.hostname or "", url.path, arrival.headers, body, dict(parse_qsl(url.query)))
    status, chunks = server.answer(received, arrival.method)
    if status == 200 and body.get("stream"):
        return Response(status, {"Content-Type": "text/event-stream"}, chunks)
    return Response(status, {"Content-Type": "application/json"}, b"".join(chunks))


@pytest.fixture
def without_facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send requests as the files say, so that there is something to refuse."""

    def forget() -> None:
        facts._find.cache_clear()

    monkeypatch.setattr(facts, "_list_tables", lambda _: ())
    forget()
    yield
    forget()
