"""Leases of workers: who may act, and who is declared lost when."""

import asyncio
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager

import pytest

from prompty.durable.database import ensure_tables
from prompty.durable.leases import Lease, Leases
from prompty.durable.metrics import WorkerMetrics
from tests.durable.databases import Databases
from tests.durable.shop import until

SECONDS = 0.8


class Store(Leases):
    """Leases in a database that can go away."""

    is_away = False

    def renew(self, id: str) -> float | None:
        if self.is_away:
            raise ConnectionError
        return super().renew(id)

    def claim_lost(self) -> list[str]:
        if self.is_away:
            raise ConnectionError
        return super().claim_lost()


class Neighbours:
    """What workers have under way, by their ids, and whose runs were taken over."""

    def __init__(self) -> None:
        self.owners: set[str] = set()
        self.taken: list[str] = []

    def find(self) -> Set[str]:
        return set(self.owners)

    def take_over(self, lost: str) -> int:
        self.taken.append(lost)
        self.owners.discard(lost)
        return 1


@pytest.fixture
def neighbours() -> Neighbours:
    return Neighbours()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Store]:
    url = databases.new(request.param)
    ensure_tables(url)
    store = Store(url, SECONDS)
    yield store
    store.close()


@contextmanager
def leased(store: Leases, neighbours: Neighbours, on_lost: Callable[[], None] = lambda: None) -> Iterator[Lease]:
    lease = Lease(
        store,
        "one",
        SECONDS,
        WorkerMetrics(),
        find_owners=neighbours.find,
        take_over=neighbours.take_over,
        on_lost=on_lost,
    )
    lease.start()
    try:
        yield lease
    finally:
        lease.stop()


def test_a_worker_whose_lease_expired_is_declared_lost_by_exactly_one_other(
    store: Store, neighbours: Neighbours
) -> None:
    store.register("dead")
    with leased(store, neighbours), leased(store, neighbours):
        until(lambda: neighbours.taken == ["dead"], 10)
        time.sleep(2 * SECONDS)
    assert neighbours.taken == ["dead"]
    assert store.renew("dead") is None


def test_a_worker_that_dies_while_it_takes_over_leaves_the_rest_to_another(
    store: Store, neighbours: Neighbours
) -> None:
    store.register("dead")
    until(lambda: store.claim_lost() == ["dead"], 10)  # and it does nothing
    assert store.claim_lost() == []
    with leased(store, neighbours):
        until(lambda: neighbours.taken == ["dead"], 10)


def test_an_owner_without_a_lease_is_found(store: Store, neighbours: Neighbours) -> None:
    neighbours.owners = {"woke up late"}
    with leased(store, neighbours) as lease:
        neighbours.owners.add(lease.id)
        until(lambda: neighbours.taken == ["woke up late"], 10)
        assert lease.is_held()


def test_nobody_is_declared_lost_when_the_database_comes_back_after_longer_than_the_lease(
    store: Store, neighbours: Neighbours
) -> None:
    with leased(store, neighbours) as first, leased(store, neighbours) as second:
        store.is_away = True
        time.sleep(2 * SECONDS)
        assert not first.is_held()
        store.is_away = False
        until(lambda: first.is_held() and second.is_held(), 10)
        time.sleep(2 * SECONDS)
        assert neighbours.taken == []


def test_a_side_effect_waits_while_the_lease_is_not_confirmed(store: Store, neighbours: Neighbours) -> None:
    async def fence(lease: Lease) -> float:
        begun = time.monotonic()
        task = asyncio.create_task(lease.fence())
        await asyncio.sleep(SECONDS / 2)
        store.is_away = False
        await task
        return time.monotonic() - begun

    with leased(store, neighbours) as lease:
        store.is_away = True
        time.sleep(SECONDS)
        assert asyncio.run(fence(lease)) >= SECONDS / 2


def test_nothing_of_a_worker_that_was_declared_lost_begins_any_more(store: Store, neighbours: Neighbours) -> None:
    lost: list[bool] = []
    with leased(store, neighbours, lambda: lost.append(True)) as lease:
        store.remove(lease.id)
        until(lambda: lost == [True], 10)
        assert lease.is_lost
        assert not lease.is_held()
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(lease.fence())


def test_a_worker_knows_the_time_of_the_database(store: Store, neighbours: Neighbours) -> None:
    with leased(store, neighbours) as lease:
        assert abs(lease.read_time() - time.time()) < 1.0  # the same machine
