"""A process that calls with the keys of many users, and at many origins, opens and keeps few connections."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from prompty import PromptAgent, clients, invoke, invoke_async
from tests.drivers.clients import close_clients
from tests.loopback import Hold, Server, event, json_reply, stream
from tests.transports.subject import ANSWER, create_agent
from tests.transports.test_cancellation import WORD

KEYS = 300
LAST_WORD = event({"choices": [{"index": 0, "delta": {"content": "ha"}, "finish_reason": "stop"}]})


def list_agents(url: str, count: int) -> list[PromptAgent]:
    return [create_agent(url, f"sk-of-user-{number:05}") for number in range(count)]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    """More origins than are kept."""
    monkeypatch.setattr(clients, "MAX_CLIENTS", 2)
    with ExitStack() as stack:
        servers = [stack.enter_context(Server()) for _ in range(4)]
        for server in servers:
            server.answer(json_reply(ANSWER))
        yield servers
        close_clients()


@pytest.mark.parametrize("way", ["sync", "async"])
def test_keys_of_one_origin_share_a_connection(server: Server, way: str) -> None:
    server.answer(json_reply(ANSWER))
    agents = list_agents(server.url, KEYS)

    async def call_all() -> None:
        for agent in agents:
            await invoke_async(agent)

    if way == "async":
        asyncio.run(call_all())
    else:
        for agent in agents:
            invoke(agent)
        close_clients()
    assert server.wait_until(lambda: server.open == 0)
    assert server.accepted == 1
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == [f"Bearer sk-of-user-{number:05}" for number in range(KEYS)]


def count_open(servers: list[Server]) -> list[int]:
    return [server.open for server in servers]


def wait_until_open(servers: list[Server], expected: list[int]) -> None:
    for server, count in zip(servers, expected, strict=True):
        assert server.wait_until(lambda server=server, count=count: server.open == count), count_open(servers)  # type: ignore[misc]  # a lambda with defaults


@pytest.mark.parametrize("way", ["sync", "async"])
def test_only_the_connections_of_the_last_origins_stay_open(servers: list[Server], way: str) -> None:
    agents = [create_agent(server.url, "sk-of-all") for server in servers]

    async def call_all() -> None:
        for agent in [*agents[:2], agents[0], agents[2]]:
            await invoke_async(agent)
        await asyncio.to_thread(wait_until_open, servers, [1, 0, 1, 0])

    if way == "async":
        asyncio.run(call_all())
    else:
        for agent in [*agents[:2], agents[0], agents[2]]:
            invoke(agent)
        wait_until_open(servers, [1, 0, 1, 0])
        close_clients()
    wait_until_open(servers, [0] * 4)


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_call_in_flight_goes_on_while_others_take_its_place(servers: list[Server], way: str) -> None:
    hold = Hold()
    servers[0].answer(stream(WORD, hold, LAST_WORD, event("[DONE]")))
    agents = [create_agent(server.url, "sk-of-all") for server in servers]

    def call_others() -> list[object]:
        with invoke(agents[0], stream=True) as answer:
            rest = iter(answer)
            words: list[object] = [next(rest)]
            for agent in agents[1:]:
                invoke(agent)
            hold.release()
            words += list(rest)
        wait_until_open(servers, [0, 0, 1, 1])
        return words

    async def call_others_async() -> list[object]:
        async with await invoke_async(agents[0], stream=True) as answer:
            rest = aiter(answer)
            words: list[object] = [await anext(rest)]
            for agent in agents[1:]:
                await invoke_async(agent)
            hold.release()
            words += [word async for word in rest]
        await asyncio.to_thread(wait_until_open, servers, [0, 0, 1, 1])
        return words

    assert (call_others() if way == "sync" else asyncio.run(call_others_async())) == ["ha", "ha"]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_new_origin_closes_the_connections_of_those_that_rest(
    servers: list[Server], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = [create_agent(server.url, "sk-of-all") for server in servers]

    async def call_all() -> None:
        for agent in agents[:2]:
            await invoke_async(agent)
        monkeypatch.setattr(clients, "MAX_IDLE_SECONDS", 0)
        await invoke_async(agents[2])
        await asyncio.to_thread(wait_until_open, servers[:2], [0, 0])

    if way == "async":
        asyncio.run(call_all())
    else:
        for agent in agents[:2]:
            invoke(agent)
        monkeypatch.setattr(clients, "MAX_IDLE_SECONDS", 0)
        invoke(agents[2])
        wait_until_open(servers[:2], [0, 0])


def test_an_event_loop_closes_connections_that_rest(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_IDLE_SECONDS", 0.05)
    server.answer(json_reply(ANSWER))

    async def call_once() -> None:
        await invoke_async(create_agent(server.url, "sk-of-all"))
        assert await asyncio.to_thread(server.wait_until, lambda: server.open == 0)

    asyncio.run(call_once())
