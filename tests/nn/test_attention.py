from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from parallelrnn import recurrence_features
from parallelrnn.nn import ParaAttention, ParaAttentionCell
from parallelrnn.nn.attention import BlockLinear


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("block_size", [1, 2, 3, 6])
def test_a_map_of_blocks_is_one_with_a_block_diagonal_matrix(block_size: int) -> None:
    layer = BlockLinear(6, block_size, dtype=torch.float64)
    nn.init.normal_(layer.bias)
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    dense = torch.block_diag(*layer.matrices())
    torch.testing.assert_close(layer(x), x @ dense.T + layer.bias)


def as_multihead(ours: ParaAttention) -> nn.MultiheadAttention:
    """`nn.MultiheadAttention` with the same maps, block-diagonal ones as dense matrices."""
    theirs = nn.MultiheadAttention(ours.embed_dim, ours.num_heads, batch_first=True, dtype=torch.float64)
    projections = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([torch.block_diag(*projection.matrices()) for projection in projections]))
        theirs.in_proj_bias.copy_(torch.cat([projection.bias for projection in projections]))
        theirs.out_proj.load_state_dict(ours.aggregate.state_dict())
    return theirs


@pytest.mark.parametrize("block_size", [1, 2, 4, 8])
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_multi_head_attention_with_block_diagonal_maps(block_size: int, masked: bool) -> None:
    ours = ParaAttention(8, block_size, dtype=torch.float64)
    for projection in (ours.query, ours.key, ours.value):
        nn.init.normal_(projection.bias)
    theirs = as_multihead(ours)
    q, kv = torch.randn(3, 4, 8, dtype=torch.float64), torch.randn(3, 6, 8, dtype=torch.float64)
    mask = torch.rand(3, 6) < 0.4 if masked else None
    if mask is not None:
        mask[:, 0] = False
    theirs_out, _ = theirs(q, kv, kv, key_padding_mask=mask, need_weights=False)
    torch.testing.assert_close(ours(q, kv, key_padding_mask=mask), theirs_out)
    torch.testing.assert_close(ours(q), theirs(q, q, q, need_weights=False)[0])


def test_blocks_of_two_take_a_fraction_of_the_parameters() -> None:
    ours, theirs = ParaAttention(512), nn.MultiheadAttention(512, 8)
    assert parameters(theirs) == 4 * (512 * 512 + 512)
    assert parameters(ours) == 3 * (512 * 2 + 512) + 512 * 512 + 512


def test_heads_see_their_own_block_alone() -> None:
    ours = ParaAttention(8, 2)
    ours.aggregate = nn.Identity()
    x = torch.randn(1, 5, 8)
    moved = x.clone()
    moved[..., 2:4] += 1  # block 1
    changed = (ours(moved) - ours(x)).abs().amax((0, 1)) > 1e-4
    assert changed.tolist() == [False, False, True, True, False, False, False, False]


def plain_cell(cell: ParaAttentionCell, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Section 5, one block after the other."""
    size, results = cell.block_size, []
    for block in range(cell.hidden_size // size):
        part = slice(block * size, (block + 1) * size)
        w_q, w_k, w_v = (projection.weight[block] for projection in (cell.query, cell.key, cell.value))
        seen = torch.cat([h[None, part], x[:, part]])  # (1 + N, D)
        scores = (seen @ w_k.T) @ (w_q @ h[part]) / size**0.5
        results.append(scores.softmax(0) @ (seen @ w_v.T))
    return torch.cat(results)


@pytest.mark.parametrize("block_size", [2, 3, 6])
def test_the_cell_is_that_of_section_5(block_size: int) -> None:
    cell = ParaAttentionCell(6, block_size, dtype=torch.float64)
    x, h = torch.randn(3, 4, 6, dtype=torch.float64), torch.randn(3, 6, dtype=torch.float64)
    expected = torch.stack([plain_cell(cell, *pair) for pair in zip(x, h, strict=True)])
    torch.testing.assert_close(cell(x, h), expected)
    torch.testing.assert_close(cell(x), cell(x, torch.zeros_like(h)))
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[:, 2:] = True
    torch.testing.assert_close(cell(x, h, mask), cell(x[:, :2], h))


@pytest.mark.parametrize("module", [ParaAttention(8), ParaAttentionCell(8), ParaAttention(8, 8)], ids=str)
def test_recurrent_matrices_are_read(module: Any) -> None:
    features = recurrence_features(module)
    assert {feature.gate for feature in features} == {"query", "key", "value"}
    assert sum(feature.order * (2 if feature.kind == "C" else 1) for feature in features) == 3 * 8
