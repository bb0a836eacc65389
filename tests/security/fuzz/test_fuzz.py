"""Nothing that a file, a user, a model or a server sends makes a reader raise a foreign error or hang.

Inputs are valid ones with random changes. Hypothesis throws the dice, so it shrinks an input that fails, and tries it
first in the next run.
"""

import gc
import signal
import time
from collections.abc import Callable, Iterator
from functools import _lru_cache_wrapper
from random import Random
from types import FrameType

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from prompty.errors import PromptyError
from tests.machine import time_factor
from tests.security.fuzz.targets import ALLOWED, TARGETS
from tests.soak import SOAK

pytestmark = pytest.mark.slow

EXAMPLES = 50_000 if SOAK else 500
SECONDS_PER_KB = 0.050
HANG = 30  # seconds of the processor
every_target = pytest.mark.parametrize("name", TARGETS)
thrown = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


class Hang(BaseException):
    """An input did not end. It is no Exception, because to shrink it would take hours."""


@pytest.fixture(autouse=True)
def hangs_end() -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> None:
        raise Hang(f"no end after {HANG} s")

    before = signal.signal(signal.SIGVTALRM, end)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


def measure_reading(name: str, shown: object, read: Callable[[], object]) -> float:
    """Read an input, and return the seconds of the processor. An error that the reader documents is an answer."""
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
    started = time.process_time()
    try:
        read()
    except ALLOWED.get(name, PromptyError) as error:
        assert str(error)
    except BaseException as error:  # a panic of a compiled library is not an Exception
        error.add_note(f"{name}: {shown!r:.20000}")
        raise
    return time.process_time() - started


@every_target
def test_no_input_makes_a_reader_raise_a_foreign_error(name: str) -> None:
    @thrown
    @given(st.randoms(use_true_random=False))
    def read(dice: Random) -> None:
        measure_reading(name, *TARGETS[name](dice))

    read()


@pytest.mark.timing
@pytest.mark.nightly  # where time has no limits, it does what the test above does
@every_target
def test_no_input_takes_50_ms_per_kilobyte(name: str) -> None:
    @thrown
    @given(st.randoms(use_true_random=False))
    def read(dice: Random) -> None:
        shown, reader = TARGETS[name](dice)
        limit = SECONDS_PER_KB * max(len(repr(shown)) / 1024, 1)
        if measure_reading(name, shown, reader) > limit:
            seconds = min(_measure_alone(name, shown, reader) for _ in range(3))
            assert seconds <= limit, f"{seconds:.3f} s for {shown!r:.20000}"

    read()


def _measure_alone(name: str, shown: object, read: Callable[[], object]) -> float:
    """Return the seconds of an input at the usual speed of the processor, as if it were new."""
    for one in gc.get_objects():
        if isinstance(one, _lru_cache_wrapper) and one.__module__.startswith("prompty."):
            one.cache_clear()
    return measure_reading(name, shown, read) / time_factor()
