from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from parallelrnn.kernels import attention as module
from parallelrnn.kernels.attention import MAX_WIDTH, attention, reference_attention
from parallelrnn.kernels.library import INSTRUCTIONS

# Weights are at most one and sum to one, so errors are a few units of rounding of the values; exp in float has a
# relative error of 2e-7. Gradients of keys and values are sums over up to 9 queries.
TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-13}
SHAPES = [  # batch, queries, keys, heads, width
    (2, 5, 7, 3, 2),
    (1, 1, 1, 1, 1),
    (3, 4, 9, 17, 3),
    (2, 8, 33, 40, 4),
    (2, 9, 5, 16, 2),
    (1, 3, 2, 65, 2),
]
needs_kernel = pytest.mark.skipif(INSTRUCTIONS is None, reason="there are no C kernels")


def tensors(shape: tuple[int, ...], dtype: torch.dtype, scale: float = 1.0) -> list[Tensor]:
    batch, queries, keys, heads, width = shape
    return [
        (scale * torch.randn(batch, count, heads * width, dtype=dtype)).requires_grad_()
        for count in (queries, keys, keys)
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("some_ignored", [False, True])
def test_the_plain_form_is_that_of_torch(shape: tuple[int, ...], some_ignored: bool) -> None:
    q, k, v = tensors(shape, torch.float64)
    ignored = torch.rand(shape[0], shape[2]) < 0.5 if some_ignored else torch.zeros(shape[0], shape[2]).bool()
    ignored[:, 0] = False
    heads = [t.unflatten(-1, (shape[3], -1)).transpose(1, 2) for t in (q, k, v)]
    theirs = functional.scaled_dot_product_attention(*heads, ~ignored[:, None, None]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(reference_attention(q, k, v, shape[3], ignored), theirs)


@needs_kernel
@pytest.mark.usefixtures("fresh_memory_is_nan")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("ignoring", ["nothing", "some", "all of one"])
def test_the_kernel_is_the_plain_form(
    shape: tuple[int, ...], dtype: torch.dtype, ignoring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v = tensors(shape, dtype)
    ignored = None
    if ignoring != "nothing":
        ignored = torch.rand(shape[0], shape[2]) < 0.5
        ignored[0] = ignoring == "all of one"
    grad = torch.randn(q.shape, dtype=dtype)
    theirs = reference_attention(q, k, v, shape[3], ignored)
    their_grads = torch.autograd.grad(theirs, (q, k, v), grad)
    monkeypatch.setattr(module, "reference_attention", None)  # not used behind our back
    ours = attention(q, k, v, shape[3], ignored)
    grads = torch.autograd.grad(ours, (q, k, v), grad)
    for mine, expected in zip((ours, *grads), (theirs, *their_grads), strict=True):
        torch.testing.assert_close(mine, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    with torch.no_grad():
        torch.testing.assert_close(attention(q, k, v, shape[3], ignored), ours, rtol=0, atol=0)


@needs_kernel
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_large_scores_do_not_overflow(dtype: torch.dtype) -> None:
    q, k, v = tensors((2, 4, 6, 8, 2), dtype, scale=300.0)
    ours, theirs = attention(q, k, v, 8), reference_attention(q, k, v, 8)
    assert ours.isfinite().all()
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=0.1)  # scores of 1e5 have few digits after the point


@needs_kernel
def test_nan_stays_nan_in_its_head() -> None:
    q, k, v = tensors((1, 2, 3, 4, 2), torch.float64)
    with torch.no_grad():
        k[0, 1, 2] = math.nan  # of head 1
    is_nan = attention(q, k, v, 4).isnan().view(2, 4, 2)
    assert is_nan[:, 1].all()
    assert not is_nan[:, [0, 2, 3]].any()


@needs_kernel
def test_it_does_not_matter_how_many_threads_there_are() -> None:
    q, k, v = tensors((3, 4, 9, 40, 2), torch.float32)
    grad = torch.randn(q.shape)
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        output = attention(q, k, v, 40)
        results.append((output, *torch.autograd.grad(output, (q, k, v), grad)))
    torch.set_num_threads(before)
    for other in results[1:]:
        for expected, result in zip(results[0], other, strict=True):
            torch.testing.assert_close(result, expected, rtol=0, atol=0)


def test_derivatives_of_derivatives() -> None:
    q, k, v = tensors((2, 2, 3, 2, 2), torch.float64)
    ignored = torch.tensor([[False, True, False], [False, False, False]])
    assert torch.autograd.gradcheck(lambda *x: attention(*x, 2, ignored), (q, k, v))
    assert torch.autograd.gradgradcheck(lambda *x: attention(*x, 2, ignored), (q, k, v))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")  # inside torch.func.jvp
def test_derivatives_where_some_are_not_asked_for_and_forward_mode() -> None:
    q, k, v = tensors((2, 2, 3, 2, 2), torch.float64)
    k = k.detach()
    (first,) = torch.autograd.grad(attention(q, k, v, 2).square().sum(), q, create_graph=True)
    (plain,) = torch.autograd.grad(reference_attention(q, k, v, 2).square().sum(), q, create_graph=True)
    torch.testing.assert_close(*(torch.autograd.grad(grad.sum(), v)[0] for grad in (first, plain)))
    output = attention(q, k, v, 2)
    basis = torch.eye(output.numel(), dtype=torch.float64).view(-1, *output.shape)
    (many,) = torch.autograd.grad(output, q, basis, is_grads_batched=True)
    torch.testing.assert_close(many, torch.func.jacrev(reference_attention)(q, k, v, 2).view_as(many))
    _, tangent = torch.func.jvp(lambda query: attention(query, k, v.detach(), 2), (q.detach(),), (torch.ones_like(q),))
    torch.testing.assert_close(tangent, (many.flatten(1).sum(1)).view_as(tangent))


@needs_kernel
def test_ignored_keys_are_not_looked_at() -> None:
    q, k, v = tensors((1, 2, 3, 2, 2), torch.float64)
    ignored = torch.tensor([[False, True, False]])
    hidden = [tensor.detach().clone() for tensor in (k, v)]
    for tensor in hidden:
        tensor[0, 1] = math.nan
    for function in (attention, reference_attention):
        torch.testing.assert_close(function(q, *hidden, 2, ignored), attention(q, k, v, 2, ignored))


@needs_kernel
@pytest.mark.parametrize(("dtype", "score"), [(torch.float32, 80.0), (torch.float64, 600.0)])
def test_small_weights_keep_their_digits(dtype: torch.dtype, score: float) -> None:
    q = torch.ones(1, 1, 1, dtype=dtype)
    k = torch.tensor([0.0, -score], dtype=dtype).view(1, 2, 1)
    v = torch.tensor([0.0, 1e30 if dtype == torch.float32 else 1e250], dtype=dtype).view(1, 2, 1)
    torch.testing.assert_close(attention(q, k, v, 1), reference_attention(q, k, v, 1), rtol=1e-5, atol=0)


def test_wide_heads_strided_input_and_compilation() -> None:
    q, k, v = tensors((2, 3, 4, 2, MAX_WIDTH + 1), torch.float32)
    torch.testing.assert_close(attention(q, k, v, 2), reference_attention(q, k, v, 2))
    q, k, v = (torch.randn(2, 8, 5).transpose(1, 2) for _ in range(3))
    torch.testing.assert_close(attention(q, k, v, 4), reference_attention(q, k, v, 4), rtol=1e-5, atol=1e-5)
    compiled: Any = torch.compile(lambda *x: attention(*x, 4), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, k, v), reference_attention(q, k, v, 4))


@needs_kernel
def test_no_queries_and_no_keys() -> None:
    q, k, _ = tensors((2, 3, 4, 2, 2), torch.float32)
    assert attention(q[:0], k[:0], k[:0], 2).shape == (0, 3, 4)
    assert not attention(q, k[:, :0], k[:, :0], 2).any()
