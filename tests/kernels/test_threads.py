"""The operators from many threads, in forked processes, and with another number of threads on the way back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from parallelrnn import ParaAttention, ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.kernels.attention import reference_attention
from parallelrnn.kernels.library import INSTRUCTIONS

pytestmark = pytest.mark.skipif(INSTRUCTIONS is None, reason="there are no C kernels")
MADE: dict[str, Callable[[], Any]] = {
    "rnn": lambda: ParaRNN(3, 32, aggregate=None),
    "lstm": lambda: ParaLSTM(12, 32, num_layers=2, bidirectional=True),
    "gru": lambda: ParaGRU(12, 32, num_layers=2),
    "attention": lambda: ParaAttention(32),
}
# As in test_cpu.py and relative to the largest entry, but over 20 steps and for gradients that are sums over 20 * 8
# steps of sequences: some hundred roundings.
TOLERANCE = 1e-4
WORKERS, ROUNDS = 5, 3


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def inputs(name: str, seed: int, steps: int = 20, batch: int = 8) -> Tensor:
    width = {"rnn": 3, "attention": 32}.get(name, 12)
    return torch.randn(steps, batch, width, generator=torch.Generator().manual_seed(seed))


def forward(module: Any, x: Tensor) -> Tensor:
    result = module(x)
    output: Tensor = result if isinstance(result, Tensor) else result[0]
    return output


def gradients(module: Any, x: Tensor, output: Tensor) -> list[Tensor]:
    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    return list(torch.autograd.grad((output * weight).sum(), (x, *module.parameters())))


def run(module: Any, x: Tensor) -> list[Tensor]:
    """The output, and all gradients under a random loss."""
    x = x.clone().requires_grad_()
    output = forward(module, x)
    return [output.detach(), *gradients(module, x, output)]


def by_reference(module: Any, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The same by the plain loop, or the plain form of attention."""
    with monkeypatch.context() as patched:
        if isinstance(module, ParaAttention):
            patched.setattr("parallelrnn.nn.attention.attention", reference_attention)
        else:
            patched.setattr(module, "backend", "reference")
        return run(module, x)


def assert_close(actual: list[Tensor], expected: list[Tensor]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE * max(1.0, theirs.abs().max().item()))


def assert_same_bits(actual: list[Tensor], expected: list[Tensor]) -> None:
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def in_threads(work: Callable[[int], None]) -> None:
    """Do something in many threads that begin at once; what fails in one fails here."""
    barrier, failures = threading.Barrier(WORKERS), []

    def guarded(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", MADE)
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_many_threads_at_once(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One module in all of them: each finds for its own input what it finds alone."""
    torch.set_num_threads(count)
    module = MADE[name]()
    alone = [run(module, inputs(name, seed)) for seed in range(WORKERS)]
    assert_close(alone[0], by_reference(module, inputs(name, 0), monkeypatch))

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            assert_same_bits(run(module, inputs(name, number)), alone[number])

    in_threads(work)


def test_many_threads_with_long_sequences() -> None:
    """Whose memory comes from one pool, and goes back to it from any thread."""
    torch.set_num_threads(1)
    module = ParaLSTM(12, 64)
    alone = [run(module, inputs("lstm", seed, 400, 24)) for seed in range(WORKERS)]

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            assert_same_bits(run(module, inputs("lstm", number, 400, 24)), alone[number])

    in_threads(work)


@pytest.mark.parametrize(("first", "then"), [(1, 3), (3, 1)])
@pytest.mark.parametrize("name", MADE)
@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_another_number_of_threads_for_backward(
    name: str, first: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, x = MADE[name](), inputs(name, 0).requires_grad_()
    expected = by_reference(module, x.detach(), monkeypatch)
    torch.set_num_threads(first)
    output = forward(module, x)
    torch.set_num_threads(then)
    assert_close([output.detach(), *gradients(module, x, output)], expected)


@pytest.mark.parametrize("name", MADE)
def test_backward_in_another_thread(name: str) -> None:
    torch.set_num_threads(1)
    module, x = MADE[name](), inputs(name, 0).requires_grad_()
    alone = run(module, x.detach())
    outputs = [forward(module, x) for _ in range(WORKERS)]
    in_threads(lambda number: assert_same_bits(gradients(module, x, outputs[number]), alone[1:]))


class Learning(Dataset[list[Tensor]]):
    """Items that are made by a module, forward and backward."""

    def __init__(self, name: str, module: Any) -> None:
        self.name, self.module = name, module

    def __len__(self) -> int:
        return 4

    def __getitem__(self, seed: int) -> list[Tensor]:
        return run(self.module, inputs(self.name, seed))


def items_of_workers(data: Dataset[list[Tensor]], start: str) -> list[list[Tensor]]:
    # A worker that hangs is an error after ten minutes, and not a test that never ends.
    return list(DataLoader(data, batch_size=None, num_workers=2, multiprocessing_context=start, timeout=600))


@pytest.mark.skipif("fork" not in torch.multiprocessing.get_all_start_methods(), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("name", MADE)
def test_forked_workers_of_a_loader(name: str) -> None:
    """Forked from a process that has run the same module in two threads, which the workers do not have."""
    data = Learning(name, MADE[name]())
    torch.set_num_threads(2)
    run(data.module, inputs(name, 0))
    items = items_of_workers(data, "fork")
    torch.set_num_threads(1)  # as in the workers
    for seed, item in enumerate(items):
        assert_same_bits(item, data[seed])


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_new_workers_of_a_loader(name: str) -> None:
    """Started as new programs, to which the module is sent."""
    data = Learning(name, MADE[name]())
    items = items_of_workers(data, "spawn")
    torch.set_num_threads(1)
    for seed, item in enumerate(items):
        assert_same_bits(item, data[seed])
