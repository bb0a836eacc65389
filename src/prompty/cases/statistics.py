"""Statistics of tests, exact where possible. Pure functions of counts.

Formulas: the sign-flip test of paired cases, Cohen's kappa, Wilson's interval of a proportion.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from math import comb, inf, sqrt
from typing import NamedTuple

_Z_95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


def compute_flip_chance(changes: Iterable[int]) -> float:
    """Return the two-sided p-value of the exact sign-flip test: the probability of a sum this far from 0 by chance.

    Each case has one change: positive if it got worse, negative if it got better. If nothing really changed, each of
    them could as well have the other sign. With changes of 1, this is exact McNemar.
    """
    kept = [change for change in changes if change]
    chances = {0: 1.0}  # of each sum
    for size, count in Counter(map(abs, kept)).items():
        added: dict[int, float] = {}
        for positive in range(count + 1):
            share, step = comb(count, positive) / 2**count, size * (2 * positive - count)
            for total, chance in chances.items():
                added[total + step] = added.get(total + step, 0.0) + chance * share
        chances = added
    distance = abs(sum(kept))
    return min(1.0, sum(chance for total, chance in chances.items() if abs(total) >= distance))


_LEAST_FLIPS = 6  # of which all go one way: p = 2 / 2**6


def find_smallest_difference(cases: int, flips: int = 0) -> float | None:
    """Return the smallest change of the pass rate that these cases can show at 5 %, as a share of all cases.

    It uses the observed `flips`, and at least as many as can be significant. None means that there are too few cases to
    show any change.
    """
    flips = max(flips, _LEAST_FLIPS)
    if flips > cases:
        return None
    fewer = tail = 0
    while 40 * (tail := tail + comb(flips, fewer)) <= 2**flips:
        fewer += 1
    return (flips - 2 * (fewer - 1)) / cases


def compute_wilson(passes: float, total: int, z: float = _Z_95) -> tuple[float, float]:
    """Return the ends of Wilson's score interval of a proportion, by default of 95 %. If `total` is 0, it is 0 to 1."""
    if total == 0:
        return 0.0, 1.0
    share, square = passes / total, z * z
    center = share + square / (2 * total)
    spread = z * sqrt(share * (1 - share) / total + square / (4 * total * total))
    scale = 1 + square / total
    low = 0.0 if passes == 0 else (center - spread) / scale
    return low, 1.0 if passes == total else (center + spread) / scale


class Agreement(NamedTuple):
    """The agreement of two raters. `kappa` is None if chance explains everything, as if all labels are equal."""

    total: int
    agreed: int
    kappa: float | None
    base_rate: float

    @property
    def share(self) -> float:
        return self.agreed / self.total if self.total else 0.0


def compute_agreement(pairs: Sequence[tuple[Hashable, Hashable]]) -> Agreement:
    """Return the agreement of pairs of labels: a person's and a judge's.

    The base rate is the share of people's most frequent label: a judge that always answers it agrees that often.
    """
    total = len(pairs)
    if total == 0:
        return Agreement(0, 0, None, 0.0)
    people, judged = Counter(first for first, _ in pairs), Counter(second for _, second in pairs)
    agreed = sum(first == second for first, second in pairs)
    by_chance = sum(people[label] * judged[label] for label in people)  # times total²
    possible = total * total - by_chance
    kappa = (agreed * total - by_chance) / possible if possible else None
    return Agreement(total, agreed, kappa, max(people.values()) / total)


def compute_cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the cosine of two vectors, or 0 if one of them is zero."""
    if len(first) != len(second):
        raise ValueError(f"a vector of {len(first)} numbers cannot be compared with one of {len(second)}")
    lengths = sqrt(sum(x * x for x in first)) * sqrt(sum(y * y for y in second))
    if lengths == 0 or lengths == inf:
        return 0.0
    return sum(x * y for x, y in zip(first, second, strict=True)) / lengths
