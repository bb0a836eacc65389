"""What a real llama.cpp server said is said again after it has stopped, byte for byte."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from prompty import ModelError, PromptAgent, Stop, invoke, load, prepare, turn, turn_async
from prompty.pipeline.request import build_request
from prompty.providers import PROVIDERS
from prompty.providers.fitting import fit_request
from prompty.registry import DEFAULT
from prompty.testing import Player, Recorder
from tests.drivers.clients import close_clients
from tests.real.llama import llama_server
from tests.real.ways import FAMILIES, Family, Prompts, in_all_ways

QUESTION = {"question": "What is 4 to 2?"}
ADD = {
    "name": "add",
    "kind": "function",
    "parameters": {"a": {"kind": "integer", "required": True}, "b": {"kind": "integer", "required": True}},
}

each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


class Show:
    """A server that can be stopped in the middle of a test."""

    def __init__(self, folder: Path) -> None:
        self._running = ExitStack()
        self.prompts = Prompts(self._running.enter_context(llama_server(folder)), folder)

    def stop(self) -> None:
        close_clients()
        self._running.close()


@pytest.fixture
def show(tmp_path: Path) -> Iterator[Show]:
    found = Show(tmp_path)
    yield found
    found.stop()


def whole_bytes(agent: PromptAgent) -> list[bytes]:
    """The bytes of an answer in all four ways, those of streams as their chunks."""
    provider = DEFAULT[PROVIDERS].get(agent.model.provider)
    messages, api = prepare(agent, QUESTION), provider.api(agent.model.api_type)
    whole, streamed = (
        build_request(agent, messages, fit_request(agent, api), stream=stream) for stream in (False, True)
    )

    async def received() -> list[bytes]:
        transport = provider.transport_async_for(agent)
        content = await transport.send(whole)
        chunks = await transport.stream(streamed)
        try:
            return [content, *[chunk async for chunk in chunks]]
        finally:
            await chunks.aclose()

    transport = provider.transport_for(agent)
    content = transport.send(whole)
    chunks = transport.stream(streamed)
    try:
        return [content, *chunks, *asyncio.run(received())]
    finally:
        chunks.close()


@each_family
def test_bytes_and_answers_are_the_same_when_the_server_has_stopped(show: Show, family: Family, tmp_path: Path) -> None:
    path, recording = show.prompts.write(family, 7), tmp_path / "recording.jsonl"

    def ask() -> Any:
        with asyncio.Runner() as runner:
            return whole_bytes(load(path)), in_all_ways(runner, path, QUESTION)

    with Recorder(recording):
        live = ask()
    show.stop()
    with Player(recording):
        assert ask() == live
    assert len(live[0]) > 10
    with pytest.raises(ModelError, match="connection"):
        invoke(path, QUESTION, max_retries=0)


@each_family
def test_a_turn_with_tools_is_the_same_when_the_server_has_stopped(show: Show, family: Family, tmp_path: Path) -> None:
    options = {"maxOutputTokens": 400, "additionalProperties": {"tool_choice": family.must_call}}
    path, recording = show.prompts.write(family, 3, options=options, tools=[ADD]), tmp_path / "recording.jsonl"

    def take() -> list[Any]:
        """Turns of two rounds each; the model never ends one by itself, for it must call."""
        added: list[tuple[int, int]] = []

        def add(a: int, b: int) -> int:
            added.append((a, b))
            return a + b

        common: dict[str, Any] = {"tools": [add], "stop": Stop.steps(2), "timeout": 60.0}
        with turn(path, QUESTION, stream=True, **common) as events:
            told = [str(type(event)) for event in events.events()]
        return [turn(path, QUESTION, **common), told, asyncio.run(turn_async(path, QUESTION, **common)), added]

    with Recorder(recording):
        live = take()
    show.stop()
    with Player(recording):
        assert take() == live
    assert len(live[-1]) >= 3


def test_an_error_of_the_server_is_the_same_when_it_has_stopped(show: Show, tmp_path: Path) -> None:
    path, recording = show.prompts.write(FAMILIES["chat"]), tmp_path / "recording.jsonl"

    def fail() -> tuple[str, int | None, bool]:
        with pytest.raises(ModelError, match="exceeds the available context size") as caught:
            invoke(path, {"question": "word " * 5000})
        return caught.value.cause, caught.value.status, caught.value.retryable

    with Recorder(recording):
        live = fail()
    show.stop()
    with Player(recording):
        assert fail() == live
    assert live[1:] == (400, False)
    assert os.stat(recording).st_mode & 0o777 == 0o600
