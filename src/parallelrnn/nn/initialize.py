"""Initial recurrences: what a layer remembers before training.

Every function changes a layer or cell of ours, or of `torch.nn`, in place and returns it. All but `chrono_` and
`waves_` set the recurrent matrices of every layer, direction, gate and block, and nothing else. `per_block_` does so
with a function of `torch.nn.init`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from parallelrnn.errors import ArgumentError, ArgumentTypeError, check_integer
from parallelrnn.kernels import GATES
from parallelrnn.nn.blocks import (
    check_steps,
    limit_spectral_radius,
    modulus_to_log_rate,
    recurrent_blocks,
    rotations,
    torch_mode,
    weight_suffixes,
)
from parallelrnn.nn.parameters import BlockRecurrent

ModuleT = TypeVar("ModuleT", bound=BlockRecurrent | nn.RNNBase | nn.RNNCellBase)


@torch.no_grad()
def uniform_(module: ModuleT) -> ModuleT:
    """Draw the entries of each d x d matrix uniformly from (-1/sqrt(d), 1/sqrt(d)): R-1 and C-1 features only."""
    grows = isinstance(module, BlockRecurrent) and module.may_grow

    def draw(matrix: Tensor) -> Tensor:
        bound = 1 / math.sqrt(len(matrix))
        drawn = torch.empty_like(matrix).uniform_(-bound, bound)
        return limit_spectral_radius(drawn) if grows else drawn

    return _fill(module, draw)


@torch.no_grad()
def identity_(module: ModuleT) -> ModuleT:
    """Set identity matrices: R-1 features only, which keep the state as it is."""
    return _fill(module, lambda matrix: torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device))


@torch.no_grad()
def orthogonal_(module: ModuleT) -> ModuleT:
    """Draw a random orthogonal matrix for each block: every eigenvalue has modulus 1."""
    # The QR decomposition behind it has no half precision.
    return _fill(
        module,
        lambda matrix: nn.init.orthogonal_(
            torch.empty_like(matrix, dtype=torch.promote_types(matrix.dtype, torch.float32))
        ),
    )


@torch.no_grad()
def per_block_(module: ModuleT, init_: Callable[[Tensor], object]) -> ModuleT:
    """Apply a function such as `nn.init.orthogonal_` to the `weight_hh` of each block, as if it were a layer by itself.

    `weight_hh_l0` of a layer of blocks has the shape (gates * hidden_size, block_size). To a function that derives a
    scale from that shape, or from `hidden_size`, it looks like one narrow matrix, and the eigenvalues of the blocks
    come out near zero. Here the function gets, block by block, what `torch.nn` would store for a layer of the block's
    size: a tensor (gates * d, d) with the gates stacked, to be changed in place.

    Parameters
    ----------
    module
        A layer or cell.
    init_
        Changes a tensor in place.

    Examples
    --------
    >>> layer = torch.nn.GRU(3, 8)
    >>> _ = per_block_(layer, nn.init.orthogonal_)  # one block: the same as nn.init.orthogonal_(layer.weight_hh_l0)
    >>> def orthogonal_gates_(weight):
    ...     for gate in weight.chunk(3):
    ...         nn.init.orthogonal_(gate)
    >>> _ = per_block_(layer, orthogonal_gates_)
    """
    _check_free(module)
    drawn = []
    for _, _, suffix in weight_suffixes(module):
        for recurrent in _recurrent_weights(module, suffix):  # (G, K, D, P)
            for block in recurrent.unbind(1):
                weight = block.flatten(0, 1).clone()
                init_(weight)
                drawn.append((block, weight))
    for block, weight in drawn:  # after the last was drawn: init_ may raise
        block.copy_(weight.view_as(block))
    return module


@torch.no_grad()
def mixed_order_(module: ModuleT, modulus: tuple[float, float] = (0.2, 0.6)) -> ModuleT:
    """Alternate R-4 and C-2 features, Jordan blocks of order 4 and 2: the third initialisation of arXiv 2605.02692.

    Each is 4 x 4, so block sizes (`hidden_size` for a dense layer) have to be multiples of 4. The paper gives no
    eigenvalues. Ours have a modulus drawn from `modulus`, by default up to about the spectral radius 1/sqrt(3) that
    `uniform_` gives a wide dense layer: powers of a Jordan block grow before they decay, at order 4 and modulus 0.9 to
    more than two hundred. Angles are drawn from (0, pi).
    """
    if not 0 < min(modulus) <= max(modulus) < 1:
        expected = "a range within (0, 1), such as (0.2, 0.6)"
        raise ArgumentError(argument="modulus", expected=expected, got=modulus)
    features = 0

    def draw(matrix: Tensor) -> Tensor:
        nonlocal features
        if len(matrix) % 4:
            problem = f"R-4 and C-2 features need blocks of a multiple of 4 units, and one has {len(matrix)}"
            raise ArgumentError(problem, argument="module", got=len(matrix), hint="use block_size=4 or 8")
        jordan = []
        for _ in range(len(matrix) // 4):
            size = torch.empty((), dtype=matrix.dtype, device=matrix.device).uniform_(*modulus)
            angle = torch.empty_like(size).uniform_(0, math.pi)
            jordan.append(_c2(size, angle) if features % 2 else _r4(size))
            features += 1
        drawn: Tensor = torch.block_diag(*jordan)
        return drawn

    return _fill(module, draw)


@torch.no_grad()
def chrono_(module: ModuleT, longest: int) -> ModuleT:
    """Set gate biases for dependencies of up to `longest` steps (Tallec and Ollivier, arXiv 1804.11188).

    LSTM: the bias of the forget gate is log(u) with u uniform on (1, longest - 1), that of the input gate is its
    negative. GRU: the bias of the update gate, which keeps the state in `torch.nn`'s convention, is log(u). Nothing
    else changes.
    """
    mode = _mode(module)
    if mode not in ("LSTM", "GRU"):
        raise ArgumentError(argument="module", expected="an LSTM or GRU, which have gates", got=type(module))
    if not module.bias:
        raise ArgumentError("chrono_ sets biases, and this module has none", argument="module", hint="use bias=True")
    check_integer("longest", longest, 3)
    signs = {"forget": 1, "input": -1} if mode == "LSTM" else {"update": 1}
    for _, _, suffix in weight_suffixes(module):
        bias_ih = getattr(module, f"bias_ih{suffix}").view(len(GATES[mode]), -1)  # (G, d)
        bias_hh = getattr(module, f"bias_hh{suffix}").view(len(GATES[mode]), -1)
        log_time = torch.empty_like(bias_ih[0]).uniform_(1, longest - 1).log()
        for gate, sign in signs.items():
            bias_ih[GATES[mode].index(gate)] = sign * log_time
            bias_hh[GATES[mode].index(gate)] = 0
    return module


@torch.no_grad()
def waves_(
    module: ModuleT,
    periods: Sequence[float] | None = None,
    half_lives: Sequence[float] | None = None,
    *,
    longest: float = 512,
) -> ModuleT:
    """Set damped rotations, one pair of units for each period and half-life in time steps.

    They let a linear or tanh RNN find long cycles, where most blocks of `uniform_` forget within a few steps. `periods`
    defaults to log-spaced values from 4 steps to `longest`, and `half_lives` to the periods. Input weights are drawn in
    a random direction and scaled by sqrt(1 - modulus^2), so that white input of variance one drives the units of every
    linear block, fast or slow, to a variance of one on average. Biases become zero.
    """
    if not _mode(module).startswith("RNN"):
        raise ArgumentError(argument="module", expected="a ParaRNN or nn.RNN, without gates", got=type(module))
    if any(len(block.matrix) % 2 for block in recurrent_blocks(module)):
        size = getattr(module, "block_size", module.hidden_size)
        problem = f"a wave takes two units, so blocks need even sizes, got block_size {size}"
        raise ArgumentError(problem, argument="module", got=size)
    count = module.hidden_size // 2
    if not 4 <= longest < math.inf:
        raise ArgumentError(argument="longest", expected="a finite number of at least 4 steps", got=longest)
    if periods is None:
        # Spaced from the longest down, so that a single wave gets the longest period.
        periods = torch.logspace(math.log10(longest), math.log10(4), count, dtype=torch.float64).flip(0).tolist()
    if half_lives is None:
        half_lives = periods
    check_steps("periods", periods, count, above=2)
    check_steps("half_lives", half_lives, count, above=0)
    angle = 2 * math.pi / torch.tensor(periods, dtype=torch.float64)
    modulus = torch.exp2(-1 / torch.tensor(half_lives, dtype=torch.float64))
    gain = torch.sqrt(1 - modulus**2)[:, None, None]  # (d / 2, 1, 1)
    waves = rotations(modulus, angle)  # (d / 2, 2, 2)

    for _, _, suffix in weight_suffixes(module):
        weight_ih = getattr(module, f"weight_ih{suffix}")
        drawn = torch.randn(count, 2, weight_ih.shape[1], dtype=torch.float64)
        drawn *= gain * math.sqrt(2) / torch.linalg.matrix_norm(drawn, keepdim=True)
        weight_ih.copy_(drawn.flatten(0, 1))
        if module.bias:
            getattr(module, f"bias_ih{suffix}").zero_()
            getattr(module, f"bias_hh{suffix}").zero_()
        if _is_polar(module):
            getattr(module, f"log_rate_hh{suffix}").copy_(modulus_to_log_rate(modulus))
            getattr(module, f"angle_hh{suffix}").copy_(angle)
    if _is_polar(module):
        return module
    repeated = cycle(waves)  # one round for each layer and direction
    return _fill(module, lambda matrix: torch.block_diag(*(next(repeated) for _ in range(len(matrix) // 2))))


def _fill(module: ModuleT, draw: Callable[[Tensor], Tensor]) -> ModuleT:
    """Replace every recurrent matrix by what `draw` returns for it."""
    _check_free(module)
    if getattr(module, "proj_size", 0):
        problem = "with proj_size, a recurrent matrix is a product of two weights"
        raise ArgumentError(problem, argument="module", hint="use per_block_, and initialise weight_hr directly")
    blocks = list(recurrent_blocks(module))
    drawn = [draw(block.matrix) for block in blocks]  # all before the first is written: drawing may raise
    for block, matrix in zip(blocks, drawn, strict=True):
        block.matrix.copy_(matrix)
    return module


def _recurrent_weights(module: BlockRecurrent | nn.RNNBase | nn.RNNCellBase, suffix: str) -> list[Tensor]:
    """Return views (G, K, D, P) of `weight_hh`, one for each size of blocks."""
    if isinstance(module, BlockRecurrent):
        return [weights.recurrent for weights in module._grouped_weights(suffix)]
    return [getattr(module, f"weight_hh{suffix}").unflatten(0, (-1, 1, module.hidden_size))]


def _check_free(module: nn.Module) -> None:
    _mode(module)
    if _is_polar(module):
        raise ArgumentError("blocks in polar form have no free matrices", argument="module", hint="use waves_")


def _mode(module: nn.Module) -> str:
    """Return the recurrence that a module computes; raise if the module cannot be initialised."""
    if is_parametrized(module):
        hint = "initialise before registering parametrizations"
        raise ArgumentError("a parametrized weight is computed from others", argument="module", hint=hint)
    if isinstance(module, BlockRecurrent):
        return module.mode
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return torch_mode(module)
    expected = "a recurrent layer or cell of parallelrnn or torch.nn"
    raise ArgumentTypeError(argument="module", expected=expected, got=type(module))


def _is_polar(module: nn.Module) -> bool:
    return getattr(module, "form", "free") == "polar"


def _r4(eigenvalue: Tensor) -> Tensor:
    """Return J_4: the eigenvalue on the diagonal, ones above it."""
    above = torch.ones(3, dtype=eigenvalue.dtype, device=eigenvalue.device)
    return torch.diag(eigenvalue.expand(4)) + torch.diag(above, 1)


def _c2(modulus: Tensor, angle: Tensor) -> Tensor:
    """Return C_2: the rotation twice on the diagonal, the identity above it."""
    rotation = rotations(modulus, angle)
    jordan: Tensor = torch.block_diag(rotation, rotation)
    jordan[:2, 2:] = torch.eye(2, dtype=modulus.dtype, device=modulus.device)
    return jordan
