from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, exp, inf, log, nan
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy

from parallelrnn.errors import ArgumentError, InputError
from parallelrnn.theory.bounds import (
    Approximation,
    HolderClass,
    balanced,
    log_estimation_error,
    log_informative_sample_size,
    log_least_sample_size,
    log_rate,
    prediction_error,
    recommended,
)
from tests.support import raises

TARGETS = [
    HolderClass(1, 1, 1),
    HolderClass(0.3, 2, 3),
    HolderClass(2, 3, 2, output_size=4, radius=2.5),
    HolderClass(2.5, 1, 12, output_size=2, radius=0.5),
    HolderClass(4, 5, 2),
]
FACTORS = [(1, 1), (1, 2), (3, 1), (5, 9), (8, 16), (17, 33), (10**6, 10**9 + 1)]
DOUBLE = 1e-12  # a dozen logarithms of moderate size, each to 16 digits


def order(beta: float) -> int:
    """The largest integer strictly below beta, as the definition has it, by counting."""
    k = 0
    while k + 1 < beta:
        k += 1
    return k


def exact_log2(number: int) -> int:
    return int(sympy.ceiling(sympy.log(8 * number, 2)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("depth_factor", "width_factor"), FACTORS)
@pytest.mark.parametrize("block_size", [1, 2, 7])
def test_theorem_3_holds_the_network_that_its_proof_builds(
    target: HolderClass, depth_factor: int, width_factor: int, block_size: int
) -> None:
    """Corollary 3.1 of Jiao, Shen, Lin and Huang (2023) for the FNN, then Proposition 3 for the ParaRNN."""
    k, n = order(target.smoothness), target.input_size * target.lookback
    fnn_width = 38 * (k + 1) ** 2 * 3**n * n ** (k + 1) * width_factor * exact_log2(width_factor)
    fnn_depth = 21 * (k + 1) ** 2 * depth_factor * exact_log2(depth_factor) + 2 * n
    built_width = (target.input_size + 1) * target.output_size * fnn_width + block_size
    # The theorem has 2 d_in in the place of d_in + 1, and then whole blocks.
    stated_width = Fraction(2 * target.input_size, target.input_size + 1) * (built_width - block_size) + block_size
    network = Approximation(target, depth_factor, width_factor, block_size)
    assert built_width <= stated_width <= network.width < stated_width + block_size
    assert network.width % block_size == 0
    # Depth 2 (T + L - 1), and 2 d_in T in the place of 2 T. Their depth counts hidden layers, L - 1 of L.
    unused = 2 * target.lookback * (target.input_size - 1)
    assert network.depth == 2 * (target.lookback + (fnn_depth + 1) - 1) + unused
    assert network.log_width == pytest.approx(float(mpmath.log(network.width)), rel=DOUBLE)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("depth_factor", "width_factor"), FACTORS)
def test_the_error_of_theorem_3_as_sympy_computes_it(target: HolderClass, depth_factor: int, width_factor: int) -> None:
    beta, k = sympy.Rational(str(target.smoothness)), order(target.smoothness)
    n, radius = target.input_size * target.lookback, sympy.Rational(str(target.radius))
    power = k + sympy.Max(beta, 1) / 2
    error = 19 * radius * (k + 1) ** 2 * sympy.Integer(n) ** power
    error *= sympy.Integer(depth_factor * width_factor) ** (-2 * beta / n)
    log_error = Approximation(target, depth_factor, width_factor).log_error
    assert log_error == pytest.approx(float(sympy.log(error).evalf(30)), rel=DOUBLE, abs=DOUBLE)


def test_an_integer_smoothness_belongs_to_the_derivatives_below_it() -> None:
    """Omega lies in (0, 1]: a function with a Lipschitz derivative has smoothness 2 and k = 1."""
    assert [HolderClass(beta, 1, 1).derivatives for beta in (0.5, 1, 1.5, 2, 2 + 1e-9, 7)] == [0, 0, 1, 1, 2, 6]
    below, at, above = (Approximation(HolderClass(beta, 2, 3), 4, 5) for beta in (2 - 1e-12, 2, 2 + 1e-12))
    assert at.log_error == pytest.approx(below.log_error, abs=1e-10)
    assert (at.width, at.depth) == (below.width, below.depth)
    # With the usual floor, as right of the integer, the theorem asks for more and promises less.
    assert above.log_error > at.log_error + 1
    assert above.width > at.width
    assert above.depth > at.depth


@pytest.mark.parametrize("target", TARGETS)
def test_larger_factors_buy_smaller_errors_at_the_rate_of_the_theorem(target: HolderClass) -> None:
    sizes = [Approximation(target, 2**power, 2**power) for power in range(0, 60, 6)]
    for name in ("width", "depth", "log_width"):
        numbers = [getattr(network, name) for network in sizes]
        assert numbers == sorted(set(numbers))
    falls = [first.log_error - second.log_error for first, second in pairwise(sizes)]
    rate = 2 * target.smoothness / (target.input_size * target.lookback)
    assert falls == pytest.approx([rate * 12 * log(2)] * len(falls), rel=1e-9)


def test_long_inputs_do_not_overflow() -> None:
    target = HolderClass(1.5, 10, 1000)  # 10,000 numbers: the width has 4,800 digits
    network = Approximation(target, 3, 2)
    assert network.log_width == pytest.approx(float(mpmath.log(network.width)), rel=DOUBLE)
    assert network.width > 3**10_000
    bound = recommended(target, 10**6)
    assert bound.vacuous
    assert not bound.holds
    with raises(ArgumentError, "10^95", argument="sample_size", got="10^6.0"):
        prediction_error(network, 10**6)
    # A width that nobody computes, and a sample, and with it a depth, that nobody prints.
    endless = HolderClass(1, 10**5, 10**4)
    assert Approximation(endless, 1, 1).log_width == pytest.approx(10**9 * log(3), rel=1e-6)
    bound = recommended(target, 2**400_000)
    assert bound.log_bound < log(4)
    assert bound.network.depth_factor > 10**4300
    assert "depth_factor=10^" in repr(bound)


LARGE = 10**60


@pytest.mark.parametrize("target", [HolderClass(1, 1, 1), HolderClass(2, 2, 3, radius=3.0), HolderClass(0.5, 1, 4)])
@pytest.mark.parametrize("constant", [1.0, 1e-3])
def test_theorem_5_is_theorem_4_and_three_halves_of_theorem_3_squared(target: HolderClass, constant: float) -> None:
    network = Approximation(target, 6, 2, block_size=4)
    bound = prediction_error(network, LARGE, constant=constant)
    with mpmath.workdps(40):
        d, depth, size = mpmath.mpf(network.width), mpmath.mpf(network.depth), mpmath.mpf(LARGE)
        needed = d**2 * depth**2 * mpmath.log(max(d, depth))
        estimation = mpmath.mpf(constant) * mpmath.mpf(target.radius) ** 5 * mpmath.log(size) ** 5 * needed / size
        approximation = mpmath.mpf(3) / 2 * mpmath.exp(network.log_error) ** 2
        least, total = float(mpmath.log(needed)), float(mpmath.log(estimation + approximation))
        terms = float(mpmath.log(estimation)), float(mpmath.log(approximation))
    assert bound.log_least_sample_size == pytest.approx(least, rel=DOUBLE)
    assert log_least_sample_size(network.width, network.depth) == pytest.approx(least, rel=DOUBLE)
    assert bound.log_estimation == pytest.approx(terms[0], rel=DOUBLE, abs=1e-10)
    alone = log_estimation_error(
        network.width, network.depth, LARGE, radius=target.radius, constant=constant, block_size=4
    )
    assert alone == pytest.approx(terms[0], rel=DOUBLE, abs=1e-10)
    # The paper rounds 541.5 up.
    assert ceil(Fraction(3, 2) * 19**2) == 542
    assert bound.log_approximation == pytest.approx(terms[1] + log(542 / 541.5), abs=1e-10)
    assert total < bound.log_bound < total + log(542 / 541.5) + 1e-10
    assert bound.holds
    assert bound.vacuous == (exp(bound.log_bound) >= 4 * target.radius**2)


@pytest.mark.parametrize("target", [HolderClass(1, 1, 1), HolderClass(2, 1, 3), HolderClass(0.5, 2, 2)])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.9])
def test_corollary_1(target: HolderClass, part: float) -> None:
    """The bound at the balanced width and depth is of order N^-rate (log N)^10, and no smaller power of log N does."""
    n, beta = target.input_size * target.lookback, target.smoothness
    assert target.rate == pytest.approx(2 * beta / (n + 2 * beta))
    eta = part * n / (2 * n + 4 * beta)

    def bound(bits: int) -> float:
        return prediction_error(balanced(target, 2**bits, eta), 2**bits).log_bound

    less, more = 10**5, 10**6
    fall = bound(less) - bound(more)
    # The slope is off by what (log N)^10 adds, 10 log(10) between the two sizes, of 6e5 altogether.
    assert fall / ((more - less) * log(2)) == pytest.approx(target.rate, abs=4e-5)
    # The power of log N: logarithms of I, J and d are multiples of log N up to constants, which vanish like 1 / log N.
    assert (target.rate * (more - less) * log(2) - fall) / log(10) == pytest.approx(10, abs=0.02)
    assert log_rate(target, 2**less) - log_rate(target, 2**more) == pytest.approx(fall, abs=0.02 * log(10))


@pytest.mark.parametrize("target", [HolderClass(1, 1, 1), HolderClass(2, 1, 3)])
def test_the_least_bound_has_fewer_logarithms_than_corollary_1(target: HolderClass) -> None:
    """With a fixed width 8 of 10 are left, and balancing with them in mind leaves the rate's share of 8."""
    less, more = (recommended(target, 2**bits) for bits in (10**4, 10**5))
    excess = more.log_bound - less.log_bound + target.rate * (10**5 - 10**4) * log(2)
    assert excess / log(10) == pytest.approx(8 * target.rate, abs=0.02)
    assert less.network.width_factor == more.network.width_factor == 1


@pytest.mark.parametrize(
    ("target", "sample_size", "constant"),
    [
        (HolderClass(1, 1, 1), 10**12, 1e-6),
        (HolderClass(2, 1, 1), 10**16, 1e-8),
        (HolderClass(0.5, 1, 2), 10**14, 1e-9),
        (HolderClass(1, 1, 1), 10**9, 1e-12),
        (HolderClass(3.5, 2, 1, radius=2.0), 10**22, 1e-9),
        (HolderClass(1, 1, 3), 1000, 1.0),
        (HolderClass(6, 1, 1), 10**20, 1e-9),
    ],
)
def test_no_integers_do_better_than_the_recommended_ones(
    target: HolderClass, sample_size: int, constant: float
) -> None:
    """All of them, with the formulas of Theorem 5 written once more; the constant is small to have I and J at work."""
    n, k, beta, radius = target.dimension, order(target.smoothness), target.smoothness, target.radius

    def bound(i: int, j: int) -> float:
        d = 76 * (k + 1) ** 2 * 3**n * target.input_size ** (k + 2) * target.lookback ** (k + 1) * j * ceil_log2(j) + 2
        d += d % 2
        depth = 42 * (k + 1) ** 2 * i * ceil_log2(i) + 6 * n
        estimation = constant * radius**5 * log(sample_size) ** 5 / sample_size * d**2 * depth**2 * log(max(d, depth))
        approximation = 542 * radius**2 * (k + 1) ** 4 * n ** (2 * k + max(beta, 1)) * (i * j) ** (-4 * beta / n)
        return estimation + approximation

    def ceil_log2(number: int) -> int:
        return 3 + next(power for power in range(64) if 2**power >= number)

    result = recommended(target, sample_size, constant=constant)
    best = min(bound(i, j) for i in range(1, 200) for j in range(1, 40))
    chosen = bound(result.network.depth_factor, result.network.width_factor)
    assert exp(result.log_bound) == pytest.approx(chosen, rel=1e-9)
    assert chosen <= best * 1.001


@pytest.mark.parametrize("target", [HolderClass(1, 1, 1), HolderClass(1, 1, 24), HolderClass(2, 7, 96)])
def test_the_bounds_say_nothing_about_real_data(target: HolderClass) -> None:
    least = log_informative_sample_size(target)
    assert least > 20 * log(10)
    enough, less = round(least / log(10) * 1.01) + 1, round(least / log(10) * 0.99) - 1
    assert not recommended(target, 10**enough).vacuous
    assert recommended(target, 10**enough).holds
    assert recommended(target, 10**less).vacuous
    for sample_size in (100, 10**5, 10**9):
        bound = recommended(target, sample_size)
        assert bound.vacuous
        assert not bound.holds


TARGET = HolderClass(1, 1, 2)


@pytest.mark.parametrize(
    ("call", "argument", "got"),
    [
        (lambda: HolderClass(0, 1, 2), "smoothness", 0),
        (lambda: HolderClass(inf, 1, 2), "smoothness", inf),
        (lambda: HolderClass(1, 1, 2, radius=0.0), "radius", 0.0),
        (lambda: HolderClass(1, 0, 2), "input_size", 0),
        (lambda: HolderClass(1, 1, 2.0), "lookback", 2.0),
        (lambda: HolderClass(1, np.int64(1), 2), "input_size", 1),
        (lambda: HolderClass(1, 1, 2, output_size=True), "output_size", True),
        (lambda: Approximation(TARGET, 0, 1), "depth_factor", 0),
        (lambda: Approximation(TARGET, 1, 1.0), "width_factor", 1.0),
        (lambda: Approximation(TARGET, 1, 1, 0), "block_size", 0),
        (lambda: prediction_error(Approximation(replace(TARGET, radius=0.5), 1, 1), LARGE), "radius", 0.5),
        (lambda: recommended(replace(TARGET, output_size=2), LARGE), "output_size", 2),
        (lambda: recommended(TARGET, LARGE, constant=0.0), "constant", 0.0),
        (lambda: recommended(TARGET, 1), "sample_size", 1),
        (lambda: recommended(TARGET, 10.5), "sample_size", 10.5),
        (lambda: log_estimation_error(9, 2, LARGE), "width", 9),
        (lambda: log_estimation_error(8, 2, LARGE, radius=0.9), "radius", 0.9),
        (lambda: balanced(TARGET, 10**8, -0.01), "eta", -0.01),
        (lambda: balanced(TARGET, 10**8, 0.26), "eta", 0.26),  # the most is 2 / (4 + 4)
        (lambda: log_informative_sample_size(HolderClass(1, 100, 1000)), "target", 100_000),
    ],
)
def test_arguments_outside_the_theorems_are_rejected(call: Any, argument: str, got: object) -> None:
    with raises(ArgumentError, argument=argument, got=got):
        call()


def test_values_that_are_not_numbers_are_rejected() -> None:
    with raises(ArgumentError, argument="smoothness"):
        HolderClass(nan, 1, 2)
    with raises(ArgumentError, argument="eta"):
        balanced(TARGET, 10**8, nan)
    with raises(InputError):  # log max(d, L) is 0
        log_estimation_error(1, 1, LARGE, block_size=1)


def test_the_sample_has_to_be_as_large_as_the_theorem_asks_for() -> None:
    least = ceil(8**2 * 3**2 * log(8))
    assert log_estimation_error(8, 3, least) == pytest.approx(log(log(least) ** 5 * 8**2 * 3**2 * log(8) / least))
    with raises(ArgumentError, argument="sample_size", got="10^3.1"):
        log_estimation_error(8, 3, least - 1)


def test_eta_moves_from_depth_to_width() -> None:
    deep, wide = balanced(TARGET, 10**8, 0), balanced(TARGET, 10**8, 0.25)
    assert (deep.depth_factor, deep.width_factor) == (100, 1)
    assert (wide.depth_factor, wide.width_factor) == (1, 100)
