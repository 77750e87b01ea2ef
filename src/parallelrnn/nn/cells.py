"""ParaRNNCell, ParaLSTMCell and ParaGRUCell: one step at a time, called like their twins in `torch.nn`.

A cell is the recurrence of one layer, with weights named like those of `torch.nn`'s cells. It has no aggregate, and
returns raw block states like the h_n of a layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parallelrnn.errors import TensorError
from parallelrnn.kernels import State, step_eagerly
from parallelrnn.nn.blocks import BlockSize, check_tensor
from parallelrnn.nn.interface import is_traced, traced
from parallelrnn.nn.parameters import BlockRecurrent, rnn_mode


class _Cell(BlockRecurrent):
    mode: str
    weight_ih: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        block_size: BlockSize = 2,
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        options = {"block_size": block_size, "form": form, "backend": backend, "device": device, "dtype": dtype}
        super().__init__(self.mode, input_size, hidden_size, bias, **options)
        self._create_weights("", input_size, device, dtype)
        self.reset_parameters()

    def _call(self, input: Tensor, hx: object) -> State:
        state = self._as_state(hx)
        stored = self._stored_weights("")
        if stored is not None and state is not None and isinstance(input, Tensor) and input.dim() == 2:
            result = step_eagerly(self.mode, input, stored, state, self.backend)
            if result is not None:
                return result
        check_tensor("input", input, self.weight_ih)
        if input.dim() not in (1, 2) or input.shape[-1] != self.input_size:
            expected = f"a tensor (batch, {self.input_size}) or ({self.input_size},)"
            raise TensorError(argument="input", expected=expected, got=tuple(input.shape))
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)  # (B, input_size)
        if state is None:
            zeros = torch.zeros(x.shape[0], self.hidden_size, dtype=self.weight_ih.dtype, device=x.device)
            state = (zeros,) * self.num_states
        else:
            shape = (*input.shape[:-1], self.hidden_size)
            for s in state:
                if check_tensor("hx", s, self.weight_ih).shape != shape:
                    raise TensorError(argument="hx", expected=f"a state {shape}", got=tuple(s.shape))
            state = state if batched else tuple(s.unsqueeze(0) for s in state)
        _, state = self._run("", x.unsqueeze(0), state)
        return state if batched else tuple(s.squeeze(0) for s in state)


class _OneStateCell(_Cell):
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the state after one step from `hx`, or from zeros."""
        if is_traced(input):
            return traced(self, input, hx)  # type: ignore[no-any-return]
        (h,) = self._call(input, hx)
        return h


class ParaRNNCell(_OneStateCell):
    """One step of `ParaRNN`; a drop-in replacement for `torch.nn.RNNCell`.

    Examples
    --------
    >>> cell = ParaRNNCell(3, 8)
    >>> h = cell(torch.zeros(5, 3))
    >>> h = cell(torch.zeros(5, 3), h)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        block_size: BlockSize = 2,
        form: str = "free",
        backend: str = "auto",
    ) -> None:
        self.mode, self.nonlinearity = rnn_mode(nonlinearity), nonlinearity
        options: dict[str, Any] = {"block_size": block_size, "form": form, "backend": backend}
        super().__init__(input_size, hidden_size, bias, device, dtype, **options)


class ParaLSTMCell(_Cell):
    """One step of `ParaLSTM`; a drop-in replacement for `torch.nn.LSTMCell`.

    Examples
    --------
    >>> cell = ParaLSTMCell(3, 8)
    >>> h, c = cell(torch.zeros(5, 3))
    >>> h, c = cell(torch.zeros(5, 3), (h, c))
    """

    mode = "LSTM"

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the state (h, c) after one step from `hx`, or from zeros."""
        if is_traced(input):
            return traced(self, input, hx)  # type: ignore[no-any-return]
        h, c = self._call(input, hx)
        return h, c


class ParaGRUCell(_OneStateCell):
    """One step of `ParaGRU`; a drop-in replacement for `torch.nn.GRUCell`.

    Examples
    --------
    >>> cell = ParaGRUCell(3, 8)
    >>> h = cell(torch.zeros(5, 3))
    >>> h = cell(torch.zeros(5, 3), h)
    """

    mode = "GRU"
