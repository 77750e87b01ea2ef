"""ParaRNNCell, ParaLSTMCell and ParaGRUCell: one step at a time, called like their twins in `torch.nn`.

A cell is one layer's recurrence with its weights under the names of `torch.nn`'s cells. It returns raw block states, as
h_n of a layer: there is no aggregate.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from parallelrnn.kernels import State
from parallelrnn.nn.blocks import BlockSize
from parallelrnn.nn.checks import check_dtype, check_tensor
from parallelrnn.nn.parameters import BlockRecurrent, rnn_mode


class _Cell(BlockRecurrent):
    weight_ih: Tensor

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        bias: bool,
        device: Any,
        dtype: torch.dtype | None,
        *,
        block_size: BlockSize,
        form: str,
        backend: str,
    ) -> None:
        options = {"block_size": block_size, "form": form, "backend": backend, "device": device, "dtype": dtype}
        super().__init__(mode, input_size, hidden_size, bias, **options)
        self._create_weights("", input_size, device, dtype)
        self.reset_parameters()

    def _call(self, input: Tensor, hx: object) -> State:
        state = self._as_state(hx)
        self._check_input(input)
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)  # (B, input_size)
        if state is None:
            zeros = torch.zeros(x.shape[0], self.hidden_size, dtype=self.weight_ih.dtype, device=x.device)
            state = (zeros,) * self.num_states
        else:
            self._check_state(state, input)
            state = state if batched else tuple(s.unsqueeze(0) for s in state)
        _, state = self._run("", x.unsqueeze(0), state)
        return state if batched else tuple(s.squeeze(0) for s in state)

    def _check_input(self, input: Tensor) -> None:
        name = type(self).__name__
        check_tensor(name, "input", input)
        if input.dim() not in (1, 2):
            raise ValueError(
                f"{name}: Expected input to be 1D (features,) or 2D (batch, features), got {input.dim()}D of shape "
                f"{tuple(input.shape)} instead"
            )
        check_dtype(name, "input", input, self.weight_ih)
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{name}: input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}"
            )

    def _check_state(self, state: State, input: Tensor) -> None:
        owner = type(self).__name__
        names = ("hidden",) if self.num_states == 1 else ("hx[0]", "hx[1]")
        for index, (name, s) in enumerate(zip(names, state, strict=True)):
            if s.dim() not in (1, 2):
                raise ValueError(f"{owner}: Expected {name} to be 1D or 2D, got {s.dim()}D instead")
            check_dtype(owner, name, s, self.weight_ih)
            if s.shape[-1] != self.hidden_size:
                raise RuntimeError(
                    f"{owner}: hidden{index} has inconsistent hidden_size: "
                    f"got {s.shape[-1]}, expected {self.hidden_size}"
                )
            if s.dim() != input.dim():
                raise RuntimeError(
                    f"{owner}: for {input.dim()}D input, {name} should also be {input.dim()}D, got {s.dim()}D"
                )
            if s.dim() == 2 and s.shape[0] != input.shape[0]:
                raise RuntimeError(
                    f"{owner}: Input batch size {input.shape[0]} doesn't match hidden{index} batch size {s.shape[0]}"
                )


class ParaRNNCell(_Cell):
    """One step of `ParaRNN`; stands where `torch.nn.RNNCell` stands.

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
        mode = rnn_mode(nonlinearity)
        super().__init__(
            mode, input_size, hidden_size, bias, device, dtype, block_size=block_size, form=form, backend=backend
        )
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after one step from `hx`, or from zeros."""
        (h,) = self._call(input, hx)
        return h


class ParaLSTMCell(_Cell):
    """One step of `ParaLSTM`; stands where `torch.nn.LSTMCell` stands.

    Examples
    --------
    >>> cell = ParaLSTMCell(3, 8)
    >>> h, c = cell(torch.zeros(5, 3))
    >>> h, c = cell(torch.zeros(5, 3), (h, c))
    """

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
        super().__init__(
            "LSTM", input_size, hidden_size, bias, device, dtype, block_size=block_size, form=form, backend=backend
        )

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The state (h, c) after one step from `hx`, or from zeros."""
        h, c = self._call(input, hx)
        return h, c


class ParaGRUCell(_Cell):
    """One step of `ParaGRU`; stands where `torch.nn.GRUCell` stands.

    Examples
    --------
    >>> cell = ParaGRUCell(3, 8)
    >>> h = cell(torch.zeros(5, 3))
    >>> h = cell(torch.zeros(5, 3), h)
    """

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
        super().__init__(
            "GRU", input_size, hidden_size, bias, device, dtype, block_size=block_size, form=form, backend=backend
        )

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after one step from `hx`, or from zeros."""
        (h,) = self._call(input, hx)
        return h
