"""Models and data that several test files read."""

from __future__ import annotations

import cmath
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from torch import nn

from parallelrnn import ParaRNN
from parallelrnn.interpret import JordanBlock

Array = NDArray[np.float64]


def predictor(transition: Array, gain: Array, reading: Array) -> ParaRNN:
    """The linear layer that filters s(t+1) = A s(t) + K e(t), y(t) = C s(t) + e(t) and predicts the next y."""
    size = len(transition)
    layer = ParaRNN(
        reading.shape[0],
        size,
        nonlinearity="linear",
        block_size=size,
        bias=False,
        aggregate=nn.Linear(size, reading.shape[0], bias=False),
        dtype=torch.float64,
    ).double()
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.from_numpy(transition - gain @ reading))
        layer.weight_ih_l0.copy_(torch.from_numpy(gain))
        layer.aggregate.weight.copy_(torch.from_numpy(reading))
    return layer


def planted(*waves: tuple[float, float]) -> ParaRNN:
    """A linear layer whose closed loop has these waves (period, modulus) and nothing else."""
    loop = blocks(*((1, modulus * cmath.exp(2j * cmath.pi / period)) for period, modulus in waves))
    return predictor(loop, np.full((len(loop), 1), 0.3), np.array([[1.0, 0.0] * len(waves)]))


def scalar(recurrent: float, entering: float = 0.0, bias: float = 0.0, **options: Any) -> ParaRNN:
    """One unit, h' = act(recurrent h + entering x + bias), whose output is h."""
    layer = ParaRNN(1, 1, block_size=1, aggregate=nn.Linear(1, 1, bias=False), **options)
    values = {"weight_hh_l0": recurrent, "weight_ih_l0": entering, "bias_ih_l0": bias, "aggregate.weight": 1.0}
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.fill_(values.get(name, 0.0))
    return layer


def make(cls: Any, inputs: int = 2, units: int = 6, **options: Any) -> Any:
    """A layer in double precision with weights that are the same at every call."""
    torch.manual_seed(0)
    return cls(inputs, units, dtype=torch.float64, **options)


def forecasting(cls: Any, **options: Any) -> Any:
    """A layer whose output is a forecast of its next input."""
    torch.manual_seed(0)
    return cls(2, 6, aggregate=nn.Linear(6, 2), **options).double()


def data(*shape: int, inputs: int = 2) -> torch.Tensor:
    return torch.randn(*shape, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def blocks(*parts: tuple[int, complex]) -> Array:
    """A matrix of these Jordan blocks, given by order and eigenvalue."""
    return block_diag(*(JordanBlock(order, complex(value)).matrix for order, value in parts))


def orthogonal(size: int, seed: int = 0) -> Array:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def spectrum(rows: Any, digits: int = 6) -> Array:
    """All eigenvalues of features or modes: pairs twice, and each as often as its order says."""
    values = [v for row in rows for v in {row.eigenvalue, row.eigenvalue.conjugate()} for _ in range(row.order)]
    return np.sort_complex(np.round(values, digits))
