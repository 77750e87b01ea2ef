"""A model of the least time that a case can take on this machine, and what it is made of.

A step cannot be faster than its arithmetic at the machine's peak rates, nor than its compulsory traffic with memory at
the machine's bandwidth; arithmetic and traffic can overlap, matrix products and activations, which share the vector
units, cannot:

    time = max(flops / fma + activations / tanh, bytes / bandwidth)

Counted, for each layer with N = T * B rows, G gates (RNN 1, LSTM 4, GRU 3) and an input of d_in columns:

- flops of the projection, 2 N d_in G d, and of the recurrence, 2 N d block_size G. Training does the recurrence three
  times (values, gradient of the state, gradient of the weights) and the projection three times, two for the first
  layer, whose input needs no gradient;
- activations, for each unit and step: RNN 1, LSTM 5, GRU 3. Training an LSTM takes one more, tanh(c) in backward;
- bytes in inference: the input of the first layer and the output of the last, nothing between;
- bytes in training: forward reads the input of the first layer and writes what backward needs (h; for an LSTM c; for a
  cell with gates, the gates, if its input has so many columns that computing them again is slower), backward reads all
  of this once and the gradient of each layer's output, and writes that of each input above the first layer.

A linear aggregate adds its product, 2 N d d, three times in training, and in training the output that it writes.

Left out, so that the time is a bound below: weights and their gradients, biases and elementwise arithmetic other than
activations, gates that backward computes again, chunks that do not stay in cache, first touches of fresh memory, the
cost of calls and of threads, and the shape of matrix products, which reach the peak only when they are large.
"""

from __future__ import annotations

from dataclasses import dataclass

from parallelrnn.kernels.cpu import FEW_INPUTS
from parallelrnn.kernels.machine_peak import MachinePeak
from parallelrnn.lab.benchmarks.kernels.cases import Case

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
ACTIVATIONS = {"RNN": 1, "LSTM": 5, "GRU": 3}
BACKWARD_ACTIVATIONS = {"RNN": 0, "LSTM": 1, "GRU": 0}
FLOAT = 4  # bytes


@dataclass(frozen=True)
class Work:
    """What has to be done, whatever does it."""

    flops: float
    activations: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.activations + other.activations, self.bytes + other.bytes)

    def seconds(self, limits: MachinePeak) -> float:
        """The least time for it."""
        return max(self.flops / limits.fma + self.activations / limits.tanh, self.bytes / limits.bandwidth)


def work(case: Case, cell: str, kind: str, aggregated: bool = False) -> Work:
    """The work of one step of a case."""
    layer = _inference if kind == "forward" else _training
    total = Work(0, 0, 0)
    for index in range(case.num_layers):
        total += layer(case, cell, index)
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
    gates_kept = GATES[cell] if GATES[cell] > 1 and columns > FEW_INPUTS else 0
    kept = 1 + (cell == "LSTM") + gates_kept  # h, c and gates: numbers for each unit and step
    grads = 1 if first else 2  # that of the output is read, that of the input written; both are d wide
    return Work(
        (2 if first else 3) * _projection(case, cell, index) + 3 * _recurrence(case, cell),
        case.rows * case.hidden_size * (ACTIVATIONS[cell] + BACKWARD_ACTIVATIONS[cell]),
        2 * _input_bytes(case) * first + (2 * kept + grads) * _state_bytes(case),
    )


def _projection(case: Case, cell: str, index: int) -> int:
    columns = case.input_size if index == 0 else case.hidden_size
    return 2 * case.rows * columns * GATES[cell] * case.hidden_size


def _recurrence(case: Case, cell: str) -> int:
    return 2 * case.rows * case.hidden_size * case.block_size * GATES[cell]


def _input_bytes(case: Case) -> int:
    return case.rows * case.input_size * FLOAT


def _state_bytes(case: Case) -> int:
    """Of one number for each unit and step."""
    return case.rows * case.hidden_size * FLOAT
