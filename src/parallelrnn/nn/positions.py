"""Relative positions of tokens: a learned number for each head and distance, added to its scores (as in T5)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

_EXACT = 16  # distances with a number of their own; beyond, each number is for a range, and ranges grow
_BUCKETS = 32
_FARTHEST = 512  # beyond it, all is the same


class RelativePositions(nn.Module):
    """What is added to scores, by head and by how far back a token lies; minus infinity beyond a window, and ahead."""

    def __init__(self, num_heads: int, **options: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_heads, _BUCKETS, **options))

    def forward(self, new: int, old: int, window: int) -> Tensor:
        """For `new` tokens after `old` ones, (heads, new, old + new)."""
        farthest = min(window, old + new - 1)
        back = self.weight[:, _buckets(farthest + 1, self.weight.device)]  # (heads, farthest + 1), by distance
        # Key j lies old + i - j behind token i, so that each token's row is a stretch of one line, read backwards.
        line = nn.functional.pad(back, (new - 1, old + new - 1 - farthest), value=-math.inf).flip(-1)
        return line.unfold(-1, old + new, 1).flip(-2)


def _buckets(count: int, device: torch.device) -> Tensor:
    """Of the distances 0, 1, ..., (count,)."""
    back = torch.arange(count, device=device)
    far = torch.log(back.clamp(min=_EXACT) / _EXACT) / math.log(_FARTHEST / _EXACT)  # from 0 to 1
    return torch.where(back < _EXACT, back, _EXACT + (far * (_BUCKETS - _EXACT)).long().clamp(max=_EXACT - 1))
