"""Statistics, against independent implementations and published examples."""

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from math import isclose, sqrt

import pytest

from prompty.cases.statistics import (
    compute_agreement,
    compute_cosine,
    compute_flip_chance,
    compute_wilson,
    find_smallest_difference,
)
from tests.cases.simulation import NOISE, RHOS, simulate

TABLES = 1000


def compute_mcnemar(worse: int, better: int) -> float:
    return compute_flip_chance([1] * worse + [-1] * better)


def count_two_sided(worse: int, better: int) -> Fraction:
    """McNemar by Pascal's triangle: the probability of outcomes that are no more likely than the one seen."""
    row = [1]
    for _ in range(worse + better):
        row = [1, *(left + right for left, right in pairwise(row)), 1]
    seen = row[worse]
    return Fraction(sum(ways for ways in row if ways <= seen), sum(row))


def test_exact_mcnemar_agrees_with_counting_outcomes_on_random_tables() -> None:
    chance = random.Random(1)  # noqa: S311  not for secrets
    for _ in range(TABLES):
        worse, better = chance.randrange(60), chance.randrange(60)
        assert isclose(compute_mcnemar(worse, better), count_two_sided(worse, better), abs_tol=1e-12)


def test_exact_mcnemar_agrees_with_every_sequence_of_flips() -> None:
    for flips in range(1, 11):
        for worse in range(flips + 1):
            distance = abs(2 * worse - flips)
            extreme = sum(abs(2 * sum(flip) - flips) >= distance for flip in product((0, 1), repeat=flips))
            assert isclose(compute_mcnemar(worse, flips - worse), extreme / 2**flips)


def test_exact_mcnemar_of_tables_counted_by_hand() -> None:
    assert compute_mcnemar(0, 0) == 1.0
    assert compute_mcnemar(0, 5) == 2 / 32
    assert compute_mcnemar(1, 7) == 2 * (1 + 8) / 256
    assert compute_mcnemar(5, 5) == 1.0
    assert compute_mcnemar(121, 59) == pytest.approx(float(count_two_sided(121, 59)), rel=1e-12)


def test_exact_mcnemar_of_published_examples() -> None:
    """The vignette on McNemar's test of R's package exact2x2 (Fay) has the p value. The others are published counts,
    with sign tests by hand: Darwin's 15 pairs of maize (Fisher 1935, chapter III), of which 13 differ one way, and the
    sleep of 10 patients (Student 1908, Biometrika 6), of which 9 slept longer and none shorter."""
    assert compute_mcnemar(9, 2) == pytest.approx(0.06543, abs=0.000005)  # the matrix 21, 9, 2, 12
    assert compute_mcnemar(13, 2) == 2 * (1 + 15 + 105) / 2**15
    assert compute_mcnemar(9, 0) == 2 / 2**9


def compute_kappa_by_matrix(pairs: Sequence[tuple[int, int]], labels: int) -> Fraction | None:
    """Cohen's kappa from the confusion matrix, in exact fractions."""
    matrix = [[Fraction(0)] * labels for _ in range(labels)]
    for person, judge in pairs:
        matrix[person][judge] += Fraction(1, len(pairs))
    observed = sum((matrix[label][label] for label in range(labels)), Fraction())
    people, judged = (
        [sum(row, Fraction()) for row in matrix],
        [sum(column, Fraction()) for column in zip(*matrix, strict=True)],
    )
    expected = sum((first * second for first, second in zip(people, judged, strict=True)), Fraction())
    return None if expected == 1 else (observed - expected) / (1 - expected)


def test_kappa_agrees_with_the_confusion_matrix_on_random_tables() -> None:
    chance = random.Random(2)  # noqa: S311  not for secrets
    for _ in range(TABLES):
        labels = chance.randrange(1, 6)
        pairs = [(chance.randrange(labels), chance.randrange(labels)) for _ in range(chance.randrange(1, 60))]
        agreement, expected = compute_agreement(pairs), compute_kappa_by_matrix(pairs, labels)
        if expected is None:
            assert agreement.kappa is None
        else:
            assert agreement.kappa == pytest.approx(float(expected), abs=1e-12)
        assert agreement.agreed == sum(first == second for first, second in pairs)


def test_kappa_of_published_examples() -> None:
    """Two readers of 50 grant proposals: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no gives 0.4."""
    grants = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15
    agreement = compute_agreement(grants)
    assert agreement.kappa == pytest.approx(0.4)
    assert (agreement.share, agreement.base_rate) == (0.7, 0.5)
    same_share = [("y", "y")] * 45 + [("y", "n")] * 15 + [("n", "y")] * 25 + [("n", "n")] * 15
    assert compute_agreement(same_share).kappa == pytest.approx(0.1304, abs=0.0001)


@pytest.mark.parametrize(
    ("source", "table", "published"),
    [
        ("Fleiss 1981, table 13.1: two raters, 100 patients", [[75, 1, 4], [5, 4, 1], [0, 0, 10]], 0.676),
        (
            "Agresti 2002, table 10.8: two pathologists, 118 slides",
            [[22, 2, 2, 0], [5, 7, 14, 0], [0, 2, 36, 0], [0, 1, 17, 10]],
            0.493,
        ),
    ],
)
def test_kappa_of_published_tables(source: str, table: Sequence[Sequence[int]], published: float) -> None:
    pairs = [
        (first, second) for first, row in enumerate(table) for second, count in enumerate(row) for _ in range(count)
    ]
    assert compute_agreement(pairs).kappa == pytest.approx(published, abs=0.0006), source


def find_wilson_by_search(passes: int, total: int, z: float) -> tuple[float, float]:
    """The proportions at which the score test just does not reject, found by bisection."""

    def is_rejected(share: float) -> bool:
        spread = sqrt(share * (1 - share) / total)
        return abs(passes / total - share) > z * spread

    def search(inside: float, outside: float) -> float:
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if is_rejected(middle) else (middle, outside)
        return (inside + outside) / 2

    center = passes / total
    return search(center, 0.0), search(center, 1.0)


def test_wilson_agrees_with_inverting_the_score_test_on_random_tables() -> None:
    chance = random.Random(3)  # noqa: S311  not for secrets
    for _ in range(TABLES):
        total = chance.randrange(1, 400)
        passes = chance.randrange(total + 1)
        low, high = compute_wilson(passes, total)
        expected = find_wilson_by_search(passes, total, 1.959963984540054)
        assert (low, high) == pytest.approx(expected, abs=1e-9)
        assert low <= passes / total <= high


def test_wilson_of_published_examples() -> None:
    """Newcombe 1998, Statistics in Medicine 17, table I, method 3: 81 of 263, 15 of 148, 0 of 20 and 1 of 29."""
    examples = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (passes, total), expected in examples.items():
        assert compute_wilson(passes, total) == pytest.approx(expected, abs=0.0001)
    assert compute_wilson(0, 0) == (0.0, 1.0)


def test_the_sign_flip_test_agrees_with_every_choice_of_signs() -> None:
    chance = random.Random(4)  # noqa: S311  not for secrets
    for _ in range(100):
        changes = [chance.randrange(-6, 7) for _ in range(chance.randrange(1, 10))]
        sums = [sum(signed) for signed in product(*((change, -change) for change in changes))]
        extreme = sum(abs(total) >= abs(sum(changes)) for total in sums)
        assert compute_flip_chance(changes) == pytest.approx(extreme / len(sums))


def test_the_smallest_difference_is_significant_and_a_smaller_one_is_not() -> None:
    for flips in range(6, 80):
        difference = find_smallest_difference(100, flips)
        assert difference is not None
        one_way = (round(difference * 100) + flips) // 2
        assert compute_mcnemar(one_way, flips - one_way) <= 0.05
        assert compute_mcnemar(one_way - 1, flips - one_way + 1) > 0.05
    assert find_smallest_difference(60) == pytest.approx(6 / 60)
    assert find_smallest_difference(5) is None
    assert find_smallest_difference(100, flips=20) == pytest.approx((2 * 15 - 20) / 100)


@pytest.mark.parametrize("rho", RHOS)
def test_a_comparison_of_correlated_results_does_not_cry_wolf_and_sees_what_broke(rho: float) -> None:
    check_simulation(rho, runs=100)


@pytest.mark.nightly
@pytest.mark.parametrize("rho", RHOS)
def test_two_thousand_comparisons_do_not_cry_wolf_and_see_what_broke(rho: float) -> None:
    check_simulation(rho, runs=2000)


def check_simulation(rho: float, runs: int) -> None:
    for noise in NOISE:
        assert simulate(rho, noise=noise, runs=runs).by_case <= 0.05 * runs
    broken = simulate(rho, noise=min(NOISE), broken=12, runs=runs)
    assert broken.by_case >= 0.9 * runs


def test_cosine_of_simple_vectors() -> None:
    assert compute_cosine([1, 0], [1, 0]) == 1.0
    assert compute_cosine([1, 0], [0, 2]) == 0.0
    assert compute_cosine([1, 1], [-1, -1]) == pytest.approx(-1)
    assert compute_cosine([0, 0], [1, 1]) == 0.0
    with pytest.raises(ValueError, match="2 numbers cannot be compared with one of 3"):
        compute_cosine([1, 2], [1, 2, 3])
