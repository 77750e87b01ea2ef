"""The correctness gate: no time is printed unless ours and torch.nn, given the same weights, give the same numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from parallelrnn.kernels.cpu import CHUNK_BYTES
from parallelrnn.kernels.memory import LARGE
from parallelrnn.lab.benchmarks.kernels import BenchError
from parallelrnn.lab.benchmarks.kernels.cases import Case
from parallelrnn.lab.benchmarks.kernels.contenders import CONTENDERS, THEIRS, Blocks, make_input, make_layer

OUTPUT = 1e-5  # absolute; outputs are at most about 1
GRADIENT = 1e-4  # of each parameter, relative to its largest entry: a sum over all steps and sequences in float32
LENGTH, BATCH = 33, 5  # of short sequences that are compared: odd, and their input has a gradient too
# Bytes of a longer output of the measured batch. An RNN has as many projected inputs: so several chunks, and memory
# from the pool.
LONG = 5 * max(CHUNK_BYTES, LARGE) // 2


class GateError(BenchError):
    """Ours and torch.nn differ."""


@dataclass(frozen=True)
class Check:
    """How far one contender is from torch.nn with the same weights, on a sequence of some length."""

    contender: str
    cell: str
    length: int
    batch: int
    input_size: int
    hidden_size: int
    num_layers: int
    block_size: int
    output_error: float
    gradient_error: float
    parameter: str  # the one with that gradient

    @property
    def passed(self) -> bool:
        """Whether both errors are small; one that is not a number is not."""
        return self.output_error <= OUTPUT and self.gradient_error <= GRADIENT

    def __str__(self) -> str:
        return (
            f"{CONTENDERS[self.contender]}, {self.cell}, length {self.length}, batch {self.batch}, "
            f"input_size {self.input_size}, hidden_size {self.hidden_size}, "
            f"{self.num_layers} layer(s), block_size {self.block_size}: outputs differ by {self.output_error:.1e} "
            f"(at most {OUTPUT:.0e} expected), gradients of {self.parameter} by {self.gradient_error:.1e} relative "
            f"(at most {GRADIENT:.0e} expected)"
        )


def check(cases: Iterable[Case], cells: Iterable[str], briefly: Iterable[Case] = ()) -> list[Check]:
    """Compare every contender of ours at the shapes of these cases; raise `GateError` with what differs.

    Each on a short sequence, and on one that is long enough to take every path that the measured one takes; those in
    `briefly` on a short one alone.
    """
    cases = list(cases)
    short = [replace(case, name="", length=LENGTH, batch=BATCH) for case in (*cases, *briefly)]
    long = [replace(case, name="", length=min(case.length, _long(case))) for case in cases]
    shapes = dict.fromkeys((*short, *long))
    cells = tuple(cells)
    checks = [
        _compare(contender, cell, shape)
        for shape in shapes
        for cell in cells
        for contender in CONTENDERS
        if contender != "torch"
    ]
    failed = [str(one) for one in checks if not one.passed]
    if failed:
        raise GateError(
            "ours and torch.nn differ, so nothing is timed; `parallelrnn doctor` tells what computes\n"
            + "\n".join(failed)
        )
    return checks


def _long(case: Case) -> int:
    return -(-LONG // (4 * case.batch * case.hidden_size))


def _compare(contender: str, cell: str, case: Case) -> Check:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours = make_layer(contender, cell, case)
        x, grad = make_input(case)
    assert not isinstance(ours, nn.RNNBase)
    twin = dense_twin(ours)
    wants_x = case.batch == BATCH
    theirs = x.clone().requires_grad_(wants_x)
    expected, _ = twin(theirs)
    aggregate = None if ours.aggregate is None else copy.deepcopy(ours.aggregate)
    if aggregate is not None:
        expected = aggregate(expected)
    expected.backward(grad)

    mine = x.clone().requires_grad_(wants_x)
    output, _ = ours(mine)
    output.backward(grad)
    with torch.no_grad():
        inference, _ = ours(x)  # another path through the kernels than training
    errors = {name: _relative(one, other) for name, one, other in _gradients(ours, twin)}
    if wants_x:
        errors["x"] = _relative(_grad(mine), _grad(theirs))
    if ours.aggregate is not None and aggregate is not None:
        for name, parameter in ours.aggregate.named_parameters():
            errors[f"aggregate.{name}"] = _relative(_grad(parameter), _grad(aggregate.get_parameter(name)))
    worst = max(errors, key=lambda name: (errors[name] != errors[name], errors[name]))
    return Check(
        contender,
        cell,
        case.length,
        case.batch,
        case.input_size,
        case.hidden_size,
        case.num_layers,
        case.block_size,
        output_error=float(torch.stack([_distance(output, expected), _distance(inference, expected)]).max()),
        gradient_error=errors[worst],
        parameter=worst,
    )


@torch.no_grad()
def dense_twin(layer: Blocks) -> nn.RNNBase:
    """The layers of torch.nn whose recurrent weights have the blocks on their diagonal, and no aggregate."""
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
        theirs = parameter.grad
        mine = getattr(ours, name).grad
        assert theirs is not None
        if name.startswith("weight_hh"):  # of the dense gradient, the diagonal blocks
            split = theirs.unflatten(1, (ours.num_blocks, -1)).unflatten(0, (len(ours.gates), ours.num_blocks, -1))
            theirs = split.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(mine.shape)
        yield name, mine, theirs


def _grad(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad


def _distance(mine: Tensor, theirs: Tensor) -> Tensor:
    return (mine.detach() - theirs.detach()).abs().max()


def _relative(mine: Tensor, theirs: Tensor) -> float:
    return float(_distance(mine, theirs) / theirs.abs().max())
