"""Statistics of tests, exact where possible. Pure functions of counts.

Formulas: McNemar's test by the binomial distribution, Cohen's kappa, Wilson's interval of a proportion.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import comb, inf, sqrt
from typing import NamedTuple

_Z_95 = 1.959963984540054  # the 97.5 % quantile of the normal distribution


def compute_mcnemar(worse: int, better: int) -> float:
    """Return the two-sided p-value of exact McNemar: the probability of flips this uneven if nothing changed.

    `worse` counts the cases that only passed before, `better` those that only pass now.
    """
    flips = worse + better
    tail = sum(comb(flips, count) for count in range(min(worse, better) + 1))
    return min(1.0, float(2 * tail / 2**flips))


def find_detectable_flips(flips: int, significance: float = 0.05) -> int | None:
    """Return how many of `flips` flips in one direction are significant, or None if not even all are."""
    for one_way in range((flips + 1) // 2, flips + 1):
        if compute_mcnemar(one_way, flips - one_way) <= significance:
            return one_way
    return None


def find_smallest_difference(cases: int, flips: int = 0, significance: float = 0.05) -> float | None:
    """Return the smallest change of the pass rate that these cases can show, as a share of all cases.

    It uses the observed `flips`, and at least as many as can be significant. None means that there are too few cases to
    show any change.
    """
    least = next(count for count in range(1, 64) if compute_mcnemar(count, 0) <= significance)
    flips = max(flips, least)
    if flips > cases:
        return None
    one_way = find_detectable_flips(flips, significance)
    return None if one_way is None else (2 * one_way - flips) / cases


def compute_wilson(passes: int, total: int, z: float = _Z_95) -> tuple[float, float]:
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
