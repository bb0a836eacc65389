"""Providers of one's own (W14): an executor and a processor as in §7.8, or a `Provider` of one's own."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import prompty
from prompty import Message, PromptAgent, ToolCall, invoke, invoke_async, user
from prompty.errors import ModelError, RequestError, ResultError, UnknownName
from prompty.events import ModelReply, TextDelta
from prompty.pipeline import executor_of, processor_of, run
from prompty.providers import EXECUTORS, PROCESSORS, Provider, register_executor, register_processor, register_provider
from prompty.providers.endpoint import Endpoint, create_endpoint
from prompty.providers.http.transports import Transports
from prompty.providers.openai import chat
from prompty.registry import DEFAULT
from tests.drivers.clients import close_clients
from tests.drivers.wires import WIRES, Chat, Wire
from tests.loopback import Server, json_reply, stream

pytestmark = pytest.mark.usefixtures("clean_registry")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server
        close_clients()


class Echo:
    """A model that answers with what it was told."""

    def __init__(self) -> None:
        self.told: list[Sequence[Message]] = []

    def execute(self, agent: PromptAgent, messages: Sequence[Message], /) -> object:
        self.told.append(messages)
        return {"said": messages[-1].text, "by": agent.model.id}

    async def execute_async(self, agent: PromptAgent, messages: Sequence[Message], /) -> object:
        await asyncio.sleep(0)
        return self.execute(agent, messages)


class Said:
    """Reads what `Echo` answers."""

    def process(self, _: PromptAgent, response: Any, /) -> object:
        return response["said"]

    async def process_async(self, agent: PromptAgent, response: Any, /) -> object:
        await asyncio.sleep(0)
        return self.process(agent, response)


class Fixed(Said):
    """Makes the same of every answer."""

    def __init__(self, result: object) -> None:
        self.result = result

    def process(self, *_: object) -> object:
        return self.result


def agent_of(provider: str = "echo", text: str = "Hi") -> PromptAgent:
    return PromptAgent.model_validate({"model": {"id": "m", "provider": provider}, "instructions": f"user:\n{text}"})


@pytest.fixture
def echo() -> Echo:
    """A pair registered under the key `echo`."""
    executor = Echo()
    register_executor("echo", executor)
    register_processor("echo", Said())
    return executor


# An executor and a processor.


@pytest.mark.spec("002 §8", "whatever is executed is processed")
@pytest.mark.spec("000 §7.8", "an executor has execute and execute_async")
@pytest.mark.spec("000 §7.8", "a processor has process and process_async")
@pytest.mark.spec("000 §7.8", "both are registered under the provider key")
def test_a_registered_pair_answers(echo: Echo) -> None:
    assert invoke(agent_of()) == "Hi"
    assert asyncio.run(invoke_async(agent_of())) == "Hi"
    assert [message.role for message in echo.told[0]] == ["user"]
    assert executor_of(agent_of()) is echo
    assert isinstance(processor_of(agent_of()), Said)


def test_a_registered_pair_can_be_streamed(echo: Echo) -> None:
    answer = invoke(agent_of(), stream=True)
    delta, reply = [event for event in answer.events() if isinstance(event, TextDelta | ModelReply)]
    assert delta == TextDelta("Hi")
    assert isinstance(reply, ModelReply)
    assert answer.result == "Hi"
    assert list(invoke(agent_of(), stream=True)) == ["Hi"]

    async def main() -> list[Any]:
        answer = await invoke_async(agent_of(), stream=True)
        return [*[text async for text in answer], await answer.result()]

    assert asyncio.run(main()) == ["Hi", "Hi"]


def test_a_stream_that_is_never_read_executes_nothing(echo: Echo) -> None:
    invoke(agent_of(), stream=True).close()
    assert echo.told == []


def test_an_executor_gets_messages_whatever_it_is_given(echo: Echo) -> None:
    assert run(agent_of(), [{"role": "user", "content": "One"}, user("Two")]) == "Two"
    assert all(isinstance(message, Message) for message in echo.told[0])
    with pytest.raises(RequestError):
        run(agent_of(), [5])


@dataclass
class Point:
    x: int


def test_a_result_of_a_registered_pair_has_the_type_that_was_asked_for(echo: Echo) -> None:
    assert invoke(agent_of(text='{"x": 1}'), output_type=Point) == Point(1)
    with pytest.raises(ResultError, match="Point"):
        asyncio.run(invoke_async(agent_of(), output_type=Point))
    register_processor("echo", Fixed({"x": 2}))
    assert invoke(agent_of()) == {"x": 2}
    assert invoke(agent_of(), output_type=Point) == Point(2)
    assert invoke(agent_of(), output_type=Point, stream=True).result == Point(2)


def test_calls_of_a_registered_pair(echo: Echo) -> None:
    call = ToolCall(id="c", name="look")
    register_processor("echo", Fixed([call]))
    assert invoke(agent_of()) == [call]
    assert list(invoke(agent_of(), stream=True)) == [call]


class Failing(Echo):
    def execute(self, *_: object) -> object:
        raise ConnectionError("no line")


def test_an_error_of_an_executor_is_not_changed(echo: Echo) -> None:
    register_executor("echo", Failing())
    with pytest.raises(ConnectionError, match="no line"):
        invoke(agent_of())
    with pytest.raises(ConnectionError, match="no line"):
        asyncio.run(invoke_async(agent_of()))


def test_an_executor_without_a_processor_says_what_is_missing() -> None:
    register_executor("half", Echo())
    with pytest.raises(UnknownName, match="no processor is called 'half'"):
        invoke(agent_of("half"))


def test_a_provider_that_nobody_knows() -> None:
    with pytest.raises(UnknownName, match="no provider is called 'nobody'") as caught:
        invoke(agent_of("nobody"))
    assert "anthropic, azure, foundry, openai" in str(caught.value)


# In the place of a provider.


def test_a_pair_takes_the_place_of_a_provider(server: Server) -> None:
    agent = Chat().agent(server)
    register_executor("openai", Echo())
    register_processor("openai", Said())
    assert invoke(agent) == "Hi"
    assert asyncio.run(invoke_async(agent)) == "Hi"
    assert invoke(agent, stream=True).result == "Hi"
    DEFAULT[EXECUTORS].unregister("openai")
    DEFAULT[PROCESSORS].unregister("openai")
    server.answer(json_reply(Chat().whole("Hello")))
    assert invoke(agent) == "Hello"


class Recorded(Echo):
    """Gives back what the provider has answered before."""

    def execute(self, *_: object) -> object:
        return Chat().whole("Hello from the record")


def test_an_executor_alone_has_its_replies_read_by_the_provider(server: Server) -> None:
    register_executor("openai", Recorded())
    agent = Chat().agent(server)
    assert invoke(agent) == "Hello from the record"
    assert asyncio.run(invoke_async(agent)) == "Hello from the record"
    assert server.requests == []


def test_a_processor_alone_reads_the_replies_of_the_provider(server: Server) -> None:
    server.answer(json_reply({**Chat().whole("Hello"), "said": "Hello, said"}))
    register_processor("openai", Said())
    agent = Chat().agent(server)
    assert invoke(agent) == "Hello, said"
    assert asyncio.run(invoke_async(agent)) == "Hello, said"


# What installed packages bring.

MODULE = """
class Executor:
    def execute(self, agent, messages): return "raw"
    async def execute_async(self, agent, messages): return "raw async"

class Processor:
    def process(self, agent, response): return f"packaged {response}"
    async def process_async(self, agent, response): return f"packaged {response}"

EXECUTOR, PROCESSOR = Executor(), Processor()
"""
ENTRY_POINTS = """
[prompty.executors]
packaged = packaged_pair:EXECUTOR
classes = packaged_pair:Executor
openai = packaged_pair:EXECUTOR
[prompty.processors]
packaged = packaged_pair:PROCESSOR
classes = packaged_pair:Processor
openai = packaged_pair:PROCESSOR
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that brings an executor and a processor."""
    information = tmp_path / "packaged_pair-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged-pair\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "packaged_pair.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.spec("000 §7.8", "both are registered under the provider key")
@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("provider", ["packaged", "classes"])
def test_a_pair_of_an_installed_package_answers(provider: str) -> None:
    """An entry point may name a class, too: it is created without arguments."""
    assert invoke(agent_of(provider)) == "packaged raw"
    assert asyncio.run(invoke_async(agent_of(provider))) == "packaged raw async"


@pytest.mark.usefixtures("package")
def test_an_installed_package_does_not_take_the_place_of_a_provider(server: Server) -> None:
    server.answer(json_reply(Chat().whole("Hello")))
    assert invoke(Chat().agent(server)) == "Hello"


# The pair that every provider offers.


@pytest.mark.spec("000 §7.8", "an executor has execute and execute_async")
@pytest.mark.spec("000 §7.8", "a processor has process and process_async")
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_a_provider_executes_to_raw_json_and_processes_it(server: Server, wire: Wire) -> None:
    server.answer(json_reply(wire.whole("Hello")))
    agent = wire.agent(server)
    executor, processor = executor_of(agent), processor_of(agent)

    async def main() -> tuple[object, object]:
        raw = await executor.execute_async(agent, [user("Hi")])
        return raw, await processor.process_async(agent, raw)

    raw = executor.execute(agent, [user("Hi")])
    assert raw == wire.whole("Hello")
    assert processor.process(agent, raw) == "Hello"
    assert asyncio.run(main()) == (wire.whole("Hello"), "Hello")


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("response", [None, "text", [], {}, {"choices": "text", "output": 5, "content": [1]}], ids=str)
def test_a_processor_reads_or_refuses_whatever_it_is_given(wire: Wire, response: object) -> None:
    agent = wire.agent("http://127.0.0.1:9")
    try:
        assert processor_of(agent).process(agent, response) == ""
    except ModelError as error:
        assert str(error)


def test_an_executor_of_a_provider_fails_as_ours(server: Server) -> None:
    server.answer(json_reply({"error": {"message": "no"}}, 400))
    agent = Chat().agent(server)
    with pytest.raises(ModelError) as caught:
        executor_of(agent).execute(agent, [user("Hi")])
    assert caught.value.status == 400


# A provider of one's own on a known wire.


def find_endpoint(agent: PromptAgent) -> Endpoint:
    url = f"http://127.0.0.1:{agent.metadata['port']}/own/v2"
    return create_endpoint(url, {"authorization": "Bearer own-key"})


TRANSPORTS = Transports(find_endpoint)
OWN = Provider(
    key="own",
    apis={"chat": chat.API},
    transport=TRANSPORTS.get,
    transport_async=TRANSPORTS.get_async,
)


@pytest.fixture
def own_agent(server: Server) -> Iterator[PromptAgent]:
    register_provider("own", OWN)
    agent = agent_of("own").model_copy(update={"metadata": {"port": server.port}})
    yield agent
    prompty.close()


def test_a_provider_of_ones_own_speaks_a_known_wire(server: Server, own_agent: PromptAgent) -> None:
    wire = Chat()
    whole, streamed = json_reply(wire.whole("Hello")), stream(*wire.stream("Hel", "lo"))
    server.answer(whole, streamed, whole, json_reply({}, 503, {"retry-after": "0"}), streamed)

    async def main() -> list[Any]:
        answer = await invoke_async(own_agent, stream=True)
        return [item async for item in answer]

    assert invoke(own_agent) == "Hello"
    assert list(invoke(own_agent, stream=True)) == ["Hel", "lo"]
    assert asyncio.run(invoke_async(own_agent)) == "Hello"
    assert asyncio.run(main()) == ["Hel", "lo"]
    assert {request.path for request in server.requests} == {"/own/v2/chat/completions"}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer own-key"}
    assert len(server.requests) == 5


def test_a_provider_of_ones_own_offers_the_pair_too(server: Server, own_agent: PromptAgent) -> None:
    server.answer(json_reply(Chat().whole("Hello")))
    raw = executor_of(own_agent).execute(own_agent, [user("Hi")])
    assert processor_of(own_agent).process(own_agent, raw) == "Hello"
