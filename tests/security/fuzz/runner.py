"""Run inputs by their seeds: count what comes of them, and find the foreign errors and the slow ones.

Time is that of the processor. An input that seems slow is measured again, alone, and compared with the speed that the
processor has at that moment.
"""

import gc
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper
from pathlib import Path
from random import Random
from types import FrameType

from tests.machine import time_factor
from tests.security.fuzz.cases import Case, Target

SECONDS_PER_KB = 0.050
HANG = 30  # seconds after which an input is ended
BATCH = 100  # inputs that share the clock for that: to set it takes as long as some inputs
TRIES = 3
FOREIGN = "foreign"
FOLDER = Path(__file__).parents[3] / "build" / "fuzz"


class Hang(BaseException):
    """An input did not end."""


@dataclass(slots=True)
class Report:
    """What came of the inputs of a target. `slowest` is in milliseconds per KB, with the seed."""

    target: str
    inputs: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_seed: int = 0
    foreign: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, object]:
        slowest = {"ms_per_kb": round(self.slowest, 2), "seed": self.slowest_seed}
        return {
            "inputs": self.inputs,
            "cpu_seconds": round(self.seconds, 1),
            "slowest": slowest,
            "ends": dict(self.ends.most_common()),
        }


def make_case(target: Target, seed: int) -> Case:
    """Return the input of a seed. It depends on nothing else."""
    return target.make(Random(f"{target.name} {seed}"))  # noqa: S311  not for secrets


def run_seeds(target: Target, numbers: Iterable[int], report: Report) -> Report:
    """Run the inputs of these seeds. Those that fail are written to files."""
    started = time.process_time()
    with _limited():
        for at, seed in enumerate(numbers):
            if at % BATCH == 0:
                signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
            _run_seed(target, seed, report)
    report.seconds += time.process_time() - started
    return report


def _run_seed(target: Target, seed: int, report: Report) -> None:
    case = make_case(target, seed)
    end, seconds = run_case(target, case)
    kilobytes = max(case.size / 1024, 1)
    if seconds > SECONDS_PER_KB * kilobytes:
        seconds = _measure_alone(target, case, seconds)
    report.inputs += 1
    report.ends[end.partition(":")[0]] += 1
    if seconds * 1000 / kilobytes > report.slowest:
        report.slowest, report.slowest_seed = seconds * 1000 / kilobytes, seed
    if end.startswith(FOREIGN):
        report.foreign.append(_write(target, seed, case, end))
    elif seconds > SECONDS_PER_KB * kilobytes:
        report.slow.append(_write(target, seed, case, f"took {seconds:.3f} s for {kilobytes:.1f} KB"))


def run_case(target: Target, case: Case) -> tuple[str, float]:
    """Return what came of an input, and its seconds."""
    started = time.process_time()
    end = "accepted"
    try:
        case.run()
    except KeyboardInterrupt:
        raise
    except target.allowed as error:
        end = type(error).__name__ if str(error) else f"{FOREIGN}: {type(error).__name__} without a message"
    except BaseException as error:  # a panic of a compiled library is not an Exception
        end = f"{FOREIGN}: {type(error).__name__}: {error!s:.300}"
    return end, time.process_time() - started


def _measure_alone(target: Target, case: Case, seconds: float) -> float:
    """Return the least seconds of several tries, at the usual speed of the processor."""
    for _ in range(TRIES):
        _clear_caches()
        speed = time_factor()
        seconds = min(seconds, run_case(target, case)[1] / max(speed, 1))
    return seconds


def _clear_caches() -> None:
    """Empty the caches of the package, so that an input takes as long as it did when it was new."""
    for one in gc.get_objects():
        if isinstance(one, _lru_cache_wrapper) and one.__module__.startswith("prompty."):
            one.cache_clear()


@contextmanager
def _limited() -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> None:
        raise Hang(f"no end after {HANG:g} s")

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _write(target: Target, seed: int, case: Case, problem: str) -> str:
    """Write an input to a file. Return how to run it again, and what was wrong."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{target.name}-{seed}.txt").write_text(f"{problem}\n{case.shown!r}\n", encoding="utf-8")
    return f"python -m tests.security.fuzz {target.name} {seed}  # {problem}"
