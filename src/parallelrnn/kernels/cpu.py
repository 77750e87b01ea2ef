"""The recurrence on the CPU: the input projected chunk by chunk, each chunk run by the C kernels of csrc/.

A chunk is as many steps as fit the cache. Its projection goes into memory that the next chunk reuses; inputs of a few
columns are projected by the kernel itself, and their projection never exists in memory. Callers have validated all
shapes with `validation` before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from parallelrnn.kernels.library import INSTRUCTIONS, MODES, BackwardCall, ForwardCall
from parallelrnn.kernels.memory import empty
from parallelrnn.kernels.weights import GATES, Arguments, State, Stored, Weights

FEW_INPUTS = 8  # inputs of up to so many columns are projected by the kernel
CHUNK_BYTES = 2 << 20  # of projected inputs in a chunk: they stay in the cache, and calls are few
FEWEST_ROWS = 256  # (step, batch entry) pairs in a chunk, whatever their bytes: products of fewer are slow


def unsupported_reason(weights: Weights) -> str:
    """Return why this backend cannot run these weights, or an empty string."""
    if INSTRUCTIONS is None:
        return "there are no C kernels"
    if weights.recurrent.dtype not in INSTRUCTIONS.lanes:
        return f"it is for float32 and float64, not for {weights.recurrent.dtype}"
    if not weights.recurrent.is_cpu:
        return f"it is for the CPU, and the weights are on {weights.recurrent.device}"
    if weights.projection is not None:
        return "it has no projections (proj_size)"
    return ""


def stores_gates(mode: str, weights: Weights) -> bool:
    """Return whether training stores the gates; with few input columns, recomputing them is as fast."""
    return len(GATES[mode]) > 1 and not _projects_inside(weights)


def forward(arguments: Arguments, training: bool) -> tuple[State, Stored]:
    """Return the final state and the output, and for training what backward needs."""
    mode, x, weights, state, lengths, reverse = arguments
    length, batch, _ = x.shape
    run = _Forward(mode, weights, batch, lengths, reverse)
    run.one_chunk = run.inside
    final = tuple([_copy(s) for s in state])
    output = empty(length, batch, run.width, dtype=run.dtype)
    cells = gates = None
    if training and mode == "LSTM":
        cells = empty(length, batch, run.width, dtype=run.dtype)
    stores_gates = training and run.stores_gates
    if stores_gates and length * batch > FEWEST_ROWS:
        gates = empty(length, batch, run.rows, dtype=run.dtype)
    if length <= run.steps(length):
        projected = run(x, 0, final, output, cells, gates, stores_gates)
        return final, Stored(output, cells, projected if gates is None else gates)
    for begin, end in run.chunks(length):
        own_x, own_output, own_cells, own_gates = [_part(tensor, begin, end) for tensor in (x, output, cells, gates)]
        run(own_x, begin, final, own_output, own_cells, own_gates, stores_gates)
    return final, Stored(output, cells, gates)


def step(arguments: Arguments, training: bool) -> tuple[State, Stored]:
    """Return the state after one step over x (B, inputs), and for training what backward needs."""
    mode, x, weights, state, _, _ = arguments
    run = _Forward(mode, weights, x.shape[0], None, False)
    final = tuple([_copy(s) for s in state])
    # The output of a single step is the state, which small blocks can compute in place. A gradient needs it once more
    # if there are no gates; the caller's copy may change until then.
    is_apart = (training and run.gates == 1) or (mode == "GRU" and not run.small)
    output = torch.empty_like(final[0]) if is_apart else final[0]
    cells = torch.empty_like(final[0]) if training and mode == "LSTM" else None
    gates = run(x, 0, final, output, cells, None, training and run.stores_gates)
    return final, Stored(output if is_apart else state[0], cells, gates)


def backward(
    arguments: Arguments, stored: Stored, grad_output: Tensor | None, grad_state: Sequence[Tensor | None], needs_x: bool
) -> tuple[Tensor | None, Weights, State]:
    """Return the gradients of x (if needed), of the weights and of the initial state."""
    run = _Backward(arguments, stored, grad_state, needs_x)
    if grad_output is not None:
        grad_output = grad_output.resolve_neg()
    for begin, end in reversed(run.chunks(len(arguments.x))):
        run(grad_output, begin, end)
    return run.grad_x, run.grad_weights, run.grad_state


def stream(
    mode: str,
    x: Tensor,
    layers: Sequence[Weights],
    state: State,  # (num_layers, B, d) each
    lengths: Tensor | None,
    aggregate: tuple[Tensor, Tensor | None] | None,
) -> tuple[Tensor, State]:
    """Run a stack of layers in inference, all layers of one chunk before the next, and a linear map over the last.

    Only the output of the last layer ever exists as a whole. Only for stacks that run in one direction.
    """
    length, batch, _ = x.shape
    runs = [_Forward(mode, weights, batch, lengths, False) for weights in layers]
    runs[0].one_chunk = len(runs) == 1 and aggregate is None and runs[0].inside
    dtype, width = runs[0].dtype, runs[0].width
    final = tuple(map(_copy, state))
    states = list(zip(*(s.unbind() for s in final), strict=True))
    features = width if aggregate is None else aggregate[0].shape[0]
    result = empty(length, batch, features, dtype=dtype)
    num_buffers = len(runs) - (aggregate is None)  # layers whose output is not the result
    buffers = [torch.empty(runs[0].steps(length), batch, width, dtype=dtype) for _ in range(num_buffers)]
    for begin, end in runs[0].chunks(length):
        part = _part(x, begin, end)
        for index, run in enumerate(runs):
            output = _part(buffers[index], 0, end - begin) if index < num_buffers else _part(result, begin, end)
            run(part, begin, states[index], output)
            part = output
        if aggregate is not None:
            weight, bias = aggregate
            into = result[begin:end].view(-1, features)
            torch.mm(part.view(-1, width), weight.t(), out=into)
            if bias is not None:
                into += bias
    return result, final


class _Recurrence:
    """The common part of forward and backward: the call as C sees it, and the chunks of time."""

    one_chunk = False  # for the whole sequence

    def __init__(
        self, call: Any, mode: str, weights: Weights, batch: int, lengths: Tensor | None, reverse: bool
    ) -> None:
        assert INSTRUCTIONS is not None, "callers ask unsupported_reason() first"
        self.mode, self.batch, self.reverse = mode, batch, reverse
        self.lengths = None if lengths is None else lengths.resolve_neg()
        # The pointers below lead into this memory, so it has to outlive them.
        weights = Weights(*[None if weight is None else _plain(weight) for weight in weights])  # type: ignore[arg-type]
        self.weights, self.dtype = weights, weights.recurrent.dtype
        self.rows, self.inputs = weights.input.shape
        self.gates, self.block_size = len(GATES[mode]), weights.recurrent.shape[-1]
        self.width = self.rows // self.gates
        self.num_blocks = self.width // self.block_size
        self.small = self.block_size <= INSTRUCTIONS.lanes[self.dtype]
        self.inside = self.small and 1 <= self.inputs <= FEW_INPUTS  # whether the kernel projects inputs
        self.stores_gates = self.gates > 1 and not self.inside
        self.call, self.chunk = call, call.chunk
        chunk = self.chunk
        chunk.num_blocks, chunk.block_size, chunk.mode = self.num_blocks, self.block_size, MODES.index(mode)
        chunk.batch, chunk.reverse, chunk.threads = batch, reverse, torch.get_num_threads()
        chunk.weight_ih, chunk.weight_hh = weights.input.data_ptr(), weights.recurrent.data_ptr()
        chunk.bias_ih, chunk.bias_hh = _pointer(weights.input_bias), _pointer(weights.recurrent_bias)
        chunk.inputs = self.inputs if self.inside else 0

    def steps(self, length: int) -> int:
        """Return the number of steps in a chunk of a sequence of this length."""
        if self.one_chunk or length * self.batch <= FEWEST_ROWS:
            return max(1, length)
        return max(1, min(length, chunk_rows(self.rows, self.dtype) // self.batch))

    def chunks(self, length: int) -> list[tuple[int, int]]:
        """Return where each chunk begins and ends, in the order of the recurrence."""
        steps = self.steps(length)
        chunks = [(begin, min(begin + steps, length)) for begin in range(0, length, steps)]
        return chunks[::-1] if self.reverse else chunks

    def real_steps(self, begin: int, end: int) -> Tensor | None:
        """Return how many steps of each sequence are real in a chunk."""
        return None if self.lengths is None else self.lengths.clamp(begin, end) - begin

    def point_at(
        self, x: Tensor, real_steps: Tensor | None, output: Tensor, cells: Tensor | None, gates: Tensor | None
    ) -> None:
        """Point the structure that C reads at this chunk."""
        chunk = self.chunk
        chunk.steps = 1 if x.dim() == 2 else x.shape[0]
        if self.inside:
            chunk.x, chunk.x_step, chunk.x_row = x.data_ptr(), x.stride(0), x.stride(-2)
        chunk.real_steps = _pointer(real_steps)
        chunk.output, chunk.cells, chunk.gates = output.data_ptr(), _pointer(cells), _pointer(gates)


class _Forward(_Recurrence):
    workspace: Tensor | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(ForwardCall(), *arguments)
        self.run = INSTRUCTIONS.forward[self.dtype]  # type: ignore[union-attr]

    def __call__(
        self,
        x: Tensor,
        begin: int,
        state: State,
        output: Tensor,
        cells: Tensor | None = None,
        gates: Tensor | None = None,
        stores_gates: bool = False,
    ) -> Tensor | None:
        """Run the steps of x, which start at step `begin` of the sequence, and advance `state` past them.

        Returns the gates if they are stored: in the memory that is given, or in that of a few rows' projection.
        """
        real_steps = None if self.lengths is None else self.real_steps(begin, begin + x.shape[0])
        projected = None
        if self.inside:
            x = _with_contiguous_columns(x.resolve_neg())
        else:
            projected = self._project(x, gates)
            self.call.projected = projected.data_ptr()
        self.point_at(x, real_steps, output, cells, projected if stores_gates else None)
        self.call.h = state[0].data_ptr()
        if len(state) > 1:
            self.call.c = state[1].data_ptr()
        _check(self.run(ctypes.byref(self.call)))
        return projected if stores_gates else None

    def _project(self, x: Tensor, gates: Tensor | None) -> Tensor:
        """Return W_ih x, without bias, in the memory of the gates, or in memory that the next chunk reuses."""
        rows, columns = x.shape[0] * self.batch, self.rows
        if gates is None and (x.dim() == 2 or rows <= FEWEST_ROWS):  # the cheapest call
            return functional.linear(x, self.weights.input)
        if gates is None:
            if self.workspace is None or len(self.workspace) < rows:
                self.workspace = torch.empty(rows, columns, dtype=self.dtype)
            gates = _part(self.workspace, 0, rows)
        x = x.resolve_neg().reshape(rows, self.inputs)
        return torch.mm(x, self.weights.input.t(), out=gates.view(rows, columns))


class _Backward(_Recurrence):
    def __init__(
        self, arguments: Arguments, stored: Stored, grad_state: Sequence[Tensor | None], needs_x: bool
    ) -> None:
        mode, x, weights, state, lengths, reverse = arguments
        call = BackwardCall()
        super().__init__(call, mode, weights, x.shape[1], lengths, reverse)
        self.run = INSTRUCTIONS.backward[self.dtype]  # type: ignore[union-attr]
        needs_grad_gates = needs_x or not self.inside
        self.one_chunk = not needs_grad_gates
        self.x = x.resolve_neg()
        self.state = tuple(map(_plain, state))
        self.output = _plain(stored.output)
        self.cells, self.stored_gates = (None if s is None else _plain(s) for s in stored[1:])
        self.grad_x = empty(*x.shape, dtype=self.dtype) if needs_x else None
        self.grad_weights = Weights(*(None if w is None else torch.zeros_like(w) for w in self.weights))  # type: ignore[arg-type]
        self.grad_state: State = tuple(
            torch.zeros_like(s) if grad is None else _copy(grad) for grad, s in zip(grad_state, self.state, strict=True)
        )
        rows = self.steps(x.shape[0]) * self.batch
        self.grad_gates = torch.empty(rows, self.rows, dtype=self.dtype) if needs_grad_gates else None
        has_new = self.mode == "GRU" and not self.small
        self.grad_new = torch.empty(rows, self.width, dtype=self.dtype) if has_new else None

        call.grad_h = self.grad_state[0].data_ptr()
        call.grad_c = _pointer(self.grad_state[1] if len(state) > 1 else None)
        call.grad_gates, call.grad_new = _pointer(self.grad_gates), _pointer(self.grad_new)
        if self.small:
            call.grad_weight_hh = self.grad_weights.recurrent.data_ptr()
            call.grad_bias_ih = _pointer(self.grad_weights.input_bias)
            call.grad_bias_hh = _pointer(self.grad_weights.recurrent_bias)
        if self.inside:
            call.grad_weight_ih = self.grad_weights.input.data_ptr()

    def __call__(self, grad_output: Tensor | None, begin: int, end: int) -> None:
        """Run the backward of the steps from `begin` to `end`. Chunks come in the opposite order of forward."""
        x, real_steps, rows = _part(self.x, begin, end), self.real_steps(begin, end), (end - begin) * self.batch
        before = tuple(
            self._before(s, states, begin, end) for s, states in zip(self.state, self._states(), strict=True)
        )
        if self.inside:
            x = _with_contiguous_columns(x)
        parts = (_part(tensor, begin, end) for tensor in (self.output, self.cells, self.stored_gates))
        self.point_at(x, real_steps, *parts)
        if grad_output is not None:
            grad_output = _with_contiguous_columns(_part(grad_output, begin, end))
            self.call.grad_output_step, self.call.grad_output_row, _ = grad_output.stride()
        self.call.grad_output = _pointer(grad_output)
        self.call.h_before, self.call.c_before = before[0].data_ptr(), _pointer(before[1] if len(before) > 1 else None)
        _check(self.run(ctypes.byref(self.call)))

        if self.grad_gates is None:
            return
        grad_gates = _part(self.grad_gates, 0, rows)
        if self.grad_x is not None:
            torch.mm(grad_gates, self.weights.input, out=_part(self.grad_x, begin, end).view(rows, self.inputs))
        if not self.inside:
            self.grad_weights.input.addmm_(grad_gates.t(), x.reshape(rows, self.inputs))
        if not self.small:
            self._add_recurrent_gradients(grad_gates, before[0], real_steps, begin, end)

    def _states(self) -> tuple[Tensor, ...]:
        """Return the stored states of all steps: h, for the LSTM also c."""
        return (self.output,) if self.cells is None else (self.output, self.cells)

    def _before(self, initial: Tensor, states: Tensor, begin: int, end: int) -> Tensor:
        """Return the state (B, d) before the first step that the recurrence takes in a chunk."""
        if not self.reverse:
            return states[begin - 1] if begin else initial
        if end == len(states):
            return initial
        if self.lengths is None:
            return states[end]
        return torch.where(self.lengths[:, None] > end, states[end], initial)  # shorter ones begin within the chunk

    def _add_recurrent_gradients(
        self, grad_gates: Tensor, h_before: Tensor, real_steps: Tensor | None, begin: int, end: int
    ) -> None:
        """Add the weight gradients of large blocks, each of which is worth a matrix product."""
        rows, num_blocks, block_size = (end - begin) * self.batch, self.num_blocks, self.block_size
        by_gate = list(grad_gates.chunk(self.gates, 1))  # (N, d) each
        if self.grad_weights.input_bias is not None:
            self.grad_weights.input_bias.add_(grad_gates.sum(0))
        if self.grad_new is not None:  # in W_n h + b_n, which the reset gate multiplies
            by_gate[2] = self.grad_new[:rows]
        if self.grad_weights.recurrent_bias is not None:
            for bias, grad in zip(self.grad_weights.recurrent_bias.chunk(self.gates), by_gate, strict=True):
                bias.add_(grad.sum(0))
        recurrent = self.grad_weights.recurrent.view(self.gates, num_blocks, block_size, block_size)
        for rows_of_chunk, h in self._states_before(h_before, real_steps, begin, end):
            by_block = h.view(-1, num_blocks, block_size).transpose(0, 1)  # (K, N, D)
            for grad_recurrent, grad in zip(recurrent, by_gate, strict=True):
                blocks = grad[rows_of_chunk].unflatten(1, (num_blocks, block_size)).permute(1, 2, 0)
                grad_recurrent.baddbmm_(blocks, by_block)

    def _states_before(
        self, h_before: Tensor, real_steps: Tensor | None, begin: int, end: int
    ) -> list[tuple[slice, Tensor]]:
        """Return rows of a chunk, with the state before each of them."""
        if not self.reverse:
            return [(slice(self.batch), h_before), (slice(self.batch, None), self.output[begin : end - 1])]
        later, last = self.output[begin + 1 : end], (end - begin - 1) * self.batch
        if real_steps is None:
            return [(slice(last), later), (slice(last, None), h_before)]
        h = torch.cat([later, h_before[None]])
        rows = real_steps.nonzero().squeeze(1)
        h[real_steps[rows] - 1, rows] = h_before[rows]  # each sequence begins at its own last step
        return [(slice(None), h)]


def chunk_rows(columns: int, dtype: torch.dtype) -> int:
    """Return the number of (step, batch entry) pairs in a chunk whose projected inputs have so many columns."""
    return max(FEWEST_ROWS, CHUNK_BYTES // (columns * dtype.itemsize))


def _projects_inside(weights: Weights) -> bool:
    assert INSTRUCTIONS is not None, "callers ask unsupported_reason() first"
    is_small = weights.recurrent.shape[2] <= INSTRUCTIONS.lanes[weights.recurrent.dtype]
    return is_small and 1 <= weights.input.shape[1] <= FEW_INPUTS


def _plain(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor whose memory holds its values, without a lazy negation."""
    return tensor if tensor.is_contiguous() and not tensor.is_neg() else tensor.resolve_neg().contiguous()


def _copy(tensor: Tensor) -> Tensor:
    return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)


def _with_contiguous_columns(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def _part(tensor: Any, begin: int, end: int) -> Any:
    """Return some rows of a tensor, if there is one; all of them without the cost of a view."""
    return tensor if tensor is None or end - begin == tensor.shape[0] else tensor[begin:end]


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("not enough memory for the weights of the recurrence and their gradients; use smaller blocks")
