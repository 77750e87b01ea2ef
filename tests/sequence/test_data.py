from __future__ import annotations

import numpy as np
import torch

from parallelrnn.sequence.data import Ragged, Scale, SequenceSource


def test_sequences_whose_length_is_no_multiple_of_a_segment_have_zeros_before_them() -> None:
    data = Ragged.of_arrays([np.arange(1.0, 6)[:, None], np.arange(10.0, 13)[:, None]])
    batch = SequenceSource(data, Scale.of(None, data), 3).batch(torch.tensor([0, 1]))
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [6, 3]
    assert batch.x[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.x[1, :3, 0].tolist() == [10, 11, 12]
