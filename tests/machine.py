"""The speed of this machine at the moment. Limits in processor seconds were set on one at its usual speed."""

import time
from statistics import median


def measure_slowness() -> float:
    """Return how much slower than usual the processor is, and 1 if it is not. A shared one can take three times as
    long, for hours."""
    return max(median(_count() for _ in range(5)) / 0.02, 1.0)


def _count() -> float:
    start = time.process_time()
    for _ in range(1_000_000):
        pass
    return time.process_time() - start
