"""ParaRNN (arXiv 2605.02692): recurrent layers made of small, interpretable blocks that run in parallel.

Everything here is imported on first use, so that `import parallelrnn` is fast.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
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
        swap,
    )
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
    "swap",
]

_ESTIMATORS = {  # the module of each, and the extra that it needs
    "Forecaster": ("forecast.api", "forecast"),
    "SequenceClassifier": ("sequence.api", "sequences"),
    "SequenceRegressor": ("sequence.api", "sequences"),
}
_EXTRAS = {  # the packages of each that these import
    "forecast": ("lightning_fabric", "narwhals", "pandas", "rich", "safetensors"),
    "sequences": ("lightning_fabric", "rich", "safetensors", "sklearn"),
}


def _is_installed(package: str) -> bool:
    # What stands in sys.modules may have no spec, which find_spec raises at; None stands for what cannot be imported.
    return sys.modules.get(package) is not None or find_spec(package) is not None


for _name, (_, _extra) in _ESTIMATORS.items():
    if not all(map(_is_installed, _EXTRAS[_extra])):
        __all__.remove(_name)  # what cannot be imported here is not part of `import *`


def __getattr__(name: str) -> Any:
    """Import a public name or a package on first use."""
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name in ("errors", "interpret", "io", "kernels", "nn"):
        return import_module(f"{__name__}.{name}")
    if name not in __all__ and name not in _ESTIMATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _ESTIMATORS:
        value = _import_estimator(name)
    else:
        nn = import_module(f"{__name__}.nn")
        value = getattr(nn if name in nn.__all__ else import_module(f"{__name__}.interpret"), name)
    globals()[name] = value
    return value


def _import_estimator(name: str) -> Any:
    module, extra = _ESTIMATORS[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(__name__):
            raise
        from parallelrnn.errors import MissingPackageError

        problem, hint = f"{name} needs {error.name}, which is not installed", f"pip install 'parallelrnn[{extra}]'"
        raise MissingPackageError(problem, name=error.name, hint=hint) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "torch" in sys.modules:
    import_module("parallelrnn.kernels")  # registers the operators, which programs from torch.export need
