"""A process that calls with the keys of many users keeps few connections open."""

import asyncio

import pytest

from prompty import PromptAgent, invoke, invoke_async
from prompty.providers.http import transports
from prompty.providers.http.transports import MAX_TRANSPORTS
from tests.drivers.clients import close_clients
from tests.loopback import Hold, Server, event, json_reply, stream
from tests.transports.subject import ANSWER, create_agent
from tests.transports.test_cancellation import WORD

KEYS = 3 * MAX_TRANSPORTS
LAST_WORD = event({"choices": [{"index": 0, "delta": {"content": "ha"}, "finish_reason": "stop"}]})


def list_agents(url: str, count: int) -> list[PromptAgent]:
    return [create_agent(url, f"sk-of-user-{number:05}") for number in range(count)]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_only_the_connections_of_the_last_keys_stay_open(server: Server, way: str) -> None:
    server.answer(json_reply(ANSWER))
    agents = list_agents(server.url, KEYS)

    async def call_all() -> None:
        for agent in agents:
            await invoke_async(agent)
        await invoke_async(agents[-1])  # a call closes what the one before has dropped
        assert await asyncio.to_thread(server.wait_until, lambda: server.open <= MAX_TRANSPORTS)
        assert server.accepted == KEYS

    if way == "async":
        asyncio.run(call_all())
    else:
        for agent in [*agents, agents[-1]]:
            invoke(agent)
        assert server.wait_until(lambda: server.open <= MAX_TRANSPORTS)
        assert server.accepted == KEYS
        close_clients()
    assert server.wait_until(lambda: server.open == 0)


def test_many_keys_at_once_leave_few_connections_open(server: Server) -> None:
    server.answer(json_reply(ANSWER))

    async def call_all() -> None:
        assert await asyncio.gather(*map(invoke_async, list_agents(server.url, KEYS))) == ["Fine."] * KEYS
        await invoke_async(create_agent(server.url, "sk-of-nobody-else"))
        assert await asyncio.to_thread(server.wait_until, lambda: server.open <= MAX_TRANSPORTS)

    asyncio.run(call_all())


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_call_in_flight_goes_on_while_others_take_its_place(server: Server, way: str) -> None:
    hold = Hold()
    server.answer(stream(WORD, hold, LAST_WORD, event("[DONE]")), json_reply(ANSWER))
    agents = list_agents(server.url, 2 * MAX_TRANSPORTS)

    def call_others() -> list[object]:
        with invoke(agents[0], stream=True) as answer:
            rest = iter(answer)
            words: list[object] = [next(rest)]
            for agent in agents[1:]:
                invoke(agent)
            hold.release()
            words += list(rest)
        assert server.wait_until(lambda: server.open <= MAX_TRANSPORTS)
        close_clients()
        return words

    async def call_others_async() -> list[object]:
        async with await invoke_async(agents[0], stream=True) as answer:
            rest = aiter(answer)
            words: list[object] = [await anext(rest)]
            for agent in agents[1:]:
                await invoke_async(agent)
            hold.release()
            words += [word async for word in rest]
        await invoke_async(agents[-1])
        assert await asyncio.to_thread(server.wait_until, lambda: server.open <= MAX_TRANSPORTS)
        return words

    assert (call_others() if way == "sync" else asyncio.run(call_others_async())) == ["ha", "ha"]


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_new_key_closes_the_connections_of_those_that_rest(
    server: Server, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answer(json_reply(ANSWER))
    agents = list_agents(server.url, 5)

    async def call_all() -> None:
        for agent in agents[:4]:
            await invoke_async(agent)
        monkeypatch.setattr(transports, "MAX_IDLE_SECONDS", 0)
        await invoke_async(agents[4])
        assert await asyncio.to_thread(server.wait_until, lambda: server.open == 1)

    if way == "async":
        asyncio.run(call_all())
    else:
        for agent in agents[:4]:
            invoke(agent)
        monkeypatch.setattr(transports, "MAX_IDLE_SECONDS", 0)
        invoke(agents[4])
        assert server.wait_until(lambda: server.open == 1)
        close_clients()
