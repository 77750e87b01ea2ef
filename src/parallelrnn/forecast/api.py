"""Forecaster: tables in, forecasts with intervals out."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from parallelrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    NotFittedError,
    TableError,
    check_choice,
    check_integer,
    check_number,
)
from parallelrnn.forecast.conformal import Calibration
from parallelrnn.forecast.data import (
    Array,
    Columns,
    Panel,
    Series,
    as_frame,
    read_future_exog,
    read_panel,
    warn_short_series,
    warn_user,
)
from parallelrnn.forecast.decomposition import Explanation
from parallelrnn.forecast.findings import read_findings
from parallelrnn.forecast.fitting import fit_panel
from parallelrnn.forecast.frequency import Grid
from parallelrnn.forecast.missing import MISSING, fill_incomplete
from parallelrnn.forecast.model import DECODERS, NORMALIZATIONS, EncodedWindows
from parallelrnn.forecast.report import plot_forecast, write_page
from parallelrnn.forecast.saving import load, save
from parallelrnn.forecast.seasonality import calendar_periods
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.forecast.windows import WindowDataset
from parallelrnn.nn.encoder import CELLS, check_block_size
from parallelrnn.training.checkpoint import Checkpoint, fingerprint
from parallelrnn.training.distributed import is_first
from parallelrnn.training.losses import LOSSES
from parallelrnn.training.trainer import TrainerConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHANNELS = ("independent", "mixed")
MODELS = ("auto", "both", "local", "network")
TRANSFORMS = ("auto", "log", None)
_SIZES = ("block_size", "hidden_size", "num_layers", "batch_size", "max_epochs", "devices")
_MINIMUM = {  # of integers
    **dict.fromkeys(("horizon", "lookback", "segment", *_SIZES), 1),
    **dict.fromkeys(("num_waves", "num_decays", "patience", "random_state"), 0),
}
_TRAINING = ["learning_rate", "batch_size", "max_epochs", "patience", "epoch_steps", "gradient_clip", "max_time"]
_CHOICES = {
    "cell": CELLS,
    "decoder": DECODERS,
    "normalize": ("auto", *NORMALIZATIONS),
    "channels": CHANNELS,
    "missing": MISSING,
    "loss": LOSSES,
    "models": MODELS,
    "transform": TRANSFORMS,
}


@dataclass(eq=False)
class Forecaster:
    """Forecasts one series or many by recurrent blocks whose forecasts are sums of levels, trends, seasons and cycles.

    Local models smooth each series by itself: level, trend and season are linear blocks with fixed coefficients, which
    are weighed by how well they forecast the series, and the panel. A network that serves all series adds what it
    learns from many of them, or from long ones: calendar cycles, which are fixed, and the rest, of which recurrent
    blocks remember the last `lookback` steps, and which a wave decoder continues as a sum of damped waves and decays.
    Validation decides how much of a forecast comes from which.

    Parameters
    ----------
    horizon
        Steps to forecast.
    lookback
        Steps that the network looks back; by default 336, or if that is less, a quarter of the typical series or three
        seasons.
    cell
        What remembers: "linear" blocks, whose memory can be read exactly; or "rnn", "lstm", "gru", or "brt", a
        Block-Recurrent Transformer.
    decoder
        "waves", or "linear": a free weight for each step ahead, which cannot be read.
    block_size, hidden_size, num_layers
        Sizes of the recurrent blocks.
    num_waves, num_decays, prune
        The most waves and decays of the decoder; with `prune`, those that contribute nothing are removed after
        training.
    gate
        Whether half of the memory is scaled down before it sets the amplitudes: as a whole where it is unusually large,
        and unit by unit by a gate that sees all of them. With cells "linear" and "rnn" this half is that of fast waves.
        Without a gate, forecasts of the linear cell are linear in the window, but for its scale. By default, there is a
        gate for series of 500 steps or more with at least 5,000 windows.
    cycles
        "calendar": those hours, days, weeks and years that stand out in the series and occur at least three times in
        the training set; a list of periods in steps, which are taken as they are; or None.
    normalize
        What is taken off each window and given back: its "mean", its mean and deviation ("standard"), the midpoint of
        its mean and its last value, and its deviation ("middle"), its "last" value, or nothing (None). "auto" is
        "middle" for series of 500 steps or more, else "standard".
    segment
        Steps that the cell reads at once; by default 1 for linear and rnn, about 24 for others.
    channels
        "independent": each target of a wide table is a series; "mixed": they are read and forecast together.
    past_covariates, future_covariates, static_covariates
        Names of columns. Past: known up to now. Future: also known ahead, with a linear effect. Static: one value for
        each series.
    quantiles
        Train on these quantiles and the median, and take intervals from them. None: one forecast, with conformal
        intervals.
    models
        "auto": local models, and a network where there are long series or many windows to learn from, and not months or
        quarters alone, whose seasons local models know, of fewer than 1,000 steps in all; "local", "network" or "both".
        With quantiles or future covariates, the network forecasts alone.
    transform
        "log": positive series are read as logarithms, so that trends and seasons are percentages and forecasts stay
        positive; None: as they are. "auto": what forecasts each series better. Only with local models.
    positive
        Whether forecasts and intervals are kept from falling below zero; by default, of series that never did. Limits
        of intervals of series of whole numbers are whole, too.
    missing
        "interpolate": gaps are filled by linear interpolation, with a warning, and do not count in training or
        validation; nor does a last value so low that its period cannot have been over. Or "error": gaps are rejected,
        and the last value is taken as it is.
    loss, learning_rate, batch_size, max_epochs, epoch_steps, patience, gradient_clip, dropout
        The training: "mae", "mse" or "huber"; Adam, with a learning rate that falls from epoch to epoch; until the
        validation loss has not improved for `patience` epochs. An epoch sees all windows once, but has no fewer and no
        more steps than `epoch_steps` says.
    max_time
        Seconds after which training ends with the current epoch.
    random_state
        Seed of everything random; global generators are left alone.
    accelerator, devices, precision
        As in Lightning Fabric.
    progress
        Whether to show a progress bar; by default in a terminal.

    Examples
    --------
    >>> import math
    >>> import pandas as pd
    >>> hours = pd.date_range("2024-01-01", periods=300, freq="h")
    >>> df = pd.DataFrame({"ds": hours, "y": [math.sin(t * math.pi / 12) for t in range(300)]})
    >>> forecaster = Forecaster(horizon=24, max_epochs=1).fit(df)  # also unique_id, where there are several series
    >>> list(forecaster.predict(level=[80]))
    ['ds', 'yhat', 'yhat-lo-80', 'yhat-hi-80']
    >>> round(forecaster.explain().modes[0].period)
    24
    """

    horizon: int
    lookback: int | None = None
    _: KW_ONLY
    cell: str = "linear"
    decoder: str = "waves"
    block_size: int = 2
    hidden_size: int = 64
    num_layers: int = 1
    num_waves: int = 8
    num_decays: int = 4
    prune: bool = True
    gate: bool | None = None
    dropout: float = 0.3
    cycles: str | Sequence[float] | None = "calendar"
    normalize: str | None = "auto"
    segment: int | None = None
    channels: str = "independent"
    past_covariates: Sequence[str] = ()
    future_covariates: Sequence[str] = ()
    static_covariates: Sequence[str] = ()
    quantiles: Sequence[float] | None = None
    models: str = "auto"
    transform: str | None = "auto"
    positive: bool | None = None
    missing: str = "interpolate"
    loss: str = "mae"
    learning_rate: float = 5e-3
    batch_size: int = 448
    max_epochs: int = 5
    patience: int = 3
    epoch_steps: tuple[int, int] = (64, 1000)
    gradient_clip: float = 1.0
    max_time: float | None = None
    random_state: int = 0
    accelerator: str = "cpu"
    devices: int = 1
    precision: str = "32-true"
    progress: bool | None = None
    _state: ForecasterState | None = field(default=None, init=False, repr=False)
    _backend: Any = field(default="pandas", init=False, repr=False)
    _fitted_series: tuple[Series, ...] = field(default=(), init=False, repr=False)  # until findings are read from them

    def __post_init__(self) -> None:
        for name, minimum in _MINIMUM.items():
            if not (name in ("lookback", "segment") and getattr(self, name) is None):
                setattr(self, name, check_integer(name, getattr(self, name), minimum))
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        check_block_size(self.hidden_size, self.block_size)
        check_number("dropout", self.dropout, "a number of at least 0 and below 1", lambda rate: 0 <= rate < 1)
        self.epoch_steps = self.trainer_config().epoch_steps
        if self.cycles is not None and self.cycles != "calendar":
            cycles = (self.cycles,) if isinstance(self.cycles, str | Real) else tuple(self.cycles)
            if not all(isinstance(period, Real) and 2 <= period < math.inf for period in cycles):
                expected = "'calendar', periods of at least 2 steps, or None"
                raise ArgumentError(argument="cycles", expected=expected, got=self.cycles)
            self.cycles = tuple(map(float, cycles))
        if self.quantiles is not None:
            quantiles = {float(quantile) for quantile in self.quantiles}
            if not quantiles or not all(0 < quantile < 1 for quantile in quantiles):
                raise ArgumentError(argument="quantiles", expected="numbers between 0 and 1", got=self.quantiles)
            self.quantiles = tuple(sorted(quantiles | {0.5}))  # the forecast itself
        if self.models != "auto" or self.transform == "log":
            self._check_models()
        if self.positive is not None and not isinstance(self.positive, bool):
            raise ArgumentError(argument="positive", expected="True, False or None", got=self.positive)
        for name in ("past_covariates", "future_covariates", "static_covariates"):
            names = getattr(self, name)
            if isinstance(names, str):
                raise ArgumentTypeError(argument=name, expected="a list of column names", got=names)
            setattr(self, name, tuple(names))

    def _check_models(self) -> None:
        """Raise if local models, or logarithms, are asked for where the network forecasts alone."""
        alone = "{quantiles}" if self.quantiles is not None else "{future_covariates}" if self.future_covariates else ""
        if self.models in ("local", "both") and alone:
            problem = "local models have no quantiles and take no future covariates"
            raise ArgumentError(problem, argument="models", got=self.models, hint=f"leave out {alone}, or {{models}}")
        if self.transform == "log" and (alone or self.models == "network"):
            raise ArgumentError("only local models read logarithms", argument="transform", got="log")

    def arguments(self) -> dict[str, Any]:
        """Return all arguments by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}

    def trainer_config(self) -> TrainerConfig:
        """Return how to train."""
        return TrainerConfig(**{name: getattr(self, name) for name in _TRAINING})

    def fit(
        self,
        df: Any,
        freq: str | int | None = None,
        val_size: int | None = None,
        *,
        id_col: str = "unique_id",
        time_col: str = "ds",
        target_col: str | Sequence[str] = "y",
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Forecaster:
        """Fit a table: long (id, time, target and covariates), or wide (time and several targets).

        A long table of one series needs no id. `freq` is a pandas frequency, inferred if None. The last `val_size`
        steps of each series, a fifth of it by default, decide when training stops and how wide intervals are. With
        `checkpoint`, training saves its state in this directory after each epoch; with `resume` it continues from
        there, else it deletes what an earlier training left.
        """
        panel = self.without_incomplete(self.read(df, freq, id_col, time_col, target_col))
        directory = None
        if checkpoint is not None:
            digest = self._fingerprint(panel, val_size)
            directory = Checkpoint(directory=Path(checkpoint), fingerprint=digest, resume=resume)
        elif resume:
            raise ArgumentError("there is no checkpoint to resume from", argument="resume", hint="give {checkpoint}")
        self._state, self._fitted_series = fit_panel(self, panel, val_size, directory), panel.series
        warn_short_series(panel.series)
        _warn_of_changes(self._state, panel.series, self._state.calibration)
        self._backend = as_frame(df).implementation.value
        return self

    def predict(self, df: Any = None, level: Sequence[float] = (), futr_df: Any = None, decompose: bool = False) -> Any:
        """Forecast the `horizon` steps after the fitted series, or after those of another table `df`.

        `level` asks for intervals, in per cent; `futr_df` holds the covariates that are known ahead (id, time and these
        columns); `decompose` adds the components that sum to the forecast.
        """
        state, levels, dataset = self._fitted(), check_levels(level), self._dataset(df, futr_df)
        calibration, backend = None, self._backend
        if df is not None:
            warn_short_series(dataset.series)
            calibration, backend = state.recalibrate(dataset) if levels else None, as_frame(df).implementation
            if calibration is not None:
                _warn_of_changes(state, dataset.series, calibration)
        columns, encoded = state.forecast(dataset, dataset.last, levels, calibration)
        if decompose:
            columns |= state.components(dataset, dataset.last, encoded).columns(state.grid.step)
        return state.frame([state.rows(dataset, dataset.last, columns)], backend)

    def cross_validation(
        self,
        df: Any,
        n_windows: int = 1,
        step_size: int | None = None,
        refit: bool = False,
        *,
        level: Sequence[float] = (),
        freq: str | int | None = None,
        val_size: int | None = None,
        id_col: str = "unique_id",
        time_col: str = "ds",
        target_col: str | Sequence[str] = "y",
    ) -> Any:
        """Forecast the last `n_windows` windows of a table as if they were not known, next to what was observed.

        Windows are `step_size` steps apart, `horizon` by default. One model, fitted on the data before the first
        window, forecasts all of them, or with `refit` each has its own. This forecaster keeps what it has learned.
        Intervals are calibrated on residuals known before each window.
        """
        step = self.horizon if step_size is None else check_integer("step_size", step_size, 1)
        check_integer("n_windows", n_windows, 1)
        levels = check_levels(level)
        panel = self.read(df, freq, id_col, time_col, target_col)
        shortest = min(panel.series, key=len)
        longest = self.horizon + (n_windows - 1) * step
        if len(shortest) <= longest:
            windows = f"{n_windows} windows of {self.horizon} steps, {step} apart, after a training part"
            problem = f"series {shortest.name!r} has {len(shortest)} steps, too few for {windows}"
            raise TableError(problem, hint="give longer series, or a smaller {n_windows} or {step_size}")
        rows: list[dict[str, Any]] = []
        state: ForecasterState | None = None
        for hidden in range(longest, self.horizon - 1, -step):
            before = self.without_incomplete(panel.without_last(hidden))
            if state is None or refit:
                state = fit_panel(self, before, val_size)
            pairs = list(zip(before.series, panel.series, strict=True))
            exog = [full.future[len(seen) :][: self.horizon] for seen, full in pairs]
            dataset = state.dataset(before.series, exog)
            calibration = state.recalibrate(dataset) if levels else None
            columns, _ = state.forecast(dataset, dataset.last, levels, calibration)
            actual = np.stack([_observed(full, len(seen), self.horizon) for seen, full in pairs])
            rows.append(state.rows(dataset, dataset.last, {"y": actual} | columns, cutoff=True))
        assert state is not None
        return state.frame(rows, as_frame(df).implementation)

    def explain(self, futr_df: Any = None) -> Explanation:
        """Return what the data show, the parts of forecasts, how the model remembers, and the current components.

        Where covariates are known ahead, the components of the current forecast need `futr_df`, as in `predict`.
        """
        state = self._read()
        if state.columns.future and futr_df is None:
            return state.explain(None, None, self._backend)
        dataset = self._dataset(None, futr_df)
        return self._explanation(dataset, *state.forecast(dataset, dataset.last))

    def plot(
        self, name: Any = None, level: Sequence[float] | None = None, ax: Axes | None = None, futr_df: Any = None
    ) -> Axes:
        """Plot the forecast of one series, by default the first, after its recent values, with matplotlib.

        Intervals have levels of 80 and 95 per cent where the data support them, unless `level` asks for others.
        """
        state, dataset = self._fitted(), self._dataset(None, futr_df)
        levels = state.default_levels() if level is None else tuple(sorted(check_levels(level), reverse=True))
        return plot_forecast(state, dataset, name, levels, ax)

    def report(self, path: str | Path, title: str = "What this forecast is made of", futr_df: Any = None) -> Path:
        """Write an HTML page about the forecast and what the data show, and return its path."""
        state, dataset = self._read(), self._dataset(None, futr_df)
        if not is_first():
            return Path(path)
        levels = state.default_levels()
        columns, encoded = state.forecast(dataset, dataset.last, levels)
        explanation = self._explanation(dataset, columns, encoded)
        return write_page(path, state, dataset, columns, levels, explanation, title)

    def save(self, path: str | Path) -> Path:
        """Write what was learned to a directory; of several processes, only the first writes."""
        state = self._read()
        return save(path, self, state, str(self._backend)) if is_first() else Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Forecaster:
        """Return a forecaster that `save` wrote."""
        forecaster, state, backend = load(path, cls)
        forecaster._state, forecaster._backend = state, backend
        return forecaster

    def read(
        self,
        df: Any,
        freq: str | int | None = None,
        id_col: str = "unique_id",
        time_col: str = "ds",
        target_col: str | Sequence[str] = "y",
    ) -> Panel:
        """Return a table as `fit` reads it."""
        targets = (target_col,) if isinstance(target_col, str) else tuple(target_col)
        frame = as_frame(df)
        has_ids = id_col in frame.columns or id_col != "unique_id"
        if has_ids and len(targets) > 1:
            hint = "make it long, with one target column, or wide, without ids"
            raise TableError(f"the table has ids ({id_col!r}) and several targets", hint=hint)
        if self.channels == "mixed" and len(targets) == 1:
            raise TableError("channels='mixed' needs several targets", hint="name them all with {target_col}")
        columns = Columns(
            id=id_col if has_ids else None,
            time=time_col,
            targets=targets,
            past=tuple(self.past_covariates),
            future=tuple(self.future_covariates),
            static=tuple(self.static_covariates),
            dates=time_col in frame.columns and frame.schema[time_col] == nw.Date,
        )
        return self._panel(df, columns, freq=freq)

    @property
    def frequency(self) -> str | int:
        """The frequency of the fitted series, as pandas calls it."""
        return self._fitted().grid.freq

    @property
    def grid(self) -> Grid:
        """The timestamps of the fitted series, numbered."""
        return self._fitted().grid

    @property
    def columns(self) -> Columns:
        """The roles of columns in the fitted table."""
        return self._fitted().columns

    def _panel(self, df: Any, columns: Columns, **more: Any) -> Panel:
        panel = read_panel(df, columns, missing=self.missing, mixed=self.channels == "mixed", **more)
        for note in panel.notes:
            warn_user(note)
        return panel

    def without_incomplete(self, panel: Panel) -> Panel:
        """Return a panel in which last values of incomplete periods count as missing."""
        if self.missing == "error":
            return panel
        series, note = fill_incomplete(panel.series, [round(period) for period in calendar_periods(panel.grid.step)])
        if note:
            warn_user(note)
        return dataclasses.replace(panel, series=series)

    def _dataset(self, df: Any, futr_df: Any) -> WindowDataset:
        """Return the fitted series, or those of another table, with covariates known ahead."""
        state = self._fitted()
        series: Sequence[Series] = state.recent
        if df is not None:
            series = self.without_incomplete(self._panel(df, state.columns, grid=state.grid)).series
        if state.columns.future:
            return state.dataset(series, read_future_exog(futr_df, series, state.columns, state.grid, self.horizon))
        if futr_df is not None:
            raise TableError("this forecaster was fitted without future covariates", hint="leave out {futr_df}")
        return state.latest if df is None else state.dataset(series)

    def _explanation(self, dataset: WindowDataset, columns: dict[str, Array], encoded: EncodedWindows) -> Explanation:
        """Explain the current forecasts, the columns and encoded windows of `ForecasterState.forecast`."""
        state = self._fitted()
        components = state.components(dataset, dataset.last, encoded)
        columns = {"yhat": columns["yhat"]} | components.columns(state.grid.step)
        table = state.frame([state.rows(dataset, dataset.last, columns)], self._backend)
        return state.explain(components, table, self._backend)

    def _fingerprint(self, panel: Panel, val_size: int | None) -> str:
        """Return a fingerprint of all that decides how training goes."""
        arguments = {name: value for name, value in self.arguments().items() if name not in ("progress", "max_time")}
        names = [(series.name, series.position) for series in panel.series]
        tables = [(s.values, s.observed, s.past, s.future, s.static) for s in panel.series]
        return fingerprint([arguments, val_size, panel.grid, names], itertools.chain.from_iterable(tables))

    def _read(self) -> ForecasterState:
        """Return the fitted state with its findings, which are looked for when they are first needed."""
        state = self._fitted()
        if self._fitted_series:
            findings = read_findings(state, self._fitted_series)
            self._state, self._fitted_series = dataclasses.replace(state, findings=findings), ()
        return self._fitted()

    def _fitted(self) -> ForecasterState:
        if self._state is None:
            raise NotFittedError("this forecaster is not fitted", code="call fit(df), or Forecaster.load(path)")
        return self._state


def _warn_of_changes(state: ForecasterState, series: Sequence[Series], calibration: Calibration) -> None:
    for notice in state.change_notices(series, calibration):
        warn_user(notice)


def check_levels(levels: Any) -> tuple[float, ...]:
    """Return the levels of intervals in percent."""
    for level in (levels := (levels,) if isinstance(levels, Real | str) else tuple(levels)):
        if isinstance(level, bool) or not isinstance(level, Real) or not 1 <= float(level) < 100:
            raise ArgumentError(argument="level", expected="a percentage of at least 1 and below 100", got=level)
    return tuple(map(float, levels))


def _observed(series: Series, start: int, horizon: int) -> Array:
    """Return the observed values (H, C) from a step on, NaN where there are none."""
    values = np.full((horizon, series.values.shape[1]), np.nan)
    rows = slice(start, start + horizon)
    observed = np.where(series.observed[rows], series.values[rows], np.nan)
    values[: len(observed)] = observed
    return values
