"""Limits of time, which hold only where PROMPTY_TIMING is set (`make test-timing`): elsewhere other work shares the
processors. They were set on a machine at its usual speed, and this one may be slower at the moment."""

import os
import time
from math import inf
from pathlib import Path
from statistics import median

TIMED = bool(os.environ.get("PROMPTY_TIMING"))
PROBE_SECONDS = 0.3
PROBE_EVERY = 20.0
MOST_STOLEN = 0.25  # of the processor time that was wanted
PATIENCE = 600.0  # in all


def time_factor() -> float:
    """Return the factor for a limit of time: how much slower than usual the processor is, or infinity if time is not
    measured. A shared processor can take three times as long, for hours."""
    return max(median(_count() for _ in range(5)) / 0.02, 1.0) if TIMED else inf


def _count() -> float:
    start = time.process_time()
    for _ in range(1_000_000):
        pass
    return time.process_time() - start


class Neighbours:
    """Other guests of the machine, as far as Linux tells how much of the processor they take away."""

    def __init__(self) -> None:
        self._looked = -PROBE_EVERY
        self._patience = PATIENCE

    def wait_until_quiet(self) -> None:
        """Wait while they take much, but not longer than `PATIENCE` in all calls together."""
        if time.monotonic() - self._looked < PROBE_EVERY:
            return
        began = time.monotonic()
        while _measure_stolen() > MOST_STOLEN and time.monotonic() - began < self._patience:
            time.sleep(5)
        self._looked = time.monotonic()
        self._patience -= self._looked - began


def _measure_stolen() -> float:
    """Return the share of a busy processor's time that others took."""
    if not (stat := Path("/proc/stat")).exists():
        return 0.0
    before = _read_times(stat)
    until = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < until:
        pass
    user, nice, system, _, _, irq, soft, steal = (
        now - then for now, then in zip(_read_times(stat), before, strict=True)
    )
    return steal / max(user + nice + system + irq + soft + steal, 1)


def _read_times(stat: Path) -> list[int]:
    """Return user, nice, system, idle, iowait, irq, softirq and steal, in ticks since the start."""
    return [int(ticks) for ticks in stat.read_text().split("\n", 1)[0].split()[1:9]]
