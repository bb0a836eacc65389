"""The table of a registry's clients: what closes them, and where."""

import asyncio
import gc
from collections.abc import Callable
from threading import Event, Thread
from typing import Any
from weakref import WeakSet

import pytest

import prompty
from prompty import Registry, clients
from prompty.clients import Clients


class Client:
    """A client of sync code, or of an event loop."""

    def __init__(self, _: object = None) -> None:
        self.is_busy = False
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


class Elsewhere:
    """An event loop in another thread, with a client."""

    def __init__(self, kept: Clients) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = Thread(target=self.loop.run_forever)
        self.thread.start()
        self.client = self.run(lambda: kept.in_loop().get("a", Client))

    def run(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)

    def wait_until_closed(self) -> None:
        closed = Event()
        for _ in range(3):  # the task that closes it takes a pass of the loop
            self.run(lambda: None)
        self.loop.call_soon_threadsafe(closed.set)
        assert closed.wait(10)
        assert self.client.closed == 1

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self.loop.shutdown_asyncgens(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def test_a_registry_closes_what_it_keeps_in_sync_code_and_in_loops_that_run() -> None:
    with Registry() as registry:
        client = registry.clients.get("a", Client)
        assert registry.clients.get("a", Client) is client
        elsewhere = Elsewhere(registry.clients)
    assert (client.closed, elsewhere.client.closed) == (1, 1)
    elsewhere.end()


def test_a_registry_closes_what_it_keeps_in_its_own_loop_and_in_others() -> None:
    async def run() -> list[int]:
        async with Registry() as registry:
            own, sync = registry.clients.in_loop().get("a", Client), registry.clients.get("a", Client)
            elsewhere = Elsewhere(registry.clients)
        elsewhere.end()
        return [own.closed, sync.closed, elsewhere.client.closed]

    assert asyncio.run(run()) == [1, 1, 1]


def test_the_default_registry_is_closed_by_a_function() -> None:
    client = prompty.registry.DEFAULT.clients.get("a client of a test", Client)
    prompty.close()
    assert client.closed == 1

    async def run() -> int:
        client = prompty.registry.DEFAULT.clients.in_loop().get("a client of a test", Client)
        await prompty.aclose()
        return client.closed

    assert asyncio.run(run()) == 1


def test_clients_close_with_their_loop() -> None:
    kept = Clients()

    async def run() -> Client:
        return kept.in_loop().get("a", Client)

    assert asyncio.run(run()).closed == 1
    assert kept.list_loops() == []


def test_a_registry_that_is_dropped_closes_what_it_kept() -> None:
    kept = Clients()
    client, elsewhere = kept.get("a", Client), Elsewhere(kept)
    del kept
    gc.collect()
    assert client.closed == 1
    elsewhere.wait_until_closed()
    elsewhere.end()


def test_what_needs_more_than_a_socket_is_closed_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Clients()
    monkeypatch.setattr(clients, "_all", WeakSet([kept]))
    elsewhere = Elsewhere(kept)
    clients._close_at_exit()
    assert elsewhere.client.closed == 0
    [(_, in_loop)] = kept.list_loops()
    in_loop.is_closed_at_exit = True
    clients._close_at_exit()
    assert elsewhere.client.closed == 1
    elsewhere.end()


def test_a_forked_child_forgets_the_clients_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Clients()
    monkeypatch.setattr(clients, "_all", WeakSet([kept]))
    client, elsewhere = kept.get("a", Client), Elsewhere(kept)
    clients._forget_all()
    assert (client.closed, elsewhere.client.closed, kept.list_loops()) == (1, 0, [])
    assert kept.get("a", Client) is not client
    elsewhere.end()


def test_a_client_that_is_used_is_never_closed_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_CLIENTS", 2)
    kept = Clients()
    busy, resting = kept.get(1, Client), kept.get(2, Client)
    busy.is_busy = True
    kept.get(3, Client)
    assert (busy.closed, resting.closed) == (0, 1)


def test_closing_nothing_in_a_loop_waits_for_nothing() -> None:
    async def run() -> None:
        async with Registry() as registry:
            assert registry.clients.list_loops() == []

    asyncio.run(run())


def test_a_loop_that_rests_keeps_its_clients_until_it_goes_on() -> None:
    kept = Clients()
    loop = asyncio.new_event_loop()

    async def open_one() -> Client:
        return kept.in_loop().get("a", Client)

    client = loop.run_until_complete(open_one())
    kept.close()
    assert client.closed == 0
    loop.run_until_complete(kept.aclose())
    assert client.closed == 1
    loop.close()
