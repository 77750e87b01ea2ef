"""The recurrence features of random recurrent matrices: Proposition 2 of arXiv 2605.02692, exactly.

A matrix whose entries have a joint density has distinct, nonzero eigenvalues with probability one. So its features are
R-1, one for each real eigenvalue, and C-1, one for each pair; the paper adds R-2, which has probability zero. For
independent normal entries of equal variance, the distribution of the number of real eigenvalues is known.

The generating function of that number is a determinant (Forrester and Nagao, "Eigenvalue statistics of the real Ginibre
ensemble", 2007). For even d, and w(x) = exp(-x^2 / 2), the polynomials x^(2j) and x^(2j+1) - 2j x^(2j-1) make it

    E z^(real / 2) = det(1 + (z - 1) A),      A_jk = Gamma(j + k + 1/2) / sqrt(2 pi (2j)! (2k)!),      j, k < d / 2,

since -(x^(2k) w)' = (x^(2k+1) - 2k x^(2k-1)) w. For odd d one real eigenvalue is certain, and from each row of the
determinant a multiple of one more row, j = (d - 1) / 2, is subtracted so that its integral against w vanishes. All
eigenvalues of A lie between 0 and 1: for even d since A is positive definite and det(1 + (z - 1) A) has no positive
zero, for odd d since they interlace those for d + 1 (docs/mathematics.md). The number of pairs of real eigenvalues is
therefore distributed as the number of heads in independent tosses of d // 2 coins with these eigenvalues as chances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import check_integer, check_number

Array = NDArray[np.float64]

_ENTRIES_PER_BATCH = 2**21  # numbers drawn at a time, 16 MB


@dataclass(frozen=True)
class RealEigenvalues:
    """The distribution of the number of real eigenvalues of blocks with independent normal entries."""

    block_size: int
    num_blocks: int
    counts: tuple[int, ...]  # every second number up to the number of all eigenvalues
    log_probabilities: tuple[float, ...]  # of these counts, accurate to about 13 digits even if tiny

    @property
    def probabilities(self) -> Array:
        """The probabilities of the counts."""
        return np.exp(self.log_probabilities)

    @property
    def mean(self) -> float:
        """The expected number of real eigenvalues; for one large block about sqrt(2 block_size / pi)."""
        return float(self.probabilities @ self.counts)


@dataclass(frozen=True)
class SimulatedEigenvalues:
    """The numbers of real eigenvalues of randomly drawn matrices, and how often they occurred."""

    size: int
    counts: tuple[int, ...]
    occurrences: tuple[int, ...]  # of these counts

    def interval(self, count: int, level: float = 0.95) -> tuple[float, float]:
        """Return the interval of Clopper and Pearson for the probability of this count; it covers at least `level`."""
        from scipy.stats import binomtest

        check_number("level", level, "a number between 0 and 1", lambda value: 0 < value < 1)
        occurrences = dict(zip(self.counts, self.occurrences, strict=True)).get(count, 0)
        low, high = binomtest(occurrences, sum(self.occurrences)).proportion_ci(level)
        return float(low), float(high)


@dataclass(frozen=True, kw_only=True)
class FeatureTypes:
    """The probabilities of the sets of feature types of independent random blocks together."""

    block_size: int
    num_blocks: int
    log_only_real: float  # {R-1}
    log_only_complex: float  # {C-1}
    log_both: float  # {R-1, C-1}


@dataclass(frozen=True)
class Coverage:
    """The feature types that blocks of one size can have, and the probability that they suffice."""

    block_size: int
    types: tuple[str, ...]
    log_probability: float  # that a random matrix has no feature of another type


def log_only_real(size: int) -> float:
    """Return the logarithm of 2^(-d (d - 1) / 4), the probability that a random matrix has only R-1 (Edelman, 1997)."""
    check_integer("size", size, 1)
    return -size * (size - 1) / 4 * float(np.log(2))


def real_eigenvalues(block_size: int, num_blocks: int = 1) -> RealEigenvalues:
    """Compute the exact distribution of the number of real eigenvalues; `num_blocks=1` is a dense random matrix.

    The determinant needs about block_size / 2 digits, so it is computed with mpmath, which is slow for sizes beyond a
    hundred.
    """
    check_integer("block_size", block_size, 1)
    check_integer("num_blocks", num_blocks, 1)
    log_probabilities = np.array([0.0])
    for log_heads, log_tails in _coins(block_size) * num_blocks:
        before = np.append(log_probabilities, -inf)
        log_probabilities = np.logaddexp(before + log_tails, np.roll(before, 1) + log_heads)
    counts = range(num_blocks * (block_size % 2), num_blocks * block_size + 1, 2)
    return RealEigenvalues(block_size, num_blocks, tuple(counts), tuple(map(float, log_probabilities)))


def simulate_real_eigenvalues(size: int, draws: int, seed: int = 0) -> SimulatedEigenvalues:
    """Draw matrices with independent normal entries and count their real eigenvalues."""
    check_integer("size", size, 1)
    check_integer("draws", draws, 1)
    generator = np.random.default_rng(seed)
    occurrences = np.zeros(size + 1, dtype=np.int64)
    batch = max(1, _ENTRIES_PER_BATCH // size**2)
    for start in range(0, draws, batch):
        matrices = generator.normal(size=(min(batch, draws - start), size, size))
        # The real Schur form decides which eigenvalues are real; their imaginary parts are exact zeros.
        real = (np.linalg.eigvals(matrices).imag == 0).sum(axis=1)
        occurrences += np.bincount(real, minlength=size + 1)
    counts = range(size % 2, size + 1, 2)
    return SimulatedEigenvalues(size, tuple(counts), tuple(int(occurrences[count]) for count in counts))


def feature_types(block_size: int, num_blocks: int = 1) -> FeatureTypes:
    """Return the types of blocks with independent normal entries; `num_blocks=1` is a dense random matrix."""
    distribution = real_eigenvalues(block_size, num_blocks)
    by_count = dict(zip(distribution.counts, distribution.log_probabilities, strict=True))
    return FeatureTypes(
        block_size=block_size,
        num_blocks=num_blocks,
        log_only_complex=by_count.pop(0, -inf),
        log_only_real=by_count.pop(num_blocks * block_size),
        log_both=float(np.logaddexp.reduce(list(by_count.values()), initial=-inf)),
    )


def coverage(hidden_size: int) -> tuple[Coverage, ...]:
    """Return what each block size that divides `hidden_size` covers of a random dense matrix: Figure 2(b), in blue.

    Types beyond R-1 and C-1 add nothing. So the probability is that of real eigenvalues only for blocks of size 1, and
    one for all other sizes.
    """
    check_integer("hidden_size", hidden_size, 1)
    sizes = [size for size in range(1, hidden_size + 1) if hidden_size % size == 0]
    return tuple(Coverage(size, _types(size), log_only_real(hidden_size) if size == 1 else 0.0) for size in sizes)


def _types(block_size: int) -> tuple[str, ...]:
    real = [f"R-{order}" for order in range(1, block_size + 1)]
    return (*real, *(f"C-{order}" for order in range(1, block_size // 2 + 1)))


@cache
def _coins(size: int) -> tuple[tuple[float, float], ...]:
    """Return the logarithms of the eigenvalues of A, and of one minus them."""
    import mpmath  # type: ignore[import-untyped]

    half = size // 2
    # The smallest eigenvalue is about 10^(-0.47 size), and errors are relative to the largest.
    with mpmath.workdps(20 + size // 2):
        gamma = [mpmath.gamma(index + mpmath.mpf(1) / 2) for index in range(2 * half + 1)]
        scale = [mpmath.sqrt(mpmath.sqrt(2 * mpmath.pi) * mpmath.factorial(2 * index)) for index in range(half)]
        # Integrals of x^(2j) w, relative to that of the row that is subtracted for odd sizes.
        share = [mpmath.mpf(2) ** (index - half) * gamma[index] / gamma[half] for index in range(half)]
        matrix = mpmath.matrix(half, half)
        for j in range(half):
            for k in range(half):
                subtracted = share[j] * gamma[half + k] if size % 2 else 0
                matrix[j, k] = (gamma[j + k] - subtracted) / (scale[j] * scale[k])
        if half < 2:
            values = [matrix[index, index] for index in range(half)]
        elif size % 2:
            values = [mpmath.re(value) for value in mpmath.eig(matrix, left=False, right=False)]
        else:
            values = list(mpmath.eigsy(matrix, eigvals_only=True))
        return tuple((float(mpmath.log(value)), float(mpmath.log(1 - value))) for value in values)
