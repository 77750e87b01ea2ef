"""The weights of block recurrences and one pass through them: the common base of layers and cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, check_choice, check_integer
from parallelrnn.kernels import GATES, NUM_STATES, State, Weights, check_backend, recurrence
from parallelrnn.nn.blocks import (
    UNBOUNDED,
    BlockSize,
    RecurrentBlock,
    check_bool,
    check_memory,
    check_size,
    check_tensor,
    format_block_size,
    limit_spectral_radius,
    parse_block_size,
    polar_blocks,
    reset_polar,
    select_blocks,
    weight_suffixes,
)

FORMS = ("free", "polar")
NONLINEARITIES = ("tanh", "relu", "sigmoid", "linear")
_DEFAULTS = {  # left out of a module's description
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


class BlockRecurrent(nn.Module):
    """Parameters named and stacked as in `torch.nn`, with the recurrent ones of every block side by side.

    For each suffix (`_l0`, `_l0_reverse`, ...; none for a cell), with G gates and d = `hidden_size`:

    - `weight_ih` (G * d, input_size), `bias_ih` and `bias_hh` (G * d,): those of `torch.nn`.
    - `weight_hh` (G * d, block_size): the block diagonal of `torch.nn`'s (G * d, d), stored compactly. Row g * d + i
      holds the weights of unit i in gate g from the units of its own block. With one block it is exactly the parameter
      of `torch.nn`. Unequal blocks have one such parameter for each size, `weight_hh_l0_size2`, `weight_hh_l0_size3`.
    - `weight_hr` (proj_size, block_size), if an LSTM projects: each block separately. `weight_hh` then has
      proj_size / num_blocks columns.
    - In polar form, `log_rate_hh` and `angle_hh` (G * num_blocks,) replace `weight_hh`.
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
        self.mode = mode
        self.input_size = check_size("input_size", input_size)
        self.hidden_size = check_size("hidden_size", hidden_size)
        check_memory(len(GATES[mode]) * hidden_size * (input_size + 2), device, dtype)
        self.bias = bias
        self.proj_size = check_integer("proj_size", proj_size, 0)
        self.blocks = parse_block_size(hidden_size, block_size)
        self.block_size = list(block_size) if isinstance(block_size, Sequence) else int(block_size)
        self.form = form
        self.backend = check_backend(backend)
        self._check_form()
        self._check_projection()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: of this package, only the class itself, which `torch.load` has to be told of."""
        return {name: value for name, value in vars(self).items() if name != "blocks"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled module."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.blocks = parse_block_size(self.hidden_size, self.block_size)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Load parameters; if they are those of a dense layer, say how to use them."""
        *_, unexpected, error_messages = arguments
        if self._modules.get("aggregate", self) is None:
            # The name is there, of no module: torch would drop the weights of an aggregate without a word.
            unexpected += [key for key in state_dict if key.startswith(f"{prefix}aggregate.")]
        before = len(error_messages)
        super()._load_from_state_dict(state_dict, prefix, *arguments)
        suffix = weight_suffixes(self)[0][2]
        dense = (len(self.gates) * self.hidden_size, self.output_size)
        weight = state_dict.get(f"{prefix}weight_hh{suffix}")
        if len(error_messages) > before and weight is not None and weight.shape == dense:
            error_messages.append(
                f"{prefix}weight_hh{suffix} is that of a dense layer, whose weights do not fit into blocks of "
                f"{self.block_size}: load them into the layer of torch.nn, and parallelrnn.from_torch(layer) makes one "
                "block of it (an nn.RNN can also be cut into blocks)"
            )

    @property
    def num_blocks(self) -> int:
        """The number of blocks that run side by side."""
        return len(self.blocks.sizes)

    @property
    def may_grow(self) -> bool:
        """Whether randomly drawn small blocks could let states grow without bound."""
        return self.num_blocks > 1 and self.mode in UNBOUNDED

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of the gates, in the order in which the weights stack them."""
        return GATES[self.mode]

    @property
    def num_states(self) -> int:
        """The number of tensors in the state: two for the LSTM, otherwise one."""
        return NUM_STATES[self.mode]

    @property
    def output_size(self) -> int:
        """Units of h per direction: `hidden_size`, or `proj_size` if blocks are projected."""
        return self.proj_size or self.hidden_size

    def recurrent_blocks(self) -> Iterator[RecurrentBlock]:
        """Iterate over the recurrent matrices by layer, direction, gate and block."""
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

    def extra_repr(self) -> str:
        """Return the arguments that differ from their defaults."""
        values = {name: getattr(self, name, default) for name, default in _DEFAULTS.items()}
        named = [f"{name}={value!r}" for name, value in values.items() if value != _DEFAULTS[name]]
        sizes = f"{self.input_size}, {self.hidden_size}, block_size={format_block_size(self.block_size)}"
        return ", ".join([sizes, *named])

    def _create_weights(self, suffix: str, input_size: int, device: Any, dtype: torch.dtype | None) -> None:
        """Register the parameters of one layer and direction."""
        for name, shape in self._weight_shapes(suffix, input_size).items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def _weight_shapes(self, suffix: str, input_size: int = 0) -> dict[str, tuple[int, ...]]:
        """Return the parameters of one layer and direction with their shapes, in `torch.nn`'s order."""
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
        """Draw weights uniformly from (-1/sqrt(d), 1/sqrt(d)) like `torch.nn`, and polar blocks from the unit disc.

        For weights from a block's own units, d is the size of the block: with that of the layer, a block would forget
        at once. Small matrices may then have eigenvalues above 1 in modulus. They are scaled down, unless an activation
        bounds the states or a single block makes this the layer of `torch.nn`.
        """
        with torch.no_grad():
            for _, _, suffix in weight_suffixes(self):
                sizes = {
                    self._group_name(kind, suffix, size): size
                    for kind in ("weight_hh", "weight_hr")
                    for size in self.blocks.groups
                }
                for name in self._weight_shapes(suffix):
                    weight, bound = getattr(self, name), 1 / math.sqrt(sizes.get(name, self.hidden_size))
                    weight.uniform_(-bound, bound)
                    if name in sizes and self.may_grow:
                        weight.copy_(limit_spectral_radius(weight.unflatten(0, (-1, sizes[name]))).flatten(0, 1))
                if self.form == "polar":
                    reset_polar(getattr(self, f"log_rate_hh{suffix}"), getattr(self, f"angle_hh{suffix}"))

    def _run(
        self, suffix: str, x: Tensor, state: State, lengths: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, State]:
        """Run one layer in one direction over x (T, B, input_size) from state (B, d)."""
        groups = self._grouped_weights(suffix)
        if self.blocks.equal:
            return recurrence(self.mode, x, groups[0], state, lengths, reverse, self.backend)
        # Each size runs separately: pick its blocks out of the state, run them, and restore the order of the blocks.
        results = [
            recurrence(self.mode, x, weights, self._select_state(state, blocks), lengths, reverse, self.backend)
            for blocks, weights in zip(self.blocks.groups.values(), groups, strict=True)
        ]
        output = self._restore_order([output for output, _ in results], self._output_sizes)
        states = zip(*(state for _, state in results), strict=True)
        return output, tuple(
            self._restore_order(parts, sizes) for parts, sizes in zip(states, self._state_sizes, strict=True)
        )

    def _stored_weights(self, suffix: str) -> Weights | None:
        """Return the parameters themselves, if the kernels can read them as they are stored."""
        if not self.blocks.equal or self.proj_size or self.form != "free":
            return None
        return self._all_blocks(suffix, self._weight(f"weight_hh{suffix}"))

    def _all_blocks(self, suffix: str, recurrent: Tensor) -> Weights:
        """Return the weights of equal blocks without projections."""
        weights = self._weight(f"weight_ih{suffix}"), recurrent
        if not self.bias:
            return Weights(*weights)
        return Weights(*weights, self._weight(f"bias_ih{suffix}"), self._weight(f"bias_hh{suffix}"))

    def _grouped_weights(self, suffix: str) -> list[Weights]:
        """Return one set of weights for each size of blocks."""
        if self.blocks.equal and not self.proj_size:
            sizes = self.blocks.sizes
            return [self._all_blocks(suffix, self._recurrent_weight(suffix, sizes[0], len(sizes)))]

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
        """Return the recurrent matrices of all blocks of one size, (G, K, D, P)."""
        if self.form == "polar":
            matrices = polar_blocks(getattr(self, f"log_rate_hh{suffix}"), getattr(self, f"angle_hh{suffix}"))
            return matrices.reshape(len(self.gates), num_blocks, 2, 2)
        stacked = self._weight(self._group_name("weight_hh", suffix, size))
        return stacked.reshape(len(self.gates), num_blocks, size, self._projected_size or size)

    def _weight(self, name: str) -> Tensor:
        """Return a parameter, or what took its place, such as the property of a parametrization."""
        found: Tensor | None = self._parameters.get(name)  # many times as fast as getattr
        return getattr(self, name) if found is None else found

    def _group_name(self, name: str, suffix: str, size: int) -> str:
        return f"{name}{suffix}" if self.blocks.equal else f"{name}{suffix}_size{size}"

    def _select_state(self, state: State, blocks: tuple[int, ...]) -> State:
        return tuple(select_blocks(s, sizes, blocks) for s, sizes in zip(state, self._state_sizes, strict=True))

    def _restore_order(self, parts: list[Tensor] | tuple[Tensor, ...], sizes: tuple[int, ...]) -> Tensor:
        grouped = [sizes[block] for block in self.blocks.grouped]
        return select_blocks(torch.cat(list(parts), -1), grouped, self.blocks.restored)

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
        """Return a state as a tuple: of one tensor, or for the LSTM of h and c."""
        if hx is None:
            return None
        if self.num_states == 1:
            return (check_tensor("hx", hx),)
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise ArgumentTypeError(argument="hx", expected="a pair of tensors (h_0, c_0)", got=type(hx))
        return tuple(check_tensor("hx", s) for s in hx)

    def _check_form(self) -> None:
        check_choice("form", self.form, FORMS)
        if self.form == "polar" and (set(self.blocks.sizes) != {2} or self.proj_size):
            problem = f"polar form needs blocks of size 2 without proj_size, got block_size {self.block_size}"
            raise ArgumentError(problem, argument="form", got=self.form, hint="use form='free'")

    def _check_projection(self) -> None:
        if self.proj_size >= self.hidden_size:
            expected = f"less than hidden_size {self.hidden_size}"
            raise ArgumentError(argument="proj_size", expected=expected, got=self.proj_size)
        # Each block is projected on its own, all of them to the same number of units.
        allowed = [units * self.num_blocks for units in range(1, min(self.blocks.sizes))]
        if self.proj_size and self.proj_size not in allowed:
            fitting = self.hidden_size // math.gcd(self.hidden_size, self.proj_size)
            expected = f"a multiple of the {self.num_blocks} blocks, below the smallest block's size for each"
            hint = f"use one of {allowed}, or block_size={fitting}" if allowed else f"use block_size={fitting}"
            raise ArgumentError(argument="proj_size", expected=expected, got=self.proj_size, hint=hint)


def rnn_mode(nonlinearity: str) -> str:
    """Return the kernels' name for an RNN with this activation."""
    check_choice("nonlinearity", nonlinearity, NONLINEARITIES)
    return f"RNN_{nonlinearity.upper()}"
