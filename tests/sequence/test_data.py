from __future__ import annotations

import numpy as np
import torch

from parallelrnn.sequence.data import ChannelScaler, RaggedArray, SequenceDataset


def test_sequences_whose_length_is_no_multiple_of_a_segment_have_zeros_before_them() -> None:
    data = RaggedArray.from_list([np.arange(1.0, 6)[:, None], np.arange(10.0, 13)[:, None]])
    batch = SequenceDataset(data, ChannelScaler.fit(None, data), 3).batch(torch.tensor([0, 1]))
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [6, 3]
    assert batch.x[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.x[1, :3, 0].tolist() == [10, 11, 12]
