from __future__ import annotations

import gc
import os
import threading

import pytest
import torch

from parallelrnn import ParaLSTM
from parallelrnn.kernels.memory import LARGE, POOL, Pool, empty

SHAPE = (LARGE // 4, 2)  # float32: twice LARGE


def test_small_tensors_do_not_come_from_the_pool() -> None:
    pool = Pool()
    tensor = pool.empty((3, 4), torch.float64)
    assert tensor.shape == (3, 4)
    assert tensor.dtype == torch.float64
    assert pool.used == 0


def test_memory_comes_back_with_the_last_tensor_on_it_and_is_lent_again() -> None:
    pool = Pool()
    tensor = pool.empty(SHAPE, torch.float32)
    assert tensor.shape == SHAPE
    assert tensor.is_contiguous()
    view, address = tensor[5:], tensor.data_ptr()
    del tensor
    pool.collect()
    assert (pool.used, pool.free) == (2 * LARGE, 0)
    other = pool.empty(SHAPE, torch.float32)
    assert other.data_ptr() != address
    del view
    pool.collect()
    assert (pool.used, pool.free) == (2 * LARGE, 2 * LARGE)
    again = pool.empty((SHAPE[0], 1), torch.float64)  # as many bytes
    assert again.data_ptr() == address
    assert pool.free == 0


def test_the_pool_holds_no_more_than_was_used_at_one_time() -> None:
    pool = Pool()
    sizes = [(LARGE // 4) * factor for factor in range(1, 9)]
    for size in sizes:  # one after the other, each of another size
        tensor = pool.empty((size,), torch.float32)
        del tensor
        pool.collect()
        assert pool.used + pool.free <= pool.most_used
    assert pool.most_used == 8 * LARGE
    pool.clear()
    assert pool.free == 0


def test_many_threads() -> None:
    pool = Pool()

    def work() -> None:
        for number in range(50):
            tensor = pool.empty(SHAPE, torch.float32)
            tensor[::4096] = number
            assert (tensor[::4096] == number).all()
            del tensor

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.collect()
    assert pool.used == 0
    assert pool.free <= pool.most_used


@pytest.mark.usefixtures("fresh_memory_is_nan")
def test_is_nan_where_torch_makes_fresh_memory_nan() -> None:
    assert empty(*SHAPE, dtype=torch.float32).isnan().all()


def test_a_layer_keeps_nothing_once_its_results_are_gone() -> None:
    gc.collect()
    POOL.collect()
    before = POOL.used
    layer = ParaLSTM(16, 64, num_layers=2)
    x = torch.randn(200, 64, 16)
    for _ in range(3):
        output, _ = layer(x)
        output.sum().backward()
        assert POOL.used > before
        del output
        gc.collect()
        POOL.collect()
        assert POOL.used == before


def test_results_outlive_the_layer_and_are_not_written_over() -> None:
    layer = ParaLSTM(3, 64, aggregate=None)
    x = torch.randn(200, 64, 3)
    with torch.no_grad():
        first, _ = layer(x)
        copy = first.clone()
        for _ in range(3):
            layer(-x)
    torch.testing.assert_close(first, copy, rtol=0, atol=0)


def test_results_can_do_what_tensors_do() -> None:
    with torch.no_grad():
        output, _ = ParaLSTM(3, 64)(torch.randn(200, 64, 3))
    assert output.untyped_storage().nbytes() >= output.nbytes
    torch.testing.assert_close(torch.from_numpy(output.numpy()), output)
    expected = output + 1
    output += 1
    torch.testing.assert_close(output, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_has_memory_of_its_own() -> None:
    """As the workers of a DataLoader are forked."""
    layer = ParaLSTM(3, 64, aggregate=None).requires_grad_(False)
    x = torch.randn(200, 64, 3)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process cannot use the threads of its parent
    try:
        layer(x)  # leaves a free block behind, which parent and child then both take
        output, _ = layer(x)
        copy = output.clone()
        child = os.fork()
        if child == 0:
            output.zero_()
            layer(-x)
            os._exit(0)
        other, _ = layer(2 * x)
        expected = other.clone()
        os.waitpid(child, 0)
        torch.testing.assert_close(output, copy, rtol=0, atol=0)
        torch.testing.assert_close(other, expected, rtol=0, atol=0)
    finally:
        torch.set_num_threads(before)


def test_without_memory_the_error_says_how_much_was_requested() -> None:
    pool = Pool()
    tensor = pool.empty(SHAPE, torch.float32)
    with pytest.raises(MemoryError, match=f"{1 << 62} bytes"):
        pool.empty((1 << 60,), torch.float32)
    assert pool.used == pool.most_used == 2 * LARGE
    del tensor
    pool.empty(SHAPE, torch.float32)
