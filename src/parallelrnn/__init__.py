"""ParaRNN (arXiv 2605.02692): recurrent layers made of small blocks that run side by side and can be read."""

from typing import TYPE_CHECKING, Any

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
    BlockRecurrentTransformer,
    ParaAttention,
    ParaAttentionCell,
    ParaGRU,
    ParaGRUCell,
    ParaLSTM,
    ParaLSTMCell,
    ParaRNN,
    ParaRNNCell,
    WaveDecoder,
    from_torch,
)

if TYPE_CHECKING:
    from parallelrnn.estimators import Forecaster, SequenceClassifier, SequenceRegressor

    __version__: str

__all__ = [
    "BlockRecurrentTransformer",
    "FeatureTracker",
    "Forecaster",
    "ParaAttention",
    "ParaAttentionCell",
    "ParaGRU",
    "ParaGRUCell",
    "ParaLSTM",
    "ParaLSTMCell",
    "ParaRNN",
    "ParaRNNCell",
    "SequenceClassifier",
    "SequenceRegressor",
    "WaveDecoder",
    "contributions",
    "forecast_modes",
    "from_torch",
    "impulse_response",
    "real_jordan",
    "recurrence_features",
    "report",
]


def __getattr__(name: str) -> Any:
    """Estimators need more than torch and numpy, so they are imported when they are asked for; so is the version."""
    if name == "__version__":
        from importlib.metadata import version

        return version("parallelrnn")
    if name in ("Forecaster", "SequenceClassifier", "SequenceRegressor"):
        from parallelrnn import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
