"""How good forecasts are: every window of a test part, next to the baselines that any forecaster has to beat."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, TableError
from parallelrnn.forecast.conformal import MIN_RESIDUALS, Calibration, recent_windows, window_residuals
from parallelrnn.forecast.data import Panel, Series, warn_user
from parallelrnn.forecast.fitting import fit_panel, split_windows
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.forecast.windows import Batch, CovariateScaler, SeriesScaler, WindowDataset
from parallelrnn.interpret.display import Display
from parallelrnn.training.losses import pointwise
from parallelrnn.training.optimizers import Exponential
from parallelrnn.training.trainer import Trainer, TrainerConfig, fork_rng, make_fabric

if TYPE_CHECKING:
    from parallelrnn.forecast.api import Forecaster

_MAX_CALIBRATIONS = 100  # origins of each series at which coverage is measured
_MAX_SEASON_WINDOWS = 2000  # validation windows on which seasons are compared


class SeasonalNaive(nn.Module):
    """Repeats the last season; the last value if its period is one."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period

    def forward(self, batch: Batch) -> Tensor:
        """Return forecasts (B, H, C, 1)."""
        steps = torch.arange(batch.target.shape[1]) % self.period - self.period
        return batch.past[:, steps][..., None]


class NLinear(nn.Module):
    """One linear map from look-back to horizon, of values less the last (Zeng et al., arXiv 2205.13504)."""

    def __init__(self, lookback: int, horizon: int) -> None:
        super().__init__()
        self.map = nn.Linear(lookback, horizon)

    def forward(self, batch: Batch) -> Tensor:
        """Return forecasts (B, H, C, 1)."""
        return self.ahead(batch.past)[..., None]

    def ahead(self, past: Tensor) -> Tensor:
        """Return what follows a past (B, look-back, C), (B, H, C)."""
        last = past[:, -1:]
        forecast: Tensor = self.map((past - last).transpose(1, 2)).transpose(1, 2) + last
        return forecast


@dataclass(frozen=True, kw_only=True)
class Score:
    """The errors of one method over all test windows, relative to the deviation of each series in training."""

    name: str
    mse: float
    mae: float
    seconds: float = 0.0  # to fit
    parameters: int = 0
    coverage: dict[str, float] = field(default_factory=dict)  # the part of observations inside, by level

    @classmethod
    def of(cls, name: str, residuals: Tensor, **details: Any) -> Score:
        """Return the score of residuals, NaN where nothing was observed."""
        known = residuals[~residuals.isnan()]
        return cls(name=name, mse=float((known**2).mean()), mae=float(known.abs().mean()), **details)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores, and what they were measured on."""

    scores: tuple[Score, ...]
    horizon: int
    lookback: int
    windows: int  # of the test, over all series
    series: int
    unjudged: tuple[float, ...] = ()  # levels whose coverage could not be measured for want of residuals

    def display(self) -> Display:
        """Return a table for people."""
        levels = list(self.scores[0].coverage)
        rows = [
            (
                score.name,
                f"{score.mse:.4f}",
                f"{score.mae:.4f}",
                *(f"{score.coverage[level]:.1%}" if level in score.coverage else "-" for level in levels),
                f"{score.parameters:,}" if score.parameters else "-",
                f"{score.seconds:.1f} s" if score.seconds else "-",
            )
            for score in self.scores
        ]
        names = ["method", "MSE", "MAE", *(f"in {level} %" for level in levels), "parameters", "fitted in"]
        notes = [
            f"Horizon {self.horizon}, look-back {self.lookback}; {self.windows:,} windows of {self.series} series, "
            "none of them seen in training.",
            "Errors are relative to the standard deviation of each series in training.",
        ]
        if self.unjudged:
            notes.append(
                f"Coverage of {', '.join(f'{level:g}' for level in self.unjudged)} % intervals was not measured: it "
                f"takes {self.horizon + MIN_RESIDUALS} forecasts or more between training and test; validate on more "
                "steps."
            )
        return Display("Forecast errors", names, rows, notes)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON would have it."""
        return asdict(self)


def evaluate(
    forecasters: Sequence[Forecaster],
    panel: Panel,
    test_size: int,
    val_size: int | None,
    levels: Sequence[float] = (80, 95),
) -> Evaluation:
    """Fit on all but the last `test_size` steps of each series, and forecast every window in these.

    All forecasters have the same lookback and horizon.
    """
    horizon = forecasters[0].horizon
    panel = _long_enough(forecasters[0].without_incomplete(panel), test_size, horizon)
    before = panel.without_last(test_size)
    lengths = [len(series) for series in panel.series]
    first, last = [length - test_size for length in lengths], [length - horizon for length in lengths]
    scores = []
    for options in forecasters:
        began = time.perf_counter()
        state = fit_panel(options, before, val_size)
        seconds = time.perf_counter() - began
        dataset = state.dataset(panel.series)
        windows = dataset.windows(first, [end + 1 for end in last])
        scores.append(
            Score.of(
                f"Forecaster ({options.cell}, {options.decoder})",
                window_residuals(state.network, dataset, windows, state.median_index),
                seconds=seconds,
                parameters=_count_parameters(state.network),
                coverage=_coverage(state, dataset, first, last, levels),
            )
        )
    scores += _baselines(forecasters[0], state, panel, before, windows)
    return Evaluation(
        scores=tuple(scores),
        horizon=horizon,
        lookback=dataset.lookback,
        windows=len(windows),
        series=len(panel.series),
        unjudged=tuple(level for level in levels if f"{level:g}" not in scores[0].coverage),
    )


def _long_enough(panel: Panel, test_size: int, horizon: int) -> Panel:
    """Return the series that are long enough for the test, and warn of others."""
    if test_size < horizon:
        raise ArgumentError(argument="test_size", expected=f"at least the horizon of {horizon} steps", got=test_size)
    needed = test_size + horizon
    long = tuple(series for series in panel.series if len(series) > needed)
    short = [series for series in panel.series if len(series) <= needed]
    if not long:
        longest = max(short, key=len)
        test = f"a test of {test_size} steps with a horizon of {horizon}"
        problem = f"no series has more than {needed} steps for {test}: {longest.name!r} has {len(longest)}"
        raise TableError(problem, hint="give more rows, or a smaller {test_size} or {horizon}")
    if short:
        example = f"such as {short[0].name!r} with {len(short[0])}"
        warn_user(f"{len(short)} series left out, with no more than {needed} steps, {example}")
    return replace(panel, series=long)


def _count_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _coverage(
    state: ForecasterState, dataset: WindowDataset, first: Sequence[int], last: Sequence[int], levels: Sequence[float]
) -> dict[str, float]:
    """Return how often intervals contained the observed value, each calibrated on the residuals known before it."""
    counts = {f"{level:g}": [0.0, 0.0] for level in levels}  # inside, and in all
    for index, (series, scaler, until) in enumerate(
        zip(dataset.series, dataset.scalers, state.trained_until, strict=True)
    ):
        start = until - series.position  # where training ended
        windows = dataset.windows_of(index, start, last[index] + 1)
        residuals = scaler.as_relative(window_residuals(state.network, dataset, windows, state.median_index))
        rounding = torch.from_numpy(scaler.integer_valued / scaler.scale)  # limits of counts are rounded outward
        stride = max(1, (last[index] + 1 - first[index]) // _MAX_CALIBRATIONS)
        for origin in range(first[index], last[index] + 1, stride):
            current = residuals[origin - start]
            recent = residuals[max(0, origin - start - recent_windows(state.horizon)) : origin - start]
            if len(recent) < state.horizon + MIN_RESIDUALS:
                continue
            calibration = Calibration.of([known_residuals(recent)], [True])
            observed = ~current.isnan()
            for level in filter(calibration.supports, levels):
                width = calibration.conformal_quantile(level)[0]
                inside = (current.abs() <= width) | (current.abs() < width + rounding)
                counts[f"{level:g}"][0] += float((inside & observed).sum())
                counts[f"{level:g}"][1] += float(observed.sum())
    return {name: hits / count for name, (hits, count) in counts.items() if count}


def known_residuals(residuals: Tensor) -> Tensor:
    """Return the residuals (N, H, C) of consecutive forecasts, as far as they are known one step after the last."""
    age = torch.arange(len(residuals), 0, -1)[:, None, None]
    ahead = torch.arange(1, residuals.shape[1] + 1)[None, :, None]
    return torch.where(ahead <= age, residuals, torch.nan)


def _baselines(
    options: Forecaster, state: ForecasterState, panel: Panel, before: Panel, windows: Tensor
) -> list[Score]:
    lookback, horizon = state.network.config.lookback, state.horizon
    steps = [until - series.position for until, series in zip(state.trained_until, before.series, strict=True)]
    scalers = [SeriesScaler.fit(series, n) for series, n in zip(before.series, steps, strict=True)]
    covariates = CovariateScaler.fit(before.series, steps)

    def dataset(series: Sequence[Series], lookback: int) -> WindowDataset:
        return WindowDataset(series, scalers, covariates, lookback, horizon)

    test, training = dataset(panel.series, lookback), dataset(before.series, lookback)
    split = split_windows(training, steps)
    scores = [Score.of("naive: the last value", window_residuals(SeasonalNaive(1), test, windows, 0))]
    seasons = sorted({round(period) for period in state.periods if 2 * period <= min(steps)})
    if seasons:
        sample = split.validation[:: max(1, len(split.validation) // _MAX_SEASON_WINDOWS)]
        known = dataset(before.series, seasons[-1])
        errors = {n: float(window_residuals(SeasonalNaive(n), known, sample, 0).abs().nanmean()) for n in seasons}
        season = min(seasons, key=errors.__getitem__)
        residuals = window_residuals(SeasonalNaive(season), dataset(panel.series, season), windows, 0)
        scores.append(Score.of(f"seasonal naive: the last {state.grid.step.format(season)}", residuals))
    began = time.perf_counter()
    with fork_rng(options.random_state, options.accelerator):
        linear = NLinear(lookback, horizon)
        # As its authors train it: squared errors, a learning rate that halves after each epoch.
        config = TrainerConfig(learning_rate=5e-3, schedule=Exponential(0.5), max_epochs=options.max_epochs)
        fabric = make_fabric(options.accelerator, options.devices, options.precision)
        data = (training, split.training, split.validation, pointwise("mse"))
        Trainer(linear, *data, config, options.random_state, fabric).run()
    seconds = time.perf_counter() - began
    residuals = window_residuals(linear, test, windows, 0)
    scores.append(Score.of("linear (NLinear)", residuals, seconds=seconds, parameters=_count_parameters(linear)))
    return scores
