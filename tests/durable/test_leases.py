"""Leases of workers, with a store in memory: who may act, and who is declared lost when."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from prompty.durable.leases import Lease, get_label, new_worker_id
from prompty.durable.metrics import WorkerMetrics
from tests.durable.suite import wait_until

SECONDS = 0.4


class Store:
    """Leases of workers in memory. It can go away."""

    def __init__(self) -> None:
        self.expires: dict[str, float] = {}
        self.lost: list[str] = []
        self.is_away = False

    def _now(self) -> float:
        if self.is_away:
            raise ConnectionError
        return time.monotonic()

    def register(self, id: str, seconds: float, /) -> None:
        self.expires[id] = self._now() + seconds

    def renew(self, id: str, seconds: float, /) -> bool:
        now = self._now()
        if id in self.expires:
            self.expires[id] = now + seconds
        return id in self.expires

    def find_expiring(self, seconds: float, /) -> dict[str, float]:
        soon = self._now() + seconds
        return {id: at for id, at in self.expires.items() if at < soon}

    def declare_lost(self, id: str, expired: float, /) -> bool:
        is_same = self.expires.get(id) == expired and expired < self._now()
        if is_same:
            del self.expires[id]
            self.lost.append(id)
        return is_same

    def take_over(self) -> int:
        self._now()
        return 0

    def release(self, id: str, /) -> None:
        self.expires.pop(id, None)

    def close(self) -> None: ...


@contextmanager
def leased(store: Store, on_lost: Callable[[str], None] = lambda _: None) -> Iterator[Lease]:
    lease = Lease(store, "one", SECONDS, WorkerMetrics(), on_lost)
    try:
        yield lease
    finally:
        lease.release()


def test_a_worker_whose_lease_expired_is_declared_lost() -> None:
    store = Store()
    with leased(store):
        store.expires["dead"] = time.monotonic() + SECONDS
        wait_until(lambda: store.lost == ["dead"])


def test_nobody_is_declared_lost_when_the_database_comes_back_after_longer_than_the_lease() -> None:
    store = Store()
    with leased(store) as first, leased(store) as second:
        store.is_away = True
        time.sleep(2 * SECONDS)
        assert not first.is_held(first.id)
        store.is_away = False
        wait_until(lambda: first.is_held(first.id) and second.is_held(second.id))
        time.sleep(2 * SECONDS)
        assert store.lost == []


def test_a_side_effect_waits_while_the_lease_is_not_confirmed() -> None:
    store = Store()

    async def fence(lease: Lease) -> float:
        begun = time.monotonic()
        task = asyncio.create_task(lease.fence(lease.id))
        await asyncio.sleep(SECONDS / 2)
        store.is_away = False
        await task
        return time.monotonic() - begun

    with leased(store) as lease:
        store.is_away = True
        time.sleep(SECONDS)
        assert asyncio.run(fence(lease)) >= SECONDS / 2


def test_a_worker_that_was_declared_lost_comes_back_under_another_id_and_its_old_side_effects_never_begin() -> None:
    store = Store()
    ids: list[str] = []
    with leased(store, ids.append) as lease:
        old = lease.id
        del store.expires[old]
        wait_until(lambda: lease.is_held(lease.id) and lease.id != old)
        assert ids == [lease.id]
        assert not lease.is_held(old)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(lease.fence(old))


def test_the_label_of_a_worker_is_shown_without_its_id() -> None:
    assert get_label(new_worker_id("shop~1")) == "shop~1"
    assert get_label("an executor that is no worker") == "an executor that is no worker"
