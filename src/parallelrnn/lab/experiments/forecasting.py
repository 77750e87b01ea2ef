"""Forecasts: Section 6.2 of arXiv 2605.02692, its Tables 1(a) and S.4.

The protocol is Informer's: all channels in, all channels out, errors of values standardised by the training rows, and
every window of the test part. The paper leaves open, and all models share: a look-back of 96, batches of 32, epochs of
256 steps, Adam at 1e-3, halved after an epoch without a better validation error, and an end after three of these.

Baselines stand beside the paired models (the last value, the last day, one linear map), and our `Forecaster`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parallelrnn.forecast.evaluation import NLinear
from parallelrnn.lab.datasets import Table, load_table
from parallelrnn.lab.experiments.experiment import Experiment, ExperimentError, Outcome, Workspace, reset_unused
from parallelrnn.lab.experiments.feature_types import first_layer_features, types_of
from parallelrnn.lab.experiments.models import MODELS, RECURRENT, Transformer, count_parameters, make_recurrent
from parallelrnn.lab.experiments.models import TRANSFORMERS as TRANSFORMER_MODELS
from parallelrnn.lab.experiments.supervised import Subset, fit, regression_errors

HORIZONS = {
    "ETTh1": (24, 48, 168, 336),
    "ETTh2": (24, 48, 168, 336),
    "ETTm1": (24, 48, 96, 288),
    "WTH": (24, 48, 168, 336),
}
# Layers and segments of the Block-Recurrent Transformer, Table S.1.
TRANSFORMERS = {
    "ETTh1": ((3, 2), (3, 2), (3, 3), (3, 4)),
    "ETTh2": ((3, 2), (3, 2), (5, 3), (5, 3)),
    "ETTm1": ((3, 2), (3, 2), (3, 3), (3, 3)),
    "WTH": ((3, 2), (3, 2), (5, 2), (5, 2)),
}
BASELINES = ("naive", "seasonal naive", "NLinear", "Forecaster")
DETERMINISTIC = ("naive", "seasonal naive")  # all replicates are the same
_DAY = {"ETTm1": 96, "ETTm2": 96}  # steps; else 24


@dataclass(frozen=True, kw_only=True)
class ForecastingConfig:
    """One model on one data set at one horizon."""

    dataset: str
    horizon: int
    model: str
    lookback: int = 96
    hidden_size: int = 128
    num_layers: int = 2
    block_size: int = 2
    batch_size: int = 32
    learning_rate: float = 1e-3
    epoch_steps: int = 256
    max_epochs: int = 40
    stop_after: int = 3
    d_model: int = 512  # of transformers, and what follows
    num_heads: int = 8
    num_states: int = 128

    def without_unused(self) -> ForecastingConfig:
        """Return the configuration with defaults for what its model does not use; baselines use the look-back alone."""
        if self.model in BASELINES and self.model != "NLinear":
            used = {name: getattr(self, name) for name in ("dataset", "horizon", "model", "lookback")}
            return ForecastingConfig(**used)
        unused: tuple[str, ...] = () if self.model in TRANSFORMER_MODELS else ("d_model", "num_heads", "num_states")
        unused += () if self.model in RECURRENT else ("hidden_size", "num_layers")
        unused += () if self.model in RECURRENT and self.model.startswith("Para") else ("block_size",)
        return reset_unused(self, unused)


def cells() -> list[ForecastingConfig]:
    """Return all data sets, horizons and models."""
    return [
        ForecastingConfig(dataset=dataset, horizon=horizon, model=model)
        for dataset, horizons in HORIZONS.items()
        for horizon in horizons
        for model in (*MODELS, *BASELINES)
    ]


def run(config: ForecastingConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration; the seed decides initial weights and the order of windows."""
    table = load_table(config.dataset)
    if config.model == "Forecaster":
        return _run_forecaster(table, config, seed)
    values = torch.from_numpy(table.standardised())
    training, validation, test = (_part(table, values, name, config) for name in ("train", "validation", "test"))
    torch.manual_seed(seed)
    network = _network(config, values.shape[1], seed)
    parameters = count_parameters(network)
    if not parameters:
        return Outcome(regression_errors(network, test))
    progress = fit(network, training, validation, config, seed, workspace)
    metrics = regression_errors(network, test) | {"parameters": parameters, "epochs": progress.epoch}
    details = {}
    if config.model in RECURRENT:
        details = {"features": types_of(network), "first_layer": first_layer_features(network)}
    return Outcome(metrics | {"seconds": progress.seconds}, progress.history, details)


def _part(table: Table, values: Tensor, name: str, config: ForecastingConfig) -> Subset:
    starts = torch.from_numpy(table.windows(name, config.lookback, config.horizon))
    past, ahead = torch.arange(config.lookback), config.lookback + torch.arange(config.horizon)

    def take(rows: Tensor) -> tuple[Tensor, Tensor]:
        first = starts[rows][:, None]
        return values[first + past], values[first + ahead].flatten(1)

    return Subset(len(starts), take)


def _network(config: ForecastingConfig, channels: int, seed: int) -> nn.Module:
    """Return a network from inputs (B, look-back, C) to outputs (B, H * C)."""
    sizes = (channels, config.horizon * channels)
    if config.model == "naive":
        return Repeat(config.horizon, 1)
    if config.model == "seasonal naive":
        day = _DAY.get(config.dataset, 24)
        if config.lookback < day:
            problem = f"seasonal naive repeats a day of {day} steps, and lookback is {config.lookback}"
            raise ExperimentError(problem, hint="give a longer lookback")
        return Repeat(config.horizon, day)
    if config.model == "NLinear":
        return Linear(config.lookback, config.horizon)
    if config.model in RECURRENT:
        return make_recurrent(config, *sizes, seed)
    sizes_by_horizon = dict(zip(HORIZONS[config.dataset], TRANSFORMERS[config.dataset], strict=True))
    if config.horizon not in sizes_by_horizon:
        horizons = ", ".join(map(str, sizes_by_horizon))
        problem = f"the paper has no transformer for {config.dataset} at horizon {config.horizon}"
        raise ExperimentError(problem, hint=f"choose a horizon of {horizons}, or a recurrent model")
    num_layers, num_segments = sizes_by_horizon[config.horizon]
    return Transformer(
        config.model,
        *sizes,
        d_model=config.d_model,
        num_layers=num_layers,
        num_heads=config.num_heads,
        num_states=config.num_states,
        num_segments=num_segments,
    )


class Repeat(nn.Module):
    """Repeat the last `period` values."""

    def __init__(self, horizon: int, period: int) -> None:
        super().__init__()
        self._steps = torch.arange(horizon) % period - period

    def forward(self, inputs: Tensor) -> Tensor:
        """Return forecasts."""
        return inputs[:, self._steps].flatten(1)


class Linear(NLinear):
    """One linear map from the look-back to the horizon, of values less the last."""

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        """Return forecasts."""
        return self.ahead(inputs).flatten(1)


def _run_forecaster(table: Table, config: ForecastingConfig, seed: int) -> Outcome:
    """Run our `Forecaster` with its defaults on the same rows and windows, with the same scores; it does not resume."""
    import pandas as pd

    from parallelrnn.forecast.api import Forecaster
    from parallelrnn.forecast.evaluation import evaluate

    trained, validated, end = table.borders
    frame = pd.DataFrame(table.values[:end], columns=list(table.columns))
    frame.insert(0, "ds", table.times[:end])
    forecaster = Forecaster(config.horizon, config.lookback, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        panel = forecaster.read(frame, time_col="ds", target_col=list(table.columns))
        score = evaluate([forecaster], panel, end - validated, validated - trained, ()).scores[0]
    names = ("mse", "mae", "parameters", "seconds")
    return Outcome({name: float(getattr(score, name)) for name in names})


EXPERIMENT = Experiment(
    name="forecasting",
    config=ForecastingConfig,
    cells=cells,
    run=run,
    replicates=3,
    is_deterministic=lambda config: config.model in DETERMINISTIC,
)
