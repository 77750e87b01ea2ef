"""Simulated data of arXiv 2605.02692: two simulations in which a vanilla RNN generates the data; the adding problem."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import ArgumentError, MissingPackageError, check_integer, check_number
from parallelrnn.lab.datasets.splits import Examples, Splits, TrainingSplits

Array = NDArray[np.float32]

AR, MA = 0.7, 0.3
OUTPUTS = 10
_CHUNK = 5_000  # sequences at a time: their states fit into the cache


class Weights(NamedTuple):
    """The weights of h_t = tanh(W_h h_(t-1) + W_x x_t + b_h) and z = W_y h_T + b_y."""

    recurrent: Array  # (d, d)
    input: Array  # (d, 1)
    bias: Array  # (d,)
    output: Array  # (10, d)
    output_bias: Array  # (10,)


def tradeoff_simulation(
    seed: int,
    *,
    noise_variance: float = 1.0,
    hidden_size: int = 128,
    length: int = 128,
    sizes: tuple[int, int, int] = (40_000, 10_000, 10_000),
    recurrent_scale: float = 1.0,
) -> Splits:
    """Return the data of Section 6.1: sequences (N, T, 1) of an ARMA(1, 1) process, and outputs (N, 10) of a noisy RNN.

    The process has coefficients 0.7 and 0.3 and standard normal innovations, and starts in its stationary law. The RNN
    has the `tradeoff_weights` of the seed. Simulations of one seed with another noise variance differ in nothing else.

    With the paper's weights of variance 1 the states are chaotic: the recurrent matrix has a spectral radius of about
    11, and differences more than double at each step (docs/reproducing.md shows it), from the rounding of a float to
    order 1 within about 20 steps. What lies further back is lost to rounding. Up to a `recurrent_scale` of about 0.15
    the states forget their initial values.

    On one machine, with one installation of numpy, a seed gives the same bits for any number of threads, because all
    products are computed on one (with OpenBLAS, MKL and BLIS; Apple's Accelerate cannot be limited). Another processor
    or another BLAS may round differently, and then gives other targets.
    """
    check_integer("length", length, 1)
    _check_sizes(sizes, ("training", "validation", "test"))
    check_number("noise_variance", noise_variance, "0 or more", lambda value: value >= 0)
    weights = tradeoff_weights(seed, hidden_size=hidden_size, recurrent_scale=recurrent_scale)
    for_inputs, for_noise = _streams(seed)[1:]
    inputs = arma(sum(sizes), length, for_inputs)[..., None]  # (N, T, 1)
    states = final_states(inputs, weights.recurrent, weights.input, weights.bias)
    noise = np.sqrt(noise_variance) * for_noise.standard_normal((sum(sizes), OUTPUTS))
    with _one_blas_thread():
        outputs = states @ weights.output.T + weights.output_bias
    targets = (outputs + noise).astype(np.float32)
    return Splits(*_parts(inputs, targets, sizes))


def tradeoff_weights(seed: int, *, hidden_size: int = 128, recurrent_scale: float = 1.0) -> Weights:
    """Return the weights of `tradeoff_simulation`: standard normal, the recurrent ones times `recurrent_scale`."""
    check_integer("hidden_size", hidden_size, 1)
    random = _streams(seed)[0]
    shapes = ((hidden_size, hidden_size), (hidden_size, 1), (hidden_size,), (OUTPUTS, hidden_size), (OUTPUTS,))
    recurrent, *others = (random.standard_normal(shape) for shape in shapes)
    return Weights(*(array.astype(np.float32) for array in (recurrent_scale * recurrent, *others)))


def feature_simulation(
    seed: int,
    *,
    recurrent: NDArray[Any] | None = None,
    hidden_size: int = 128,
    length: int = 128,
    sizes: tuple[int, int] = (50_000, 10_000),
) -> tuple[TrainingSplits, Array, Array]:
    """Return the data of Section A: sequences (N, T, 1) and last states (N, d) of a noisy RNN; and its weights.

    The weights are the recurrent matrix (d, d), which is `recurrent` or has entries of N(0, 0.1^2), and the input
    weights (d, 1), of N(2, 2^2). There are no biases, and the noise is N(0, 0.01^2). The paper does not say what the
    input is, here standard normal and independent over time, nor how many validation samples there are.
    """
    check_integer("hidden_size", hidden_size, 1)
    check_integer("length", length, 1)
    _check_sizes(sizes, ("training", "validation"))
    for_weights, for_inputs, for_noise = _streams(seed)
    drawn = 0.1 * for_weights.standard_normal((hidden_size, hidden_size))
    weight = np.asarray(drawn if recurrent is None else recurrent, dtype=np.float32)
    if weight.shape != drawn.shape:
        expected = f"a matrix of shape {drawn.shape}"
        hint = "give its size as {hidden_size}"
        raise ArgumentError(argument="recurrent", expected=expected, got=weight.shape, hint=hint)
    input_weight = (2 + 2 * for_weights.standard_normal((hidden_size, 1))).astype(np.float32)
    inputs = for_inputs.standard_normal((sum(sizes), length, 1), dtype=np.float32)
    targets = final_states(inputs, weight, input_weight, np.zeros(hidden_size, np.float32))
    targets += np.float32(0.01) * for_noise.standard_normal(targets.shape, dtype=np.float32)
    return TrainingSplits(*_parts(inputs, targets, sizes)), weight, input_weight


def arma(count: int, length: int, random: np.random.Generator) -> Array:
    """Return stationary sequences (N, T) of x_t = 0.7 x_(t-1) + e_t + 0.3 e_(t-1)."""
    innovations = random.standard_normal((count, length))
    series = np.empty_like(innovations)
    # x_t is e_t plus a part that depends on the past alone, whose stationary variance is this.
    past = (AR + MA) ** 2 / (1 - AR**2)
    series[:, 0] = innovations[:, 0] + np.sqrt(past) * random.standard_normal(count)
    for time in range(1, length):
        series[:, time] = AR * series[:, time - 1] + innovations[:, time] + MA * innovations[:, time - 1]
    return series.astype(np.float32)


def final_states(inputs: Array, recurrent: Array, input_weight: Array, bias: Array) -> Array:
    """Return the last state (N, d) of h_t = tanh(W_h h_(t-1) + W_x x_t + b), from 0, for inputs (N, T, C).

    The bits do not depend on the number of BLAS threads, as `tradeoff_simulation` says.
    """
    states = np.empty((len(inputs), len(recurrent)), dtype=np.float32)
    with _one_blas_thread():
        for begin in range(0, len(inputs), _CHUNK):
            chunk = inputs[begin : begin + _CHUNK]
            state = np.zeros((len(chunk), len(recurrent)), dtype=np.float32)
            for time in range(inputs.shape[1]):
                state = np.tanh(state @ recurrent.T + chunk[:, time] @ input_weight.T + bias)
            states[begin : begin + _CHUNK] = state
    return states


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread: several divide a product, and its sums are then rounded in another order."""
    try:
        threadpoolctl = importlib.import_module("threadpoolctl")
    except ModuleNotFoundError as error:
        hint = "pip install 'parallelrnn[lab]'"
        problem = f"simulations need {error.name}, which is not installed"
        raise MissingPackageError(problem, name=error.name, hint=hint) from error
    limits: AbstractContextManager[Any] = threadpoolctl.threadpool_limits(limits=1, user_api="blas")
    return limits


def _streams(seed: int) -> list[np.random.Generator]:
    """Return generators for the weights, the inputs and the noise, so that changing one leaves the others alone."""
    sequence = np.random.SeedSequence(check_integer("seed", seed, 0))
    return [np.random.default_rng(stream) for stream in sequence.spawn(3)]


def _parts(inputs: Array, targets: Array, sizes: tuple[int, ...]) -> list[Examples]:
    ends = np.cumsum(sizes)[:-1]
    return [Examples(x, y) for x, y in zip(np.split(inputs, ends), np.split(targets, ends), strict=True)]


def _check_sizes(sizes: tuple[int, ...], parts: tuple[str, ...]) -> None:
    if np.shape(sizes) != (len(parts),):
        raise ArgumentError(argument="sizes", expected=f"{len(parts)} numbers, for {', '.join(parts)}", got=sizes)
    for place, size in enumerate(sizes):
        check_integer(f"sizes[{place}]", size, 1)


def adding_problem(count: int, length: int, random: np.random.Generator) -> Examples:
    """Return sequences (N, T, 2) and sums (N, 1) of their two marked numbers, as in Section D of arXiv 2605.02692.

    The first channel is uniform between 0 and 1. The second marks one number in each half by 1, and is 0 elsewhere;
    with an odd length, the second half is the longer one. Always predicting 1 has a mean squared error of 1/6.
    """
    check_integer("count", count, 1)
    check_integer("length", length, 2)
    inputs = np.zeros((count, length, 2), dtype=np.float32)
    inputs[..., 0] = random.random((count, length), dtype=np.float32)
    rows, half = np.arange(count), length // 2
    marked = random.integers(0, half, count), random.integers(half, length, count)
    for times in marked:
        inputs[rows, times, 1] = 1
    targets = sum(inputs[rows, times, :1] for times in marked)
    return Examples(inputs, np.asarray(targets))
