"""What a forecaster has learned, and the forecasts that follow from it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parallelrnn.forecast.conformal import Calibration, middle_of
from parallelrnn.forecast.decomposition import Origins, Parts, parts_of
from parallelrnn.forecast.grid import Grid
from parallelrnn.forecast.inference import are_enough, forecast_windows, latest_errors
from parallelrnn.forecast.model import Network
from parallelrnn.forecast.panel import Array, Columns, Series
from parallelrnn.forecast.windows import CovariateScale, Profile, Sequences

_SHORT = 10  # steps


@dataclass(frozen=True)
class Fitted:
    """All that it takes to forecast, explain and save."""

    network: Network
    columns: Columns
    grid: Grid
    periods: tuple[float, ...]  # of the cycles that were looked for
    named: bool  # whether a user said so
    covariates: CovariateScale
    profiles: dict[Any, Profile]  # by the name of a series
    trained: dict[Any, int]  # by the name of a series, the position at which its training ended
    recent: tuple[Series, ...]  # the end of each series, as long as the look-back
    calibration: Calibration  # of these, and of series to come
    sample: Origins  # of forecasts that training did not see
    quantiles: tuple[float, ...] | None
    history: tuple[dict[str, float], ...]  # of the training

    @property
    def middle(self) -> int:
        """Which of several quantiles is the forecast."""
        return middle_of(self.quantiles)

    @property
    def horizon(self) -> int:
        """Steps of a forecast."""
        return self.network.made_of.horizon

    def profile(self, series: Series) -> Profile:
        """Of a series that is known, or of a new one from all that there is of it."""
        known = self.profiles.get(series.name)
        return Profile.of(series, len(series), self.periods, self.named) if known is None else known

    def tell_of_short(self, series: Sequence[Series], stacklevel: int) -> None:
        """Warn of series that are too short for their level, scale and intervals to be more than a guess."""
        short = [one for one in series if len(one) < _SHORT]
        if short:
            warnings.warn(
                f"series with fewer than {_SHORT} steps: {len(short)}, such as {short[0].name!r} with {len(short[0])}; "
                "their level and scale are guesses, and so are their forecasts and intervals",
                stacklevel=stacklevel,
            )

    def view(self, series: Sequence[Series], ahead: Sequence[Array] | None = None) -> View:
        """Some series as the network sees them; `ahead` are their covariates after the last step, (H, F) each."""
        profiles = [self.profile(one) for one in series]
        made_of = self.network.made_of
        sequences = Sequences(series, profiles, self.covariates, made_of.lookback, made_of.horizon, ahead)
        return View(self, tuple(series), tuple(profiles), sequences)

    @cached_property
    def latest(self) -> View:
        """The series that were fitted, at their ends."""
        return self.view(self.recent)


@dataclass(frozen=True)
class View:
    """Some series and the forecasts of them."""

    fitted: Fitted
    series: tuple[Series, ...]
    profiles: tuple[Profile, ...]
    sequences: Sequences

    @property
    def ends(self) -> Tensor:
        """The windows at the ends of the series."""
        return torch.stack([torch.arange(len(self.series)), self.sequences.lengths], -1)

    def label(self, index: int, channel: int) -> Any:
        """What a user calls the forecast of one channel of a series."""
        made_of = self.fitted.network.made_of
        return self.series[index].name if made_of.channels == 1 else self.fitted.columns.targets[channel]

    def forecast(self, windows: Tensor) -> Array:
        """In the units of each series, (N, H, C, Q)."""
        fitted = self.fitted
        scaled = forecast_windows(fitted.network, self.sequences, windows, fitted.middle).double().numpy()
        steps = np.arange(self.fitted.horizon)
        values = np.empty_like(scaled)
        for row, (index, origin) in enumerate(windows.tolist()):
            profile = self.profiles[index]
            cycle = profile.cycle_at(steps + self.series[index].position + origin)
            values[row] = scaled[row] * profile.scale[:, None] + (cycle + profile.mean)[..., None]
        return values

    def half_widths(self, windows: Tensor, level: float, calibration: Calibration) -> Array:
        """What intervals add to forecasts and take off them, in the units of each series, (N, H, C)."""
        widths = calibration.half_width(level).double().numpy()
        return np.stack([widths[index] * self.profiles[index].scale for index in windows[:, 0].tolist()])

    def grains(self, windows: Tensor) -> Array:
        """What limits of forecasts are rounded to, (N, 1, C), zero where they are not."""
        profiles = [self.profiles[index] for index in windows[:, 0].tolist()]
        return np.stack([one.grain for one in profiles])[:, None]

    def calibration(self) -> Calibration:
        """By forecasts of these series that training did not see; where there are few, as after training."""
        fitted = self.fitted
        if fitted.quantiles is not None:  # intervals come from these
            return fitted.calibration
        first = [max(self._first_whole(one), fitted.trained.get(one.name, 0) - one.position) for one in self.series]
        errors = latest_errors(fitted.network, self.sequences, fitted.middle, first)
        known = {one.name: row for row, one in enumerate(fitted.recent)}
        rows = [
            Calibration.of([own]) if are_enough(own) else fitted.calibration.rows([known.get(one.name, -1)])
            for one, own in zip(self.series, errors, strict=True)
        ]
        return Calibration(torch.cat([row.table for row in rows]), torch.cat([row.counts for row in rows]))

    def _first_whole(self, series: Series) -> int:
        """The first origin whose window looks back as far as that at the end of the series."""
        return max(1, min(self.fitted.network.made_of.lookback, len(series)))

    def parts(self, windows: Tensor) -> Parts:
        """Forecasts and what they are the sums of, in the units of each series."""
        origins = Origins.of(
            self.fitted.network,
            self.sequences.batch(windows),
            windows[:, 0].tolist(),
            [self.series[index].position + origin for index, origin in windows.tolist()],
        )
        return parts_of(self.fitted.network, origins, self.profiles, self.fitted.middle, scaled=False)
