"""PyTorch modules: recurrent layers and cells of blocks, attention, wave decoders, and their conversion."""

from parallelrnn.nn import initialize
from parallelrnn.nn.aggregate import FeedForward, FullyConnected
from parallelrnn.nn.attention import ParaAttention, ParaAttentionCell
from parallelrnn.nn.blocks import RecurrentBlock, recurrent_blocks
from parallelrnn.nn.cells import ParaGRUCell, ParaLSTMCell, ParaRNNCell
from parallelrnn.nn.convert import from_torch
from parallelrnn.nn.recurrent import ParaGRU, ParaLSTM, ParaRNN
from parallelrnn.nn.swap import Swaps, swap
from parallelrnn.nn.transformer import BlockRecurrentState, BlockRecurrentTransformer
from parallelrnn.nn.waves import WaveDecoder

__all__ = [
    "BlockRecurrentState",
    "BlockRecurrentTransformer",
    "FeedForward",
    "FullyConnected",
    "ParaAttention",
    "ParaAttentionCell",
    "ParaGRU",
    "ParaGRUCell",
    "ParaLSTM",
    "ParaLSTMCell",
    "ParaRNN",
    "ParaRNNCell",
    "RecurrentBlock",
    "Swaps",
    "WaveDecoder",
    "from_torch",
    "initialize",
    "recurrent_blocks",
    "swap",
]
