"""How far apart the time stamps of a series are, guessed from the stamps, gaps and all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from parallelrnn.estimators.grid import Stamps, TimeError

# The frequencies that two neighbours so many days apart may have, in the order in which they are tried.
_BY_DAYS = (((28, 31), ("MS", "ME", "BMS", "BME")), ((90, 92), ("QS", "QE")), ((365, 366), ("YS", "YE")))


def infer_frequency(series: Mapping[str, Stamps]) -> str | int:
    """The one frequency of all series, each of them sorted and without duplicates."""
    found: dict[str | int, str] = {}
    for name, stamps in series.items():
        if len(stamps) >= 3:
            found.setdefault(_infer(stamps, name), name)
        if len(found) > 1:
            (one, first), (other, second) = list(found.items())[:2]
            raise TimeError(
                f"series {first!r} has a frequency of {one!r} and series {second!r} of {other!r}; fit them apart, or "
                "resample them to one frequency and give it by freq="
            )
    if not found:
        raise TimeError("no series has the three time stamps that it takes to guess a frequency; give it by freq=")
    return next(iter(found))


def _infer(stamps: Stamps, name: str) -> str | int:
    apart = stamps[1:] - stamps[:-1]
    if not isinstance(stamps, pd.DatetimeIndex):
        return int(np.gcd.reduce(apart.to_numpy()))
    regular = pd.infer_freq(stamps)
    if regular is not None:
        return str(regular)
    usual = pd.Series(apart).mode()[0]
    for (least, most), candidates in _BY_DAYS:
        if pd.Timedelta(days=least) <= usual <= pd.Timedelta(days=most):
            for freq in candidates:
                if pd.tseries.frequencies.to_offset(freq).is_on_offset(stamps[0]) and _fits(stamps, freq):
                    return freq
    if usual == pd.Timedelta(days=1) and (stamps.dayofweek < 5).all():
        return "B"
    if usual == pd.Timedelta(days=7):
        return f"W-{stamps[0].strftime('%a').upper()}"
    shortest = apart.min()
    if (usual % shortest) or ((apart % shortest) != pd.Timedelta(0)).any():
        row = int(np.flatnonzero((apart % usual).to_numpy() != 0)[0]) + 1 if (apart % usual).any() else 1
        raise TimeError(
            f"series {name!r}: the time stamps are not equally spaced: {stamps[row - 1]} is followed by {stamps[row]}, "
            f"while most are {usual} apart; resample the series, or give freq= if some stamps are only missing"
        )
    days, rest = divmod(shortest, pd.Timedelta(days=1))
    if not rest:
        return "D" if days == 1 else f"{days}D"
    return str(pd.tseries.frequencies.to_offset(shortest).freqstr)


def _fits(stamps: pd.DatetimeIndex, freq: str) -> bool:
    return bool(stamps.isin(pd.date_range(stamps[0], stamps[-1], freq=freq)).all())
