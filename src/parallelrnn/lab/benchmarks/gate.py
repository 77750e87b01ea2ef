"""The correctness gate: nothing is timed unless ours and torch.nn compute the same from the same weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from parallelrnn.kernels.cpu import CHUNK_BYTES
from parallelrnn.kernels.memory import LARGE
from parallelrnn.lab.benchmarks import BenchError
from parallelrnn.lab.benchmarks.cases import CONTENDERS, Case
from parallelrnn.lab.benchmarks.contenders import THEIRS, Blocks, make_input, make_layer

OUTPUT = 1e-5  # absolute; outputs are at most about 1
GRADIENT = 1e-4  # of each parameter, relative to its largest entry: a sum over all steps and sequences in float32
LENGTH, BATCH = 33, 5  # of the short sequences, whose input has a gradient too; both odd
# Bytes of the output of the longer sequences: enough for several chunks, and for memory from the pool.
LONG_OUTPUT = 5 * max(CHUNK_BYTES, LARGE) // 2


class GateError(BenchError):
    """Ours and torch.nn differ."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """Distance of one contender from torch.nn with the same weights."""

    contender: str
    cell: str
    case: Case
    output_error: float
    gradient_error: float
    parameter: str  # with the largest gradient error

    @property
    def passed(self) -> bool:
        """Whether both errors are small; NaN is not."""
        return self.output_error <= OUTPUT and self.gradient_error <= GRADIENT

    def __str__(self) -> str:
        case = self.case
        return (
            f"{CONTENDERS[self.contender]}, {self.cell}, length {case.length}, batch {case.batch}, "
            f"input_size {case.input_size}, hidden_size {case.hidden_size}, num_layers {case.num_layers}, "
            f"block_size {case.block_size}: outputs differ by {self.output_error:.1e} (tolerance {OUTPUT:.0e}), "
            f"gradients of {self.parameter} by {self.gradient_error:.1e} relative (tolerance {GRADIENT:.0e})"
        )


def check(cases: Iterable[Case], cells: Iterable[str], short_only: Iterable[Case] = ()) -> list[Check]:
    """Compare every contender of ours with torch.nn at the shapes of these cases; raise `GateError` if one differs.

    Each case is compared on a short sequence, and on one that is long enough to take every path of the measured one;
    those in `short_only` on a short one alone.
    """
    cases = list(cases)
    short = [replace(case, name="", length=LENGTH, batch=BATCH) for case in (*cases, *short_only)]
    long = [replace(case, name="", length=min(case.length, _long(case))) for case in cases]
    cells = tuple(cells)
    checks = [
        _compare(contender, cell, shape)
        for shape in dict.fromkeys((*short, *long))
        for cell in cells
        for contender in CONTENDERS
        if contender != "torch"
    ]
    failed = [str(check) for check in checks if not check.passed]
    if failed:
        raise GateError(
            "\n".join(["ours and torch.nn differ, so nothing is timed", *failed]), hint="run `parallelrnn doctor`"
        )
    return checks


def _long(case: Case) -> int:
    return -(-LONG_OUTPUT // (4 * case.batch * case.hidden_size))


def _compare(contender: str, cell: str, case: Case) -> Check:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours = make_layer(contender, cell, case)
        x, grad = make_input(case)
    assert not isinstance(ours, nn.RNNBase)
    twin = dense_twin(ours)
    wants_x = case.batch == BATCH
    their_x = x.clone().requires_grad_(wants_x)
    expected, _ = twin(their_x)
    aggregate = None if ours.aggregate is None else copy.deepcopy(ours.aggregate)
    if aggregate is not None:
        expected = aggregate(expected)
    expected.backward(grad)

    our_x = x.clone().requires_grad_(wants_x)
    output, _ = ours(our_x)
    output.backward(grad)
    with torch.no_grad():
        inference, _ = ours(x)  # another path through the kernels than training
    errors = {name: _relative(our_grad, their_grad) for name, our_grad, their_grad in _gradients(ours, twin)}
    if wants_x:
        errors["x"] = _relative(_grad(our_x), _grad(their_x))
    if ours.aggregate is not None and aggregate is not None:
        for name, parameter in ours.aggregate.named_parameters():
            errors[f"aggregate.{name}"] = _relative(_grad(parameter), _grad(aggregate.get_parameter(name)))
    worst = max(errors, key=lambda name: (errors[name] != errors[name], errors[name]))
    return Check(
        contender=contender,
        cell=cell,
        case=case,
        output_error=float(torch.stack([_distance(output, expected), _distance(inference, expected)]).max()),
        gradient_error=errors[worst],
        parameter=worst,
    )


@torch.no_grad()
def dense_twin(layer: Blocks) -> nn.RNNBase:
    """Return the layers of torch.nn with the blocks on the diagonal of their recurrent weights, without aggregate."""
    cell = next(cell for cell in THEIRS if type(layer).__name__ == f"Para{cell}")
    twin = THEIRS[cell](layer.input_size, layer.hidden_size, layer.num_layers)
    for name, parameter in twin.named_parameters():
        value = getattr(layer, name)
        if name.startswith("weight_hh"):
            blocks = value.unflatten(0, (len(layer.gates), layer.num_blocks, -1))  # (G, K, D, D)
            value = torch.cat([torch.block_diag(*gate) for gate in blocks])
        parameter.copy_(value)
    return twin


def _gradients(ours: Blocks, twin: nn.RNNBase) -> Iterator[tuple[str, Tensor, Tensor]]:
    for name, parameter in twin.named_parameters():
        our_grad, their_grad = _grad(getattr(ours, name)), _grad(parameter)
        if name.startswith("weight_hh"):  # of the dense gradient, the diagonal blocks
            split = their_grad.unflatten(1, (ours.num_blocks, -1)).unflatten(0, (len(ours.gates), ours.num_blocks, -1))
            their_grad = split.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(our_grad.shape)
        yield name, our_grad, their_grad


def _grad(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


def _distance(ours: Tensor, theirs: Tensor) -> Tensor:
    return (ours.detach() - theirs.detach()).abs().max()


def _relative(ours: Tensor, theirs: Tensor) -> float:
    return float(_distance(ours, theirs) / theirs.abs().max())
