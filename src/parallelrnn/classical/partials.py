"""Stationary autoregressions by free numbers: partial autocorrelations (Monahan, 1984).

Any numbers, squeezed into (-1, 1), are the partial autocorrelations of a stationary autoregression, and each stationary
one has its own. The same numbers make a moving average invertible.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def from_partials(free: Array) -> tuple[Array, Array]:
    """Coefficients (p,) of a stationary autoregression from any numbers (p,), and their derivatives (p, p)."""
    partials, slopes = free / np.sqrt(1 + free**2), (1 + free**2) ** -1.5
    coefficients, derivatives = np.zeros(0), np.zeros((0, len(free)))
    for order, (partial, slope) in enumerate(zip(partials, slopes, strict=True)):
        of_last = np.zeros((1, len(free)))
        of_last[0, order] = slope
        derivatives = np.concatenate(
            [derivatives - partial * derivatives[::-1] - coefficients[::-1, None] * of_last, of_last]
        )
        coefficients = np.append(coefficients - partial * coefficients[::-1], partial)
    return coefficients, derivatives


def to_partials(coefficients: Array, factor: float = 1.0) -> Array:
    """The free numbers of an autoregression with its inverse roots times `factor`, or less until it is stationary."""
    while True:
        left = coefficients * factor ** np.arange(1, len(coefficients) + 1)
        partials: list[float] = []
        while len(left) and abs(left[-1]) < 1:
            partials.insert(0, last := float(left[-1]))
            left = (left[:-1] + last * left[-2::-1]) / (1 - last**2) if len(left) > 1 else left[:0]
        if not len(left):
            found = np.array(partials)
            free: Array = found / np.sqrt(1 - found**2)
            return free
        factor *= 0.95
