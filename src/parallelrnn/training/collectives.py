"""What processes that train one network tell each other: numbers and bytes, and nothing that could run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, distributed

from parallelrnn.errors import ProcessError
from parallelrnn.training.distributed import TIMEOUT, endings, is_first, let_end


def from_first(value: float) -> float:
    """A number as the first process has it."""
    return float(_broadcast(torch.tensor(value, dtype=torch.float64)))


def done_by_first(work: Callable[[], bytes | None]) -> bytes | None:
    """What the first process finds by some work: in all of them. Where it fails, all do."""
    found: bytes | None = None
    failure: Exception | None = None
    if is_first():
        try:
            found = work()
        except Exception as error:
            found, failure = f"{type(error).__name__}: {error}".encode(), error
    length = -1 if found is None else len(found)
    failed, length = _broadcast(torch.tensor([failure is not None, length])).tolist()
    if length >= 0:
        room = np.zeros(length, np.uint8) if found is None else np.frombuffer(found, np.uint8).copy()
        found = _broadcast(torch.from_numpy(room)).numpy().tobytes()
    if failure is not None:
        raise failure
    if failed:
        assert found is not None
        raise ProcessError(f"the first process has met an error: {found.decode()}")
    return found


def combine(tensor: Tensor, how: str = "SUM") -> Tensor:
    """The tensors of all processes as one, in place; also "MIN" or "MAX" of them."""
    with told_of_losses():
        distributed.all_reduce(tensor, getattr(distributed.ReduceOp, how))
    return tensor


def check_same(counts: Sequence[int], values: Tensor, tolerance: float) -> None:
    """Whether all processes have the same in hand: whole numbers exactly, others as far as processors agree."""
    exact = torch.tensor([*counts, values.numel()], device=values.device)
    same = torch.equal(combine(exact.clone(), "MIN"), combine(exact.clone(), "MAX"))
    if same:
        values = values.double()
        least, most = combine(values.clone(), "MIN"), combine(values.clone(), "MAX")
        same = bool((most - least <= tolerance * (1 + most.abs())).all())
    if not same:
        raise ProcessError(
            "the processes that should train together have not read the same data, or draw other random numbers; each "
            "runs the script from its start: give what is random in it a seed, and the estimator a random_state"
        )


@contextmanager
def told_of_losses() -> Iterator[None]:
    """What goes wrong inside is that another process does not answer."""
    try:
        yield
    except RuntimeError as error:
        let_end()
        ended = endings()
        raise ProcessError(
            f"a process that trains together with this one is gone, or has not answered for {TIMEOUT.seconds // 60} "
            f"minutes{': ' * bool(ended)}{ended}. Start all of them again; where fit was called with "
            "checkpoint=directory, resume=True goes on after the last whole epoch"
        ) from error


def _broadcast(tensor: Tensor) -> Tensor:
    """A tensor as the first process has it."""
    there = tensor.to("cuda" if distributed.get_backend() == "nccl" else "cpu")  # which knows no other
    with told_of_losses():
        distributed.broadcast(there, src=0)
    return there.cpu()
