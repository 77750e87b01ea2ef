from __future__ import annotations

from collections import Counter
from itertools import product
from math import exp, expm1, inf, log, log1p, pi, sqrt

import numpy as np
import pytest
import scipy.stats
from scipy.integrate import quad
from scipy.special import eval_genlaguerre, hyp2f1

from parallelrnn.errors import ArgumentError, ArgumentTypeError
from parallelrnn.interpret import recurrence_features
from parallelrnn.theory.random_matrices import (
    coverage,
    feature_types,
    log_only_real,
    real_eigenvalues,
    simulate_real_eigenvalues,
)
from tests.support import raises

ROOT = sqrt(2)

# Table 1 of Edelman, "The probability that a random real Gaussian matrix has k real eigenvalues, related distributions,
# and the circular law", Journal of Multivariate Analysis 60 (1997).
EDELMAN = {
    1: {1: 1.0},
    2: {2: ROOT / 2, 0: 1 - ROOT / 2},
    3: {3: ROOT / 4, 1: 1 - ROOT / 4},
    4: {4: 1 / 8, 2: -1 / 4 + 11 * ROOT / 16, 0: 9 / 8 - 11 * ROOT / 16},
    5: {5: 1 / 32, 3: -1 / 16 + 13 * ROOT / 32, 1: 33 / 32 - 13 * ROOT / 32},
    6: {
        6: ROOT / 256,
        4: 271 / 1024 - 3 * ROOT / 256,
        2: -271 / 512 + 107 * ROOT / 128,
        0: 1295 / 1024 - 53 * ROOT / 64,
    },
    7: {
        7: ROOT / 2048,
        5: 355 / 4096 - 3 * ROOT / 2048,
        3: -355 / 2048 + 1087 * ROOT / 2048,
        1: 4451 / 4096 - 1085 * ROOT / 2048,
    },
    8: {
        8: 1 / 16384,
        6: -1 / 4096 + 3851 * ROOT / 262144,
        4: 53519 / 131072 - 11553 * ROOT / 262144,
        2: -53487 / 65536 + 257185 * ROOT / 262144,
        0: 184551 / 131072 - 249483 * ROOT / 262144,
    },
}


@pytest.mark.parametrize(("size", "table"), EDELMAN.items())
def test_edelmans_table(size: int, table: dict[int, float]) -> None:
    law = real_eigenvalues(size)
    # The table's own differences cancel to 1e-15 of numbers near 1.
    for count, probability in zip(law.counts, law.probabilities, strict=True):
        assert probability == pytest.approx(table[count], abs=1e-15, rel=1e-13)
    assert sorted(table) == list(law.counts)


@pytest.mark.parametrize("size", [*range(1, 14), 24, 25, 40, 64])
def test_all_eigenvalues_real(size: int) -> None:
    """Edelman (1997): 2^(-d (d - 1) / 4), here from the determinant, down to 10^-303."""
    assert real_eigenvalues(size).log_probabilities[-1] == pytest.approx(log_only_real(size), rel=1e-13)
    assert log_only_real(size) == pytest.approx(-size * (size - 1) * log(2) / 4)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8, 11, 20, 33])
def test_all_but_one_pair_real(size: int) -> None:
    """Kanzieper and Akemann, Physical Review Letters 95 (2005), Eq. 5: an integral over the one complex eigenvalue."""

    def integrand(y: float) -> float:
        # exp(y^2) erfc(sqrt(2) y) = exp(-y^2) erfcx(sqrt(2) y)
        return float(y * np.exp(-(y**2)) * scipy.special.erfcx(ROOT * y) * eval_genlaguerre(size - 2, 2, -2 * y**2))

    law = real_eigenvalues(size)
    expected = 2 * quad(integrand, 0, inf, epsrel=1e-12)[0]
    assert exp(law.log_probabilities[-2] - law.log_probabilities[-1]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 10, 17, 32, 50])
def test_expected_number(size: int) -> None:
    """Edelman, Kostlan and Shub (1994), Corollary 5.2."""
    log_beta = scipy.special.betaln(size, 0.5)
    expected = 0.5 + ROOT * hyp2f1(1, -0.5, size, 0.5) / exp(log_beta)
    law = real_eigenvalues(size)
    assert law.mean == pytest.approx(expected, rel=1e-12)
    assert law.probabilities.sum() == pytest.approx(1, abs=1e-13)
    assert law.mean / sqrt(2 * size / pi) == pytest.approx(1, abs=1 / sqrt(size))


@pytest.mark.parametrize("size", [3, 5, 7, 9])
def test_eigenvalues_of_odd_sizes_interlace_with_the_next_size(size: int) -> None:
    """A polynomial whose coefficients are the probabilities is a product of 1 - chance + chance z."""

    def chances(size: int) -> list[float]:
        zeros = np.roots(real_eigenvalues(size).probabilities[::-1])
        assert abs(zeros.imag).max() == 0
        return sorted(1 / (1 - zeros.real))

    odd, even = chances(size), chances(size + 1)
    assert len(even) == len(odd) + 1
    merged = [value for pair in zip(even, [*odd, 1.0], strict=True) for value in pair]
    assert merged[0] > 0
    assert merged == sorted(merged)


def test_no_real_eigenvalue() -> None:
    """Kanzieper, Poplavskyi, Timm, Tribe and Zaboronski (2016): log p falls like -zeta(3/2) sqrt(d / (2 pi))."""
    slope = scipy.special.zeta(1.5) / sqrt(2 * pi)
    few, many = (real_eigenvalues(size).log_probabilities[0] for size in (36, 64))
    assert (few - many) / (8 - 6) == pytest.approx(slope, rel=0.01)


@pytest.mark.parametrize("size", [5, 12])
def test_as_often_as_simulated(size: int) -> None:
    """The chance that a right distribution fails: one in a thousand, for this seed it does not."""
    drawn = simulate_real_eigenvalues(size, 8_000, seed=1)
    law = real_eigenvalues(size)
    assert drawn.counts == law.counts
    assert sum(drawn.occurrences) == 8_000
    expected = 8_000 * law.probabilities
    common = expected > 5  # the rest together
    observed = np.append(np.array(drawn.occurrences)[common], np.array(drawn.occurrences)[~common].sum())
    grouped = np.append(expected[common], expected[~common].sum() + 1e-9)
    assert scipy.stats.chisquare(observed, grouped * observed.sum() / grouped.sum()).pvalue > 1e-3


def test_intervals_cover_as_often_as_they_say() -> None:
    probability = exp(log_only_real(2))
    intervals = [simulate_real_eigenvalues(2, 200, seed=seed).interval(2, level=0.8) for seed in range(200)]
    covered = sum(low <= probability <= high for low, high in intervals)
    # 160 of 200 at least are expected, and three standard deviations less is 143; the interval [0, 1] would cover all.
    assert 143 <= covered <= 195
    assert simulate_real_eigenvalues(12, 50).interval(12)[0] == 0.0
    low, high = simulate_real_eigenvalues(1, 50).interval(1)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 50)), 1.0)


@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 3), (2, 1), (2, 3), (3, 2), (4, 1), (4, 2), (5, 1)])
def test_blocks_are_independent(block_size: int, num_blocks: int) -> None:
    """All combinations of what the blocks may have, from Edelman's table."""
    counts: Counter[int] = Counter()
    only_real = only_complex = 0.0
    for blocks in product(EDELMAN[block_size].items(), repeat=num_blocks):
        probability = float(np.prod([chance for _, chance in blocks]))
        real = sum(count for count, _ in blocks)
        counts[real] += probability  # type: ignore[assignment]
        only_real += probability * (real == num_blocks * block_size)
        only_complex += probability * (real == 0)
    law = real_eigenvalues(block_size, num_blocks)
    assert law.counts == tuple(sorted(counts))
    np.testing.assert_allclose(law.probabilities, [counts[count] for count in law.counts], rtol=1e-12, atol=1e-15)
    types = feature_types(block_size, num_blocks)
    assert exp(types.log_only_real) == pytest.approx(only_real)
    assert exp(types.log_only_complex) == pytest.approx(only_complex)
    assert exp(types.log_both) == pytest.approx(1 - only_real - only_complex, abs=1e-14)


def test_blocks_of_size_2_throw_coins() -> None:
    """Each has two real eigenvalues with probability 1 / sqrt(2)."""
    law = real_eigenvalues(2, 64)
    expected = scipy.stats.binom(64, 1 / ROOT)
    np.testing.assert_allclose(law.log_probabilities, expected.logpmf(np.arange(65)), rtol=1e-12, atol=1e-12)
    types = feature_types(2, 64)
    assert types.log_only_real == pytest.approx(-32 * log(2))
    assert types.log_only_complex == pytest.approx(64 * log1p(-1 / ROOT))
    # Nearly one: the probability of the rest is compared.
    assert -expm1(types.log_both) == pytest.approx(2**-32 + (1 - 1 / ROOT) ** 64, rel=1e-4)
    assert feature_types(2).log_both == -inf


def test_random_matrices_have_features_of_order_one_alone() -> None:
    """Proposition 2 without its R-2, by the types that `recurrence_features` reads off."""
    generator = np.random.default_rng(0)
    seen: Counter[frozenset[str]] = Counter()
    for _ in range(400):
        seen[frozenset(feature.label for feature in recurrence_features(generator.normal(size=(3, 3))))] += 1
    assert set(seen) == {frozenset({"R-1"}), frozenset({"R-1", "C-1"})}
    interval = scipy.stats.binomtest(seen[frozenset({"R-1"})], 400).proportion_ci(0.999)
    assert interval.low <= exp(feature_types(3).log_only_real) <= interval.high


def test_what_block_sizes_cover() -> None:
    """Figure 2(b), in blue."""
    entries = coverage(128)
    assert [entry.block_size for entry in entries] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert [len(entry.types) for entry in entries] == [1, 3, 6, 12, 24, 48, 96, 192]
    assert entries[0].types == ("R-1",)
    assert entries[2].types == ("R-1", "R-2", "R-3", "R-4", "C-1", "C-2")
    assert entries[0].log_probability == pytest.approx(-128 * 127 / 4 * log(2))
    assert {entry.log_probability for entry in entries[1:]} == {0.0}
    assert coverage(1)[0].log_probability == 0


def test_rejected_arguments() -> None:
    with raises(ArgumentError, argument="block_size", got=-2):
        real_eigenvalues(-2)
    with raises(ArgumentTypeError, argument="num_blocks", got=1.5):
        feature_types(2, 1.5)  # type: ignore[arg-type]
    with raises(ArgumentError, argument="draws", got=0):
        simulate_real_eigenvalues(3, 0)
    with raises(ArgumentError, argument="level", got=95):
        simulate_real_eigenvalues(3, 10).interval(3, level=95)
