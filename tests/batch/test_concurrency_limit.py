"""The AIMD limit on concurrent calls, with a simulated clock."""

from dataclasses import dataclass, field

from hypothesis import given, strategies as some

from prompty.batches.throttle import ConcurrencyLimit, create_limit

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
            limit = limit.after_success(started=now - seconds, now=now, running=int(limit.value))
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
    assert limit.value == 35
    assert limit.after_overload(started=12, now=13, retry_after=None).value == 24.5


def test_a_limit_that_is_not_used_up_does_not_grow() -> None:
    limit = ConcurrencyLimit(maximum=100, value=10)
    assert limit.after_success(started=0, now=1, running=3).value == 10
    assert limit.after_success(started=0, now=1, running=10).value == 11


def test_it_grows_by_one_for_each_round_after_the_first_refusal() -> None:
    limit = ConcurrencyLimit(maximum=100, value=20).after_overload(started=0, now=1, retry_after=None)
    rounds = int(limit.value)
    for _ in range(rounds):
        limit = limit.after_success(started=2, now=3, running=20)
    assert 14.9 < limit.value <= 15.1


@dataclass
class Provider:
    """A simulated one: answers in a second while no more than `places` rows are under way. Beyond that it refuses, or
    takes the longer the more there are."""

    places: int
    refuses: bool
    now: float = 0.0
    under_way: list[tuple[float, float, bool]] = field(default_factory=list)

    def run(self, limit: ConcurrencyLimit, until: float) -> ConcurrencyLimit:
        while self.now < until:
            for _ in range(limit.count_free_slots(len(self.under_way), self.now)):
                self._begin()
            if not self.under_way:
                self.now = limit.paused_until
                continue
            end, begun, well = min(self.under_way)
            self.under_way.remove((end, begun, well))
            self.now = max(end, self.now)
            many = len(self.under_way) + 1
            if well:
                limit = limit.after_success(started=begun, now=self.now, running=many)
            else:
                limit = limit.after_overload(started=begun, now=self.now, retry_after=0.5)
        return limit

    def _begin(self) -> None:
        crowd = len(self.under_way) + 1
        if self.refuses and crowd > self.places:
            self.under_way.append((self.now + 0.01, self.now, False))
        else:
            seconds = 1.0 if self.refuses else max(crowd / self.places, 1.0)
            self.under_way.append((self.now + seconds * (1 + crowd / 1000), self.now, True))


def test_it_settles_near_the_places_of_a_provider_that_refuses() -> None:
    assert 12 <= Provider(places=20, refuses=True).run(create_limit(500), 300).value <= 22


def test_it_uses_all_of_a_provider_that_has_room() -> None:
    assert Provider(places=1000, refuses=True).run(create_limit(64), 60).value == 64


def test_it_does_not_crowd_a_provider_that_gets_slow() -> None:
    provider = Provider(places=20, refuses=False)
    limit = create_limit(500)
    for until in range(30, 300, 30):
        limit = provider.run(limit, until)
        assert limit.value < 120


def test_it_comes_back_when_a_slow_hour_is_over() -> None:
    provider = Provider(places=10, refuses=True)
    limit = provider.run(create_limit(100), 100)
    provider.places = 60
    assert provider.run(limit, 300).value > 40
