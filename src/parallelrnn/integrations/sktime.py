"""The forecaster in sktime: `pip install 'parallelrnn[sktime]'`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import InputError, MissingPackageError, TableError

try:
    import pandas as pd
    from sktime.forecasting.base import BaseForecaster

    from parallelrnn import Forecaster
except ModuleNotFoundError as error:
    hint = "pip install 'parallelrnn[sktime]'"
    problem = f"ParaForecaster needs {error.name}, which is not installed"
    raise MissingPackageError(problem, name=error.name, hint=hint) from error

if TYPE_CHECKING:
    from parallelrnn.forecast.decomposition import Explanation
    from parallelrnn.forecast.frequency import Grid

_MIN_LEVEL = 1.0  # per cent, of intervals around the median


class ParaForecaster(BaseForecaster):  # type: ignore[misc]
    """`parallelrnn.Forecaster` in sktime: forecasts that are sums of readable cycles, with conformal intervals.

    One model is fitted to all instances and columns of `y`; each is forecast from its own past alone. Columns of `X`
    are known ahead. `update` with `update_params=False` forecasts from newer data; else it fits again to all data. The
    fitted `forecaster_` explains and saves itself. All parameters but one are those of `parallelrnn.Forecaster`.

    Parameters
    ----------
    val_size
        Steps at the end of each series that decide when training stops and how wide intervals are; by default a
        fifth.

    Examples
    --------
    >>> from parallelrnn.integrations.sktime import ParaForecaster
    >>> from sktime.datasets import load_airline
    >>> forecaster = ParaForecaster(max_epochs=1).fit(load_airline(), fh=[1, 2, 3])
    >>> forecaster.predict().index.astype(str).tolist()
    ['1961-01', '1961-02', '1961-03']
    """

    _tags = {
        "authors": "The parallelrnn developers",
        "maintainers": "The parallelrnn developers",
        "python_dependencies": ["parallelrnn"],
        "capability:multivariate": True,
        "capability:exogenous": True,
        "capability:categorical_in_X": False,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:non_contiguous_X": False,
        "capability:unequal_length": True,
        "capability:update": True,
        "capability:random_state": True,
        "property:randomness": "derandomized",
        "requires-fh-in-fit": True,
        "X-y-must-have-same-index": True,
        "y_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
        "X_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
    }
    _config = {"remember_data": False}  # data are kept here, whatever sktime's default is

    def __init__(
        self,
        lookback: int | None = None,
        cell: str = "linear",
        decoder: str = "waves",
        block_size: int = 2,
        hidden_size: int = 64,
        num_layers: int = 1,
        num_waves: int = 8,
        num_decays: int = 4,
        prune: bool = True,
        gate: bool | None = None,
        dropout: float = 0.3,
        cycles: str | Sequence[float] | None = "calendar",
        normalize: str | None = "auto",
        segment: int | None = None,
        models: str = "auto",
        transform: str | None = "auto",
        positive: bool | None = None,
        loss: str = "mae",
        learning_rate: float = 5e-3,
        batch_size: int = 448,
        max_epochs: int = 5,
        patience: int = 3,
        epoch_steps: tuple[int, int] = (64, 1000),
        gradient_clip: float = 1.0,
        max_time: float | None = None,
        random_state: int = 0,
        accelerator: str = "cpu",
        devices: int = 1,
        precision: str = "32-true",
        progress: bool | None = False,
        val_size: int | None = None,
    ) -> None:
        for name, value in locals().copy().items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)
        super().__init__()
        self._y = self._X = None  # where sktime keeps data if its configuration says so

    def explain(self, X: pd.DataFrame | None = None) -> Explanation:
        """Return the cycles of forecasts, how the model remembers, and the components; with `X` as in `predict`."""
        self.check_is_fitted()
        ahead = self._ahead(self._check_X(X)) if X is not None or not self.forecaster_.future_covariates else None
        if not self._moved:
            return self.forecaster_.explain(ahead)
        known = ahead is not None or not self.forecaster_.future_covariates
        components = self.forecaster_.predict(self._seen(), futr_df=ahead, decompose=True) if known else None
        return replace(self.forecaster_.explain(), components=components)

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: Any) -> ParaForecaster:
        self._seen_y, self._seen_x, self._moved = y, X, False
        self._instances = _instances(y.index)
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "val_size"}
        if self.random_state is None:
            options["random_state"] = int(np.random.default_rng().integers(2**31))
        horizon = int(max(fh.to_relative(self.cutoff)))
        if horizon < 1:
            raise NotImplementedError(f"no in-sample forecasts: fh {list(fh)} lies before the end of y")
        known = [] if X is None else _names(X.columns)
        self.forecaster_ = Forecaster(horizon, future_covariates=known, **options)
        self.forecaster_.fit(self._seen(), _frequency(y.index), self.val_size)
        return self

    def _update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True) -> ParaForecaster:
        self._seen_y, self._seen_x = _joined(self._seen_y, y), _joined(self._seen_x, X)
        if update_params:
            return self._fit(self._seen_y, self._seen_x, self._fh)
        if self._instances is not None:  # known instances keep their place, which identifies them
            self._instances = self._instances.append(_instances(y.index)).unique()
        self._moved = True
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:
        wanted = [(column, "yhat") for column in range(self._seen_y.shape[1])]
        return self._forecast(fh, X, (), wanted).set_axis(self._seen_y.columns, axis=1)

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: Sequence[float]) -> pd.DataFrame:
        levels = {quantile: max(_MIN_LEVEL, abs(200 * quantile - 100)) for quantile in alpha if quantile != 0.5}
        names = {quantile: f"yhat-{'lo' if quantile < 0.5 else 'hi'}-{level:g}" for quantile, level in levels.items()}
        names[0.5] = "yhat"
        wanted = [(column, names[quantile]) for column in range(self._seen_y.shape[1]) for quantile in alpha]
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return self._forecast(fh, X, sorted(set(levels.values())), wanted).set_axis(columns, axis=1)

    def _forecast(
        self, fh: Any, X: pd.DataFrame | None, levels: Sequence[float], wanted: Sequence[tuple[int, str]]
    ) -> pd.DataFrame:
        """Return columns of forecasts, each of one column of `y`, with rows as `y` has them."""
        ahead, columns, grid = self._ahead(X), self._seen_y.shape[1], self.forecaster_.grid
        with _sktime_names():
            table = self.forecaster_.predict(self._seen() if self._moved else None, levels, ahead)
        horizon = self.forecaster_.horizon
        values = {name: table[name].to_numpy().reshape(-1, columns, horizon) for _, name in wanted}  # (I, C, H) each
        point = table["yhat"].to_numpy().reshape(-1, columns, horizon)
        positions = self._wanted(fh, grid)  # (I, steps)
        starts = grid.locate(pd.Index(table["ds"][::horizon]))[0].reshape(-1, columns, 1)
        steps = positions[:, None] - starts  # (I, C, steps): a series may end before others do
        if steps.min() < 0:
            raise NotImplementedError("no in-sample forecasts: fh lies before the end of y")
        further = self._continued(table, ahead, int(steps.max()) + 1) if steps.max() >= horizon else point

        def select(column: int, name: str) -> Any:  # beyond the horizon, intervals are as wide as at its end
            step = steps[:, column]
            inside = step.clip(max=horizon - 1)
            limit, median = (np.take_along_axis(part[:, column], inside, -1) for part in (values[name], point))
            beyond = np.take_along_axis(further[:, column], step, -1) + limit - median
            return np.where(step < horizon, limit, beyond).ravel()

        index = self._index(positions)
        return pd.DataFrame({at: select(column, name) for at, (column, name) in enumerate(wanted)}, index)

    def _continued(self, table: pd.DataFrame, ahead: pd.DataFrame | None, steps: int) -> NDArray[np.float64]:
        """Return forecasts (I, C, steps or more); beyond the horizon, earlier forecasts stand in for observations."""
        columns, horizon, grid = self._seen_y.shape[1], self.forecaster_.horizon, self.forecaster_.grid
        seen, tables = self._seen().dropna(subset="y"), [table]
        if ahead is not None:  # steps that no forecast is wanted of repeat the last that is known
            last = ahead.sort_values("ds", kind="stable").groupby("unique_id", sort=False).tail(1)
            end = int(grid.locate(pd.Index(last["ds"]))[0].max()) + 1
            more = [last.assign(ds=stamp) for stamp in grid.stamps(end, steps + horizon)]
            ahead = pd.concat([ahead, *more], ignore_index=True).drop_duplicates(["unique_id", "ds"])
        while horizon * len(tables) < steps:
            next_rows = tables[-1][["unique_id", "ds", "yhat"]].rename(columns={"yhat": "y"})
            if ahead is not None:
                next_rows = next_rows.merge(ahead, on=["unique_id", "ds"])
            seen = pd.concat([seen, next_rows], ignore_index=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # missing values were warned of before
                tables.append(self.forecaster_.predict(seen, (), ahead))
        return np.concatenate([part["yhat"].to_numpy().reshape(-1, columns, horizon) for part in tables], -1)

    def _wanted(self, fh: Any, grid: Grid) -> NDArray[np.int64]:
        """Return the positions to forecast, (instances, steps): after the end of each, or the times of `fh` for all."""
        index = self._seen_y.index
        count = 1 if self._instances is None else len(self._instances)
        if not fh.is_relative:
            return np.tile(grid.locate(_stamps(fh.to_absolute_index(self.cutoff)))[0], (count, 1))
        times = grid.locate(_stamps(index.get_level_values(-1)))[0]
        last = pd.Series(times).groupby(self._owner(index)).max().to_numpy()
        wanted: NDArray[np.int64] = last[:, None] + np.array(fh.to_relative(self.cutoff), dtype=np.int64)
        return wanted

    def _index(self, positions: NDArray[np.int64]) -> pd.Index:
        """Return the index of a table like `y`, at positions (instances, steps) of the grid."""
        index, grid = self._seen_y.index, self.forecaster_.grid
        rows = [grid.stamps(int(row.min()), int(np.ptp(row)) + 1) for row in positions]
        if np.ptp(positions[0]) + 1 != positions.shape[1]:
            rows = [stamps[row - row.min()] for stamps, row in zip(rows, positions, strict=True)]
        times = _like(rows[0].append(rows[1:]) if rows[1:] else rows[0], index.get_level_values(-1))
        if self._instances is None:
            return times.rename(index.name)
        owners = self._instances.repeat(positions.shape[1])
        levels = [owners.get_level_values(level) for level in range(owners.nlevels)]
        return pd.MultiIndex.from_arrays([*levels, times], names=index.names)

    def _seen(self) -> pd.DataFrame:
        """Return all data so far, as `Forecaster` reads them."""
        y, x = self._seen_y, self._seen_x
        return self._long(y.index, None if x is None else x.reindex(y.index), y)

    def _ahead(self, X: pd.DataFrame | None) -> pd.DataFrame | None:
        """Return what is known ahead, as `Forecaster` reads it."""
        if not self.forecaster_.future_covariates:
            return None
        if X is None:
            raise TableError(
                f"this forecaster was fitted with X ({', '.join(self.forecaster_.future_covariates)})",
                hint=f"give X for the {self.forecaster_.horizon} steps after the end of y",
            )
        known: Any = self._seen_x
        if set(X.columns) != set(known.columns):
            raise TableError(f"X has columns {list(X.columns)}, but was fitted with {list(known.columns)}")
        # Where the last values of y are missing, steps that were seen are ahead of it.
        both = _joined(known, X[known.columns])
        both = both[self._owner(both.index) >= 0]  # instances that y does not have
        return self._long(both.index, both, None)

    def _long(self, index: pd.Index, X: pd.DataFrame | None, y: pd.DataFrame | None) -> pd.DataFrame:
        """Return rows for each instance and column of `y`, in their order, under a name of their own."""
        columns, labels = self._seen_y.shape[1], self._labels()
        table = pd.DataFrame({"ds": _stamps(index.get_level_values(-1))})
        if X is not None:
            table = table.assign(**dict(zip(_names(X.columns), X.to_numpy().T, strict=True)))
        tables = []
        for at in range(columns):
            values = {} if y is None else {"y": y.iloc[:, at].to_numpy()}
            tables.append(table.assign(unique_id=self._owner(index) * columns + at, **values))
        long = pd.concat(tables).sort_values("unique_id", kind="stable", ignore_index=True)
        return long.assign(unique_id=long["unique_id"].map(dict(enumerate(labels))))

    def _owner(self, index: pd.Index) -> NDArray[np.int64]:
        """Return the index of the instance of each row."""
        if self._instances is None:
            return np.zeros(len(index), np.int64)
        return np.asarray(self._instances.get_indexer(index.droplevel(-1)))

    def _labels(self) -> list[str]:
        """Return the name of each instance and column in messages and explanations."""
        columns = [str(name) for name in self._seen_y.columns]
        if self._instances is None:
            return _distinct(columns)
        names = [", ".join(map(str, key if isinstance(key, tuple) else (key,))) for key in self._instances]
        return _distinct(names if len(columns) == 1 else [f"{name}, {column}" for name in names for column in columns])

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small models, for sktime's own checks."""
        small = {
            "lookback": 4,
            "hidden_size": 4,
            "num_waves": 2,
            "prune": False,
            "max_epochs": 1,
            "epoch_steps": (2, 2),
        }
        return [small, {**small, "cell": "gru", "segment": 2, "decoder": "linear", "random_state": 1}]


def _instances(index: pd.Index) -> pd.Index | None:
    """Return what tells series apart, in order of appearance."""
    return index.droplevel(-1).unique() if isinstance(index, pd.MultiIndex) else None


def _frequency(index: pd.Index) -> str | int | None:
    """Return the frequency as `Forecaster` takes it, where an index has one."""
    times = index.get_level_values(-1)
    if isinstance(times, pd.PeriodIndex):
        return str(pd.period_range(times[0], periods=3, freq=times.freq).to_timestamp().freqstr)
    if isinstance(times, pd.DatetimeIndex):
        return None if times.freq is None or times.tz is not None else str(times.freqstr)
    return 1


def _joined(before: pd.DataFrame | None, after: pd.DataFrame | None) -> Any:
    """Join rows; of those with the same index, the later ones win."""
    if before is None or after is None:
        return after if before is None else before
    both = pd.concat([before, after])
    return both[~both.index.duplicated(keep="last")]


def _stamps(times: pd.Index) -> pd.Index:
    """Return times as `Forecaster` takes them: days by the calendar of their zone, other times in UTC."""
    if isinstance(times, pd.PeriodIndex):
        return times.to_timestamp()
    if getattr(times, "tz", None) is None:
        return times
    return times.tz_localize(None) if _are_days(times) else times.tz_convert("UTC").tz_localize(None)


def _like(times: pd.Index, seen: pd.Index) -> pd.Index:
    """Return times as `y` has them."""
    if isinstance(seen, pd.PeriodIndex):
        return times.to_period(seen.freq)
    zone = getattr(seen, "tz", None)
    if zone is None:
        return times
    return times.tz_localize(zone) if _are_days(seen) else times.tz_localize("UTC").tz_convert(zone)


def _are_days(times: pd.DatetimeIndex) -> bool:
    return bool((times == times.normalize()).all())


@contextmanager
def _sktime_names() -> Iterator[None]:
    """Make errors name X, which the forecaster calls futr_df."""
    try:
        yield
    except InputError as error:
        raise type(error)(error.sentence(lambda name: "X" if name == "futr_df" else name)) from error


def _names(columns: pd.Index) -> list[str]:
    """Return names of covariates, none of which `Forecaster` uses for something else."""
    return _distinct([f"X {name}" if name in ("ds", "y", "unique_id") else str(name) for name in columns])


def _distinct(names: list[str]) -> list[str]:
    """Number names that appeared before, so that later ones change no name."""
    first = {name: at for at, name in reversed(list(enumerate(names)))}
    return [name if first[name] == at else f"{name} ({at})" for at, name in enumerate(names)]
