"""Within a script or a replayed recording no provider connects, whatever the file says."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from prompty import Message, PromptAgent, invoke, load, turn
from prompty.errors import RequestError
from prompty.providers import PROVIDERS, register_executor, register_processor
from prompty.registry import DEFAULT
from prompty.testing import Player, Recorder, RecordingMissing, Script, call
from tests.loopback import Server
from tests.ways import SYNC, Way, every_way

KEYS = ("openai", "azure", "foundry", "anthropic", "scripted")
CONNECTIONS: dict[str, dict[str, object] | None] = {
    "no connection": None,
    "a key": {"kind": "key", "apiKey": "sk-0123456789abcdef", "endpoint": "{url}"},
    "a key without a value": {"kind": "key", "endpoint": "{url}"},
    "anonymous": {"kind": "anonymous", "endpoint": "{url}"},
    "a token of the machine": {"kind": "foundry", "endpoint": "{url}"},
    "a client nobody registered": {"kind": "reference", "name": "nobody"},
}
TEXT_APIS = [
    (provider, api)
    for provider in KEYS
    for api in DEFAULT[PROVIDERS].get(provider).apis
    if api not in ("embedding", "image")
]
OTHER_APIS = [
    (provider, api)
    for provider in KEYS
    for api in ("embedding", "image")
    if api in DEFAULT[PROVIDERS].get(provider).apis
]
LOOK = {"name": "look", "kind": "function", "parameters": [{"name": "at", "kind": "string"}]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that everything in the environment leads to, and that nobody may reach."""
    with Server() as server:
        for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "AZURE_OPENAI_ENDPOINT"):
            monkeypatch.setenv(variable, server.url)
        for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY"):
            monkeypatch.setenv(variable, "sk-of-the-environment")
        yield server
        assert server.accepted == 0


def agent_of(provider: str, api: str, server: Server, connection: dict[str, object] | None) -> PromptAgent:
    parts = {name: str(value).format(url=server.url) for name, value in (connection or {}).items()}
    model: dict[str, Any] = {"id": "m", "provider": provider, "apiType": api, "connection": parts or None}
    return PromptAgent.model_validate({"model": model, "instructions": "user:\nHi", "tools": [LOOK]})


@pytest.mark.parametrize("connection", CONNECTIONS.values(), ids=CONNECTIONS)
@pytest.mark.parametrize(("provider", "api"), TEXT_APIS)
@every_way
def test_a_script_answers_for_every_provider(
    way: Way, provider: str, api: str, connection: dict[str, object] | None, server: Server
) -> None:
    agent = agent_of(provider, api, server, connection)
    with Script(call("look", at="the sky"), "It is blue.") as script:
        seen = way.turn(agent, tools=[look])
    assert (seen.result, seen.error) == ("It is blue.", None)
    assert len(script.requests) == 2
    if way.streamed:
        assert seen.text == "It is blue."


@pytest.mark.parametrize(("provider", "api"), OTHER_APIS)
@every_way
def test_a_script_refuses_embeddings_and_images(way: Way, provider: str, api: str, server: Server) -> None:
    with Script("Hello") as script:
        seen = way.invoke(agent_of(provider, api, server, CONNECTIONS["a key"]))
    assert isinstance(seen.error, RequestError)
    assert "a script cannot answer requests to '/" in str(seen.error)
    assert script.requests == []


@pytest.mark.parametrize(("provider", "api"), TEXT_APIS + OTHER_APIS)
@every_way
def test_a_replayed_recording_connects_to_nobody(
    way: Way, provider: str, api: str, server: Server, tmp_path: Path
) -> None:
    agent, recording = agent_of(provider, api, server, CONNECTIONS["no connection"]), tmp_path / "r.jsonl"
    with Player(recording), pytest.raises(RecordingMissing):
        raise way.invoke(agent).error or AssertionError("an answer")
    if (provider, api) in OTHER_APIS:
        return
    with Script("Hello"), Recorder(recording):
        recorded = way.invoke(agent)
    with Player(recording):
        assert way.invoke(agent).result == recorded.result == "Hello"


@pytest.mark.parametrize("outer", [True, False], ids=["recorder outside", "script outside"])
def test_a_recorder_beside_a_script_records_the_script(outer: bool, server: Server, tmp_path: Path) -> None:
    agent, recorder = agent_of("openai", "chat", server, None), Recorder(tmp_path / "r.jsonl")
    with recorder if outer else nullcontext(), Script("Hello"), nullcontext() if outer else recorder:
        assert invoke(agent) == "Hello"
    with Player(tmp_path / "r.jsonl"):
        assert invoke(agent) == "Hello"


def test_a_script_answers_for_fallbacks_and_children(server: Server, tmp_path: Path) -> None:
    connection = {"kind": "key", "apiKey": "k" * 20, "endpoint": server.url}
    child = tmp_path / "child.prompty"
    child.write_text(
        "---\nmodel:\n  id: c\n  provider: anthropic\n"
        f"  connection: {{kind: key, apiKey: kkkkkkkk, endpoint: '{server.url}'}}\n---\nuser:\nChild\n"
    )
    path = tmp_path / "parent.prompty"
    path.write_text(
        "---\nmodel: {id: m, provider: openai}\ntools:\n  - {name: child, kind: prompty, path: ./child.prompty}\n"
        "---\nuser:\nHi\n"
    )
    with Script(call("child"), "from the child", "done") as script:
        assert turn(path, fallbacks=[{"id": "f", "provider": "azure", "connection": connection}]) == "done"
    assert [body["model"] for body in script.requests] == ["m", "c", "m"]


def test_nothing_is_checked_for_an_endpoint_that_a_script_replaces(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "p.prompty"
    path.write_text(
        "---\nmodel:\n  id: m\n  provider: openai\n  connection:\n    kind: key\n"
        "    endpoint: https://nobody.invalid/v1\n    apiKey: ${env:OPENAI_API_KEY}\n---\nuser:\nHi\n"
    )
    agent = load(path)
    with pytest.raises(RequestError):
        invoke(agent)
    with Script("Hello"):
        assert invoke(agent) == "Hello"


@pytest.mark.usefixtures("clean_registry")
def test_an_executor_of_the_host_runs_within_a_script(server: Server) -> None:
    """It is code of the host, like a tool. To replace it, register another one."""
    register_executor("openai", Echo())
    register_processor("openai", Echo())
    with Script("Hello") as script:
        assert SYNC.invoke(agent_of("openai", "chat", server, None)).result == "echo of Hi"
    assert script.requests == []


class Echo:
    """An executor and a processor."""

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> object:
        return f"echo of {messages[-1].text}"

    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> object:
        return self.execute(agent, messages)

    def process(self, agent: PromptAgent, response: object, /) -> object:
        return response

    async def process_async(self, agent: PromptAgent, response: object, /) -> object:
        return response


def look(at: str) -> str:
    return f"at {at}"
