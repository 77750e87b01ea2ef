"""Timestamps: how they are read, how their frequency is inferred, and the grid that numbers them.

Timestamps are counted in months, weeks, days, business days or units of time, whichever they fall on. The inferred
frequency is the distance that divides all others, provided that no other distance is more common: timestamps may be
missing, but a stray one in between does not make the frequency finer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.errors import TimestampError
from parallelrnn.interpret.display import Step

Stamps: TypeAlias = Any  # a pandas index of timestamps or of integers

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_SHORTEST_MONTH = np.timedelta64(26, "D")  # between the first or last days, or business days, of two months
_MAX_COUNTED_STEPS = 100_000  # months or business days, which take a second to count
_MAX_STEPS_PER_STAMP = 200  # over all series


def series_prefix(name: Any) -> str:
    """Return how an error about one series begins; `name` is None where there is only one series."""
    return "" if name is None else f"series {name!r}: "


@dataclass(frozen=True)
class Grid:
    """All timestamps that a frequency allows, numbered from an origin."""

    freq: str | int  # a pandas frequency such as "h" or "MS", or the distance between integers
    origin: Any  # a timestamp or an integer

    def __post_init__(self) -> None:
        if self._offset is None:
            if self.freq < 1:  # type: ignore[operator]
                raise TimestampError(argument="freq", expected="at least 1 for integer timestamps", got=self.freq)
        elif not self._offset.is_on_offset(self.origin):
            problem = f"timestamp {self.origin} does not have frequency {self.freq!r}"
            raise TimestampError(problem, argument="freq", hint="give another {freq}")

    @classmethod
    def of(cls, series: Mapping[Any, Stamps], freq: Any) -> Grid:
        """Return the grid of the sorted timestamps of all series; the frequency is inferred if `freq` is None."""
        freq = infer_frequency(series) if freq is None else freq
        origin = min(stamps[0] for stamps in series.values())
        is_calendar = isinstance(origin, pd.Timestamp)
        if is_calendar == isinstance(freq, int | np.integer) or isinstance(freq, bool):
            expected = "a pandas frequency such as 'h', 'D' or 'MS'" if is_calendar else "an integer"
            raise TimestampError(argument="freq", expected=f"{expected} for timestamps such as {origin}", got=freq)
        if not is_calendar:
            return cls(int(freq), int(origin))
        Step.of(freq)  # raises if we have no name for it
        try:
            freq = str(pd.tseries.frequencies.to_offset(freq).freqstr)
        except ValueError as error:
            problem = f"pandas {pd.__version__} rejects the frequency: {error}"
            raise TimestampError(problem, argument="freq", expected="a pandas frequency", got=freq) from error
        try:
            return cls(freq, origin)
        except TimestampError as error:
            with suppress(TimestampError):  # irregular timestamps look like nothing
                error.hint = f"the steps look like {infer_frequency(series)!r}; {error.hint}"
            raise TimestampError(error.problem, argument="freq", hint=error.hint) from None

    @property
    def step(self) -> Step:
        """The time from one timestamp to the next, for display."""
        return Step() if isinstance(self.freq, int) else Step.of(self.freq)

    def stamps(self, position: int, count: int) -> Stamps:
        """Return `count` timestamps from `position` on."""
        if self._offset is None:
            first = self.origin + position * self.freq
            return pd.RangeIndex(first, first + count * self.freq, self.freq)
        first = self.origin + position * self._offset
        return pd.date_range(first, periods=count, freq=self._offset, unit=str(self.origin.unit))

    def locate(self, stamps: Stamps) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the position of each timestamp, and whether it is on the grid."""
        if not len(stamps):
            return np.zeros(0, np.int64), np.zeros(0, np.bool_)
        if self._spacing is not None:
            distance = stamps - self.origin
            on_grid = np.asarray(distance % self._spacing == 0 * self._spacing)
            return (distance // self._spacing).to_numpy(np.int64), on_grid
        first = self._steps_to(stamps.min())
        candidates = self.stamps(first, self._steps_to(stamps.max()) - first + 1)
        indices = candidates.get_indexer(stamps)
        return (indices + first).astype(np.int64), indices >= 0

    def positions(self, stamps: Stamps, place: Callable[[int], str], hint: str) -> NDArray[np.int64]:
        """Return the positions of timestamps; raise if one is not on the grid. `place` names a row, for the error."""
        if isinstance(stamps, pd.DatetimeIndex) == isinstance(self.freq, int):
            raise TimestampError(f"the model was fitted on timestamps such as {self.origin}, not {stamps[0]}")
        self._check_span(stamps)
        positions, on_grid = self.locate(stamps)
        if not on_grid.all():
            row = int((~on_grid).argmax())
            grid = f"the grid of frequency {self.freq!r} from {self.origin}"
            raise TimestampError(f"{place(row)}: timestamp {stamps[row]} is not on {grid}", hint=hint)
        return positions

    def _check_span(self, stamps: Stamps) -> None:
        """Reject a year 9020 for 2020 where months or business days would be counted one by one up to it."""
        if self._spacing is not None:
            return
        first, last = min(self.origin, stamps.min()), max(self.origin, stamps.max())
        start, end = self.stamps(0, 2)
        steps = (last - first).days // max(1, (end - start).days)
        if steps > max(_MAX_COUNTED_STEPS, _MAX_STEPS_PER_STAMP * len(stamps)):
            problem = f"the timestamps span {first} to {last}, about {steps:,} steps of frequency {self.freq!r}"
            raise TimestampError(problem, hint="correct outlying timestamps, or give another {freq}")

    def _steps_to(self, stamp: Any) -> int:
        """Return the position of the last timestamp of the grid that is not after `stamp`."""
        if stamp >= self.origin:
            return len(pd.date_range(self.origin, stamp, freq=self._offset)) - 1
        return -len(pd.date_range(stamp, self.origin, freq=self._offset, inclusive="left"))

    @property
    def _offset(self) -> Any:
        return None if isinstance(self.freq, int) else pd.tseries.frequencies.to_offset(self.freq)

    @property
    def _spacing(self) -> Any:
        """The distance between all neighbours; None if it depends on the month or the weekend."""
        offset = self._offset
        if offset is None:
            return self.freq
        if isinstance(offset, pd.offsets.Day | pd.offsets.Week):
            return pd.Timedelta(days=offset.n * (7 if isinstance(offset, pd.offsets.Week) else 1))
        return pd.Timedelta(offset) if isinstance(offset, pd.offsets.Tick) else None


def read_timestamps(frame: nw.DataFrame[Any], name: str) -> Stamps:
    """Return the time column as a pandas index."""
    column = frame.get_column(name)
    if column.null_count():
        row = int(column.is_null().to_numpy().argmax())
        raise TimestampError(f"row {row}: no timestamp in column {name!r}", hint="fill it in, or drop the row")
    if column.dtype == nw.String:
        return _parse(column)
    if column.dtype.is_integer():
        return pd.Index(column.to_numpy().astype(np.int64))
    if column.dtype == nw.Object and pd.api.types.infer_dtype(column.to_list()) in ("date", "datetime"):
        column = nw.from_native(pd.Series(pd.to_datetime(column.to_list()), name=name), series_only=True)
    if isinstance(column.dtype, nw.Date):
        column = column.cast(nw.Datetime("us"))
    if not isinstance(column.dtype, nw.Datetime):
        problem = f"column {name!r} holds {column.dtype} such as {column.head(1).to_list()[0]!r}"
        expected, code = "timestamps, dates or integers", f"df[{name!r}] = pd.to_datetime(df[{name!r}])"
        raise TimestampError(problem, argument="time_col", expected=expected, code=code)
    if column.dtype.time_zone is not None:
        _reject_time_zone(column, column.dtype.time_zone)
    return pd.DatetimeIndex(column.to_numpy())


def _parse(column: nw.Series[Any]) -> Stamps:
    """Parse ISO 8601 alone: nobody can tell whether 01.02.2020 is in January or in February."""
    try:
        parsed = pd.to_datetime(pd.Series(column.to_list()), errors="coerce", format="ISO8601")
    except ValueError:  # several time zones
        _reject_time_zone(column, "offsets of its texts")
    if parsed.isna().any():
        row = int(parsed.isna().to_numpy().argmax())
        raise TimestampError(
            f"row {row} of column {column.name!r}: cannot parse the timestamp",
            argument="time_col",
            expected="timestamps such as 2020-01-31 or 2020-01-31 12:00",
            got=column[row],
            code=f"df[{column.name!r}] = pd.to_datetime(df[{column.name!r}], format='%d.%m.%Y')",
        )
    if parsed.dt.tz is not None:
        _reject_time_zone(column, parsed.dt.tz)
    return pd.DatetimeIndex(parsed)


def _reject_time_zone(column: nw.Series[Any], zone: Any) -> NoReturn:
    code = f"df[{column.name!r}].dt.tz_convert('UTC').dt.tz_localize(None)"
    if column.dtype == nw.String:
        code = f"pd.to_datetime(df[{column.name!r}], utc=True).dt.tz_localize(None)"
    elif column.implementation.is_polars():
        code = f"pl.col({column.name!r}).dt.convert_time_zone('UTC').dt.replace_time_zone(None)"
    problem = f"column {column.name!r} has time zone {zone}, in which days may have 23 or 25 hours"
    raise TimestampError(problem, argument="time_col", hint="convert it to UTC without a time zone", code=code)


def infer_frequency(series: Mapping[Any, Stamps]) -> str | int:
    """Return the one frequency of all series; the timestamps of each are sorted and unique."""
    candidates: list[str | int] = []  # frequencies that all series so far may have, the likeliest first
    owner: Any = None  # the series with the likeliest
    for name, stamps in series.items():
        if len(stamps) < 3:
            continue
        guesses = _guesses(stamps, name)
        shared = [freq for freq in candidates if freq in guesses] if candidates else guesses
        if not shared:
            problem = f"series {owner!r} has frequency {candidates[0]!r} and series {name!r} has {guesses[0]!r}"
            raise TimestampError(problem, hint="fit them separately, or resample them and give {freq}")
        if shared[0] not in candidates[:1]:
            owner = name
        candidates = shared
    if not candidates:
        raise TimestampError("no series has three timestamps to infer the frequency from", hint="give {freq}")
    if str(candidates[0]).endswith(("us", "ns")):
        problem = f"the timestamps are {candidates[0]} apart, too close for a calendar"
        raise TimestampError(problem, hint="number them 0, 1, 2, ...")
    return candidates[0]


class _Spacing(NamedTuple):
    """The distances between neighbours, in one of the units of a calendar."""

    distances: NDArray[np.int64]
    freq: Callable[[int], str | int]  # of a distance
    text: Callable[[int], str]


def _guesses(stamps: Stamps, name: Any) -> list[str | int]:
    """Return the frequencies that a series may have, the likeliest first."""
    spacings = _spacings(stamps)
    guesses = []
    for spacing in spacings:
        distances, counts = np.unique(spacing.distances, return_counts=True)
        if counts[0] == counts.max() and not (distances % distances[0]).any():
            guesses.append(spacing.freq(int(distances[0])))
    if not guesses:
        _reject_irregular(stamps, name, spacings[0])
    if isinstance(guesses[0], int):
        _reject_dates_as_integers(stamps, name, guesses[0])
    return guesses


def _spacings(stamps: Stamps) -> list[_Spacing]:
    times = stamps.to_numpy()
    if not isinstance(stamps, pd.DatetimeIndex):
        return [_Spacing(np.diff(times), int, str)]
    days = times.astype("datetime64[D]")
    if (times - days == times[0] - days[0]).all():  # the same time of every day
        return _in_months(days) or _in_days(days)
    unit = np.datetime_data(times.dtype)[0]

    def freq(distance: int) -> str:
        return str(pd.tseries.frequencies.to_offset(pd.Timedelta(distance, unit)).freqstr)

    return [_Spacing(np.diff(times).astype(np.int64), freq, Step(pd.Timedelta(1, unit).total_seconds(), "s").format)]


def _in_months(days: NDArray[np.datetime64]) -> list[_Spacing]:
    """Return spacings in months if all days are first or last days, or business days, of a month."""
    if np.diff(days).min() < _SHORTEST_MONTH:
        return []
    months = days.astype("datetime64[M]")
    starts, ends = months.astype("datetime64[D]"), (months + 1).astype("datetime64[D]") - 1
    anchors = {
        "S": starts,
        "E": ends,
        "BS": np.busday_offset(starts, 0, roll="forward"),
        "BE": np.busday_offset(ends, 0, roll="backward"),
    }
    first = int(months[0].astype(np.int64)) % 12  # January is 0

    def spacing(anchor: str) -> _Spacing:
        distances = np.diff(months).astype(np.int64)
        return _Spacing(distances, lambda count: _every_months(count, anchor, first), lambda count: f"{count} months")

    return [spacing(anchor) for anchor, anchor_days in anchors.items() if (days == anchor_days).all()]


def _every_months(distance: int, anchor: str, month: int) -> str:
    business, side = anchor[:-1], anchor[-1]
    if distance % 12 == 0:
        return _every(distance // 12, f"{business}Y{side}-{_MONTHS[month]}")
    if distance % 3 == 0:  # named by the first month of the year that begins one, or the last that ends one
        return _every(distance // 3, f"{business}Q{side}-{_MONTHS[month % 3 + (0 if side == 'S' else 9)]}")
    return _every(distance, f"{business}M{side}")


def _in_days(days: NDArray[np.datetime64]) -> list[_Spacing]:
    distances = np.diff(days).astype(np.int64)
    if not (distances % 7).any():
        weekday = _WEEKDAYS[int(days[0].astype(np.int64) + 3) % 7]  # 1970 began on a Thursday
        return [_Spacing(distances // 7, lambda count: _every(count, f"W-{weekday}"), lambda count: f"{count} weeks")]
    spacings = [_Spacing(distances, lambda count: _every(count, "D"), lambda count: f"{count} days")]
    if distances.min() < 7 and np.is_busday(days).all():
        business = np.diff(np.busday_count(days[0], days))
        spacings.append(_Spacing(business, lambda n: _every(n, "B"), lambda n: f"{n} business days"))
        if business.sum() < distances.sum():  # there was a weekend, and nothing on it
            del spacings[0]
    return spacings


def _every(count: int, unit: str) -> str:
    return unit if count == 1 else f"{count}{unit}"


def _reject_irregular(stamps: Stamps, name: Any, spacing: _Spacing) -> NoReturn:
    distances, counts = np.unique(spacing.distances, return_counts=True)
    usual = distances[counts.argmax()]
    days = {*stamps.day} if isinstance(stamps, pd.DatetimeIndex) else {1}
    if len(days) == 1 and days != {1} and np.diff(stamps).min() > _SHORTEST_MONTH:
        problem = f"{series_prefix(name)}all timestamps fall on day {stamps[0].day} of a month, as in no frequency"
        hint, code = "move them to the first of the month", "df[time].dt.to_period('M').dt.to_timestamp()"
        raise TimestampError(problem, hint=hint, code=code)
    row = int((spacing.distances != usual).argmax())
    most = f"{counts.max()} of {counts.sum()} steps are {spacing.text(int(usual))}"
    problem = f"{series_prefix(name)}irregular timestamps: {stamps[row + 1]} follows {stamps[row]}, but {most}"
    raise TimestampError(problem, hint="resample the series, or give {freq} if timestamps are only missing")


def _reject_dates_as_integers(stamps: Stamps, name: Any, step: int) -> None:
    """202012 and 202101 are one month apart, not 89 steps."""
    if len(stamps) > (stamps[-1] - stamps[0]) // step:
        return
    for form, example in (("%Y%m%d", "20200131"), ("%Y%m", "202001")):
        in_a_year = 10 ** (len(example) - 4)
        if not 1800 <= stamps[0] // in_a_year <= stamps[-1] // in_a_year <= 2200:
            continue
        if pd.to_datetime(pd.Series(stamps).astype(str), format=form, errors="coerce").notna().all():
            problem = f"{series_prefix(name)}the integers {stamps[0]}, {stamps[1]}, ... look like dates ({example})"
            hint = "convert them, or give {freq} if they count steps"
            code = f"pd.to_datetime(df[time], format={form!r})"
            raise TimestampError(problem, argument="time_col", hint=hint, code=code)
