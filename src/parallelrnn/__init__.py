"""ParaRNN (arXiv 2605.02692): recurrent layers made of small blocks that run side by side and can be read."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parallelrnn.forecast.api import Forecaster
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
    from parallelrnn.sequence.classifier import SequenceClassifier
    from parallelrnn.sequence.regressor import SequenceRegressor

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

# Names are imported when they are first used, so that importing the package does not take as long as importing torch.
_ESTIMATORS = {  # where each estimator is, and the extra that installs what it needs
    "Forecaster": ("forecast.api", "forecast"),
    "SequenceClassifier": ("sequence.classifier", "sequences"),
    "SequenceRegressor": ("sequence.regressor", "sequences"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("parallelrnn")
    if name in ("errors", "interpret", "kernels", "nn"):
        return import_module(f"parallelrnn.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _ESTIMATORS:
        value = _import_estimator(name)
    else:
        layers = vars(import_module("parallelrnn.nn"))
        value = layers[name] if name in layers else getattr(import_module("parallelrnn.interpret"), name)
    globals()[name] = value
    return value


def _import_estimator(name: str) -> Any:
    """Import an estimator; where a package is missing, name the extra that installs it."""
    module, extra = _ESTIMATORS[name]
    try:
        return getattr(import_module(f"parallelrnn.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("parallelrnn"):
            raise
        from parallelrnn.errors import MissingPackageError

        problem = f"{name} needs {error.name}, which is not installed"
        raise MissingPackageError(problem, hint=f"pip install 'parallelrnn[{extra}]'") from error
