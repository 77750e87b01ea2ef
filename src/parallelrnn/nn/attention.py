"""ParaAttention: attention whose recurrent matrices are block-diagonal (Section 5 of arXiv 2605.02692)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.errors import TensorError
from parallelrnn.kernels.attention import attention
from parallelrnn.nn.blocks import RecurrentBlock, check_bool, check_memory, check_size, check_tensor, parse_block_size


class BlockLinear(nn.Module):
    """A separate linear map of each block of the last dimension, y_k = W_k x_k + b_k.

    In `nn.Linear`, by contrast, every output sees all inputs. With one block both are the same.
    """

    def __init__(self, size: int, block_size: int, bias: bool = True, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        check_size("block_size", block_size)
        count = len(parse_block_size(size, block_size).sizes)
        self.weight = nn.Parameter(torch.empty(count, block_size, block_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(size, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights uniformly within sqrt(3 / block_size), which keeps the variance, and clear the bias."""
        nn.init.uniform_(self.weight, -1, 1)
        with torch.no_grad():
            self.weight.mul_(math.sqrt(3 / self.weight.shape[-1]))
            if self.bias is not None:
                self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., size) to (..., size)."""
        count, size, _ = self.weight.shape
        if count == 1:
            return nn.functional.linear(x, self.weight[0], self.bias)
        if size == 2:  # two elementwise products are faster than products of tiny matrices
            diagonal = self.weight.diagonal(dim1=1, dim2=2).reshape(-1)
            off_diagonal = self.weight.flip(2).diagonal(dim1=1, dim2=2).reshape(-1)
            neighbours = x.unflatten(-1, (count, 2)).flip(-1).flatten(-2)
            start = x * diagonal if self.bias is None else torch.addcmul(self.bias, x, diagonal)
            return torch.addcmul(start, neighbours, off_diagonal)
        mapped = torch.einsum("...kd,ked->...ke", x.unflatten(-1, (count, size)), self.weight).flatten(-2)
        return mapped if self.bias is None else mapped + self.bias

    def extra_repr(self) -> str:
        """Return the sizes."""
        count, size, _ = self.weight.shape
        return f"{count * size}, block_size={size}, bias={self.bias is not None}"

    def matrices(self) -> Iterator[Tensor]:
        """Iterate over the matrices of the blocks, (D, D) each."""
        yield from self.weight


class ParaAttention(nn.Module):
    """K heads, each of which attends within its own block of the vectors, and one map that aggregates them.

    Head k computes its queries, keys and values from block k only, with matrices of block_size x block_size; the
    results of all heads, side by side, go through W_O. It replaces `nn.MultiheadAttention`, whose heads see the whole
    vectors, but returns only the output: nobody looks at the weights of hundreds of heads.

    Parameters
    ----------
    embed_dim
        The size of the vectors, a multiple of `block_size`. There are embed_dim / block_size heads.
    block_size
        The size of a block, and so the width of a head.
    bias
        Whether all maps have a bias.

    Examples
    --------
    >>> attention = ParaAttention(8)  # four heads of two numbers
    >>> attention(torch.zeros(5, 10, 8)).shape
    torch.Size([5, 10, 8])
    """

    def __init__(
        self, embed_dim: int, block_size: int = 2, bias: bool = True, *, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        check_size("embed_dim", embed_dim)
        check_size("block_size", block_size)
        check_bool("bias", bias)
        check_memory(embed_dim * (embed_dim + 3 * block_size), device, dtype)
        options = {"device": device, "dtype": dtype}
        self.embed_dim, self.block_size, self.num_heads = embed_dim, block_size, embed_dim // block_size
        self.query = BlockLinear(embed_dim, block_size, bias, **options)
        self.key = BlockLinear(embed_dim, block_size, bias, **options)
        self.value = BlockLinear(embed_dim, block_size, bias, **options)
        self.aggregate = nn.Linear(embed_dim, embed_dim, bias, **options)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Attend from query (B, N, d) to key and value (B, M, d), or to itself; the mask (B, M) is true if ignored."""
        key = query if key is None else key
        value = key if value is None else value
        _check_vectors(self.query.weight, self.embed_dim, query=query, key=key, value=value)
        _check_mask(key, key_padding_mask)
        q, k, v = self.query(query), self.key(key), self.value(value)
        output: Tensor = self.aggregate(attention(q, k, v, self.num_heads, key_padding_mask))
        return output

    def recurrent_blocks(self) -> Iterator[RecurrentBlock]:
        """Iterate over W_Q, W_K and W_V by block."""
        yield from projection_blocks({"query": self.query, "key": self.key, "value": self.value})


class ParaAttentionCell(nn.Module):
    """One memory vector that attends to itself and to new tokens, block by block: Section 5 of arXiv 2605.02692.

    With block-diagonal W_Q, W_K and W_V, h' = softmax(Q [K_h K_x]' / sqrt(D)) [V_h V_x] in every block, where Q, K_h
    and V_h come from the memory h, and K_x and V_x from the tokens through the same matrices. The cell has no
    aggregate; with `block_size=hidden_size` it is the vanilla cell. A memory of zeros gives all tokens equal weight, so
    W_Q and W_K only learn from the second call on, or from a memory that is given.

    Examples
    --------
    >>> cell = ParaAttentionCell(8)
    >>> cell(torch.zeros(5, 10, 8)).shape  # the memory after ten tokens, for five sequences
    torch.Size([5, 8])
    """

    def __init__(self, hidden_size: int, block_size: int = 2, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        check_size("hidden_size", hidden_size)
        check_size("block_size", block_size)
        check_memory(3 * hidden_size * block_size, device, dtype)
        options = {"bias": False, "device": device, "dtype": dtype}
        self.hidden_size, self.block_size = hidden_size, block_size
        self.query = BlockLinear(hidden_size, block_size, **options)
        self.key = BlockLinear(hidden_size, block_size, **options)
        self.value = BlockLinear(hidden_size, block_size, **options)

    def forward(self, x: Tensor, h: Tensor | None = None, key_padding_mask: Tensor | None = None) -> Tensor:
        """Return the memory (B, d) after tokens x (B, N, d), starting from the memory h (B, d) or from zeros."""
        _check_vectors(self.query.weight, self.hidden_size, x=x)
        _check_mask(x, key_padding_mask)
        shape = (len(x), self.hidden_size)
        h = x.new_zeros(shape) if h is None else check_tensor("h", h, self.query.weight)
        if h.shape != shape:
            raise TensorError(argument="h", expected=f"a memory {shape}", got=tuple(h.shape))
        seen = torch.cat([h[:, None], x], 1)  # (B, 1 + N, d)
        if key_padding_mask is not None:
            key_padding_mask = nn.functional.pad(key_padding_mask, (1, 0), value=False)
        k, v = self.key(seen), self.value(seen)
        after = attention(self.query(h)[:, None], k, v, self.hidden_size // self.block_size, key_padding_mask)
        return after[:, 0]

    def recurrent_blocks(self) -> Iterator[RecurrentBlock]:
        """Iterate over W_Q, W_K and W_V by block."""
        yield from projection_blocks({"query": self.query, "key": self.key, "value": self.value})


def projection_blocks(projections: dict[str, nn.Module], layer: int = 0) -> Iterator[RecurrentBlock]:
    """Iterate over the matrices of projections, block-diagonal or dense."""
    for gate, projection in projections.items():
        matrices = projection.matrices() if isinstance(projection, BlockLinear) else [projection.weight]
        for block, matrix in enumerate(matrices):
            assert isinstance(matrix, Tensor)
            yield RecurrentBlock(layer, "forward", gate, block, matrix)


def _check_vectors(weight: Tensor, size: int, **tensors: Tensor) -> None:
    batch = None
    for name, tensor in tensors.items():
        shape = tuple(check_tensor(name, tensor, weight).shape)
        if len(shape) != 3 or shape[-1] != size or (batch is not None and shape[0] != batch):
            expected = f"vectors ({'B' if batch is None else batch}, N, {size})"
            raise TensorError(argument=name, expected=expected, got=shape)
        batch = shape[0]
    key, value = tensors.get("key"), tensors.get("value")
    if key is not None and value is not None and key.shape != value.shape:
        expected = f"one value for each key, {tuple(key.shape)}"
        raise TensorError(argument="value", expected=expected, got=tuple(value.shape))


def _check_mask(key: Tensor, mask: Tensor | None) -> None:
    if mask is None:
        return
    check_tensor("key_padding_mask", mask)
    if mask.dtype != torch.bool or mask.shape != key.shape[:2]:
        expected, got = f"booleans {tuple(key.shape[:2])}", (mask.dtype, tuple(mask.shape))
        raise TensorError(argument="key_padding_mask", expected=expected, got=got)
