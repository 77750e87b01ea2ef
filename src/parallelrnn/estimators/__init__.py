"""Estimators: tables in, forecasts with intervals and explanations out."""

try:
    from parallelrnn.estimators.forecaster import Forecaster
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("lightning_fabric", "narwhals", "pandas", "safetensors"):
        raise
    raise ModuleNotFoundError(
        f"forecasting needs {error.name}, which is not installed: pip install 'parallelrnn[forecast]'", name=error.name
    ) from error

__all__ = ["Forecaster"]
