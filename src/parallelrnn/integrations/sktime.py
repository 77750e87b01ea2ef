"""The forecaster as one of sktime: `pip install 'parallelrnn[sktime]'`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.estimators import Forecaster

try:
    from sktime.forecasting.base import BaseForecaster
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "sktime":
        raise
    raise ModuleNotFoundError(
        "ParaForecaster needs sktime, which is not installed: pip install 'parallelrnn[sktime]'", name="sktime"
    ) from error

if TYPE_CHECKING:
    from parallelrnn.estimators.forecasting.explanation import Explanation
    from parallelrnn.estimators.forecasting.grid import Grid

_NARROWEST = 1.0  # per cent, of intervals around the median


class ParaForecaster(BaseForecaster):  # type: ignore[misc]
    """`parallelrnn.Forecaster` in sktime: forecasts that are sums of readable cycles, with conformal intervals.

    One model is fitted to all instances and columns of `y`; each is forecast from itself alone. Columns of `X` are
    known ahead. `update` without parameters goes on from newer data; with them, it fits anew to all that was seen. What
    was learned is in `forecaster_`, which explains and saves itself.

    Parameters
    ----------
    val_size
        Steps at the end of each series that tell when to stop and how wide intervals are; a fifth by default.
    others
        As `parallelrnn.Forecaster` has them.

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
    _config = {"remember_data": False}  # what was seen is kept here, whatever sktime's default is

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
        loss: str = "mae",
        learning_rate: float = 5e-3,
        batch_size: int = 448,
        max_epochs: int = 10,
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
        self._y = self._X = None  # where sktime keeps data if it is told to by its configuration

    def explain(self, X: pd.DataFrame | None = None) -> Explanation:
        """The cycles of the forecasts, what remembers them, and the parts of the forecast; with `X` as in `predict`."""
        self.check_is_fitted()
        ahead = self._ahead(self._check_X(X)) if X is not None or not self.forecaster_.future_covariates else None
        if not self._moved:
            return self.forecaster_.explain(ahead)
        known = ahead is not None or not self.forecaster_.future_covariates
        parts = self.forecaster_.predict(self._seen(), futr_df=ahead, decompose=True) if known else None
        return replace(self.forecaster_.explain(), components=parts)

    def _fit(self, y: pd.DataFrame, X: pd.DataFrame | None, fh: Any) -> ParaForecaster:
        self._seen_y, self._seen_x, self._moved = y, X, False
        self._instances = _instances(y.index)
        options = {name: value for name, value in self.get_params(deep=False).items() if name != "val_size"}
        known = [] if X is None else _names(X.columns)
        table, freq = self._seen(), _frequency(y.index)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is missing is told below
            panel = Forecaster(1, future_covariates=known).read(table, freq)
        ends = np.array([one.end for one in panel.series])
        horizon = int((self._wanted(fh, panel.grid).repeat(y.shape[1], 0) - ends[:, None]).max()) + 1
        if horizon < 1:
            raise NotImplementedError(f"in-sample forecasts are not made, and fh {list(fh)} lies before the end of y")
        self.forecaster_ = Forecaster(horizon, future_covariates=known, **options)
        self.forecaster_.fit(table, freq, self.val_size)
        return self

    def _update(self, y: pd.DataFrame, X: pd.DataFrame | None = None, update_params: bool = True) -> ParaForecaster:
        self._seen_y, self._seen_x = _joined(self._seen_y, y), _joined(self._seen_x, X)
        if update_params:
            return self._fit(self._seen_y, self._seen_x, self._fh)
        if self._instances is not None:  # those that are known keep their place, by which they are known
            self._instances = self._instances.append(_instances(y.index)).unique()
        self._moved = True
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:
        wanted = [(column, "yhat") for column in range(self._seen_y.shape[1])]
        return self._forecast(fh, X, (), wanted).set_axis(self._seen_y.columns, axis=1)

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: Sequence[float]) -> pd.DataFrame:
        levels = {one: max(_NARROWEST, abs(200 * one - 100)) for one in alpha if one != 0.5}
        names = {one: f"yhat-{'lo' if one < 0.5 else 'hi'}-{level:g}" for one, level in levels.items()} | {0.5: "yhat"}
        wanted = [(column, names[one]) for column in range(self._seen_y.shape[1]) for one in alpha]
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return self._forecast(fh, X, sorted(set(levels.values())), wanted).set_axis(columns, axis=1)

    def _forecast(
        self, fh: Any, X: pd.DataFrame | None, levels: Sequence[float], wanted: Sequence[tuple[int, str]]
    ) -> pd.DataFrame:
        """Some columns of forecasts, each of one column of `y`, with rows as `y` has them."""
        table = self.forecaster_.predict(self._seen() if self._moved else None, levels, self._ahead(X))
        y, horizon, grid = self._seen_y, self.forecaster_.horizon, self.forecaster_.grid
        positions = self._wanted(fh, grid)  # (instances, steps)
        starts = grid.locate(pd.Index(table["ds"][::horizon]))[0].reshape(-1, y.shape[1], 1)
        steps = positions[:, None] - starts  # (instances, columns of y, steps): a series may end before y does
        if steps.min() < 0 or steps.max() >= horizon:
            raise NotImplementedError(
                f"this forecaster was fitted to forecast the {horizon} steps after the last value of each series, no "
                "in-sample and no later ones; fit it again"
            )

        def shaped(name: str, column: int) -> Any:  # instances one after the other
            values = table[name].to_numpy().reshape(*starts.shape[:2], horizon)
            return np.take_along_axis(values[:, column], steps[:, column], -1).ravel()

        index = self._index(positions)
        return pd.DataFrame({at: shaped(name, column) for at, (column, name) in enumerate(wanted)}, index)

    def _wanted(self, fh: Any, grid: Grid) -> NDArray[np.int64]:
        """The positions to forecast, (instances, steps): after the end of each, or the times of `fh` for all."""
        index = self._seen_y.index
        count = 1 if self._instances is None else len(self._instances)
        if not fh.is_relative:
            return np.tile(grid.locate(_stamps(fh.to_absolute_index(self.cutoff)))[0], (count, 1))
        times = grid.locate(_stamps(index.get_level_values(-1)))[0]
        last = pd.Series(times).groupby(self._owner(index)).max().to_numpy()
        wanted: NDArray[np.int64] = last[:, None] + np.array(fh.to_relative(self.cutoff), dtype=np.int64)
        return wanted

    def _index(self, positions: NDArray[np.int64]) -> pd.Index:
        """Of a table like `y`, at positions (instances, steps) of the grid."""
        index, grid = self._seen_y.index, self.forecaster_.grid
        rows = [grid.stamps(int(row.min()), int(np.ptp(row)) + 1)[row - row.min()] for row in positions]
        times = rows[0].append(rows[1:])
        last = index.get_level_values(-1)
        if isinstance(last, pd.PeriodIndex):
            times = times.to_period(last.freq)
        if self._instances is None:
            return times.rename(index.name)
        owners = self._instances.repeat(positions.shape[1])
        levels = [owners.get_level_values(level) for level in range(owners.nlevels)]
        return pd.MultiIndex.from_arrays([*levels, times], names=index.names)

    def _seen(self) -> pd.DataFrame:
        """All that was seen, as `Forecaster` reads it."""
        y, x = self._seen_y, self._seen_x
        return self._long(y.index, None if x is None else x.reindex(y.index), y)

    def _ahead(self, X: pd.DataFrame | None) -> pd.DataFrame | None:
        """What is known ahead, as `Forecaster` reads it."""
        if not self.forecaster_.future_covariates:
            return None
        if X is None:
            raise ValueError(
                f"this forecaster was fitted with X ({', '.join(self.forecaster_.future_covariates)}), which is known "
                f"ahead; give X for the {self.forecaster_.horizon} steps after the end of y"
            )
        both = _joined(self._seen_x, X)  # where y ends before its index does, steps that were seen are ahead of it
        return self._long(both.index, both, None)

    def _long(self, index: pd.Index, X: pd.DataFrame | None, y: pd.DataFrame | None) -> pd.DataFrame:
        """Rows for each instance and column of `y`, in their order, under a name of their own."""
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
        """The number of the instance of each row."""
        if self._instances is None:
            return np.zeros(len(index), np.int64)
        return np.asarray(self._instances.get_indexer(index.droplevel(-1)))

    def _labels(self) -> list[str]:
        """What each instance and column is called in messages and explanations."""
        columns = [str(name) for name in self._seen_y.columns]
        if self._instances is None:
            return _distinct(columns)
        names = [", ".join(map(str, one if isinstance(one, tuple) else (one,))) for one in self._instances]
        return _distinct(names if len(columns) == 1 else [f"{one}, {column}" for one in names for column in columns])

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small ones, for sktime's own checks."""
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
    """What tells series apart, in the order in which they come."""
    return index.droplevel(-1).unique() if isinstance(index, pd.MultiIndex) else None


def _frequency(index: pd.Index) -> str | int | None:
    """As `Forecaster` takes it, where an index knows."""
    times = index.get_level_values(-1)
    if isinstance(times, pd.PeriodIndex):
        times = times.unique().sort_values().to_timestamp()
    if isinstance(times, pd.DatetimeIndex):
        return None if times.freq is None else str(times.freqstr)
    return 1


def _joined(before: pd.DataFrame | None, after: pd.DataFrame | None) -> Any:
    """Of rows with the same index, those that came later."""
    if before is None or after is None:
        return after if before is None else before
    both = pd.concat([before, after])
    return both[~both.index.duplicated(keep="last")]


def _stamps(times: pd.Index) -> pd.Index:
    """Times as `Forecaster` has them."""
    return times.to_timestamp() if isinstance(times, pd.PeriodIndex) else times


def _names(columns: pd.Index) -> list[str]:
    """Of covariates, none that `Forecaster` uses for something else."""
    return _distinct([f"X {name}" if name in ("ds", "y", "unique_id") else str(name) for name in columns])


def _distinct(names: list[str]) -> list[str]:
    """With their numbers, where two are the same."""
    return names if len(set(names)) == len(names) else [f"{name} ({at})" for at, name in enumerate(names)]
