from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from parallelrnn.errors import ArgumentError
from parallelrnn.lab.datasets import adding_problem, feature_simulation, tradeoff_simulation, tradeoff_weights
from parallelrnn.lab.datasets import simulations as module
from parallelrnn.lab.datasets.simulations import arma
from tests.support import raises

# Steps of float32 arithmetic in another order; an RNN that forgets keeps them small.
TOLERANCE = 2e-5


def rnn(recurrent: NDArray[np.float32], inputs: NDArray[np.float32], bias: NDArray[np.float32]) -> nn.RNN:
    layer = nn.RNN(1, len(recurrent), batch_first=True)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(torch.from_numpy(recurrent))
        layer.weight_ih_l0.copy_(torch.from_numpy(inputs))
        layer.bias_hh_l0.copy_(torch.from_numpy(bias))
        layer.bias_ih_l0.zero_()
    return layer


@torch.no_grad()
def test_the_tradeoff_simulation_is_an_rnn_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 9)
    options = {"hidden_size": 12, "recurrent_scale": 0.2}
    splits = tradeoff_simulation(3, noise_variance=0.0, length=20, sizes=(13, 7, 5), **options)
    weights = tradeoff_weights(3, **options)
    parts = (splits.train, splits.validation, splits.test)
    assert [part.inputs.shape for part in parts] == [(13, 20, 1), (7, 20, 1), (5, 20, 1)]
    layer = rnn(weights.recurrent, weights.input, weights.bias)
    for part in parts:
        assert part.inputs.dtype == part.targets.dtype == np.float32
        last = layer(torch.from_numpy(part.inputs))[0][:, -1]
        expected = last @ torch.from_numpy(weights.output).T + torch.from_numpy(weights.output_bias)
        np.testing.assert_allclose(part.targets, expected.numpy(), rtol=0, atol=TOLERANCE)


def test_weights_are_standard_normal() -> None:
    weights = tradeoff_weights(0)
    assert weights.recurrent.shape == (128, 128)
    assert abs(weights.recurrent.std() - 1) < 0.03
    assert abs(weights.recurrent.mean()) < 0.03
    shapes = [array.shape for array in (weights.input, weights.bias, weights.output, weights.output_bias)]
    assert shapes == [(128, 1), (128,), (10, 128), (10,)]
    np.testing.assert_allclose(tradeoff_weights(0, recurrent_scale=0.5).recurrent, weights.recurrent / 2)


def test_the_noise_is_all_that_its_variance_changes() -> None:
    sizes = (4000, 10, 10)
    runs = [
        tradeoff_simulation(1, noise_variance=v, hidden_size=4, length=5, sizes=sizes, recurrent_scale=0.1)
        for v in (0.0, 1.0, 5.0)
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.train.inputs, runs[0].train.inputs)
    noise, larger_noise = (run.train.targets - runs[0].train.targets for run in runs[1:])
    np.testing.assert_allclose(larger_noise, np.sqrt(5) * noise, atol=1e-5)
    assert abs(noise.var() - 1) < 0.03  # 40,000 draws: its deviation is 0.007
    np.testing.assert_allclose(np.cov(noise.T), np.eye(10), atol=0.1)


def test_a_seed_is_a_simulation() -> None:
    small = {"hidden_size": 4, "length": 5, "sizes": (3, 2, 1)}
    first, same, other = (tradeoff_simulation(seed, **small) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.train.targets, same.train.targets)
    assert not np.array_equal(first.train.inputs, other.train.inputs)
    rows = np.concatenate([part.inputs[:, 0, 0] for part in (first.train, first.validation, first.test)])
    assert len(set(rows.tolist())) == 6  # no part repeats another


def test_a_seed_is_a_simulation_for_any_number_of_blas_threads() -> None:
    # Chaotic, so that one sum that is rounded otherwise shows in every target; of this size, two threads share it out.
    script = """
import hashlib
from parallelrnn.lab.datasets import tradeoff_simulation
splits = tradeoff_simulation(0, length=40, sizes=(4000, 500, 500))
print(hashlib.sha256(b"".join(part.targets for part in (splits.train, splits.validation, splits.test))).hexdigest())
"""
    environments = ({**os.environ, "OPENBLAS_NUM_THREADS": threads} for threads in ("1", "2"))
    first, second = (subprocess.check_output([sys.executable, "-c", script], env=env) for env in environments)
    assert first == second


def test_the_number_of_blas_threads_is_put_back() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    with threadpool_limits(limits=2, user_api="blas"):
        before = threadpool_info()
        tradeoff_simulation(0, hidden_size=4, length=5, sizes=(3, 2, 1))
        assert threadpool_info() == before


def test_without_threadpoolctl_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    with raises(ModuleNotFoundError, "threadpoolctl", "pip install"):
        feature_simulation(0, hidden_size=4, length=5, sizes=(3, 2))


def test_the_process_has_the_moments_of_arma() -> None:
    series = arma(40_000, 6, np.random.default_rng(0)).astype(np.float64)
    assert abs(series.mean()) < 0.02
    phi, theta = 0.7, 0.3
    variance = (1 + 2 * phi * theta + theta**2) / (1 - phi**2)
    first = phi * variance + theta
    covariances = [variance, *(first * phi**lag for lag in range(5))]
    expected = [[covariances[abs(row - column)] for column in range(6)] for row in range(6)]
    # Stationary: the same at the first time as at the last. The deviation of an entry is about 0.02.
    np.testing.assert_allclose(np.cov(series.T), expected, atol=0.1)


@torch.no_grad()
@pytest.mark.parametrize("given", [False, True])
def test_the_feature_simulation_is_an_rnn_of_torch(given: bool) -> None:
    matrix = np.kron(np.eye(3), np.array([[0.5, 1, 0, 0], [0, 0.5, 1, 0], [0, 0, 0.5, 1], [0, 0, 0, 0.5]]))
    splits, recurrent, weight = feature_simulation(
        2, recurrent=matrix if given else None, hidden_size=12, length=15, sizes=(600, 40)
    )
    if given:
        np.testing.assert_array_equal(recurrent, matrix.astype(np.float32))
    assert splits.train.inputs.shape == (600, 15, 1)
    assert splits.validation.targets.shape == (40, 12)
    layer = rnn(recurrent, weight, np.zeros(12, np.float32))
    for part in (splits.train, splits.validation):
        assert part.inputs.dtype == part.targets.dtype == np.float32
        noise = part.targets - layer(torch.from_numpy(part.inputs))[0][:, -1].numpy()
        assert abs(noise.std() - 0.01) < 0.001
        assert abs(noise.mean()) < 0.002


def test_the_weights_of_the_feature_simulation() -> None:
    splits, recurrent, weight = feature_simulation(0, length=2, sizes=(2000, 1))
    assert recurrent.shape == (128, 128)
    assert weight.shape == (128, 1)
    assert abs(recurrent.std() - 0.1) < 0.003
    assert abs(weight.mean() - 2) < 0.6
    assert abs(weight.std() - 2) < 0.5
    assert abs(splits.train.inputs.std() - 1) < 0.05
    assert abs(splits.train.inputs.mean()) < 0.07


@pytest.mark.parametrize("simulate", [tradeoff_simulation, feature_simulation])
def test_wrong_arguments_are_rejected_before_anything_is_simulated(
    simulate: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("arma", "final_states"):
        monkeypatch.setattr(module, name, None)
    right = (1, 1, 1) if simulate is tradeoff_simulation else (1, 1)
    for sizes in ((5,), (5, 5, 5, 5), (5, 5) if len(right) == 3 else (5, 5, 5), 5):
        with raises(ArgumentError, len(right), argument="sizes", got=sizes):
            simulate(0, sizes=sizes)
    with raises(ArgumentError, argument="sizes[1]", got=0):
        simulate(0, sizes=(1, 0, *right[2:]))
    with raises(TypeError, argument="sizes[0]", got=1.5):
        simulate(0, sizes=(1.5, *right[1:]))
    with raises(ArgumentError, argument="seed", got=-1):
        simulate(-1, sizes=right)
    with raises(TypeError, argument="seed", got=0.5):
        simulate(0.5, sizes=right)
    with raises(ArgumentError, argument="hidden_size", got=0):
        simulate(0, hidden_size=0, sizes=right)


@pytest.mark.parametrize("length", [2, 7, 100])
def test_the_adding_problem(length: int) -> None:
    examples = adding_problem(3000, length, np.random.default_rng(0))
    assert examples.inputs.shape == (3000, length, 2)
    assert examples.targets.shape == (3000, 1)
    assert examples.inputs.dtype == examples.targets.dtype == np.float32
    values, marks = examples.inputs[..., 0], examples.inputs[..., 1]
    assert ((values >= 0) & (values < 1)).all()
    assert abs(values.mean() - 0.5) < 0.02
    half = length // 2
    for part in (marks[:, :half], marks[:, half:]):
        assert ((part == 0) | (part == 1)).all()
        assert (part.sum(axis=1) == 1).all()
        assert part.any(axis=0).all()  # every place is marked at times
    np.testing.assert_allclose(examples.targets[:, 0], (values * marks).sum(axis=1), rtol=1e-6)
    assert abs(((examples.targets - 1) ** 2).mean() - 1 / 6) < 0.02


def test_arguments_are_checked() -> None:
    with raises(ArgumentError, argument="length", got=0):
        tradeoff_simulation(0, hidden_size=4, length=0, sizes=(1, 1, 1))
    with raises(ArgumentError, argument="noise_variance", got=-1):
        tradeoff_simulation(0, noise_variance=-1, sizes=(1, 1, 1))
    with raises(ArgumentError, (128, 128), argument="recurrent", got=(4, 4)):
        feature_simulation(0, recurrent=np.eye(4), sizes=(1, 1))
    with raises(ArgumentError, argument="seed", got=-1):
        tradeoff_weights(-1)
    with raises(ArgumentError, argument="length", got=1):
        adding_problem(3, 1, np.random.default_rng(0))
