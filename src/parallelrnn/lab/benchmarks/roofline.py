"""A lower bound for the time of a case on this machine, and what it is made of.

A step cannot be faster than its arithmetic at the machine's peak rates, nor than its compulsory memory traffic at the
machine's bandwidth. Arithmetic and traffic can overlap; matrix products and activations share the vector units and
cannot:

    time = max(flops / fma + activations / tanh, bytes / bandwidth)

Counted, for each layer with N = T * B rows, G gates (RNN 1, LSTM 4, GRU 3) and an input of d_in columns:

- flops of the projection, 2 N d_in G d, and of the recurrence, 2 N d block_size G. Training does the recurrence three
  times (values, gradient of the state, gradient of the weights) and the projection three times, or twice in the first
  layer, whose input needs no gradient;
- activations per unit and step: RNN 1, LSTM 5, GRU 3. Training an LSTM takes one more, tanh(c) in the backward pass;
- bytes in inference: the input of the first layer and the output of the last, nothing between;
- bytes in training: forward reads the input of the first layer and writes what backward needs (h; for an LSTM c; for
  gated cells the gates, if the input has so many columns that recomputing them is slower); backward reads all of this
  once and the gradient of each layer's output, and writes the gradient of each input above the first layer.

A linear aggregate adds its product, 2 N d d, three times in training, and in training the output that it writes.

Left out, so that the result is a lower bound: weights and their gradients, biases and other elementwise arithmetic,
gates that backward recomputes, chunks that do not stay in cache, first touches of fresh memory, the cost of calls and
threads, and that matrix products reach the peak only when they are large.
"""

from __future__ import annotations

from dataclasses import dataclass

from parallelrnn.kernels.cpu import FEW_INPUTS
from parallelrnn.kernels.machine_peak import MachinePeak
from parallelrnn.lab.benchmarks.cases import Case

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
ACTIVATIONS = {"RNN": 1, "LSTM": 5, "GRU": 3}
BACKWARD_ACTIVATIONS = {"RNN": 0, "LSTM": 1, "GRU": 0}
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Work:
    """Arithmetic and memory traffic, whatever does it."""

    flops: float
    activations: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.activations + other.activations, self.bytes + other.bytes)

    def seconds(self, peak: MachinePeak) -> float:
        """Return the least time that the work takes."""
        return max(self.flops / peak.fma + self.activations / peak.tanh, self.bytes / peak.bandwidth)


def work(case: Case, cell: str, kind: str, aggregated: bool = False) -> Work:
    """Return the work of one step of a case."""
    layer = _inference if kind == "forward" else _training
    total = sum((layer(case, cell, index) for index in range(case.num_layers)), Work(0, 0, 0))
    if aggregated:
        product = 2 * case.rows * case.hidden_size**2
        total += Work(product, 0, 0) if kind == "forward" else Work(3 * product, 0, _state_bytes(case))
    return total


def _inference(case: Case, cell: str, index: int) -> Work:
    first, last = index == 0, index == case.num_layers - 1
    return Work(
        _projection(case, cell, index) + _recurrence(case, cell),
        case.rows * case.hidden_size * ACTIVATIONS[cell],
        _input_bytes(case) * first + _state_bytes(case) * last,
    )


def _training(case: Case, cell: str, index: int) -> Work:
    first = index == 0
    columns = case.input_size if first else case.hidden_size
    saved_gates = GATES[cell] if GATES[cell] > 1 and columns > FEW_INPUTS else 0
    saved = 1 + (cell == "LSTM") + saved_gates  # h, c and gates: numbers per unit and step
    grads = 1 if first else 2  # the output's is read, the input's is written; both are d wide
    return Work(
        (2 if first else 3) * _projection(case, cell, index) + 3 * _recurrence(case, cell),
        case.rows * case.hidden_size * (ACTIVATIONS[cell] + BACKWARD_ACTIVATIONS[cell]),
        2 * _input_bytes(case) * first + (2 * saved + grads) * _state_bytes(case),
    )


def _projection(case: Case, cell: str, index: int) -> int:
    columns = case.input_size if index == 0 else case.hidden_size
    return 2 * case.rows * columns * GATES[cell] * case.hidden_size


def _recurrence(case: Case, cell: str) -> int:
    return 2 * case.rows * case.hidden_size * case.block_size * GATES[cell]


def _input_bytes(case: Case) -> int:
    return case.rows * case.input_size * FLOAT


def _state_bytes(case: Case) -> int:
    return case.rows * case.hidden_size * FLOAT
