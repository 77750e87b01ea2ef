"""What a forecaster has learned, and the forecasts that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parallelrnn.errors import ArgumentError
from parallelrnn.forecast.conformal import Calibration, are_enough, calibration_residuals, recent_windows
from parallelrnn.forecast.data import Array, Columns, Series
from parallelrnn.forecast.decomposition import (
    Components,
    Explanation,
    decompose,
    describe_smoothing,
    memory_features,
)
from parallelrnn.forecast.frequency import Grid
from parallelrnn.forecast.local import LocalModels, run_local, weigh
from parallelrnn.forecast.model import EncodedWindows, Network
from parallelrnn.forecast.seasonality import fit_scaler
from parallelrnn.forecast.windows import CovariateScaler, SeriesScaler, WindowDataset
from parallelrnn.interpret.findings import Findings
from parallelrnn.nn import WaveDecoder

_DEFAULT_LEVELS = (95.0, 80.0)  # per cent
_SAME_QUANTILE = 1e-9
_VALIDATION_PART = 5  # a fifth of a series validates
_MOST_NOTICES = 3  # series that a notice names


@dataclass(frozen=True, kw_only=True)
class ForecasterState:
    """A fitted forecaster: everything needed to forecast, explain and save."""

    network: Network
    columns: Columns
    grid: Grid
    periods: tuple[float, ...]  # of the cycles that series are tested for
    named_cycles: bool  # whether the user named these
    covariates: CovariateScaler
    scalers: tuple[SeriesScaler, ...]  # of each series
    trained_until: tuple[int, ...]  # of each series, the position at which training ended
    recent: tuple[Series, ...]  # the end of each series, as long as the look-back
    calibration: Calibration  # of each series, and in its last row for new ones
    sample: EncodedWindows  # forecasts that training did not see, which explanations are based on
    sample_origins: NDArray[np.int64]  # (B, 2), the series of each and the position where it begins
    quantiles: tuple[float, ...] | None
    history: tuple[dict[str, float], ...]  # of the training
    findings: Findings | None = None  # what the series show, once it was looked for
    local: LocalModels | None = None
    positive: bool | None = None  # whether forecasts are kept from falling below zero; None if the series decides

    @property
    def horizon(self) -> int:
        """The steps of a forecast."""
        return self.network.config.horizon

    @property
    def median_index(self) -> int:
        """The index of the quantile that is the forecast."""
        return 0 if self.quantiles is None else self.quantiles.index(0.5)

    @cached_property
    def latest(self) -> WindowDataset:
        """The fitted series."""
        return self.dataset(self.recent)

    @cached_property
    def _index(self) -> dict[Any, int]:
        """The index of each fitted series, by its name."""
        return {series.name: index for index, series in enumerate(self.recent)}

    def dataset(self, series: Sequence[Series], future_exog: Sequence[Array] | None = None) -> WindowDataset:
        """Return series as the network sees them; `future_exog` (H, F) follows the last step of each."""
        config, rows = self.network.config, [self._index.get(single.name, -1) for single in series]
        new = [single for single, row in zip(series, rows, strict=True) if row < 0]
        floors, weights = self._weigh_new(new)
        fresh = iter(
            [
                fit_scaler(own, len(own), self.periods, self.named_cycles, floor)
                for own, floor in zip(new, floors, strict=True)
            ]
        )
        scalers = [self.scalers[row] if row >= 0 else next(fresh) for row in rows]
        dataset = WindowDataset(series, scalers, self.covariates, config.lookback, config.horizon, future_exog)
        if self.local is None or config.share == 1:
            return dataset
        return dataset.with_local(self._local_states(self.local, series, scalers, rows, weights))

    def _weigh_new(self, series: Sequence[Series]) -> tuple[Sequence[Array | None], Tensor | None]:
        """Return the floors of new series, and the weights of their local models (N, C, models)."""
        if self.local is None or not series:
            return [None] * len(series), None
        known = [len(own) - len(own) // _VALIDATION_PART for own in series]  # the rest may calibrate intervals
        floors, weights, _ = weigh(self.local.bank, series, known, self.local.logs, self.local.prior)
        return list(floors), weights

    def _local_states(
        self,
        local: LocalModels,
        series: Sequence[Series],
        scalers: Sequence[SeriesScaler],
        rows: Sequence[int],
        new: Tensor | None,
    ) -> list[Tensor]:
        """Return the states of local models after each step; of the fitted series, only the last ones are known."""
        if series is self.recent:
            return [state[None] for state in local.states]
        fresh = iter(() if new is None else new)
        weights = torch.stack([local.weights[row] if row >= 0 else next(fresh) for row in rows])
        tables, steps, first = [], [], []
        for row, own, scaler in zip(rows, series, scalers, strict=True):
            known = own if row < 0 else own.after(self.recent[row])
            # What models begin with may depend on what was known when they were fitted, not on later values.
            end = len(known) if row < 0 else self.recent[row].end - known.position
            tables.append(scaler.with_cycles(known))
            steps.append(end if local.bank.beginning(len(known)) <= end < len(known) else len(known))
            since = len(known) - recent_windows(self.horizon) if row < 0 else self.trained_until[row] - known.position
            first.append(max(0, min(since, len(known))))
        states = run_local(local.bank, tables, steps, weights, first)
        return [known[-len(own) :] for known, own in zip(states, series, strict=True)]

    def recalibrate(self, dataset: WindowDataset) -> Calibration:
        """Calibrate on forecasts of these series that training did not see; where there are few, as after training."""
        if self.quantiles is not None:  # which intervals come from
            return self.calibration
        first, index = [], [self._index.get(series.name, -1) for series in dataset.series]
        for row, series in zip(index, dataset.series, strict=True):
            full = max(1, min(dataset.lookback, len(series)))  # looks back as far as the window at the end
            first.append(max(full, (0 if row < 0 else self.trained_until[row]) - series.position))
        residuals = calibration_residuals(self.network, dataset, self.median_index, first)
        own = [number for number, each in enumerate(residuals) if are_enough(each)]
        parts = [self._fitted_calibration(index, dataset.series)]
        if own:
            parts.append(Calibration.of([residuals[number] for number in own], [True] * len(own)))
        order = list(range(len(index)))
        for place, number in enumerate(own):
            order[number] = len(index) + place
        return Calibration.cat(parts).rows(order)

    def _fitted_calibration(self, rows: Sequence[int], series: Sequence[Series]) -> Calibration:
        """Return the calibration of training, with changes as long ago as they are at the ends of newer series."""
        fitted = self.calibration.rows(rows)
        later = torch.tensor([own.end - self.recent[row].end for row, own in zip(rows, series, strict=True)])
        return replace(fitted, changed=torch.where(fitted.changed > 0, (fitted.changed + later).clamp(min=0), 0))

    def change_notices(self, series: Sequence[Series], calibration: Calibration) -> list[str]:
        """Say of which series errors have grown, and since when."""
        changed = [(own, n) for own, n in zip(series, calibration.changed.tolist(), strict=False) if n]
        if not changed or self.quantiles is not None:  # quantiles do not follow errors
            return []
        texts = []
        for own, n in changed[:_MOST_NOTICES]:
            stamp = self.grid.stamps(own.end - n, 1)[0]
            since = (
                stamp
                if isinstance(self.grid.freq, int)
                else f"{stamp:%Y-%m-%d}" + f"{stamp: %H:%M}" * (stamp != stamp.normalize())
            )
            texts.append(f"{own.name!r} since {since}" if len(series) > 1 else f"since {since}")
        more = ", ..." if len(changed) > _MOST_NOTICES else ""
        which = f"forecasts of {len(changed)} of {len(series)} series" if len(series) > 1 else "forecasts"
        return [
            f"Something may have changed: {which} have missed by more than before ({', '.join(texts)}{more}). "
            "Intervals are wider accordingly; findings also rest on the time before, and may no longer hold."
        ]

    @torch.no_grad()
    def forecast(
        self,
        dataset: WindowDataset,
        windows: Tensor,
        levels: Sequence[float] = (),
        calibration: Calibration | None = None,
    ) -> tuple[dict[str, Array], EncodedWindows]:
        """Return forecasts and limits by column, (N, H, C) in the units of each series, and what they come from.

        `calibration` is that of the series of `dataset`, by default of the fitted ones.
        """
        self.network.eval()
        encoded = [self.network.encode(batch) for batch in dataset.batches(windows)]
        scaled = order_quantiles(torch.cat([self.network.decode(part) for part in encoded]), self.median_index)
        values = scaled.double().numpy()  # (N, H, C, Q)
        origins, steps = dataset.origins(windows), np.arange(self.horizon)
        own = [dataset.scalers[index] for index in origins[:, 0]]
        for row, scaler in enumerate(own):
            offset = scaler.cycles_at(origins[row, 1] + steps) + scaler.mean
            values[row] = values[row] * scaler.scale[:, None] + offset[..., None]
        middle = values[..., self.median_index]

        def inverted(table: Array) -> Array:  # (N, H, C)
            return np.stack([scaler.invert(each) for scaler, each in zip(own, table, strict=True)])

        floor = self._floor(dataset, origins)
        columns = {"yhat": np.maximum(inverted(middle), floor)}
        round_outward = np.stack([scaler.integer_valued for scaler in own])[:, None] > 0
        for level in levels:
            if self.quantiles is None:
                quantile = (calibration or self.calibration).conformal_quantile(level).double().numpy()
                width = np.stack([quantile[i] * s.scale for i, s in zip(origins[:, 0], own, strict=True)])
                low = np.stack([scaler.lower(*each) for scaler, *each in zip(own, middle, width, strict=True)])
                high = inverted(middle + width)
            else:
                low, high = (inverted(values[..., _quantile_index(self.quantiles, level, sign)]) for sign in (-1, 1))
            columns[f"yhat-lo-{level:g}"] = np.maximum(np.where(round_outward, np.floor(low), low), floor)
            columns[f"yhat-hi-{level:g}"] = np.maximum(np.where(round_outward, np.ceil(high), high), floor)
        return columns, encoded[0] if len(encoded) == 1 else EncodedWindows.cat(encoded)

    def components(self, dataset: WindowDataset, windows: Tensor, encoded: EncodedWindows) -> Components:
        """Split forecasts into components, in the units of each series."""
        origins = dataset.origins(windows)
        parts = decompose(self.network, encoded, dataset.scalers, origins, self.median_index)
        return parts.limited(self._floor(dataset, origins))

    def _floor(self, dataset: WindowDataset, origins: NDArray[np.int64]) -> Array:
        """Return what forecasts do not fall below, (N, 1, C): zero for series that never did."""
        positive = self.positive
        is_limited = [
            dataset.scalers[index].non_negative * (dataset.series[index].values >= 0).all(axis=0)
            if positive is None
            else np.full(dataset.channels, float(positive))
            for index in origins[:, 0]
        ]
        return np.where(np.stack(is_limited)[:, None] > 0, 0.0, -np.inf)

    def explain(self, current: Components | None, table: Any, backend: Any) -> Explanation:
        """Explain forecasts by the sample; `current` are the components of the current ones, also in `table`."""
        origins, median = self.sample_origins, self.median_index
        sample = decompose(self.network, self.sample, self.scalers, origins, median, scaled=True)
        where = "the decomposition is exact"
        if not isinstance(self.network.decoder, WaveDecoder) and self.network.config.share:
            where = "a linear decoder has no modes"
        logs = sum(int((scaler.floor > 0).any()) for scaler in self.scalers)
        if logs:
            these = "the series is" if len(self.scalers) == 1 else f"{logs} of {len(self.scalers)} series are"
            where += f"; {these} read as logarithms, so that parts multiply"
        time = self.grid.step
        modes = sample.table(time, where, current)
        features = memory_features(self.network, time, self.local)
        notices = tuple(self.change_notices(self.recent, self.calibration))
        smoothing = ""
        if self.local is not None and self.network.config.share < 1:
            smoothing = describe_smoothing(self.local, self.scalers, 1 - self.network.config.share, time)
        return Explanation(modes, features, table, self.findings, notices, backend, smoothing)

    def default_levels(self) -> tuple[float, ...]:
        """Return the levels to show where the user gives none, as far as the data support them; the widest first."""
        if self.quantiles is not None:
            return tuple(reversed(_levels_of(self.quantiles)))
        return tuple(level for level in _DEFAULT_LEVELS if self.calibration.supports(level))

    def labels(self, dataset: WindowDataset) -> list[Any]:
        """Return what a user calls each channel of each series."""
        names = [series.name for series in dataset.series]
        return names if dataset.channels == 1 else [*self.columns.targets] * len(names)

    def rows(
        self, dataset: WindowDataset, windows: Tensor, columns: dict[str, Array], cutoff: bool = False
    ) -> dict[str, Any]:
        """Return columns (N, H, C) as columns of a table, with id, time and the last time before the forecast."""
        channels, labels = dataset.channels, self.labels(dataset)
        origins = dataset.origins(windows).repeat(channels, axis=0)
        positions = origins[:, 1].tolist()
        table: dict[str, Any] = {}
        if self.columns.id is not None or len(self.columns.targets) > 1:
            owners = channels * origins[:, 0] + np.arange(len(origins)) % channels
            table[self.columns.id or "unique_id"] = [labels[owner] for owner in owners.repeat(self.horizon)]
        stamps = {position: self.grid.stamps(position, self.horizon).to_numpy() for position in set(positions)}
        table[self.columns.time] = np.concatenate([stamps[position] for position in positions])
        if cutoff:
            before = {position: self.grid.stamps(position - 1, 1).to_numpy() for position in set(positions)}
            table["cutoff"] = np.concatenate([before[position].repeat(self.horizon) for position in positions])
        return table | {name: values.transpose(0, 2, 1).ravel() for name, values in columns.items()}

    def frame(self, rows: Sequence[dict[str, Any]], backend: Any) -> Any:
        """Return rows, one table below the other, as a table of the library `backend`."""
        joined: dict[str, Any] = {}
        for name, column in rows[0].items():
            parts = [part[name] for part in rows]
            joined[name] = [*chain(*parts)] if isinstance(column, list) else np.concatenate(parts)
        frame = nw.from_dict(joined, backend=backend)
        if self.columns.dates and frame.implementation.is_polars():
            frame = frame.with_columns(nw.col(*({self.columns.time, "cutoff"} & set(joined))).cast(nw.Date))
        return nw.to_native(frame)


def order_quantiles(forecast: Tensor, median_index: int) -> Tensor:
    """Move quantiles (..., Q) that cross away from the median, which is the forecast that components sum to."""
    if forecast.shape[-1] == 1:
        return forecast
    above = forecast[..., median_index:].cummax(-1).values
    below = forecast[..., : median_index + 1].flip(-1).cummin(-1).values.flip(-1)
    return torch.cat([below[..., :-1], above], -1)


def _quantile_index(quantiles: Sequence[float], level: float, sign: int) -> int:
    wanted = (1 + sign * level / 100) / 2
    distances = [abs(quantile - wanted) for quantile in quantiles]
    if min(distances) > _SAME_QUANTILE:
        levels = ", ".join(f"{level:g}" for level in _levels_of(quantiles)) or "none"
        raise ArgumentError(
            f"an interval of {level:g} % needs the quantile {wanted:g}, which was not trained",
            argument="level",
            expected=f"levels whose quantiles were trained ({levels})",
            got=level,
        )
    return int(np.argmin(distances))


def _levels_of(quantiles: Sequence[float]) -> list[float]:
    """Return the levels of which both quantiles were trained."""
    widths = {quantile: abs(2 * quantile - 1) for quantile in quantiles if quantile != 0.5}
    paired = [q for q in widths if any(abs(q + other - 1) < _SAME_QUANTILE for other in quantiles)]
    return sorted({round(100 * widths[quantile], 6) for quantile in paired})
