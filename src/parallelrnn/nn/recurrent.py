"""ParaRNN, ParaLSTM and ParaGRU: K small recurrent networks side by side, called like their twins in `torch.nn`."""

from __future__ import annotations

import warnings
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from parallelrnn.errors import TensorError, check_number
from parallelrnn.kernels import (
    State,
    Weights,
    autocast_enabled,
    can_stream,
    last_linear_state,
    linear,
    needs_gradient,
    run_eagerly,
    stream,
)
from parallelrnn.nn.aggregate import is_linear_map, make_aggregate
from parallelrnn.nn.blocks import BlockSize, check_bool, check_memory, check_size, check_tensor, weight_suffixes
from parallelrnn.nn.interface import LayerInterface, is_traced, traced
from parallelrnn.nn.parameters import BlockRecurrent, rnn_mode

Aggregate = str | nn.Module | None
LinearMap = tuple[Tensor, Tensor | None]  # weight and bias


class RecurrentLayer(LayerInterface, BlockRecurrent):
    """One or more layers of blocks, in one or two directions; a subclass adds its signature."""

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
        *,
        aggregate: Aggregate,
        device: Any,
        dtype: torch.dtype | None,
        **options: Any,
    ) -> None:
        super().__init__(mode, input_size, hidden_size, bias, proj_size, device=device, dtype=dtype, **options)
        check_bool("batch_first", batch_first)
        check_bool("bidirectional", bidirectional)
        self.num_layers = check_size("num_layers", num_layers)
        self.dropout = check_number("dropout", dropout, "a probability from 0 to 1", lambda p: 0 <= p <= 1)
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"dropout={dropout} has no effect: it lies between layers, and num_layers is 1; use at least 2",
                stacklevel=3,
            )
        self.batch_first = batch_first
        self.bidirectional = bidirectional
        above = (num_layers - 1) * len(self.gates) * hidden_size * self._width * self.num_directions
        check_memory(above + isinstance(aggregate, str) * self._width**2, device, dtype)
        for layer, _, suffix in weight_suffixes(self):
            self._create_weights(suffix, input_size if layer == 0 else self._width, device, dtype)
        self.reset_parameters()
        self.register_module("aggregate", make_aggregate(aggregate, self._width, bias, device, dtype))

    @property
    def num_directions(self) -> int:
        """Two if bidirectional, otherwise one."""
        return 1 + self.bidirectional

    @property
    def block_sizes(self) -> list[int]:
        """The sizes of the blocks that the aggregate gets: those of the forward direction, then of the reverse."""
        return [*self._output_sizes] * self.num_directions

    @property
    def _width(self) -> int:
        """Features of the concatenated states of one layer, in both directions."""
        return self.num_directions * self.output_size

    def reset_parameters(self) -> None:
        """Draw all weights anew, and those of the aggregate if it has a `reset_parameters`."""
        super().reset_parameters()
        reset = getattr(getattr(self, "aggregate", None), "reset_parameters", None)
        if reset is not None:
            reset()

    def block_states(self, input: Tensor | PackedSequence, hx: object = None) -> Tensor | PackedSequence:
        """Return the block states of the last layer at every step, before the aggregate, directions side by side."""
        states, _ = self._call(input, hx, aggregated=False)
        return states

    def last_state(self, input: Tensor | PackedSequence) -> Tensor:
        """Return the block states h of the last layer after the last step, (B, d), directions side by side.

        Use it where earlier states are not needed: a single linear layer then is one matrix product, without a loop.
        """
        if self._is_one_linear_layer and isinstance(input, Tensor) and input.dim() == 3:
            self.check_input(input)
            x = input if self.batch_first else input.transpose(0, 1)
            return last_linear_state(x, self._grouped_weights("_l0")[0])
        _, (h_n, *_) = self._call(input, None, aggregated=False)
        directions: list[Tensor] = list(h_n[-self.num_directions :])  # (B, d) each
        return torch.cat(directions, -1)

    @property
    def _is_one_linear_layer(self) -> bool:
        """Whether the last state has a closed form; with backend="reference" the loop runs all the same."""
        one_group = self.num_layers == 1 and not self.bidirectional and self.blocks.equal
        return self.mode == "RNN_LINEAR" and one_group and self.backend != "reference"

    def run_layer(self, layer: int, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Run one layer alone, forward in time, over x (T, B, its inputs) from states (B, d), without aggregate."""
        return self._run(f"_l{layer}", x, state)

    def _call(
        self, input: Tensor | PackedSequence, hx: object, aggregated: bool = True
    ) -> tuple[Tensor | PackedSequence, State]:
        state = self._as_state(hx)
        if isinstance(input, PackedSequence):
            return self._call_packed(input, state, aggregated)
        self.check_input(input)
        batched = input.dim() == 3
        x = input.transpose(0, 1) if batched and self.batch_first else input  # (T, B, input_size)
        x = x if batched else x.unsqueeze(1)
        state = self._initial_state(x, state, batched)
        aggregate = self._linear_aggregate() if aggregated and self._modules["aggregate"] is not None else None
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
        self.check_input(data, batch_sizes)
        # Between here and the end, sequences are in the order of decreasing length.
        x, lengths = pad_packed_sequence(PackedSequence(data, batch_sizes))  # (T, B, input_size), (B,) on the CPU
        state = self._initial_state(x, state)
        state = self.permute_hidden(state, sorted_indices)
        output, state = self._stack(x, state, lengths.to(x.device))
        state = self.permute_hidden(state, unsorted_indices)
        packed = pack_padded_sequence(output, lengths)
        output = self._aggregate(packed.data) if aggregated else packed.data
        return PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices), state

    def _stack(
        self, x: Tensor, state: State, lengths: Tensor | None = None, aggregate: LinearMap | None = None
    ) -> tuple[Tensor, State]:
        """Run all layers and directions over x (T, B, input_size), then the linear aggregate, if there is one.

        Each state is (num_layers * num_directions, B, d). In inference all of this runs over a few steps at a time.
        """
        if self.num_layers == 1 and not self.bidirectional and aggregate is None:
            stored = self._stored_weights("_l0")
            if stored is not None:
                result = run_eagerly(self.mode, x, stored, state, lengths, False, self.backend)
                if result is not None:
                    return result
        layers = self._streamable(x, state, aggregate or ())
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

    def _streamable(self, x: Tensor, state: State, aggregate: tuple[Tensor | None, ...]) -> list[Weights] | None:
        """Return the weights of all layers if they can run over a few steps at a time, otherwise None."""
        if self.bidirectional or not self.blocks.equal or (self.dropout and self.training):
            return None
        if needs_gradient(self.weight_ih_l0):  # training, recognised at little cost
            return None
        layers = [self._grouped_weights(suffix)[0] for _, _, suffix in weight_suffixes(self)]
        return layers if can_stream(self.backend, x, layers, state, *aggregate) else None

    def _linear_aggregate(self) -> LinearMap | None:
        """Return weight and bias if the aggregate is a linear map without hooks that autocast leaves alone."""
        aggregate = self.aggregate
        if not is_linear_map(aggregate) or autocast_enabled(aggregate.weight.device.type):
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

    def _initial_state(self, x: Tensor, state: State | None, batched: bool = True) -> State:
        """Return the initial state for x (T, B, input_size): zeros, or the given state in its batched form."""
        count, batch = self.num_layers * self.num_directions, x.shape[1]
        sizes = (self.output_size, self.hidden_size)[: self.num_states]
        if state is None:
            dtype = self.weight_ih_l0.dtype
            return tuple(torch.zeros(count, batch, size, dtype=dtype, device=x.device) for size in sizes)
        for name, s, size in zip(("h_0", "c_0"), state, sizes, strict=False):
            shape = (count, batch, size) if batched else (count, size)
            if check_tensor(name, s, self.weight_ih_l0).shape != shape:
                layout = "(num_layers * num_directions, batch, units)" if batched else "without a batch, like the input"
                raise TensorError(argument=name, expected=f"a state {shape} {layout}", got=tuple(s.shape))
        return state if batched else tuple(s.unsqueeze(1) for s in state)


class _OneStateLayer(RecurrentLayer):
    """A layer whose state is h only."""

    @overload
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the layer over a sequence, from the state `hx` or from zeros."""
        if is_traced(input):
            return traced(self, input, hx)  # type: ignore[no-any-return]
        output, (h_n,) = self._call(input, hx)
        return output, h_n


class ParaRNN(_OneStateLayer):
    """K small RNNs side by side, h_k' = act(W_k h_k + U_k x + b_k), their states concatenated.

    A drop-in replacement for `torch.nn.RNN`: the same arguments in the same order, inputs and outputs of the same
    shapes, parameters of the same names. With `block_size=hidden_size` it computes the same numbers.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        As in `torch.nn.RNN`. `hidden_size` counts the units of all blocks together.
    nonlinearity
        "tanh", "relu", "sigmoid" or "linear".
    block_size
        Units in each block, or a list of sizes that add up to `hidden_size`. A block of size 1 cannot oscillate: its
        recurrent matrix is a real number, which decays or alternates. Only a pair of complex eigenvalues makes a wave.
    aggregate
        A position-wise map over the concatenated blocks, applied once, after the last layer: None, since the linear map
        that nearly always follows a recurrent layer is the paper's W_f; "linear" (W_f within the layer, which starts as
        the identity, with a bias if `bias`), "fc" (linear, then tanh), "ffn" (the feed-forward of Transformers), or a
        module.
    form
        "free": every entry of a block is a parameter. "polar": blocks of size 2, parametrised by a modulus below one
        and an angle. A tanh, relu, sigmoid or linear layer in polar form forgets its initial state, however it is
        trained.
    backend
        What computes the recurrence: "cpu" (the C kernels), "triton" (for GPUs), "reference" (the plain loop), or
        "auto" (the fastest that supports the layer).

    Notes
    -----
    A call returns `output`, the states of the last layer at each step, and `h_n`, the last states of all layers,
    (num_layers * num_directions, batch, hidden_size). Passed back in, `h_n` continues the sequence exactly. With an
    aggregate, `output` is aggregated and `h_n` is not.

    Examples
    --------
    >>> layer = ParaRNN(input_size=3, hidden_size=8)       # 4 blocks of 2 units
    >>> output, h_n = layer(torch.zeros(10, 5, 3))         # 10 steps of 5 sequences
    >>> output.shape, h_n.shape
    (torch.Size([10, 5, 8]), torch.Size([1, 5, 8]))

    References
    ----------
    Section 3 and Algorithm 1 of arXiv 2605.02692.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        block_size: BlockSize = 2,
        aggregate: Aggregate = None,
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        arguments = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        options: dict[str, Any] = {"block_size": block_size, "aggregate": aggregate, "form": form, "backend": backend}
        super().__init__(rnn_mode(nonlinearity), *arguments, device=device, dtype=dtype, **options)
        self.nonlinearity = nonlinearity


class ParaLSTM(RecurrentLayer):
    """K small LSTMs side by side, their states concatenated: a drop-in replacement for `torch.nn.LSTM`.

    Arguments as in `torch.nn.LSTM`, then those of `ParaRNN`. With `proj_size`, the h of each block is projected on its
    own, to proj_size / num_blocks units. In polar form the matrices of every gate are parametrised by modulus and
    angle; what the layer keeps and forgets is still up to its gates. The equations are in `kernels/reference.py`.

    Examples
    --------
    >>> layer = ParaLSTM(3, 8, num_layers=2, batch_first=True)
    >>> output, (h_n, c_n) = layer(torch.zeros(5, 10, 3))
    >>> output.shape, h_n.shape, c_n.shape
    (torch.Size([5, 10, 8]), torch.Size([2, 5, 8]), torch.Size([2, 5, 8]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        block_size: BlockSize = 2,
        aggregate: Aggregate = None,
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        arguments = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size)
        options: dict[str, Any] = {"block_size": block_size, "aggregate": aggregate, "form": form, "backend": backend}
        super().__init__("LSTM", *arguments, device=device, dtype=dtype, **options)

    @overload
    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

    def forward(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Run the layer over a sequence, from the state `hx` = (h_0, c_0) or from zeros."""
        if is_traced(input):
            return traced(self, input, hx)  # type: ignore[no-any-return]
        output, (h_n, c_n) = self._call(input, hx)
        return output, (h_n, c_n)


class ParaGRU(_OneStateLayer):
    """K small GRUs side by side, their states concatenated: a drop-in replacement for `torch.nn.GRU`.

    Arguments as in `torch.nn.GRU`, then those of `ParaRNN`. The reset gate multiplies W_n h + b_n, as in `torch.nn`;
    the equations are in `kernels/reference.py`. In polar form the matrices of every gate are parametrised by modulus
    and angle; what the layer keeps and forgets is still up to its gates.

    Examples
    --------
    >>> layer = ParaGRU(3, 8, bidirectional=True)
    >>> output, h_n = layer(torch.zeros(10, 5, 3))
    >>> output.shape, h_n.shape
    (torch.Size([10, 5, 16]), torch.Size([2, 5, 8]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        block_size: BlockSize = 2,
        aggregate: Aggregate = None,
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        arguments = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        options: dict[str, Any] = {"block_size": block_size, "aggregate": aggregate, "form": form, "backend": backend}
        super().__init__("GRU", *arguments, device=device, dtype=dtype, **options)
