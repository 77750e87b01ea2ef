"""How far apart the time stamps of a series are, guessed from the stamps, gaps and all.

Stamps are numbered in months, weeks, days, business days or units of time, whichever they fall on. The frequency is the
distance that divides all others, provided that none is more frequent: stamps may be missing, but a stray one between
the others does not make the frequency finer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parallelrnn.errors import TimestampError
from parallelrnn.forecast.grid import Stamps, of_series

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTH = np.timedelta64(26, "D")  # no first or last days, or business days, of two months are closer


def infer_frequency(series: Mapping[Any, Stamps]) -> str | int:
    """The one frequency of all series, given by their names; each is sorted and without duplicates."""
    known: list[str | int] = []  # what all series so far may have, the likeliest first
    owner: Any = None  # the series that has the likeliest
    for name, stamps in series.items():
        if len(stamps) < 3:
            continue
        guesses = _guesses(stamps, name)
        shared = [freq for freq in known if freq in guesses] if known else guesses
        if not shared:
            raise TimestampError(
                f"series {owner!r} has a frequency of {known[0]!r} and series {name!r} of {guesses[0]!r}; fit them "
                "apart, or resample them to one frequency and give it by freq="
            )
        if shared[0] not in known[:1]:
            owner = name
        known = shared
    if not known:
        raise TimestampError("no series has the three time stamps that it takes to guess a frequency; give it by freq=")
    return known[0]


class _Numbering(NamedTuple):
    """The distances between neighbours, in one of the units that a calendar has."""

    apart: NDArray[np.int64]
    freq: Callable[[int], str | int]  # of a distance
    words: Callable[[int], str]


def _guesses(stamps: Stamps, name: Any) -> list[str | int]:
    """What the frequency of a series may be, the likeliest first."""
    numberings = _numberings(stamps)
    found = []
    for apart, freq, _ in numberings:
        distances, counts = np.unique(apart, return_counts=True)
        if counts[0] == counts.max() and not (distances % distances[0]).any():
            found.append(freq(int(distances[0])))
    if not found:
        _refuse_uneven(stamps, name, numberings[0])
    if isinstance(found[0], int):
        _refuse_dates_as_numbers(stamps, name, found[0])
    return found


def _numberings(stamps: Stamps) -> list[_Numbering]:
    times = stamps.to_numpy()
    if not isinstance(stamps, pd.DatetimeIndex):
        return [_Numbering(np.diff(times), int, str)]
    days = times.astype("datetime64[D]")
    if (times - days == times[0] - days[0]).all():  # the same time of every day
        return _in_months(days) or _in_days(days)
    unit = np.datetime_data(times.dtype)[0]

    def freq(distance: int) -> str:
        return str(pd.tseries.frequencies.to_offset(pd.Timedelta(distance, unit)).freqstr)

    return [_Numbering(np.diff(times).astype(np.int64), freq, lambda distance: str(pd.Timedelta(distance, unit)))]


def _in_months(days: NDArray[np.datetime64]) -> list[_Numbering]:
    """If all are first or last days, or business days, of a month."""
    if np.diff(days).min() < _MONTH:
        return []
    months = days.astype("datetime64[M]")
    starts, ends = months.astype("datetime64[D]"), (months + 1).astype("datetime64[D]") - 1
    kinds = {
        "S": starts,
        "E": ends,
        "BS": np.busday_offset(starts, 0, roll="forward"),
        "BE": np.busday_offset(ends, 0, roll="backward"),
    }
    first = int(months[0].astype(np.int64)) % 12  # January is 0

    def numbering(kind: str) -> _Numbering:
        return _Numbering(
            np.diff(months).astype(np.int64),
            lambda distance: _every_months(distance, kind, first),
            lambda distance: f"{distance} months",
        )

    return [numbering(kind) for kind, those in kinds.items() if (days == those).all()]


def _every_months(distance: int, kind: str, month: int) -> str:
    business, side = kind[:-1], kind[-1]
    if distance % 12 == 0:
        return _every(distance // 12, f"{business}Y{side}-{_MONTHS[month]}")
    if distance % 3 == 0:  # named by the first month of the year that begins one, or the last that ends one
        return _every(distance // 3, f"{business}Q{side}-{_MONTHS[month % 3 + (0 if side == 'S' else 9)]}")
    return _every(distance, f"{business}M{side}")


def _in_days(days: NDArray[np.datetime64]) -> list[_Numbering]:
    apart = np.diff(days).astype(np.int64)
    if not (apart % 7).any():
        weekday = _WEEKDAYS[int(days[0].astype(np.int64) + 3) % 7]  # 1970 began on a Thursday
        return [_Numbering(apart // 7, lambda weeks: _every(weeks, f"W-{weekday}"), lambda weeks: f"{weeks} weeks")]
    found = [_Numbering(apart, lambda distance: _every(distance, "D"), lambda distance: f"{distance} days")]
    if apart.min() < 7 and np.is_busday(days).all():
        business = np.diff(np.busday_count(days[0], days))
        found.append(_Numbering(business, lambda n: _every(n, "B"), lambda n: f"{n} business days"))
        if business.sum() < apart.sum():  # there was a week-end, and nothing on it
            del found[0]
    return found


def _every(count: int, unit: str) -> str:
    return unit if count == 1 else f"{count}{unit}"


def _refuse_uneven(stamps: Stamps, name: Any, numbering: _Numbering) -> None:
    distances, counts = np.unique(numbering.apart, return_counts=True)
    usual = distances[counts.argmax()]
    day = {*stamps.day} if isinstance(stamps, pd.DatetimeIndex) else {1}
    if len(day) == 1 and day != {1} and np.diff(stamps).min() > _MONTH:
        raise TimestampError(
            f"{of_series(name)}all time stamps fall on day {stamps[0].day} of a month, which no frequency of pandas "
            "does; move them to the first of the month, by df[time].dt.to_period('M').dt.to_timestamp()"
        )
    row = int((numbering.apart != usual).argmax())
    raise TimestampError(
        f"{of_series(name)}the time stamps are not equally spaced: {stamps[row]} is followed by {stamps[row + 1]}, "
        f"while {counts.max()} of {counts.sum()} distances are {numbering.words(int(usual))}; resample the series, or "
        "give freq= if some stamps are only missing"
    )


def _refuse_dates_as_numbers(stamps: Stamps, name: Any, step: int) -> None:
    """202012 and 202101 are one month apart, not 89 steps."""
    if len(stamps) > (stamps[-1] - stamps[0]) // step:
        return
    for form, example in (("%Y%m%d", "20200131"), ("%Y%m", "202001")):
        in_a_year = 10 ** (len(example) - 4)
        if not 1800 <= stamps[0] // in_a_year <= stamps[-1] // in_a_year <= 2200:
            continue
        if pd.to_datetime(pd.Series(stamps).astype(str), format=form, errors="coerce").notna().all():
            raise TimestampError(
                f"{of_series(name)}the whole numbers {stamps[0]}, {stamps[1]}, ... in the time column read like dates "
                f"written as {example}, which are not equally far apart; make them dates, by pd.to_datetime(..., "
                f"format={form!r}) say, or give freq= if they do count steps"
            )
