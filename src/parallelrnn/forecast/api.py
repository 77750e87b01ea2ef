"""Forecaster: tables in, forecasts with intervals out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw

from parallelrnn.errors import NotFittedError, TableError
from parallelrnn.forecast import store
from parallelrnn.forecast.ahead import read_ahead
from parallelrnn.forecast.answers import Question, answer, check_levels
from parallelrnn.forecast.data import as_frame, read_panel
from parallelrnn.forecast.decomposition import parts_of
from parallelrnn.forecast.explanation import Explanation, memory_of
from parallelrnn.forecast.fitted import Fitted, View
from parallelrnn.forecast.fitting import learn
from parallelrnn.forecast.frames import Forecast, forecast_frame
from parallelrnn.forecast.grid import Grid
from parallelrnn.forecast.options import Options
from parallelrnn.forecast.panel import Columns, Panel
from parallelrnn.forecast.plots import plot_forecast
from parallelrnn.forecast.report import write_page
from parallelrnn.nn import WaveDecoder
from parallelrnn.training.checkpoint import Checkpoint, fingerprint
from parallelrnn.training.distributed import is_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False)
class Forecaster(Options):
    """Forecasts of one series or many, by a recurrent network whose forecasts are sums of cycles.

    A series is its cycles of the calendar, fixed once and for all, and the rest. Recurrent blocks remember the last
    `lookback` steps of the rest; from what they hold, a wave decoder continues it as a sum of damped waves and decays.
    One network serves all series.

    Parameters
    ----------
    horizon
        Steps to forecast.
    lookback
        Steps that a forecast looks back; 336, or a quarter of the typical series if that is less.
    cell
        What remembers: "linear" blocks, whose memory can be read exactly; or "rnn", "lstm", "gru", or "brt", a
        Block-Recurrent Transformer.
    decoder
        "waves", or "linear": a free weight for each step ahead, which cannot be read.
    block_size, hidden_size, num_layers
        Of the blocks that remember.
    num_waves, num_decays, prune
        Of the decoder, at most; with `prune`, those that carry nothing are taken out after training.
    gate
        Whether memory is toned down before it sets the amplitudes: as a whole where it is of unusual size, and unit by
        unit by a gate that sees them all. Without, forecasts of the linear cell are linear in the window. By default
        where there are 5,000 windows to learn it from.
    cycles
        "calendar": those hours, days, weeks and years that stand out in the series and come round at least three times
        in what is learned from; a list of periods in steps, which are taken as they are; or None.
    normalize
        What is taken off each window and given back: its "mean", its "last" value, mean and deviation ("standard"), or
        nothing (None); "auto" is the last value where it is a much better forecast than the mean, which else it is.
    segment
        Steps that the cell reads at once; by default 1 for linear and rnn, about 24 for others.
    channels
        "independent": each target of a wide table is a series; "mixed": they are read and forecast together.
    past_covariates, future_covariates, static_covariates
        Names of columns. Past: known up to now. Future: known ahead, too; their effect is linear. Static: one value.
    quantiles
        Train on these quantiles and the median, and take intervals from them. None: one forecast, and conformal
        intervals.
    missing
        "interpolate": gaps are filled by straight lines, with a warning, and neither trained nor judged on; or "error".
    loss, learning_rate, batch_size, max_epochs, epoch_steps, patience, gradient_clip, dropout
        Of the training: "mae", "mse" or "huber"; steps by Adam, whose size falls from epoch to epoch; until the error
        on validation has not fallen for `patience` epochs. An epoch sees all windows once, but has no fewer and no more
        than `epoch_steps` steps.
    max_time
        Seconds after which training ends with the epoch.
    random_state
        Fixes all that is random; global generators are left alone.
    accelerator, devices, precision
        Of Lightning Fabric.
    progress
        Whether to show a progress bar; by default if there is a terminal.

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

    _fitted: Fitted | None = field(default=None, init=False, repr=False)
    _backend: Any = field(default="pandas", init=False, repr=False)

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
        """Learn from a table: long (id, time, target and covariates), or wide (time and several targets).

        A long table of one series needs no id. `freq` is a frequency of pandas, guessed if not given. The last
        `val_size` steps of each series, a fifth of it by default, tell when to stop and how wide intervals are. The
        state of the training is kept in the directory `checkpoint`, if given; with `resume` it goes on from there, else
        what an earlier training left there is forgotten.
        """
        panel = self.read(df, freq, id_col, time_col, target_col)
        kept = None
        if checkpoint is not None:
            kept = Checkpoint(Path(checkpoint), self._fingerprint(panel, val_size), resume)
        elif resume:
            raise ValueError("resume=True goes on with a training that was kept; say where: checkpoint=directory")
        self._fitted = learn(self, panel, val_size, kept)
        self._fitted.tell_of_short(panel.series, stacklevel=3)
        self._backend = as_frame(df).implementation.value
        return self

    def predict(self, df: Any = None, level: Sequence[float] = (), futr_df: Any = None, decompose: bool = False) -> Any:
        """Forecast the `horizon` steps after the series fitted, or after those of another table `df`.

        `level` asks for intervals, in per cent; `futr_df` holds the covariates that are known ahead (id, time and these
        columns); `decompose` adds the parts of which the forecast is the sum.
        """
        fitted, question = self._known(), Question(check_levels(level), decompose)
        view = self._view(df, futr_df)
        if df is not None:
            fitted.tell_of_short(view.series, stacklevel=3)
        calibration = view.calibration() if df is not None and question.levels else fitted.calibration
        backend = self._backend if df is None else as_frame(df).implementation
        return self._frame(answer(view, view.ends, question, calibration), fitted, backend)

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
        """Forecast the last `n_windows` windows of a table as if they were not known, beside what was observed.

        Windows are `step_size` steps apart, `horizon` by default. All are forecast by one model that saw what came
        before the first, or with `refit` each by one of its own. What this forecaster has learned stays as it is.
        Intervals are calibrated on forecasts that had come true before each window.
        """
        step = self.horizon if step_size is None else step_size
        if n_windows < 1 or step < 1:
            raise ValueError(f"n_windows and step_size have to be at least 1, got {n_windows} and {step}")
        panel = self.read(df, freq, id_col, time_col, target_col)
        shortest = min(panel.series, key=len)
        ends = [self.horizon + (n_windows - 1 - window) * step for window in range(n_windows)]
        if len(shortest) <= ends[0]:
            raise TableError(
                f"series {shortest.name!r} has {len(shortest)} steps, too few for {n_windows} windows of "
                f"{self.horizon} steps, {step} apart, and something to learn from before"
            )
        question = Question(check_levels(level), actual=panel.series)
        forecasts: list[Forecast] = []
        fitted: Fitted | None = None
        for left in ends:
            before = panel.without_last(left)
            if fitted is None or refit:
                fitted = learn(self, before, val_size)
            both = zip(before.series, panel.series, strict=True)
            view = fitted.view(before.series, [one.future[len(seen) :][: self.horizon] for seen, one in both])
            forecasts += answer(
                view, view.ends, question, view.calibration() if question.levels else fitted.calibration
            )
        assert fitted is not None
        return self._frame(forecasts, fitted, as_frame(df).implementation)

    def explain(self, futr_df: Any = None) -> Explanation:
        """The cycles of the forecasts with their shares, what remembers them, and the parts of the forecast at hand.

        Where covariates are known ahead, the forecast at hand needs them: `futr_df`, as in `predict`.
        """
        fitted = self._known()
        at_hand = not fitted.columns.future or futr_df is not None
        view = self._view(None, futr_df) if at_hand else None
        profiles = [fitted.profiles[one.name] for one in fitted.recent]
        sampled = parts_of(fitted.network, fitted.sample, profiles, fitted.middle, scaled=True)
        time = fitted.grid.step
        where = "exact: forecasts are made of them"
        if not isinstance(fitted.network.decoder, WaveDecoder):
            where = "those of the calendar alone: a linear decoder has no modes"
        modes = sampled.table(time, where, None if view is None else view.parts(view.ends))
        components = self.predict(futr_df=futr_df, decompose=True) if at_hand else None
        return Explanation(modes, memory_of(fitted.network, time), components)

    def plot(
        self, name: Any = None, level: Sequence[float] | None = None, ax: Axes | None = None, futr_df: Any = None
    ) -> Axes:
        """The forecast of one series, the first if none is named, beside its end, by matplotlib.

        Its intervals are those of 80 and 95 per cent where there are data for them, unless `level` asks for others.
        """
        return plot_forecast(self._view(None, futr_df), name, level, ax)

    def report(self, path: str | Path, title: str = "What this forecast is made of", futr_df: Any = None) -> Path:
        """Write a page about the forecast and its cycles, for a browser; give back its path."""
        if not is_first():
            return Path(path)
        return write_page(path, self._view(None, futr_df), self.explain(futr_df), title)

    def save(self, path: str | Path) -> Path:
        """Write what was learned into a directory, as JSON and safetensors; of several processes, by the first."""
        fitted = self._known()
        if not is_first():
            return Path(path)
        return store.save(path, self.arguments(), str(self._backend), fitted)

    @classmethod
    def load(cls, path: str | Path) -> Forecaster:
        """A forecaster from a directory that `save` wrote."""
        options, backend, fitted = store.load(path)
        forecaster = cls(**options.arguments())
        forecaster._fitted, forecaster._backend = fitted, backend
        return forecaster

    def _fingerprint(self, panel: Panel, val_size: int | None) -> str:
        """Of a training."""
        told = {name: value for name, value in self.arguments().items() if name not in ("progress", "max_time")}
        series = [(one.name, one.position) for one in panel.series]
        tables = [(one.values, one.observed, one.past, one.future, one.static) for one in panel.series]
        return fingerprint([told, val_size, panel.grid, series], itertools.chain.from_iterable(tables))

    def _view(self, df: Any, futr_df: Any) -> View:
        """The series that were fitted, or those of another table, with what is known ahead of them."""
        fitted = self._known()
        series = fitted.recent if df is None else self._read(df, fitted).series
        if fitted.columns.future:
            return fitted.view(series, read_ahead(futr_df, series, fitted.columns, fitted.grid, self.horizon))
        if futr_df is not None:
            raise TableError("futr_df holds covariates known ahead, and this forecaster was told of none")
        return fitted.latest if df is None else fitted.view(series)

    def _frame(self, forecasts: Sequence[Forecast], fitted: Fitted, backend: Any) -> Any:
        return forecast_frame(forecasts, fitted.columns, fitted.grid, backend)

    @property
    def frequency(self) -> str | int:
        """Of the series that were fitted, as pandas calls it."""
        return self._known().grid.freq

    @property
    def grid(self) -> Grid:
        """The time stamps of the series that were fitted, numbered."""
        return self._known().grid

    @property
    def columns(self) -> Columns:
        """Which column is what in the table that was fitted."""
        return self._known().columns

    def read(
        self,
        df: Any,
        freq: str | int | None = None,
        id_col: str = "unique_id",
        time_col: str = "ds",
        target_col: str | Sequence[str] = "y",
    ) -> Panel:
        """A table as `fit` reads it."""
        columns = self._columns(df, id_col, time_col, target_col)
        panel = read_panel(df, columns, freq=freq, missing=self.missing, mixed=self.channels == "mixed")
        panel.warn()
        return panel

    def _read(self, df: Any, fitted: Fitted) -> Panel:
        """Another table of the same kind as the one that was fitted."""
        mixed = self.channels == "mixed"
        panel = read_panel(df, fitted.columns, grid=fitted.grid, missing=self.missing, mixed=mixed)
        panel.warn()
        return panel

    def _known(self) -> Fitted:
        if self._fitted is None:
            raise NotFittedError("this forecaster has learned nothing yet; call fit(df), or Forecaster.load(path)")
        return self._fitted

    def _columns(self, df: Any, id_col: str, time_col: str, target_col: str | Sequence[str]) -> Columns:
        targets = (target_col,) if isinstance(target_col, str) else tuple(target_col)
        frame = as_frame(df)
        names = frame.columns
        has_ids = id_col in names or id_col != "unique_id"
        if has_ids and len(targets) > 1:
            raise TableError(
                f"the table has ids ({id_col!r}) and several targets; make it long, with one target column and a row "
                "for each id, target and time, or wide, without ids"
            )
        if self.channels == "mixed" and len(targets) == 1:
            raise TableError("channels='mixed' is for several targets; name them all: target_col=[...]")
        return Columns(
            id_col if has_ids else None,
            time_col,
            targets,
            tuple(self.past_covariates),
            tuple(self.future_covariates),
            tuple(self.static_covariates),
            time_col in names and frame.schema[time_col] == nw.Date,
        )
