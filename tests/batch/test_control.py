"""How many rows are under way at once, with a clock that is only counted."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as some

from prompty.batch.control import Control, new_control, refused, room, succeeded

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
    control, now = new_control(most), 0.0
    for kind, seconds, asked, later in events:
        now += later
        before = control
        if kind == "ok":
            control = succeeded(control, begun=now - seconds, now=now, under_way=int(control.limit))
            assert control.limit <= before.limit + 1
        else:
            control = refused(control, begun=now - seconds, now=now, retry_after=asked)
            assert control.limit <= before.limit
        assert 1 <= control.limit <= most
        assert control.paused_until <= max(before.paused_until, now + 60)
        assert room(control, 0, control.paused_until) >= 1
        assert room(control, most, now + 1000) == 0


def test_what_the_server_asks_to_wait_all_rows_wait() -> None:
    control = refused(new_control(100), begun=10, now=11, retry_after=5)
    assert room(control, 0, 15.9) == 0
    assert room(control, 0, 16) > 0


def test_refusals_of_one_moment_lower_the_limit_once() -> None:
    control = Control(most=100, limit=50)
    for now in (11.0, 11.1, 11.2):
        control = refused(control, begun=10, now=now, retry_after=None)
    assert control.limit == 35
    assert refused(control, begun=12, now=13, retry_after=None).limit == 24.5


def test_a_limit_that_is_not_used_up_does_not_grow() -> None:
    control = Control(most=100, limit=10)
    assert succeeded(control, begun=0, now=1, under_way=3).limit == 10
    assert succeeded(control, begun=0, now=1, under_way=10).limit == 11


def test_it_grows_by_one_for_each_round_after_the_first_refusal() -> None:
    control = refused(Control(most=100, limit=20), begun=0, now=1, retry_after=None)
    rounds = int(control.limit)
    for _ in range(rounds):
        control = succeeded(control, begun=2, now=3, under_way=20)
    assert 14.9 < control.limit <= 15.1


@dataclass
class Provider:
    """A simulated one: answers in a second while no more than `places` rows are under way. Beyond that it refuses, or
    takes the longer the more there are."""

    places: int
    refuses: bool
    now: float = 0.0
    under_way: list[tuple[float, float, bool]] = field(default_factory=list)

    def run(self, control: Control, until: float) -> Control:
        while self.now < until:
            for _ in range(room(control, len(self.under_way), self.now)):
                self._begin()
            if not self.under_way:
                self.now = control.paused_until
                continue
            end, begun, well = min(self.under_way)
            self.under_way.remove((end, begun, well))
            self.now = max(end, self.now)
            many = len(self.under_way) + 1
            if well:
                control = succeeded(control, begun=begun, now=self.now, under_way=many)
            else:
                control = refused(control, begun=begun, now=self.now, retry_after=0.5)
        return control

    def _begin(self) -> None:
        crowd = len(self.under_way) + 1
        if self.refuses and crowd > self.places:
            self.under_way.append((self.now + 0.01, self.now, False))
        else:
            seconds = 1.0 if self.refuses else max(crowd / self.places, 1.0)
            self.under_way.append((self.now + seconds * (1 + crowd / 1000), self.now, True))


def test_it_settles_near_the_places_of_a_provider_that_refuses() -> None:
    assert 12 <= Provider(places=20, refuses=True).run(new_control(500), 300).limit <= 22


def test_it_uses_all_of_a_provider_that_has_room() -> None:
    assert Provider(places=1000, refuses=True).run(new_control(64), 60).limit == 64


def test_it_does_not_crowd_a_provider_that_gets_slow() -> None:
    provider = Provider(places=20, refuses=False)
    control = new_control(500)
    for until in range(30, 300, 30):
        control = provider.run(control, until)
        assert control.limit < 120


def test_it_comes_back_when_a_slow_hour_is_over() -> None:
    provider = Provider(places=10, refuses=True)
    control = provider.run(new_control(100), 100)
    provider.places = 60
    assert provider.run(control, 300).limit > 40
