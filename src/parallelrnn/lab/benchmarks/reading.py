"""Is what a forecaster finds there? Findings of series with planted waves, and of series with nothing in them.

    pip install 'parallelrnn[demo]'
    python -m parallelrnn.lab.benchmarks.reading run              # a day on two cores; the same command resumes
    python -m parallelrnn.lab.benchmarks.reading run --seed 0     # the series that findings were developed on
    python -m parallelrnn.lab.benchmarks.reading real DATA        # sunspots, CO2, and DATA/ETTh1.csv

Planted: one or two waves of 24 and 7.3 steps, driven by noise so that they fade with a half-life, or sines that never
fade; in white noise, with a linear trend or without. Empty: noises of eight kinds, one series or a panel of 200.
Findings come from the series alone; `lookbacks` fits whole forecasters and compares what they read.

Beside them, on the same draws: the exact likelihood of the planted model, whose search starts from the true parameters
(an ARMA model of statsmodels, or least squares for sines); UnobservedComponents of statsmodels, which looks for one
cycle by itself; and Fisher's test of the periodogram, whose rate of false alarms in white noise is known.
"""

from __future__ import annotations

import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parallelrnn.forecast.findings import find
from parallelrnn.forecast.seasonality import calendar_periods
from parallelrnn.interpret.display import Step
from parallelrnn.interpret.findings import NUMBERS, Finding, Findings
from parallelrnn.lab.benchmarks.measuring import THREADS, provenance, run_missing
from parallelrnn.lab.benchmarks.planted import EMPTY, Array, Planted, as_series
from parallelrnn.lab.runs import RunStore

NAME = "reading"
HORIZON = 24
PERIODS = (24.0, 7.3)
HALF_LIVES = (math.inf, 300.0, 60.0, 20.0, 8.0)
RATIOS = (4.0, 0.5)  # of the variance of all waves to that of the noise
LENGTHS = (500, 2000)
LOOKBACKS = (48, 96, 192, 336)
PANEL = 200
TEST = 1  # the seed of the tables; findings were developed on the draws of seed 0
DRAWS = {"planted": 100, "empty": 200, "lookbacks": 10}
DRAWS_OF_COMPONENTS = 25
BURN_IN = 200
FINDINGS, EXACT, COMPONENTS, PERIODOGRAM = "findings", "exact likelihood", "UnobservedComponents", "periodogram"
CALENDAR = calendar_periods(Step.of("D"))


def read_forecaster(series: Array, lookback: int) -> dict[str, Any]:
    """Return what a forecaster with this look-back finds."""
    import pandas as pd
    import torch

    from parallelrnn import Forecaster

    torch.set_num_threads(1)
    days = pd.date_range("2020-01-01", periods=len(series), freq="D")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about errors that change
        forecaster = Forecaster(HORIZON, lookback, progress=False).fit(pd.DataFrame({"ds": days, "y": series}))
    reading = forecaster.explain().reading
    assert reading is not None
    return {"findings": [_numbers(finding, NUMBERS) for finding in reading]}


def read(series: Sequence[Array]) -> dict[str, Any]:
    """Return the findings of series."""
    found, _ = find(list(map(as_series, series)), CALENDAR, HORIZON)
    return {"findings": [_numbers(finding) for finding, _ in found]}


def _numbers(finding: Finding, names: Sequence[str] = ("period", "half_life", "share_series")) -> dict[str, Any]:
    intervals = {name: getattr(finding, name) for name in names}
    return {"kind": finding.kind} | {
        name: [_rounded(value) for value in (interval.estimate, interval.low, interval.high)]
        for name, interval in intervals.items()
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def fit_exact(planted: Planted, series: Array) -> dict[str, Any]:
    """Return periods and half-lives by the exact likelihood of the planted model, from the true parameters."""
    if math.isinf(planted.half_life):
        return _fit_sines(planted, series)
    return _fit_arma(planted, series)


def _fit_sines(planted: Planted, series: Array) -> dict[str, Any]:
    from scipy.optimize import least_squares

    time = np.arange(len(series))
    fixed = [np.ones(len(series)), time / len(series)][: 1 + planted.trend]

    def left(periods: Array) -> Array:
        waves = [wave(2 * math.pi * time / period) for period in periods for wave in (np.cos, np.sin)]
        terms = np.column_stack([*fixed, *waves])
        residuals: Array = series - terms @ np.linalg.lstsq(terms, series, rcond=None)[0]
        return residuals

    found = least_squares(left, planted.periods, x_scale=np.square(planted.periods) / len(series), xtol=1e-12)
    return {"periods": [_rounded(period) for period in found.x], "half_lives": [math.inf] * len(found.x)}


def _fit_arma(planted: Planted, series: Array) -> dict[str, Any]:
    from statsmodels.tsa.arima.model import ARIMA

    transition, seen, covariance = planted.filter()
    error = float((seen @ covariance @ seen.T)[0, 0]) + 1.0
    memory = transition - transition @ covariance @ seen.T / error @ seen
    ar, ma = (np.real(np.poly(np.linalg.eigvals(matrix)))[1:] for matrix in (transition, memory))
    time = np.linspace(-1, 1, planted.length)  # of the size of the series, else the search does not move
    rise = planted.slope * (planted.length - 1) / 2
    start = [rise, *([rise] if planted.trend else []), *-ar, *ma, error]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence
        model = ARIMA(series, time if planted.trend else None, order=(len(ar), 0, len(ma)), trend="c")
        result = model.fit(start_params=start, method_kwargs={"maxiter": 500})
    found = 1 / np.asarray(result.arroots, dtype=complex)
    found = found[found.imag > 0]
    poles = [np.exp(-planted.rate + 2j * math.pi / period) for period in planted.periods]
    nearest = [found[np.argmin(abs(found - pole))] if len(found) else math.nan for pole in poles]
    return {
        "periods": [_rounded(2 * math.pi / abs(np.angle(z))) for z in nearest],
        "half_lives": [_rounded(math.log(2) / -math.log(min(abs(z), 1 - 1e-12))) for z in nearest],
    }


def fit_components(series: Array) -> dict[str, Any]:
    """Return the cycle that statsmodels finds by itself."""
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = UnobservedComponents(
            series,
            "deterministic trend",
            cycle=True,
            stochastic_cycle=True,
            damped_cycle=True,
            cycle_period_bounds=(2.0, len(series) / 3),
        )
        result = model.fit(disp=False, maxiter=200)
    values = dict(zip(model.param_names, result.params, strict=True))
    damping = min(float(values["damping.cycle"]), 1 - 1e-12)
    period = 2 * math.pi / float(values["frequency.cycle"])
    return {"periods": [_rounded(period)], "half_lives": [_rounded(math.log(2) / -math.log(damping))]}


def fisher(series: Array) -> dict[str, Any]:
    """Return the period of the highest line of the periodogram, and how often white noise has one as high."""
    time = np.arange(len(series))
    power = abs(np.fft.rfft(series - np.polyval(np.polyfit(time, series, 1), time))[1:-1]) ** 2
    line, lines = float(power.max() / power.sum()), len(power)
    chance = sum(
        (-1) ** (k - 1) * math.comb(lines, k) * max(0.0, 1 - k * line) ** (lines - 1)
        for k in range(1, min(lines, int(1 / line)) + 1)
    )
    return {"periods": [_rounded(len(series) / (1 + int(power.argmax())))], "chance": _rounded(max(0.0, chance))}


def measure(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Read all draws of a configuration."""
    draw, method = _drawer(config), config["method"]
    draws = []
    for number in range(DRAWS_OF_COMPONENTS if method == COMPONENTS else DRAWS[config["series"]]):
        series, planted = draw(1000 * seed + number)
        began = time.perf_counter()
        try:
            if config["series"] == "lookbacks":
                result = read_forecaster(series[0], config["lookback"])
            else:
                result = _methods(planted)[method](series)
        except (ValueError, np.linalg.LinAlgError) as error:  # counts as nothing found
            result = {"problem": str(error)}
        draws.append({"seconds": round(time.perf_counter() - began, 3), **result})
    return {"draws": draws}


def _drawer(config: dict[str, Any]) -> Callable[[int], tuple[list[Array], Planted | None]]:
    if config["series"] in ("planted", "lookbacks"):
        planted = planted_of(config)
        return lambda seed: ([planted.draw(seed)], planted)
    make, length = EMPTY[config["kind"]], config["length"]

    def draw(seed: int) -> tuple[list[Array], None]:
        rng = np.random.default_rng([seed, length, *config["kind"].encode()])
        return [make(rng, BURN_IN + length)[BURN_IN:] for _ in range(config["count"])], None

    return draw


def planted_of(config: dict[str, Any]) -> Planted:
    """Return the planted model of a configuration."""
    return Planted(**{name: config[name] for name in ("periods", "half_life", "trend", "ratio", "length")})


def _methods(planted: Planted | None) -> dict[str, Callable[[list[Array]], dict[str, Any]]]:
    methods: dict[str, Callable[[list[Array]], dict[str, Any]]] = {
        FINDINGS: lambda series: read(series) | _observed_shares(planted, series[0]),
        COMPONENTS: lambda series: fit_components(series[0]),
        PERIODOGRAM: lambda series: fisher(series[0]),
    }
    if planted is not None:
        methods[EXACT] = lambda series: fit_exact(planted, series[0])
    return methods


def _observed_shares(planted: Planted | None, series: Array) -> dict[str, Any]:
    if planted is None or not planted.rate:
        return {}
    return {"observed_shares": [_rounded(share) for share in planted.observed_shares(series, HORIZON)]}


def planted_configs() -> list[dict[str, Any]]:
    """Return the configurations of planted series."""
    waves = [[period] for period in PERIODS] + [list(PERIODS)]
    return [
        {"series": "planted", "periods": periods, "half_life": None if math.isinf(half_life) else half_life}
        | {"trend": trend, "ratio": ratio, "length": length}
        for length, ratio, trend, periods, half_life in itertools.product(
            LENGTHS, RATIOS, (False, True), waves, HALF_LIVES
        )
    ]


def empty_configs() -> list[dict[str, Any]]:
    """Return the configurations of series with nothing in them."""
    sizes = [(1, length) for length in LENGTHS] + [(PANEL, LENGTHS[0])]
    return [
        {"series": "empty", "kind": kind, "count": count, "length": length}
        for kind, (count, length) in itertools.product(EMPTY, sizes)
    ]


def _jobs(seed: int) -> list[tuple[dict[str, Any], int]]:
    """Return all configurations and methods, those that say most first."""
    planted, empty = planted_configs(), empty_configs()
    planted.sort(key=lambda config: (config["trend"], -config["ratio"]))
    clear = [config for config in planted if not config["trend"] and config["ratio"] == RATIOS[0]]
    rest = [config for config in planted if config not in clear]
    jobs = [(config, FINDINGS) for config in (*clear, *empty)] + [(config, EXACT) for config in clear]
    jobs += [(config, PERIODOGRAM) for config in (*empty, *planted) if config.get("count", 1) == 1]
    jobs += [(config, FINDINGS) for config in rest]
    jobs += [(config, COMPONENTS) for config in clear if len(config["periods"]) == 1]
    jobs += [(config, EXACT) for config in rest]
    jobs += [(config, COMPONENTS) for config in rest if len(config["periods"]) == 1]
    jobs += [
        ({**config, "series": "lookbacks", "lookback": lookback}, FINDINGS)
        for config in clear
        if config["length"] == LENGTHS[1] and config["periods"] == [PERIODS[0]]
        for lookback in LOOKBACKS
    ]
    return [({**config, "method": method}, seed) for config, method in jobs]


def run(results: Path = Path("results/benchmarks"), workers: int = 2, seed: int = TEST) -> None:
    """Read the series that the results do not hold yet, each on one thread."""
    os.environ |= dict.fromkeys(THREADS, "1")  # workers read these as they start
    run_missing(
        RunStore(results), NAME, _jobs(seed), measure, provenance(1, ["scipy", "statsmodels"]), workers, timed=False
    )


def real(data: Path) -> None:
    """Print what real series show whose cycles are known."""
    import pandas as pd
    from statsmodels.datasets import co2, sunspots

    load = pd.read_csv(data / "ETTh1.csv")
    series = {
        "Sunspots": (sunspots.load_pandas().data["SUNACTIVITY"], "YS", 11),
        "CO2, monthly": (co2.load_pandas().data["co2"].resample("MS").mean().interpolate(), "MS", 12),
        "ETTh1, HUFL": (load["HUFL"], "h", 96),
        "ETTh1, OT": (load["OT"], "h", 96),
    }
    for name, (values, freq, horizon) in series.items():
        step = Step.of(freq)
        found, rest = find([as_series(values.to_numpy(dtype=float))], calendar_periods(step), horizon)
        rows = tuple(finding for finding, _ in found)
        findings = Findings(rows=rows, explained=math.nan, rest=rest, time=step, horizon=horizon, series=1)
        print(f"{name}: {len(values)} steps\n\n{findings.display().text()}\n")


if __name__ == "__main__":
    import typer

    app = typer.Typer()
    for command in (run, real):
        app.command()(command)
    app()
