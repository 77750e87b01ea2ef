"""The weights of block recurrences and one pass through them: what layers and cells have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.kernels import GATES, NUM_STATES, State, Weights, check_backend, recurrence
from parallelrnn.nn.blocks import BlockSize, parse_block_size, select_blocks
from parallelrnn.nn.checks import check_bool, check_size, check_tensor, check_weights
from parallelrnn.nn.matrices import UNBOUNDED, RecurrentBlock, weight_suffixes, without_growth
from parallelrnn.nn.polar import polar_blocks, reset_polar

FORMS = ("free", "polar")
# What a module's description leaves out when it is so.
_DEFAULTS = {
    "proj_size": 0,
    "num_layers": 1,
    "nonlinearity": "tanh",
    "bias": True,
    "batch_first": False,
    "dropout": 0.0,
    "bidirectional": False,
    "form": "free",
    "backend": "auto",
}
NONLINEARITIES = ("tanh", "relu", "sigmoid", "linear")


class BlockRecurrent(nn.Module):
    """Parameters named and stacked as in `torch.nn`, with the recurrent ones of every block side by side.

    For each suffix (`_l0`, `_l0_reverse`, ...; none for a cell), with G gates and d = `hidden_size`:

    - `weight_ih` (G * d, input_size), `bias_ih` and `bias_hh` (G * d,): those of `torch.nn`.
    - `weight_hh` (G * d, block_size): the block diagonal of `torch.nn`'s (G * d, d), stored compactly. Row g * d + i
      holds the weights of unit i in gate g from the units of its own block. One block: exactly the parameter of
      `torch.nn`. Unequal blocks: one such parameter for each size, `weight_hh_l0_size2`, `weight_hh_l0_size3`, ...
    - `weight_hr` (proj_size, block_size), if an LSTM projects: each block by itself. `weight_hh` then has
      proj_size / num_blocks columns.
    - in polar form, `log_rate_hh` and `angle_hh` (G * num_blocks,) instead of `weight_hh`.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        bias: bool,
        proj_size: int = 0,
        *,
        block_size: BlockSize,
        form: str,
        backend: str,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_bool("bias", bias)
        check_size("input_size", input_size)
        check_size("hidden_size", hidden_size)
        check_weights(type(self).__name__, len(GATES[mode]) * hidden_size * (input_size + 2), device, dtype)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.proj_size = proj_size
        self.blocks = parse_block_size(hidden_size, block_size)
        self.block_size = block_size if isinstance(block_size, int) else list(block_size)
        self.form = form
        self.backend = check_backend(backend)
        self._check_form()
        self._check_projection()

    @property
    def num_blocks(self) -> int:
        """How many blocks run side by side."""
        return len(self.blocks.sizes)

    @property
    def may_grow(self) -> bool:
        """Whether matrices drawn for small blocks could let states grow without bounds."""
        return self.num_blocks > 1 and self.mode in UNBOUNDED

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of the gates, in the order in which the weights stack them."""
        return GATES[self.mode]

    @property
    def num_states(self) -> int:
        """How many tensors the state has: two for the LSTM, one otherwise."""
        return NUM_STATES[self.mode]

    @property
    def output_size(self) -> int:
        """Units of h per direction: `hidden_size`, or `proj_size` where blocks are projected."""
        return self.proj_size or self.hidden_size

    def recurrent_blocks(self) -> Iterator[RecurrentBlock]:
        """The recurrent matrices by layer, direction, gate and block; see `parallelrnn.nn.recurrent_blocks`."""
        for layer, direction, suffix in weight_suffixes(self):
            matrices: dict[int, Tensor] = {}  # block -> (G, D, D)
            for blocks, weights in zip(self.blocks.groups.values(), self._grouped_weights(suffix), strict=True):
                recurrent = weights.recurrent
                if weights.projection is not None:
                    recurrent = recurrent @ weights.projection
                matrices.update(zip(blocks, recurrent.unbind(1), strict=True))
            for index, gate in enumerate(self.gates):
                for block in range(self.num_blocks):
                    yield RecurrentBlock(layer, direction, gate, block, matrices[block][index])

    def flatten_parameters(self) -> None:
        """Do nothing: here for code that calls it on `torch.nn` layers, whose cuDNN weights need it."""

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults."""
        values = {name: getattr(self, name, default) for name, default in _DEFAULTS.items()}
        named = [f"{name}={value!r}" for name, value in values.items() if value != _DEFAULTS[name]]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", f"block_size={self.block_size}", *named])

    def _create_weights(self, suffix: str, input_size: int, device: Any, dtype: torch.dtype | None) -> None:
        """Register the parameters of one layer and direction."""
        for name, shape in self._weight_shapes(suffix, input_size).items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def _weight_shapes(self, suffix: str, input_size: int = 0) -> dict[str, tuple[int, ...]]:
        """The parameters of one layer and direction and their shapes, in `torch.nn`'s order."""
        gates, groups = len(self.gates), self.blocks.groups
        shapes: dict[str, tuple[int, ...]] = {f"weight_ih{suffix}": (gates * self.hidden_size, input_size)}
        if self.form == "polar":
            shapes[f"log_rate_hh{suffix}"] = shapes[f"angle_hh{suffix}"] = (gates * self.num_blocks,)
        else:
            for size, blocks in groups.items():
                columns = self._projected_size or size
                shapes[self._group_name("weight_hh", suffix, size)] = (gates * len(blocks) * size, columns)
        if self.bias:
            shapes[f"bias_ih{suffix}"] = shapes[f"bias_hh{suffix}"] = (gates * self.hidden_size,)
        if self.proj_size:
            for size, blocks in groups.items():
                shapes[self._group_name("weight_hr", suffix, size)] = (len(blocks) * self._projected_size, size)
        return shapes

    def reset_parameters(self) -> None:
        """Draw weights uniformly from (-1/sqrt(d), 1/sqrt(d)), as `torch.nn`; polar blocks from the unit disc.

        Where a block reads its own units alone, d is their number: by that of the layer it would forget at once.
        Small matrices may then have eigenvalues above 1 in modulus, which are scaled down unless an activation bounds
        the states, or one block is the layer of `torch.nn`.
        """
        with torch.no_grad():
            for _, _, suffix in weight_suffixes(self):
                own = {
                    self._group_name(kind, suffix, size): size
                    for kind in ("weight_hh", "weight_hr")
                    for size in self.blocks.groups
                }
                for name in self._weight_shapes(suffix):
                    weight, bound = getattr(self, name), 1 / math.sqrt(own.get(name, self.hidden_size))
                    weight.uniform_(-bound, bound)
                    if name in own and self.may_grow:
                        weight.copy_(without_growth(weight.unflatten(0, (-1, own[name]))).flatten(0, 1))
                if self.form == "polar":
                    reset_polar(getattr(self, f"log_rate_hh{suffix}"), getattr(self, f"angle_hh{suffix}"))

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, as in `torch.nn`."""
        return [[getattr(self, name) for name in self._weight_shapes(suffix)] for _, _, suffix in weight_suffixes(self)]

    def _run(
        self, suffix: str, x: Tensor, state: State, lengths: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, State]:
        """Pass x (T, B, input_size) and state (B, d) through one layer in one direction."""
        groups = self._grouped_weights(suffix)
        if self.blocks.equal:
            return recurrence(self.mode, x, groups[0], state, lengths, reverse, self.backend)
        # Each size runs by itself: pick its blocks out of the state, run, and put everything back in the blocks' order.
        results = [
            recurrence(self.mode, x, weights, self._select_state(state, blocks), lengths, reverse, self.backend)
            for blocks, weights in zip(self.blocks.groups.values(), groups, strict=True)
        ]
        output = self._restore_order([output for output, _ in results], self._output_sizes)
        states = zip(*(state for _, state in results), strict=True)
        return output, tuple(
            self._restore_order(parts, sizes) for parts, sizes in zip(states, self._state_sizes, strict=True)
        )

    def _grouped_weights(self, suffix: str) -> list[Weights]:
        """One set of weights for each size of blocks, its blocks in their order."""
        if self.blocks.equal and not self.proj_size:
            size = self.blocks.sizes[0]
            biases = (getattr(self, f"bias_ih{suffix}"), getattr(self, f"bias_hh{suffix}")) if self.bias else ()
            recurrent = self._recurrent_weight(suffix, size, self.num_blocks)
            return [Weights(getattr(self, f"weight_ih{suffix}"), recurrent, *biases)]

        def rows_of(name: str, blocks: tuple[int, ...]) -> Tensor:
            stacked: Tensor = getattr(self, f"{name}{suffix}")
            if self.blocks.equal:
                return stacked
            by_gate = stacked.unflatten(0, (len(self.gates), self.hidden_size))
            return select_blocks(by_gate, self.blocks.sizes, blocks, dim=1).flatten(0, 1)

        groups = []
        for size, blocks in self.blocks.groups.items():
            projection = None
            if self.proj_size:
                stacked = getattr(self, self._group_name("weight_hr", suffix, size))
                projection = stacked.reshape(len(blocks), self._projected_size, size)
            groups.append(
                Weights(
                    rows_of("weight_ih", blocks),
                    self._recurrent_weight(suffix, size, len(blocks)),
                    rows_of("bias_ih", blocks) if self.bias else None,
                    rows_of("bias_hh", blocks) if self.bias else None,
                    projection,
                )
            )
        return groups

    def _recurrent_weight(self, suffix: str, size: int, num_blocks: int) -> Tensor:
        """The recurrent matrices of all blocks of one size, (G, K, D, P)."""
        if self.form == "polar":
            matrices = polar_blocks(getattr(self, f"log_rate_hh{suffix}"), getattr(self, f"angle_hh{suffix}"))
            return matrices.reshape(len(self.gates), num_blocks, 2, 2)
        stacked: Tensor = getattr(self, self._group_name("weight_hh", suffix, size))
        return stacked.reshape(len(self.gates), num_blocks, size, self._projected_size or size)

    def _group_name(self, name: str, suffix: str, size: int) -> str:
        return f"{name}{suffix}" if self.blocks.equal else f"{name}{suffix}_size{size}"

    def _select_state(self, state: State, blocks: tuple[int, ...]) -> State:
        return tuple(select_blocks(s, sizes, blocks) for s, sizes in zip(state, self._state_sizes, strict=True))

    def _restore_order(self, parts: list[Tensor] | tuple[Tensor, ...], sizes: tuple[int, ...]) -> Tensor:
        grouped = [block for blocks in self.blocks.groups.values() for block in blocks]
        position = {block: index for index, block in enumerate(grouped)}
        order = [position[block] for block in range(self.num_blocks)]
        return select_blocks(torch.cat(list(parts), -1), [sizes[block] for block in grouped], order)

    @property
    def _projected_size(self) -> int:
        return self.proj_size // self.num_blocks

    @property
    def _output_sizes(self) -> tuple[int, ...]:
        """Units of h in each block."""
        return (self._projected_size,) * self.num_blocks if self.proj_size else self.blocks.sizes

    @property
    def _state_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Units in each block of h, for the LSTM also of c."""
        return (self._output_sizes, self.blocks.sizes)[: self.num_states]

    def _as_state(self, hx: object) -> State | None:
        """A state as a tuple: of one tensor, or for the LSTM of h and c."""
        if hx is None:
            return None
        name = type(self).__name__
        if self.num_states == 1:
            if isinstance(hx, (tuple, list)):
                raise TypeError(f"{name}: expected hx to be one tensor h_0, got a {type(hx).__name__} of {len(hx)}")
            return (check_tensor(name, "hx", hx),)
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            came = f"{len(hx)} of them" if isinstance(hx, (tuple, list)) else type(hx).__name__
            raise TypeError(f"{name}: expected hx to be a pair of tensors (h_0, c_0), got {came}")
        return tuple(check_tensor(name, "every part of hx", s) for s in hx)

    def _check_form(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"form should be one of {', '.join(map(repr, FORMS))}, got {self.form!r}")
        if self.form == "polar" and set(self.blocks.sizes) != {2}:
            raise ValueError(f"polar form is for blocks of size 2, got block_size={self.block_size}; use form='free'")
        if self.form == "polar" and self.proj_size:
            raise ValueError("polar form is for square blocks, which proj_size takes away; use form='free'")

    def _check_projection(self) -> None:
        if isinstance(self.proj_size, bool) or not isinstance(self.proj_size, int):
            raise TypeError(f"proj_size should be of type int, got: {type(self.proj_size).__name__}")
        if self.proj_size < 0:
            raise ValueError(
                f"proj_size should be a positive integer or zero to disable projections, got {self.proj_size}"
            )
        if self.proj_size >= self.hidden_size:
            raise ValueError(
                f"proj_size has to be smaller than hidden_size, got {self.proj_size} and {self.hidden_size}"
            )
        allowed = [units * self.num_blocks for units in range(1, min(self.blocks.sizes))]
        if self.proj_size and self.proj_size not in allowed:
            fitting = self.hidden_size // math.gcd(self.hidden_size, self.proj_size)
            advice = f"use one of {allowed}, or block_size={fitting}" if allowed else f"use block_size={fitting}"
            raise ValueError(
                f"each of {self.num_blocks} blocks is projected by itself, all to the same number of units, fewer than "
                f"the smallest block has ({min(self.blocks.sizes)}); proj_size {self.proj_size} does not fit: {advice}"
            )


def rnn_mode(nonlinearity: str) -> str:
    """The kernels' word for an RNN with this activation."""
    if nonlinearity not in NONLINEARITIES:
        known = ", ".join(map(repr, NONLINEARITIES))
        raise ValueError(f"Unknown nonlinearity {nonlinearity!r}. Select from {known}.")
    return f"RNN_{nonlinearity.upper()}"
