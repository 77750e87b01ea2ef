"""ParaRNN (arXiv 2605.02692): recurrent layers made of small blocks that run side by side and can be read."""

from parallelrnn.nn import ParaGRU, ParaGRUCell, ParaLSTM, ParaLSTMCell, ParaRNN, ParaRNNCell, from_torch

__all__ = ["ParaGRU", "ParaGRUCell", "ParaLSTM", "ParaLSTMCell", "ParaRNN", "ParaRNNCell", "from_torch"]
