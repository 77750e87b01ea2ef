"""ParaRNN (arXiv 2605.02692): recurrent layers made of small blocks that run side by side and can be read."""

from importlib import import_module
from importlib.util import find_spec
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
    from parallelrnn.forecast.api import Forecaster
    from parallelrnn.sequence.api import SequenceClassifier, SequenceRegressor

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


# Estimators need more than torch and numpy: where each lives, what it imports, and the extra that installs that.
_SEQUENCE_NEEDS = ("lightning_fabric", "rich", "safetensors", "sklearn")
_ESTIMATORS = {
    "Forecaster": ("forecast.api", ("lightning_fabric", "narwhals", "pandas", "rich", "safetensors"), "forecast"),
    "SequenceClassifier": ("sequence.api", _SEQUENCE_NEEDS, "sequences"),
    "SequenceRegressor": ("sequence.api", _SEQUENCE_NEEDS, "sequences"),
}


def __getattr__(name: str) -> Any:
    """Import an estimator, or read the version, on first use; name the extra where a package is missing."""
    if name == "__version__":
        from importlib.metadata import version

        return version("parallelrnn")
    if name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, needed, extra = _ESTIMATORS[name]
    missing = next((package for package in needed if find_spec(package) is None), None)
    if missing is not None:
        raise ModuleNotFoundError(
            f"{name} needs {missing}, which is not installed: pip install 'parallelrnn[{extra}]'", name=missing
        )
    return getattr(import_module(f"parallelrnn.{module}"), name)
