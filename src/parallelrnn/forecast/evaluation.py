"""How good forecasts are: every window of a test part, beside what any forecaster has to beat."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from parallelrnn.errors import TableError
from parallelrnn.forecast.baselines import Naive, NLinear, SeasonalNaive
from parallelrnn.forecast.conformal import Calibration
from parallelrnn.forecast.fitted import Fitted, View
from parallelrnn.forecast.fitting import learn, split_windows
from parallelrnn.forecast.inference import ENOUGH, errors_of_windows, latest_windows
from parallelrnn.forecast.options import Options
from parallelrnn.forecast.panel import Panel, Series
from parallelrnn.forecast.windows import CovariateScale, Profile, Sequences
from parallelrnn.interpret.display import Display
from parallelrnn.training.losses import pointwise
from parallelrnn.training.trainer import Recipe, Trainer, make_fabric, own_randomness

_CALIBRATIONS = 100  # origins at which intervals are judged
_SEASONS_ON = 2000  # windows of validation, on which seasons are compared


@dataclass(frozen=True)
class Score:
    """Of one method over all test windows; errors relative to the deviation of each series in training."""

    name: str
    mse: float
    mae: float
    seconds: float = 0.0  # to fit
    parameters: int = 0
    coverage: dict[str, float] = field(default_factory=dict)  # part of what was observed inside, by level


@dataclass(frozen=True)
class Evaluation:
    """The scores, and what they were measured on."""

    scores: tuple[Score, ...]
    horizon: int
    lookback: int
    windows: int  # of the test, over all series
    series: int
    unjudged: tuple[float, ...] = ()  # levels whose intervals too few forecasts could be calibrated on

    def display(self) -> Display:
        """A table for people."""
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
            "Errors are relative to the deviation of each series in training.",
        ]
        if self.unjudged:
            notes.append(
                f"Intervals of {', '.join(f'{level:g}' for level in self.unjudged)} % were not judged: they take "
                f"{self.horizon + ENOUGH} forecasts or more between training and test; give a larger val_size."
            )
        return Display("Errors of forecasts", names, rows, notes)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def evaluate(
    forecasters: Sequence[Options],
    panel: Panel,
    test_size: int,
    val_size: int | None,
    levels: Sequence[float] = (80, 95),
) -> Evaluation:
    """Fit on all but the last `test_size` steps of each series, and forecast every window in these.

    The forecasters differ in what they are made of, not in lookback or horizon.
    """
    horizon = forecasters[0].horizon
    panel = _long_enough(panel, test_size, horizon)
    before = panel.without_last(test_size)
    first, last = [len(one) - test_size for one in panel.series], [len(one) - horizon for one in panel.series]
    scores = []
    for options in forecasters:
        began = time.perf_counter()
        fitted = learn(options, before, val_size)
        seconds = time.perf_counter() - began
        view = fitted.view(panel.series)
        windows = view.sequences.origins(first, [end + 1 for end in last])
        errors = errors_of_windows(fitted.network, view.sequences, windows, fitted.middle)
        name = f"Forecaster ({options.cell}, {options.decoder})"
        parameters = sum(parameter.numel() for parameter in fitted.network.parameters())
        coverage = _coverage(view, first, last, levels)
        scores.append(_score(name, errors, seconds, parameters, coverage=coverage))
    scores += _baselines(forecasters[0], fitted, panel, before, windows)
    unjudged = tuple(level for level in levels if f"{level:g}" not in scores[0].coverage)
    lookback = fitted.network.made_of.lookback
    return Evaluation(tuple(scores), horizon, lookback, len(windows), len(panel.series), unjudged)


def _long_enough(panel: Panel, test_size: int, horizon: int) -> Panel:
    """Without the series that are too short to be tested, of which it tells."""
    if test_size < horizon:
        raise TableError(f"a test of {test_size} steps does not hold a horizon of {horizon}; give a longer test")
    kept = [one for one in panel.series if len(one) > test_size + horizon]
    if not kept:
        longest = max(panel.series, key=len)
        raise TableError(
            f"no series has more than the {test_size + horizon} steps that a test of {test_size} steps and a horizon "
            f"of {horizon} take: the longest, {longest.name!r}, has {len(longest)}; give a shorter test or horizon"
        )
    short = [one for one in panel.series if len(one) <= test_size + horizon]
    if short:
        warnings.warn(
            f"{len(short)} series are left out, having no more than {test_size + horizon} steps, such as "
            f"{short[0].name!r} with {len(short[0])}",
            stacklevel=3,
        )
    return replace(panel, series=tuple(kept))


def _score(name: str, errors: Tensor, seconds: float = 0.0, parameters: int = 0, **more: Any) -> Score:
    known = errors[~errors.isnan()]
    return Score(name, float((known**2).mean()), float(known.abs().mean()), seconds, parameters, **more)


def _coverage(view: View, first: Sequence[int], last: Sequence[int], levels: Sequence[float]) -> dict[str, float]:
    """How often intervals held what came, each calibrated on the forecasts that had come true before it."""
    fitted = view.fitted
    held = {f"{level:g}": [0.0, 0.0] for level in levels}
    for index, one in enumerate(view.series):
        start = fitted.trained[one.name] - one.position  # where training ended
        windows = view.sequences.windows(index, start, last[index] + 1)
        errors = errors_of_windows(fitted.network, view.sequences, windows, fitted.middle)
        profile = view.profiles[index]
        grain = torch.from_numpy(profile.grain / profile.scale)
        stride = max(1, (last[index] + 1 - first[index]) // _CALIBRATIONS)
        for origin in range(first[index], last[index] + 1, stride):
            now = errors[origin - start]
            latest = errors[max(0, origin - start - latest_windows(fitted.horizon)) : origin - start]
            if len(latest) < fitted.horizon + ENOUGH:
                continue
            calibration = Calibration.of([_come_true(latest)])
            there = ~now.isnan()
            for level in filter(calibration.supports, levels):
                width = calibration.half_width(level)[0]
                inside = (now.abs() <= width) | (now.abs() < width + grain)  # limits of counts are rounded outward
                held[f"{level:g}"][0] += float((inside & there).sum())
                held[f"{level:g}"][1] += float(there.sum())
    return {name: hits / count for name, (hits, count) in held.items() if count}


def _come_true(errors: Tensor) -> Tensor:
    """The errors (N, H, C) of consecutive forecasts, as far as they are known one step after the last."""
    age = torch.arange(len(errors), 0, -1)[:, None, None]
    ahead = torch.arange(1, errors.shape[1] + 1)[None, :, None]
    return torch.where(ahead <= age, errors, torch.nan)


def _baselines(options: Options, fitted: Fitted, panel: Panel, before: Panel, windows: Tensor) -> list[Score]:
    made_of = fitted.network.made_of
    steps = [fitted.trained[one.name] - one.position for one in before.series]
    profiles = [Profile.of(one, n, ()) for one, n in zip(before.series, steps, strict=True)]
    covariates = CovariateScale.of(before.series, steps)

    def sequences(series: Sequence[Series], lookback: int) -> Sequences:
        return Sequences(series, profiles, covariates, lookback, made_of.horizon)

    own, learned = (sequences(series, made_of.lookback) for series in (panel.series, before.series))
    split = split_windows(before.series, learned, steps)
    scores = [_score("naive: the last value", errors_of_windows(Naive(), own, windows, 0))]
    seasons = sorted({round(period) for period in fitted.periods if 2 * period <= min(steps)})
    if seasons:
        some = split.validation[:: max(1, len(split.validation) // _SEASONS_ON)]
        seen = sequences(before.series, seasons[-1])
        off = {one: errors_of_windows(SeasonalNaive(one), seen, some, 0).abs().nanmean() for one in seasons}
        season = min(seasons, key=lambda one: float(off[one]))
        errors = errors_of_windows(SeasonalNaive(season), sequences(panel.series, season), windows, 0)
        scores.append(_score(f"seasonal naive: the last {fitted.grid.step.format(season)}", errors))
    began = time.perf_counter()
    with own_randomness(options.random_state, options.accelerator):
        linear = NLinear(made_of.lookback, made_of.horizon)
        # As its authors train it: squared errors, steps that halve from epoch to epoch.
        recipe = Recipe(learning_rate=5e-3, decay=0.5, max_epochs=options.max_epochs)
        Trainer(
            linear,
            learned,
            split.training,
            split.validation,
            pointwise("mse"),
            recipe,
            options.random_state,
            make_fabric(options.accelerator, options.devices, options.precision),
        ).run()
    seconds = time.perf_counter() - began
    count = sum(parameter.numel() for parameter in linear.parameters())
    scores.append(_score("linear (NLinear)", errors_of_windows(linear, own, windows, 0), seconds, count))
    return scores
