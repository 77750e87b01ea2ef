"""ParaRNN (arXiv 2605.02692): recurrent layers made of small blocks that run side by side and can be read."""

from parallelrnn.interpret import (
    FeatureTracker,
    contributions,
    forecast_modes,
    impulse_response,
    real_jordan,
    recurrence_features,
    report,
)
from parallelrnn.nn import (
    ParaGRU,
    ParaGRUCell,
    ParaLSTM,
    ParaLSTMCell,
    ParaRNN,
    ParaRNNCell,
    WaveDecoder,
    from_torch,
)

__all__ = [
    "FeatureTracker",
    "ParaGRU",
    "ParaGRUCell",
    "ParaLSTM",
    "ParaLSTMCell",
    "ParaRNN",
    "ParaRNNCell",
    "WaveDecoder",
    "contributions",
    "forecast_modes",
    "from_torch",
    "impulse_response",
    "real_jordan",
    "recurrence_features",
    "report",
]
