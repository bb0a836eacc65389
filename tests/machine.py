"""The speed of this machine at the moment. Limits in processor seconds were set on one at its usual speed, and other
limits where nobody else takes the processors away."""

import time
from pathlib import Path
from statistics import median

PROBE_SECONDS = 0.3
PROBE_EVERY = 20.0
MOST_STOLEN = 0.25  # of the processor time that was wanted
PATIENCE = 600.0  # in all


def measure_slowness() -> float:
    """Return how much slower than usual the processor is, and 1 if it is not. A shared one can take three times as
    long, for hours."""
    return max(median(_count() for _ in range(5)) / 0.02, 1.0)


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
