"""What each initialisation leaves behind, seen through eigenvalues and ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, ParaRNNCell
from parallelrnn.errors import ArgumentError
from parallelrnn.nn import initialize, recurrent_blocks
from tests.support import TWINS, raises

MODULES: dict[str, Callable[[], Any]] = {
    "ParaRNN": lambda: ParaRNN(3, 16, 2, bidirectional=True),
    "ParaLSTM": lambda: ParaLSTM(3, 16, block_size=[4, 4, 8]),
    "ParaGRU": lambda: ParaGRU(3, 16, block_size=4),
    "ParaRNNCell": lambda: ParaRNNCell(3, 16),
    "nn.RNN": lambda: nn.RNN(3, 16, 2),
    "nn.LSTM": lambda: nn.LSTM(3, 16, bidirectional=True),
    "nn.GRUCell": lambda: nn.GRUCell(3, 16),
}
every_module = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)


def matrices(module: nn.Module) -> list[torch.Tensor]:
    return [block.matrix.detach() for block in recurrent_blocks(module)]


def others(module: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for name, p in module.named_parameters() if "weight_hh" not in name]


@every_module
@pytest.mark.parametrize("name", ["uniform_", "identity_", "orthogonal_"])
def test_only_recurrent_matrices_change(make: Callable[[], Any], name: str) -> None:
    module = make()
    before, weights = [m.clone() for m in matrices(module)], others(module)
    assert getattr(initialize, name)(module) is module
    assert all(not torch.equal(a, b) for a, b in zip(before, matrices(module), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(weights, others(module), strict=True))


@every_module
def test_uniform(make: Callable[[], Any]) -> None:
    module = make()
    initialize.uniform_(module)
    entries = torch.cat([m.flatten() * math.sqrt(len(m)) for m in matrices(module)])
    assert entries.abs().max() <= 1
    assert entries.abs().max() > 0.85
    assert abs(entries.mean()) < 5 / math.sqrt(3 * len(entries))  # five standard errors of a uniform mean


@pytest.mark.parametrize("block_size", [2, [2, 6, 4, 4], 16])
@pytest.mark.parametrize("cls", [ParaRNN, ParaLSTM, ParaGRU])
def test_blocks_begin_with_the_memory_of_a_layer_of_their_size(cls: Any, block_size: Any) -> None:
    """As torch.nn draws one with as many units; all other weights as it draws those of the whole layer."""
    layer = cls(3, 16, 2, block_size=block_size)
    for matrix in matrices(layer):
        assert matrix.abs().max() <= 1 / math.sqrt(len(matrix))
    largest = max(float(matrix.abs().max()) * math.sqrt(len(matrix)) for matrix in matrices(layer))
    assert largest > 0.9
    for weights in others(layer):
        assert weights.abs().max() <= 1 / math.sqrt(16)


def eye_per_gate_(weight: torch.Tensor) -> None:
    hidden_size = weight.shape[1]
    for gate in range(len(weight) // hidden_size):
        nn.init.eye_(weight[gate * hidden_size : (gate + 1) * hidden_size])


def uniform_by_width_(weight: torch.Tensor) -> None:
    bound = 1 / math.sqrt(weight.shape[1])
    nn.init.uniform_(weight, -bound, bound)


def mean_modulus(module: nn.Module) -> float:
    return float(np.concatenate([np.abs(np.linalg.eigvals(m.numpy())) for m in matrices(module)]).mean())


INIT_CODE = [
    nn.init.orthogonal_,
    nn.init.xavier_uniform_,
    nn.init.xavier_normal_,
    nn.init.kaiming_uniform_,
    nn.init.kaiming_normal_,
    uniform_by_width_,
    eye_per_gate_,
]


@pytest.mark.parametrize("block_size", [2, 4, [4, 8] * 12 + [16, 96]], ids=["2", "4", "unequal"])
@pytest.mark.parametrize("init_", INIT_CODE, ids=lambda init_: init_.__name__)
@pytest.mark.parametrize("cls", TWINS)
def test_init_code_per_block_gives_the_spectrum_of_a_dense_layer(cls: Any, init_: Any, block_size: Any) -> None:
    """The outside reference is the layer of torch.nn, to which the same function was applied."""
    torch.manual_seed(0)
    dense, layer = TWINS[cls](3, 256), cls(3, 256, block_size=block_size)
    init_(dense.weight_hh_l0)
    before = others(layer)
    assert initialize.per_block_(layer, init_) is layer
    # Eigenvalues of small random matrices lie a little nearer to zero, or farther from it, than those of large ones.
    assert mean_modulus(layer) == pytest.approx(mean_modulus(dense), rel=0.25)
    assert all(torch.equal(a, b) for a, b in zip(before, others(layer), strict=True))


def test_init_code_per_block_sees_the_weights_of_a_layer_by_itself() -> None:
    shapes: list[tuple[int, ...]] = []
    initialize.per_block_(ParaLSTM(3, 7, 2, block_size=[2, 3, 2]), lambda weight: shapes.append(tuple(weight.shape)))
    assert sorted(shapes) == [(8, 2)] * 4 + [(12, 3)] * 2
    layer = initialize.per_block_(ParaGRU(3, 6), lambda weight: weight.copy_(torch.arange(12.0).view(6, 2)))
    for block in layer.recurrent_blocks():
        start = 4.0 * layer.gates.index(block.gate)
        torch.testing.assert_close(block.matrix, torch.arange(start, start + 4).view(2, 2))
    projected = ParaLSTM(3, 8, proj_size=4, block_size=4)
    initialize.per_block_(projected, lambda weight: shapes.append(tuple(weight.shape)))
    assert shapes[-1] == nn.LSTM(3, 4, proj_size=2).weight_hh_l0.shape


@pytest.mark.parametrize("make", [lambda: nn.LSTM(3, 8, 2, bidirectional=True), lambda: nn.GRUCell(3, 8)])
def test_init_code_per_block_on_a_dense_module_is_the_function_itself(make: Any) -> None:
    torch.manual_seed(0)
    ours, theirs = make(), make()
    torch.manual_seed(1)
    initialize.per_block_(ours, nn.init.xavier_uniform_)
    torch.manual_seed(1)
    for name, weight in theirs.named_parameters():
        if "weight_hh" in name:
            nn.init.xavier_uniform_(weight)
            torch.testing.assert_close(getattr(ours, name), weight, rtol=0, atol=0)


def test_init_code_that_fails_changes_nothing() -> None:
    layer = ParaRNN(3, 6)
    before, calls = layer.weight_hh_l0.detach().clone(), iter([None])

    def fail_(weight: torch.Tensor) -> None:
        weight.zero_()
        next(calls)

    with pytest.raises(StopIteration):
        initialize.per_block_(layer, fail_)
    assert torch.equal(layer.weight_hh_l0, before)
    with raises(ArgumentError, "polar", argument="module"):
        initialize.per_block_(ParaRNN(3, 6, form="polar"), nn.init.zeros_)


@pytest.mark.parametrize("nonlinearity", ["linear", "relu"])
@pytest.mark.parametrize("again", [False, True])
def test_unbounded_states_do_not_grow(nonlinearity: str, again: bool) -> None:
    torch.manual_seed(0)
    layer = ParaRNN(1, 512, nonlinearity=nonlinearity)
    if again:
        initialize.uniform_(layer)
    moduli = torch.stack([torch.linalg.eigvals(matrix).abs().max() for matrix in matrices(layer)])
    # Rounding of a float32 matrix moves an eigenvalue by the root of it at worst, where two of them meet.
    assert moduli.max() <= 0.99 + 1e-3
    assert (moduli > 0.989).sum() > 1, "some were scaled"
    with torch.no_grad():
        states = layer(torch.zeros(4000, 1, 1))[0]  # driven by biases alone
    # What is left of the way after 2,000 steps is below 0.99 ** 2000 = 2e-9, but for rounding.
    torch.testing.assert_close(states[2000], states[-1], rtol=1e-3, atol=1e-3)
    tanh = ParaRNN(1, 512)
    assert max(torch.linalg.eigvals(matrix).abs().max() for matrix in matrices(tanh)) > 1


@every_module
def test_identity_and_orthogonal(make: Callable[[], Any]) -> None:
    module = make()
    initialize.identity_(module)
    assert all(torch.equal(m, torch.eye(len(m))) for m in matrices(module))
    initialize.orthogonal_(module)
    for m in matrices(module):
        torch.testing.assert_close(m @ m.T, torch.eye(len(m)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ParaRNN(3, 16, block_size=8),
        lambda: ParaLSTM(3, 16, block_size=4),
        lambda: nn.GRU(3, 16),
        lambda: nn.RNN(3, 16),
    ],
    ids=["ParaRNN", "ParaLSTM", "nn.GRU", "nn.RNN"],
)
def test_mixed_order_has_only_jordan_blocks_of_order_4_and_2(make: Callable[[], Any]) -> None:
    module = initialize.mixed_order_(make().double())
    kinds = []
    for matrix in matrices(module):
        for start in range(0, len(matrix), 4):
            part = matrix.numpy()[start : start + 4, start : start + 4]
            assert np.count_nonzero(matrix[start : start + 4]) == np.count_nonzero(part)  # block-diagonal
            kinds.append(_kind(part))
    assert kinds == ["R-4", "C-2"] * (len(kinds) // 2)


def _kind(part: np.ndarray) -> str:
    """By ranks: J_4 - lambda has ranks 3, 2, 1, 0 in its powers; C_2's real quadratic factor has ranks 2 and 0."""
    eigenvalue = np.trace(part) / 4
    ranks = [np.linalg.matrix_rank(np.linalg.matrix_power(part - eigenvalue * np.eye(4), n)) for n in (1, 2, 3, 4)]
    if ranks == [3, 2, 1, 0]:
        assert 0.2 <= eigenvalue <= 0.6
        return "R-4"
    square = np.linalg.det(part) ** 0.5  # modulus squared
    assert 0.2 <= square**0.5 <= 0.6
    factor = part @ part - 2 * eigenvalue * part + square * np.eye(4)
    assert eigenvalue**2 < square
    assert [np.linalg.matrix_rank(factor, tol=1e-10), np.linalg.matrix_rank(factor @ factor, tol=1e-10)] == [2, 0]
    return "C-2"


def test_weights_that_cannot_be_initialised_stay_as_they_were() -> None:
    layer = ParaRNN(3, 10, block_size=[4, 6])
    before = [m.clone() for m in matrices(layer)]
    with raises(ArgumentError, argument="module", got=6):
        initialize.mixed_order_(layer)
    assert all(torch.equal(a, b) for a, b in zip(before, matrices(layer), strict=True))


@pytest.mark.parametrize("cls", [ParaLSTM, nn.LSTM, ParaGRU, nn.GRUCell])
def test_chrono(cls: Any) -> None:
    module = cls(3, 500)
    weights = [p.detach().clone() for name, p in module.named_parameters() if "bias" not in name]
    initialize.chrono_(module, longest=100)
    for name, bias in module.named_parameters():
        if not name.startswith("bias_ih"):
            continue
        total = (bias + getattr(module, name.replace("ih", "hh"))).detach()
        gates = total.view(-1, 500)
        if len(gates) == 4:
            torch.testing.assert_close(gates[0], -gates[1], rtol=0, atol=0)
        times = gates[1].exp()  # the forget gate, or the update gate
        assert 1 <= times.min() < 10
        assert 90 < times.max() <= 99 * 1.0001
        # A gate at sigmoid(log u) = u / (1 + u) forgets at a rate 1 / (1 + u): memories of up to 100 steps.
        assert (1 / (1 - torch.sigmoid(gates[1])) <= 100.01).all()
    after = [p.detach() for name, p in module.named_parameters() if "bias" not in name]
    assert all(torch.equal(a, b) for a, b in zip(weights, after, strict=True))


WAVERS = [
    lambda: ParaRNN(1, 6, 2, bidirectional=True, dtype=torch.float64),
    lambda: ParaRNN(1, 6, 2, form="polar", dtype=torch.float64),
    lambda: ParaRNN(1, 6, block_size=[4, 2], dtype=torch.float64),
    lambda: ParaRNNCell(1, 6, dtype=torch.float64),
    lambda: nn.RNN(1, 6, 2, dtype=torch.float64),
]


@pytest.mark.parametrize("make", WAVERS, ids=["free", "polar", "unequal", "cell", "torch"])
def test_waves_have_the_given_periods_and_half_lives(make: Any) -> None:
    module = initialize.waves_(make(), periods=[5.0, 24.0, 168.0], half_lives=[3.0, 48.0, 1000.0])
    by_layer: dict[Any, list[complex]] = {}
    for block in recurrent_blocks(module):
        eigenvalues = np.linalg.eigvals(block.matrix.detach().numpy())
        by_layer.setdefault((block.layer, block.direction), []).extend(eigenvalues)
    for eigenvalues in by_layer.values():
        upper = sorted((value for value in eigenvalues if value.imag > 0), key=abs)
        np.testing.assert_allclose([2 * math.pi / np.angle(v) for v in upper], [5, 24, 168], rtol=1e-9)
        np.testing.assert_allclose([math.log(0.5) / math.log(abs(v)) for v in upper], [3, 48, 1000], rtol=1e-9)
    assert all((p == 0).all() for name, p in module.named_parameters() if name.startswith("bias"))


def test_waves_are_log_spaced_by_default() -> None:
    layer = initialize.waves_(ParaRNN(1, 8, dtype=torch.float64), longest=500)
    eigenvalues = [np.linalg.eigvals(m.numpy())[0] for m in matrices(layer)]
    periods = np.array([2 * math.pi / abs(np.angle(v)) for v in eigenvalues])
    np.testing.assert_allclose(periods, 4 * (500 / 4) ** (np.arange(4) / 3), rtol=1e-9)
    np.testing.assert_allclose([math.log(0.5) / math.log(abs(v)) for v in eigenvalues], periods, rtol=1e-9)
    (alone,) = matrices(initialize.waves_(ParaRNN(1, 2, dtype=torch.float64), longest=500))
    np.testing.assert_allclose(2 * math.pi / abs(np.angle(np.linalg.eigvals(alone.numpy())[0])), 500, rtol=1e-9)


@pytest.mark.parametrize("input_size", [1, 5])
def test_white_noise_drives_fast_and_slow_waves_to_the_same_variance(input_size: int) -> None:
    layer = ParaRNN(input_size, 8, nonlinearity="linear", aggregate=None, dtype=torch.float64)
    initialize.waves_(layer, longest=60)
    # The stationary covariance of h' = W h + U x with white x solves the Lyapunov equation P = W P W^T + U U^T.
    w = torch.block_diag(*matrices(layer)).numpy()
    u = layer.weight_ih_l0.detach().numpy()
    covariance = scipy.linalg.solve_discrete_lyapunov(w, u @ u.T)
    np.testing.assert_allclose(np.diag(covariance).reshape(4, 2).mean(1), 1, rtol=1e-12)


@pytest.mark.parametrize("nonlinearity", ["linear", "tanh"])
def test_waves_find_a_long_cycle_sooner_than_uniform(nonlinearity: str) -> None:
    """A wave with a period of 100 steps, in noise of 4.5 times its variance, forecast a quarter of a period ahead."""

    def error_after_training(init: Any) -> float:
        torch.manual_seed(0)
        time, phase = torch.arange(400.0), 2 * math.pi * torch.rand(16)
        clean = torch.sin(2 * math.pi * time[:, None] / 100 + phase)  # variance 1/2
        x = clean + 1.5 * torch.randn(400, 16)
        layer, readout = init(ParaRNN(1, 16, nonlinearity=nonlinearity)), nn.Linear(16, 1)
        optimizer = torch.optim.Adam([*layer.parameters(), *readout.parameters()], 1e-2)
        for _ in range(30):
            forecast = readout(layer(x[:-25].unsqueeze(-1))[0])[100:, :, 0]
            loss = nn.functional.mse_loss(forecast, clean[125:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    error = error_after_training(initialize.waves_)
    assert error < 0.15
    assert error_after_training(initialize.uniform_) > 2 * error
