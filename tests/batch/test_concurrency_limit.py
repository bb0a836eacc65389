"""The AIMD limit on concurrent calls, with a simulated clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random

import pytest
from hypothesis import given, strategies as some

from prompty.batches.throttle import ConcurrencyLimit, Throttle, create_limit
from prompty.errors import ModelError

EVENTS = some.lists(
    some.tuples(
        some.sampled_from(["ok", "refused"]),
        some.floats(0.001, 100),
        some.none() | some.floats(0, 1e9),
        some.floats(0, 5),
    ),
    max_size=200,
)


@given(most=some.integers(1, 500), events=EVENTS)
def test_the_limit_stays_between_one_and_the_cap_and_a_pause_ends(
    most: int, events: list[tuple[str, float, float | None, float]]
) -> None:
    limit, now = create_limit(most), 0.0
    for kind, seconds, asked, later in events:
        now += later
        before = limit
        if kind == "ok":
            limit = limit.after_success(running=int(limit.value))
            assert limit.value <= before.value + 1
        else:
            limit = limit.after_overload(started=now - seconds, now=now, retry_after=asked)
            assert limit.value <= before.value
        assert 1 <= limit.value <= most
        assert limit.paused_until <= max(before.paused_until, now + 60)
        assert limit.count_free_slots(0, limit.paused_until) >= 1
        assert limit.count_free_slots(most, now + 1000) == 0


def test_what_the_server_asks_to_wait_all_rows_wait() -> None:
    limit = create_limit(100).after_overload(started=10, now=11, retry_after=5)
    assert limit.count_free_slots(0, 15.9) == 0
    assert limit.count_free_slots(0, 16) > 0


def test_refusals_of_one_moment_lower_the_limit_once() -> None:
    limit = ConcurrencyLimit(maximum=100, value=50)
    for now in (11.0, 11.1, 11.2):
        limit = limit.after_overload(started=10, now=now, retry_after=None)
    assert limit.value == 42.5
    assert limit.after_overload(started=12, now=13, retry_after=None).value == 36.125


def test_a_limit_that_is_not_used_up_does_not_grow() -> None:
    limit = ConcurrencyLimit(maximum=100, value=10)
    assert limit.after_success(running=3).value == 10
    assert limit.after_success(running=10).value == 11


def test_it_grows_by_one_for_each_round_after_the_first_refusal() -> None:
    limit = ConcurrencyLimit(maximum=100, value=20).after_overload(started=0, now=1, retry_after=None)
    rounds = int(limit.value)
    for _ in range(rounds):
        limit = limit.after_success(running=20)
    assert 17.9 < limit.value <= 18.1


@dataclass
class Provider:
    """A simulated one: a call takes as long as `durations` say, and is refused at once while `places` others run. A
    refused call keeps its slot and is repeated after half a second."""

    places: float
    durations: Callable[[int], float] = lambda number: 1.0
    now: float = 0.0
    started: int = 0
    answered: int = 0
    work: float = 0.0
    running: list[tuple[float, float]] = field(default_factory=list)
    refused: list[tuple[float, float]] = field(default_factory=list)
    repeated: list[float] = field(default_factory=list)

    def run(self, limit: ConcurrencyLimit, *, until: float = inf, calls: float = inf) -> ConcurrencyLimit:
        while self.now < until and self.answered < calls:
            while self.repeated and self.repeated[0] <= self.now:
                heappop(self.repeated)
                self._begin()
            waiting = len(self.running) + len(self.refused) + len(self.repeated)
            for _ in range(min(limit.count_free_slots(waiting, self.now), int(min(calls, 1e9)) - self.started)):
                self._begin()
            if (next_end := self._take_end()) is None:
                self.now = min([limit.paused_until] * (limit.paused_until > self.now) + self.repeated[:1])
                continue
            self.now, begun, is_refused = next_end
            waiting = len(self.running) + len(self.refused) + len(self.repeated) + 1
            if is_refused:
                limit = limit.after_overload(started=begun, now=self.now, retry_after=0.5)
                heappush(self.repeated, self.now + 0.5)
                self.started -= 1
            else:
                self.answered += 1
                limit = limit.after_success(running=waiting)
        return limit

    def _begin(self) -> None:
        self.started += 1
        if len(self.running) >= self.places:
            heappush(self.refused, (self.now + 0.01, self.now))
        else:
            self.work += (seconds := self.durations(self.started))
            heappush(self.running, (self.now + seconds, self.now))

    def _take_end(self) -> tuple[float, float, bool] | None:
        """Return the next end of a call, its start, and whether it was refused, or None if a repetition comes first."""
        calls = min((queue for queue in (self.running, self.refused) if queue), default=None)
        if calls is None or (self.repeated and self.repeated[0] < calls[0][0]):
            return None
        return *heappop(calls), calls is self.refused


def test_it_settles_near_the_places_of_a_provider_that_refuses() -> None:
    assert 12 <= Provider(places=20).run(create_limit(500), until=300).value <= 22


def test_it_reaches_the_throughput_of_a_provider_that_refuses() -> None:
    provider = Provider(places=20)
    provider.run(create_limit(64), until=600)
    assert provider.answered >= 0.9 * 20 * 600


def test_it_uses_all_of_a_provider_that_has_room() -> None:
    assert Provider(places=1000).run(create_limit(64), until=60).value == 64


def test_it_comes_back_when_a_slow_hour_is_over() -> None:
    provider = Provider(places=10)
    limit = provider.run(create_limit(100), until=100)
    provider.places = 60
    assert provider.run(limit, until=300).value > 40


ROWS = 20_000
RANDOM = Random(3)  # noqa: S311  not for secrets
DURATIONS: dict[str, Callable[[int], float]] = {
    "constant": lambda number: 4.0,
    "log-normal, sigma 0.3": lambda number: RANDOM.lognormvariate(1.386, 0.3),
    "log-normal, sigma 0.5": lambda number: RANDOM.lognormvariate(1.386, 0.5),
    "log-normal, sigma 0.8": lambda number: RANDOM.lognormvariate(1.386, 0.8),
    "log-normal, sigma 1.0": lambda number: RANDOM.lognormvariate(1.386, 1.0),
    "one in ten takes 30 times as long": lambda number: 30.0 if RANDOM.random() < 0.1 else 1.0,
    "rows that grow": lambda number: (1 + 15 * number / ROWS) * RANDOM.lognormvariate(0, 0.3),
}


@pytest.mark.parametrize("maximum", [16, 64, 512])
@pytest.mark.parametrize("durations", DURATIONS.values(), ids=DURATIONS)
def test_answers_of_different_lengths_do_not_lower_it(maximum: int, durations: Callable[[int], float]) -> None:
    RANDOM.seed(3)
    provider, semaphore = Provider(places=inf, durations=durations), Provider(places=inf, durations=durations)
    assert provider.run(create_limit(maximum), calls=ROWS).value == maximum
    RANDOM.seed(3)
    semaphore.run(ConcurrencyLimit(maximum=maximum, value=maximum), calls=ROWS)
    assert provider.now <= 1.1 * semaphore.now


def test_a_person_is_told_each_limit_that_is_lower_than_all_before() -> None:
    told: list[tuple[int, str]] = []
    throttle = Throttle(64, clock=lambda: 5.0, on_lowered=lambda limit, reason: told.append((limit, reason)))
    throttle.limit = ConcurrencyLimit(maximum=64, value=64)
    call = throttle.start_call()
    throttle.on_failure(call, ModelError("it failed", status=500))
    throttle.on_failure(call, ModelError("come back later", status=500, retry_after=1))
    throttle.on_failure(call, ModelError("too many", status=429))
    assert told == [(54, "come back later"), (46, "too many")]
    throttle.limit = ConcurrencyLimit(maximum=64, value=64)
    throttle.on_failure(call, ModelError("too many", status=429))
    assert told[2:] == []
