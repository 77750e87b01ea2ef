"""What all recurrent layers share: stacking, directions, packed sequences, states and the aggregate."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from parallelrnn.kernels import (
    State,
    Weights,
    autocast_enabled,
    can_stream,
    last_linear_state,
    linear,
    needs_gradient,
    stream,
)
from parallelrnn.nn.aggregate import make_aggregate
from parallelrnn.nn.blocks import BlockSize
from parallelrnn.nn.checks import check_bool, check_dtype, check_probability, check_size, check_tensor, check_weights
from parallelrnn.nn.matrices import weight_suffixes
from parallelrnn.nn.parameters import BlockRecurrent

Aggregate = str | nn.Module | None
LinearMap = tuple[Tensor, Tensor | None]  # weight and bias


class Stack(BlockRecurrent):
    """Stacking, directions, packing and state; a subclass adds its signature."""

    weight_ih_l0: Tensor
    aggregate: nn.Module | None

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        block_size: BlockSize,
        aggregate: Aggregate,
        form: str,
        backend: str,
    ) -> None:
        options = {"block_size": block_size, "form": form, "backend": backend, "device": device, "dtype": dtype}
        super().__init__(mode, input_size, hidden_size, bias, proj_size, **options)
        check_bool("batch_first", batch_first)
        check_bool("bidirectional", bidirectional)
        check_size("num_layers", num_layers)
        check_probability("dropout", dropout)
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        self.num_layers = num_layers
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        above = (num_layers - 1) * len(self.gates) * hidden_size * self._width * self.num_directions
        check_weights(type(self).__name__, above + isinstance(aggregate, str) * self._width**2, device, dtype)
        for layer, _, suffix in weight_suffixes(self):
            self._create_weights(suffix, input_size if layer == 0 else self._width, device, dtype)
        self.reset_parameters()
        self.register_module("aggregate", make_aggregate(aggregate, self._width, bias, device, dtype))

    @property
    def num_directions(self) -> int:
        """Two if bidirectional, else one."""
        return 1 + self.bidirectional

    @property
    def block_sizes(self) -> list[int]:
        """Units of each block in what the aggregate gets: those of the forward direction, then of the reverse."""
        return [*self._output_sizes] * self.num_directions

    @property
    def _width(self) -> int:
        """Features of the concatenated states of one layer, over both directions."""
        return self.num_directions * self.output_size

    @property
    def _state_names(self) -> tuple[str, ...]:
        return ("h_0", "c_0")[: self.num_states]

    def reset_parameters(self) -> None:
        """Draw every weight anew; an aggregate that knows how is asked to do the same."""
        super().reset_parameters()
        reset = getattr(getattr(self, "aggregate", None), "reset_parameters", None)
        if reset is not None:
            reset()

    def block_states(self, input: Tensor | PackedSequence, hx: object = None) -> Tensor | PackedSequence:
        """The states of the last layer's blocks at every step: what the aggregate gets, directions side by side."""
        states, _ = self._call(input, hx, aggregated=False)
        return states

    def last_state(self, input: Tensor | PackedSequence) -> Tensor:
        """The states of the last layer's blocks after all steps, (B, d), directions side by side; the h alone of LSTMs.

        For when those in between are not needed: one linear layer then is one matrix product, without a loop over time.
        """
        if self._is_one_linear_layer and isinstance(input, Tensor) and input.dim() == 3:
            self._check_input(input, ranks=(3,))
            x = input if self.batch_first else input.transpose(0, 1)
            return last_linear_state(x, self._grouped_weights("_l0")[0])
        _, (h_n, *_) = self._call(input, None, aggregated=False)
        directions: list[Tensor] = list(h_n[-self.num_directions :])  # (B, d) each
        return torch.cat(directions, -1)

    @property
    def _is_one_linear_layer(self) -> bool:
        """Whether the loop over time can be left out; who asks for the reference gets the loop."""
        alone = self.num_layers == 1 and not self.bidirectional and self.blocks.equal
        return self.mode == "RNN_LINEAR" and alone and self.backend != "reference"

    def run_layer(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One layer alone, forward in time: x (T, B, its inputs) and state (B, d) each; no dropout, no aggregate."""
        return self._run(f"_l{layer}", x, state)

    def _call(
        self, input: Tensor | PackedSequence, hx: object, aggregated: bool = True
    ) -> tuple[Tensor | PackedSequence, State]:
        state = self._as_state(hx)
        if isinstance(input, PackedSequence):
            return self._call_packed(input, state, aggregated)
        self._check_input(input, ranks=(2, 3))
        batched = input.dim() == 3
        x = input.transpose(0, 1) if batched and self.batch_first else input  # (T, B, input_size)
        if state is not None:
            self._check_state_ranks(state, 3 if batched else 2)
        if not batched:
            x = x.unsqueeze(1)
            state = None if state is None else tuple(s.unsqueeze(1) for s in state)
        state = self._initial_state(x, state)
        aggregate = self._linear_aggregate() if aggregated else None
        output, final = self._stack(x, state, aggregate=aggregate)
        if not batched:
            output, final = output.squeeze(1), tuple(s.squeeze(1) for s in final)
        elif self.batch_first:
            output = output.transpose(0, 1)
        return self._aggregate(output) if aggregated and aggregate is None else output, final

    def _call_packed(
        self, input: PackedSequence, state: State | None, aggregated: bool
    ) -> tuple[PackedSequence, State]:
        data, batch_sizes, sorted_indices, unsorted_indices = input
        self._check_input(data, ranks=(2,))
        if state is not None:
            self._check_state_ranks(state, 3)
        # Between here and the end, sequences are in the order of decreasing length.
        x, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes))  # (T, B, input_size), (B,) on the CPU
        state = self._initial_state(x, state)
        if sorted_indices is not None:
            state = tuple(s.index_select(1, sorted_indices) for s in state)
        output, state = self._stack(x, state, lengths.to(x.device))
        if unsorted_indices is not None:
            state = tuple(s.index_select(1, unsorted_indices) for s in state)
        packed = pack_padded_sequence(output, lengths)
        output = self._aggregate(packed.data) if aggregated else packed.data
        return PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices), state

    def _stack(
        self, x: Tensor, state: State, lengths: Tensor | None = None, aggregate: LinearMap | None = None
    ) -> tuple[Tensor, State]:
        """All layers and directions: x (T, B, input_size), each state (num_layers * num_directions, B, d).

        Then the linear aggregate, if there is one. In inference all layers run over a few steps at a time, and it too.
        """
        layers = self._streamed(x, state, aggregate or ())
        if layers is not None:
            return stream(self.mode, x, layers, state, lengths, aggregate)
        finals: list[State] = []
        directions: list[Tensor] = []
        for index, (layer, direction, suffix) in enumerate(weight_suffixes(self)):
            initial = tuple(s[index] for s in state)
            output, final = self._run(suffix, x, initial, lengths, reverse=direction == "reverse")
            finals.append(final)
            directions.append(output)
            if len(directions) == self.num_directions:
                x = torch.cat(directions, -1) if self.bidirectional else output
                directions.clear()
                if self.dropout and layer < self.num_layers - 1:
                    x = functional.dropout(x, self.dropout, self.training)
        if aggregate is not None:
            x = linear(x, *aggregate)
        return x, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))

    def _streamed(self, x: Tensor, state: State, aggregate: tuple[Tensor | None, ...]) -> list[Weights] | None:
        """The weights of all layers, if the stack is one that can be run over a few steps at a time; else None."""
        if self.bidirectional or not self.blocks.equal or (self.dropout and self.training):
            return None
        if needs_gradient(self.weight_ih_l0):  # the usual case, told apart without much ado
            return None
        layers = [self._grouped_weights(suffix)[0] for _, _, suffix in weight_suffixes(self)]
        return layers if can_stream(self.backend, x, layers, state, *aggregate) else None

    def _linear_aggregate(self) -> LinearMap | None:
        """Weight and bias, if the aggregate is a linear map that nobody listens to and autocast leaves alone."""
        aggregate = self.aggregate
        if type(aggregate) is not nn.Linear or autocast_enabled(aggregate.weight.device.type):
            return None
        hooks = (
            aggregate._forward_hooks,
            aggregate._forward_pre_hooks,
            aggregate._backward_hooks,
            aggregate._backward_pre_hooks,
        )
        if any(hooks) or nn.modules.module._has_any_global_hook() or "forward" in vars(aggregate):
            return None
        return (aggregate.weight, aggregate.bias) if aggregate.weight.dtype == self.weight_ih_l0.dtype else None

    def _aggregate(self, output: Tensor) -> Tensor:
        if self.aggregate is None:
            return output
        aggregated: Tensor = self.aggregate(output)
        return aggregated

    def _initial_state(self, x: Tensor, state: State | None) -> State:
        shapes = [
            (self.num_layers * self.num_directions, x.shape[1], size)
            for size in (self.output_size, self.hidden_size)[: self.num_states]
        ]
        if state is None:
            dtype = self.weight_ih_l0.dtype
            return tuple(torch.zeros(shape, dtype=dtype, device=x.device) for shape in shapes)
        for name, s, shape in zip(self._state_names, state, shapes, strict=True):
            if s.shape != shape:
                raise RuntimeError(
                    f"{type(self).__name__}: expected {name} of shape {shape} "
                    f"(num_layers * num_directions, batch, units), got {tuple(s.shape)}"
                )
        return state

    def _check_input(self, input: Tensor, ranks: tuple[int, ...]) -> None:
        name = type(self).__name__
        check_tensor(name, "input", input)
        if input.dim() not in ranks:
            layout = "(batch, time, features)" if self.batch_first else "(time, batch, features)"
            expected = f"input to be 2D (time, features) or 3D {layout}" if 3 in ranks else "packed data to be 2D"
            raise ValueError(
                f"{name}: Expected {expected}, got {input.dim()}D tensor of shape {tuple(input.shape)} instead"
            )
        check_dtype(name, "input", input, self.weight_ih_l0)
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{name}: input.size(-1) must be equal to input_size. Expected {self.input_size}, "
                f"got {input.shape[-1]} in an input of shape {tuple(input.shape)}"
            )
        time = 1 if input.dim() == 3 and self.batch_first else 0
        if input.shape[time] == 0:
            raise RuntimeError(
                f"{name}: expected at least one time step, got none along dimension {time} of an input of shape "
                f"{tuple(input.shape)}; is batch_first={self.batch_first} what you mean?"
            )

    def _check_state_ranks(self, state: State, rank: int) -> None:
        for name, s in zip(self._state_names, state, strict=True):
            if s.dim() != rank:
                raise RuntimeError(
                    f"{type(self).__name__}: for {'batched' if rank == 3 else 'unbatched'} input, {name} should be "
                    f"{rank}-D, got a {s.dim()}-D tensor of shape {tuple(s.shape)}"
                )
            check_dtype(type(self).__name__, name, s, self.weight_ih_l0)
