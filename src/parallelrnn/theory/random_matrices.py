"""Which recurrence features random recurrent matrices have: Proposition 2 of arXiv 2605.02692, exactly.

A matrix whose entries have a joint density has distinct eigenvalues, none of them 0, with probability one. So its
features are R-1, one for each real eigenvalue, and C-1, one for each pair: the paper adds R-2, which has probability
zero. With independent normal entries, of any one variance, the number of real eigenvalues has a known distribution.

The generating function of that number is a determinant (Forrester and Nagao, "Eigenvalue statistics of the real Ginibre
ensemble", 2007). For even d, and w(x) = exp(-x^2 / 2), the polynomials x^(2j) and x^(2j+1) - 2j x^(2j-1) make it

    E z^(real / 2) = det(1 + (z - 1) A),      A_jk = Gamma(j + k + 1/2) / sqrt(2 pi (2j)! (2k)!),      j, k < d / 2,

since -(x^(2k) w)' = (x^(2k+1) - 2k x^(2k-1)) w. For odd d one real eigenvalue is certain, and each row of the
determinant loses the multiple of one more row, j = (d - 1) / 2, that takes its integral against w away. All eigenvalues
of A lie between 0 and 1: for even d since A is positive definite and det(1 + (z - 1) A) has no positive zero, for odd d
since they interlace those for d + 1 (docs/mathematics.md). The number of pairs of real eigenvalues is therefore
distributed as that of heads in independent throws of d // 2 coins, whose chances are these eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from parallelrnn.nn.blocks import check_size

Array = NDArray[np.float64]

_ENTRIES = 2**21  # numbers drawn at a time, 16 MB


@dataclass(frozen=True)
class RealEigenvalues:
    """The distribution of the number of real eigenvalues of blocks with independent normal entries."""

    block_size: int
    num_blocks: int
    counts: tuple[int, ...]  # every second number up to that of all eigenvalues
    log_probabilities: tuple[float, ...]  # of these counts; all to about 13 digits, also where they are tiny

    @property
    def probabilities(self) -> Array:
        """Of the counts."""
        return np.exp(self.log_probabilities)

    @property
    def mean(self) -> float:
        """The expected number of real eigenvalues; of one large block about sqrt(2 block_size / pi)."""
        return float(self.probabilities @ self.counts)


@dataclass(frozen=True)
class SimulatedEigenvalues:
    """How often matrices that were drawn had how many real eigenvalues."""

    size: int
    counts: tuple[int, ...]
    occurrences: tuple[int, ...]  # of these counts

    def interval(self, count: int, level: float = 0.95) -> tuple[float, float]:
        """For the probability of this count: the interval of Clopper and Pearson, which covers it at least so often."""
        from scipy.stats import binomtest

        if not 0 < level < 1:
            raise ValueError(f"level is a probability between 0 and 1, got {level}")
        found = dict(zip(self.counts, self.occurrences, strict=True)).get(count, 0)
        low, high = binomtest(found, sum(self.occurrences)).proportion_ci(level)
        return float(low), float(high)


@dataclass(frozen=True)
class FeatureTypes:
    """The probabilities of the sets of feature types that independent random blocks have together."""

    block_size: int
    num_blocks: int
    log_only_real: float  # {R-1}
    log_only_complex: float  # {C-1}
    log_both: float  # {R-1, C-1}


@dataclass(frozen=True)
class Coverage:
    """The feature types that blocks of one size can have, and the probability that they are all one needs."""

    block_size: int
    types: tuple[str, ...]
    log_probability: float  # that a random matrix has no feature of another type


def log_only_real(size: int) -> float:
    """The logarithm of 2^(-d (d - 1) / 4), the probability that a random matrix has only R-1 (Edelman, 1997)."""
    check_size("size", size)
    return -size * (size - 1) / 4 * float(np.log(2))


def real_eigenvalues(block_size: int, num_blocks: int = 1) -> RealEigenvalues:
    """The exact distribution of the number of real eigenvalues; with `num_blocks=1` that of a dense random matrix.

    The determinant needs about block_size / 2 digits, so that it is computed with mpmath, and takes its time for sizes
    beyond a hundred.
    """
    check_size("block_size", block_size)
    check_size("num_blocks", num_blocks)
    log_probabilities = np.array([0.0])
    for log_heads, log_tails in _coins(block_size) * num_blocks:
        before = np.append(log_probabilities, -inf)
        log_probabilities = np.logaddexp(before + log_tails, np.roll(before, 1) + log_heads)
    counts = range(num_blocks * (block_size % 2), num_blocks * block_size + 1, 2)
    return RealEigenvalues(block_size, num_blocks, tuple(counts), tuple(map(float, log_probabilities)))


def simulate_real_eigenvalues(size: int, draws: int, seed: int = 0) -> SimulatedEigenvalues:
    """Draw matrices with independent normal entries and count."""
    check_size("size", size)
    check_size("draws", draws)
    generator = np.random.default_rng(seed)
    occurrences = np.zeros(size + 1, dtype=np.int64)
    at_once = max(1, _ENTRIES // size**2)
    for start in range(0, draws, at_once):
        matrices = generator.normal(size=(min(at_once, draws - start), size, size))
        # The real Schur form decides which eigenvalues are real; their imaginary parts are zeros, not rounding errors.
        real = (np.linalg.eigvals(matrices).imag == 0).sum(axis=1)
        occurrences += np.bincount(real, minlength=size + 1)
    counts = range(size % 2, size + 1, 2)
    return SimulatedEigenvalues(size, tuple(counts), tuple(int(occurrences[count]) for count in counts))


def feature_types(block_size: int, num_blocks: int = 1) -> FeatureTypes:
    """Which types blocks with independent normal entries have; with `num_blocks=1` those of a dense random matrix."""
    found = real_eigenvalues(block_size, num_blocks)
    by_count = dict(zip(found.counts, found.log_probabilities, strict=True))
    only_complex = by_count.pop(0, -inf)
    only_real = by_count.pop(num_blocks * block_size)
    both = float(np.logaddexp.reduce(list(by_count.values()), initial=-inf))
    return FeatureTypes(block_size, num_blocks, only_real, only_complex, both)


def coverage(hidden_size: int) -> tuple[Coverage, ...]:
    """For all block sizes that divide `hidden_size`, what they cover of a random dense matrix: Figure 2(b), in blue.

    Types beyond R-1 and C-1 add nothing. So the probability is that of real eigenvalues only for blocks of size 1, and
    one for all others.
    """
    check_size("hidden_size", hidden_size)
    sizes = [size for size in range(1, hidden_size + 1) if hidden_size % size == 0]
    return tuple(Coverage(size, _types(size), log_only_real(hidden_size) if size == 1 else 0.0) for size in sizes)


def _types(block_size: int) -> tuple[str, ...]:
    real = [f"R-{order}" for order in range(1, block_size + 1)]
    return (*real, *(f"C-{order}" for order in range(1, block_size // 2 + 1)))


@cache
def _coins(size: int) -> tuple[tuple[float, float], ...]:
    """The logarithms of the eigenvalues of A, and of one minus them."""
    import mpmath  # type: ignore[import-untyped]

    half = size // 2
    # The least eigenvalue is about 10^(-0.47 size), and errors are relative to the largest.
    with mpmath.workdps(20 + size // 2):
        gamma = [mpmath.gamma(index + mpmath.mpf(1) / 2) for index in range(2 * half + 1)]
        scale = [mpmath.sqrt(mpmath.sqrt(2 * mpmath.pi) * mpmath.factorial(2 * index)) for index in range(half)]
        # Integrals of x^(2j) w, over that of the row that odd sizes take away.
        share = [mpmath.mpf(2) ** (index - half) * gamma[index] / gamma[half] for index in range(half)]
        matrix = mpmath.matrix(half, half)
        for j in range(half):
            for k in range(half):
                away = share[j] * gamma[half + k] if size % 2 else 0
                matrix[j, k] = (gamma[j + k] - away) / (scale[j] * scale[k])
        if half < 2:
            values = [matrix[index, index] for index in range(half)]
        elif size % 2:
            values = [mpmath.re(value) for value in mpmath.eig(matrix, left=False, right=False)]
        else:
            values = list(mpmath.eigsy(matrix, eigvals_only=True))
        return tuple((float(mpmath.log(value)), float(mpmath.log(1 - value))) for value in values)
