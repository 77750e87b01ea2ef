"""ParaRNN, ParaLSTM and ParaGRU: K small recurrent networks side by side, called like their twins in `torch.nn`."""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from parallelrnn.nn.blocks import BlockSize
from parallelrnn.nn.parameters import rnn_mode
from parallelrnn.nn.stack import Aggregate, Stack


class _OneStateLayer(Stack):
    """A layer whose state is h alone."""

    @overload
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the layer over a sequence, from the state `hx` or from zeros."""
        output, (h_n,) = self._call(input, hx)
        return output, h_n


class ParaRNN(_OneStateLayer):
    """K small RNNs side by side, h_k' = act(W_k h_k + U_k x + b_k), and one map that aggregates them.

    Stands where `torch.nn.RNN` stands: the same arguments in the same order, inputs and outputs of the same shapes,
    parameters of the same names. With `block_size=hidden_size` and `aggregate=None` it computes the same numbers.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        As in `torch.nn.RNN`. `hidden_size` counts the units of all blocks together.
    nonlinearity
        "tanh", "relu", "sigmoid" or "linear".
    block_size
        Units in each block; or a list of sizes, which add up to `hidden_size`. Size 1 cannot oscillate: a real number
        as a recurrent matrix decays or alternates, and only a pair of complex eigenvalues makes a wave.
    aggregate
        The position-wise map over the concatenated blocks, applied once, after the last layer: "linear" (W_f of the
        paper, with a bias if `bias`), "fc" (linear, then tanh), "ffn" (the feed-forward of Transformers), None, or a
        module.
    form
        "free", every entry of a block a parameter; or "polar", blocks of size 2 held as modulus (below one) and angle.
        A tanh, relu, sigmoid or linear layer in polar form forgets its initial state whatever it is trained on.
    backend
        What computes the recurrence: "cpu", the C kernels; "triton", for GPUs; "reference", the plain loop; or "auto",
        the fastest of these that can.

    Notes
    -----
    A call gives `output`, the aggregated states of the last layer at each step, and `h_n`, the last raw block states,
    (num_layers * num_directions, batch, hidden_size). Passed back in, these continue the sequence exactly. Not to be
    confused with the last step of `output`, which is aggregated.

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
        aggregate: Aggregate = "linear",
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        super().__init__(
            rnn_mode(nonlinearity),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
            block_size=block_size,
            aggregate=aggregate,
            form=form,
            backend=backend,
        )
        self.nonlinearity = nonlinearity


class ParaLSTM(Stack):
    """K small LSTMs side by side and one map that aggregates them: stands where `torch.nn.LSTM` stands.

    Arguments as in `torch.nn.LSTM`, then those of `ParaRNN`. With `proj_size` each block's h is projected by itself, to
    proj_size / num_blocks units. In polar form every gate's matrices are held as modulus and angle; what is kept and
    what forgotten is still up to the gates.

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
        aggregate: Aggregate = "linear",
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device=device,
            dtype=dtype,
            block_size=block_size,
            aggregate=aggregate,
            form=form,
            backend=backend,
        )

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
        output, (h_n, c_n) = self._call(input, hx)
        return output, (h_n, c_n)


class ParaGRU(_OneStateLayer):
    """K small GRUs side by side and one map that aggregates them: stands where `torch.nn.GRU` stands.

    Arguments as in `torch.nn.GRU`, then those of `ParaRNN`. The reset gate multiplies W_n h + b_n, as in `torch.nn`. In
    polar form every gate's matrices are held as modulus and angle; what is kept and what forgotten is still up to
    the gates.

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
        aggregate: Aggregate = "linear",
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
            block_size=block_size,
            aggregate=aggregate,
            form=form,
            backend=backend,
        )
