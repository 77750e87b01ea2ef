"""Estimators: tables or sequences in; forecasts, values or classes and explanations out."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parallelrnn.estimators.classifier import SequenceClassifier
    from parallelrnn.estimators.forecaster import Forecaster
    from parallelrnn.estimators.regressor import SequenceRegressor

__all__ = ["Forecaster", "SequenceClassifier", "SequenceRegressor"]

# Where each is, what it takes besides torch and numpy, and the extra that brings that.
_SEQUENCES = ("lightning_fabric", "rich", "safetensors", "sklearn")
_DOORS = {
    "Forecaster": ("forecaster", ("lightning_fabric", "narwhals", "pandas", "rich", "safetensors"), "forecast"),
    "SequenceClassifier": ("classifier", _SEQUENCES, "sequences"),
    "SequenceRegressor": ("regressor", _SEQUENCES, "sequences"),
}


def __getattr__(name: str) -> Any:
    """Imported when asked for: without its extra, an error names it."""
    if name not in _DOORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, needed, extra = _DOORS[name]
    missing = next((one for one in needed if find_spec(one) is None), None)
    if missing is not None:
        raise ModuleNotFoundError(
            f"{name} needs {missing}, which is not installed: pip install 'parallelrnn[{extra}]'", name=missing
        )
    return getattr(import_module(f"{__name__}.{module}"), name)
