"""Sync code inside event loops, event loops one after the other, and many calls at once."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prompty import invoke, invoke_async
from tests.drivers.wires import Chat, Wire
from tests.loopback import Hold, Server, event, json_reply, stream


def test_one_event_loop_after_the_other(server: Server, wire: Wire) -> None:
    server.answer(json_reply(wire.whole("Hello")))
    agent = wire.agent(server)
    for _ in range(3):
        assert asyncio.run(invoke_async(agent)) == "Hello"
    assert server.accepted == 3
    assert server.wait_until(lambda: server.open == 0)  # a loop that ends takes its connections with it


def test_one_event_loop_keeps_its_connection(server: Server, wire: Wire) -> None:
    server.answer(json_reply(wire.whole("Hello")))
    agent = wire.agent(server)

    async def main() -> list[Any]:
        return [await invoke_async(agent) for _ in range(3)]

    assert asyncio.run(main()) == ["Hello"] * 3
    assert server.accepted == 1


def test_a_loop_that_is_closed_by_hand_is_forgotten(server: Server) -> None:
    wire = Chat()
    server.answer(json_reply(wire.whole("Hello"), headers={"connection": "close"}))
    agent = wire.agent(server)
    for _ in range(2):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(invoke_async(agent)) == "Hello"
        loop.close()
    del loop
    gc.collect()


def test_a_stream_that_is_kept_to_the_end_of_its_loop_lets_go(server: Server) -> None:
    wire = Chat()
    server.answer(stream(*map(event, wire.said("Hel")), Hold()))
    kept = []

    async def main() -> None:
        answer = await invoke_async(wire.agent(server), stream=True)
        kept.append(answer)
        async for _ in answer:
            break

    asyncio.run(main())
    assert server.wait_until(lambda: server.open == 0)
    assert len(kept) == 1


def test_sync_code_works_inside_a_running_loop(server: Server, wire: Wire) -> None:
    server.answer(json_reply(wire.whole("Hello")), stream(*wire.stream("Hel", "lo")))

    async def main() -> None:
        assert invoke(wire.agent(server)) == "Hello"
        assert list(invoke(wire.agent(server), stream=True)) == ["Hel", "lo"]

    asyncio.run(main())


def test_many_calls_at_once_in_one_loop() -> None:
    wire = Chat()
    with Server() as server:
        server.answer(json_reply(wire.whole("Hello")))
        agent = wire.agent(server)

        async def main() -> list[Any]:
            return await asyncio.gather(*(invoke_async(agent) for _ in range(50)))

        assert asyncio.run(main()) == ["Hello"] * 50
        assert server.wait_until(lambda: server.open == 0)


def test_many_calls_at_once_in_threads() -> None:
    wire = Chat()
    with Server() as server, ThreadPoolExecutor(8) as threads:
        server.answer(json_reply(wire.whole("Hello")))
        agent = wire.agent(server)
        assert list(threads.map(lambda _: invoke(agent), range(40))) == ["Hello"] * 40
        assert server.accepted <= 8


def test_loops_in_several_threads(wire: Wire) -> None:
    with Server() as server, ThreadPoolExecutor(4) as threads:
        server.answer(json_reply(wire.whole("Hello")))
        agent = wire.agent(server)
        assert list(threads.map(lambda _: asyncio.run(invoke_async(agent)), range(8))) == ["Hello"] * 8
        assert server.wait_until(lambda: server.open == 0)
