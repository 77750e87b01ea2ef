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
from numpy.typing import NDArray

from parallelrnn.forecast.data import Series
from parallelrnn.forecast.findings import find
from parallelrnn.forecast.seasonality import calendar_periods
from parallelrnn.interpret.display import Step
from parallelrnn.interpret.findings import NUMBERS, Finding, Findings
from parallelrnn.lab.benchmarks.measuring import THREADS, provenance, run_missing
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

NAME = "reading"
Array = NDArray[np.float64]
HORIZON = 24
PERIODS = (24.0, 7.3)
HALF_LIVES = (math.inf, 300.0, 60.0, 20.0, 8.0)
RATIOS = (4.0, 0.5)  # of the variance of all waves to that of the noise
LENGTHS = (500, 2000)
LOOKBACKS = (48, 96, 192, 336)
RISE = 4.0  # of a trend over the whole series, in deviations of waves and noise
PANEL = 200
TEST = 1  # the seed of the tables; findings were developed on the draws of seed 0
DRAWS = {"planted": 100, "empty": 200, "lookbacks": 10}
BURN_IN = 200
FAR = 0.1  # relative error of a period from which on a cycle is not the planted one
FINDINGS, EXACT, COMPONENTS, PERIODOGRAM = "findings", "exact likelihood", "UnobservedComponents", "periodogram"
CALENDAR = calendar_periods(Step.of("D"))


def _recursion(errors: Array, coefficient: float) -> Array:
    from scipy.signal import lfilter

    filtered: Array = lfilter([1.0], [1.0, -coefficient], errors)
    return filtered


def _garch(rng: np.random.Generator, steps: int) -> Array:
    variance, values = 1.0, []
    for error in rng.standard_normal(steps):
        values.append(math.sqrt(variance) * error)
        variance = 0.05 + 0.1 * values[-1] ** 2 + 0.85 * variance
    return np.array(values)


EMPTY: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "white noise": lambda rng, steps: rng.standard_normal(steps),
    "random walk": lambda rng, steps: rng.standard_normal(steps).cumsum(),
    "AR(1), 0.5": lambda rng, steps: _recursion(rng.standard_normal(steps), 0.5),
    "AR(1), 0.9": lambda rng, steps: _recursion(rng.standard_normal(steps), 0.9),
    "MA(1), 0.6": lambda rng, steps: np.convolve(rng.standard_normal(steps + 1), [1.0, 0.6], "valid"),
    "GARCH": _garch,
    "counts": lambda rng, steps: rng.poisson(3.0, steps).astype(float),
    "heavy tails": lambda rng, steps: rng.standard_t(2.5, steps),
}


class Planted:
    """Waves of equal variance, a trend and white noise of variance one."""

    def __init__(self, periods: Sequence[float], half_life: float | None, trend: bool, ratio: float, length: int):
        self.periods, self.length, self.trend = tuple(periods), length, trend
        self.half_life = math.inf if half_life is None else half_life
        self.rate = 0.0 if half_life is None else math.log(2) / half_life
        self.variance = ratio / len(periods)  # of each wave
        self.slope = RISE * math.sqrt(1 + ratio) / length if trend else 0.0

    def draw(self, seed: int) -> Array:
        """Return a series."""
        # Settings have draws of their own, so that what chance does to one is not repeated in all others.
        about = [self.length, self.trend, *(round(1000 * value) for value in (self.variance, *self.periods, self.rate))]
        rng = np.random.default_rng([seed, *about])
        time = np.arange(self.length)
        series: Array = rng.standard_normal(self.length) + self.slope * time
        for period in self.periods:
            series += self.wave(rng, period)
        return series

    def wave(self, rng: np.random.Generator, period: float) -> Array:
        """Return one wave."""
        from scipy.signal import lfilter

        time = np.arange(self.length)
        if math.isinf(self.half_life):
            sine: Array = math.sqrt(2 * self.variance) * np.cos(2 * math.pi * time / period + rng.uniform(0, 6.3))
            return sine
        modulus = math.exp(-self.rate)
        drive = rng.standard_normal((2, self.length)) * math.sqrt(self.variance * (1 - modulus**2))
        start = rng.standard_normal(2) * math.sqrt(self.variance)
        drive[:, 0] = start
        state = lfilter([1.0], [1.0, -modulus * np.exp(2j * math.pi / period)], drive[0] + 1j * drive[1])
        return np.real(state)

    def true_shares(self, horizon: int) -> list[float]:
        """Return the part of the variation of such series that the best forecasts explain by each wave."""
        total = (1 + self.variance * len(self.periods)) * (1 + RISE**2 / 12 * self.trend)
        if not self.rate:
            return [self.variance / total] * len(self.periods)
        transition, seen, covariance = self.filter()
        ahead = covariance @ seen.T
        filtered = covariance - ahead @ ahead.T / (1 + float((seen @ ahead)[0, 0]))
        known = (
            self.variance * np.eye(len(transition)) - filtered
        )  # the covariance of the states as the filter has them
        shares = np.zeros(len(self.periods))
        for _ in range(horizon):
            known = transition @ known @ transition.T
            shares += known[::2, ::2].sum(1)
        return [float(share) for share in shares / horizon / total]

    def filter(self) -> tuple[Array, Array, Array]:
        """Return transition, reading and the covariance of predicted states, by the Riccati equation."""
        from scipy.linalg import block_diag, solve_discrete_are

        poles = [np.exp(-self.rate + 2j * math.pi / period) for period in self.periods]
        transition = block_diag(*[np.array([[z.real, z.imag], [-z.imag, z.real]]) for z in poles])
        seen = np.tile([1.0, 0.0], len(poles))[None]
        drive = self.variance * -math.expm1(-2 * self.rate) * np.eye(len(transition))
        return transition, seen, solve_discrete_are(transition.T, seen.T, drive, [[1.0]])


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


def as_series(values: Array) -> Series:
    """Return an array as a series of days."""
    empty = np.zeros((len(values), 0))
    observed = np.ones((len(values), 1), dtype=bool)
    return Series(
        name="a", position=0, values=values[:, None], observed=observed, past=empty, future=empty, static=empty[0]
    )


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
    start = [0.0, *([planted.slope] if planted.trend else []), *-ar, *ma, error]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence
        model = ARIMA(series, order=(len(ar), 0, len(ma)), trend="ct" if planted.trend else "c")
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
    options = dict(config)
    draw, method = _drawer(options), config["method"]
    draws = []
    for number in range(DRAWS[config["series"]]):
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
    names = ("periods", "half_life", "trend", "ratio", "length")
    if config["series"] in ("planted", "lookbacks"):
        planted = Planted(**{name: config[name] for name in names})
        return lambda seed: ([planted.draw(seed)], planted)
    make, length = EMPTY[config["kind"]], config["length"]

    def draw(seed: int) -> tuple[list[Array], None]:
        rng = np.random.default_rng([seed, length, *config["kind"].encode()])
        return [make(rng, BURN_IN + length)[BURN_IN:] for _ in range(config["count"])], None

    return draw


def _methods(planted: Planted | None) -> dict[str, Callable[[list[Array]], dict[str, Any]]]:
    methods: dict[str, Callable[[list[Array]], dict[str, Any]]] = {
        FINDINGS: read,
        COMPONENTS: lambda series: fit_components(series[0]),
        PERIODOGRAM: lambda series: fisher(series[0]),
    }
    if planted is not None:
        methods[EXACT] = lambda series: fit_exact(planted, series[0])
    return methods


def _planted_configs() -> list[dict[str, Any]]:
    waves = [[period] for period in PERIODS] + [list(PERIODS)]
    return [
        {"series": "planted", "periods": periods, "half_life": None if math.isinf(half_life) else half_life}
        | {"trend": trend, "ratio": ratio, "length": length}
        for length, ratio, trend, periods, half_life in itertools.product(
            LENGTHS, RATIOS, (False, True), waves, HALF_LIVES
        )
    ]


def _empty_configs() -> list[dict[str, Any]]:
    sizes = [(1, length) for length in LENGTHS] + [(PANEL, LENGTHS[0])]
    return [
        {"series": "empty", "kind": kind, "count": count, "length": length}
        for kind, (count, length) in itertools.product(EMPTY, sizes)
    ]


def _jobs(seed: int) -> list[tuple[dict[str, Any], int]]:
    """Return all configurations and methods, those that say most first."""
    planted, empty = _planted_configs(), _empty_configs()
    planted.sort(key=lambda config: (config["trend"], -config["ratio"]))
    clear = [config for config in planted if not config["trend"] and config["ratio"] == RATIOS[0]]
    rest = [config for config in planted if config not in clear]
    jobs = [(config, FINDINGS) for config in (*clear, *empty)] + [(config, EXACT) for config in clear]
    jobs += [(config, PERIODOGRAM) for config in (*empty, *planted) if config.get("count", 1) == 1]
    jobs += [(config, method) for config in rest for method in (FINDINGS, EXACT)]
    jobs += [(config, COMPONENTS) for config in planted if len(config["periods"]) == 1]
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


class Read:
    """The findings of one wave of a configuration, draw by draw, beside those of the exact likelihood."""

    def __init__(self, config: dict[str, Any], wave: int, runs: dict[str, list[dict[str, Any]]]) -> None:
        names = ("periods", "half_life", "trend", "ratio", "length")
        planted = Planted(**{name: config[name] for name in names})
        self.period, self.half_life = planted.periods[wave], planted.half_life
        self.share = planted.true_shares(HORIZON)[wave]
        self.found = [self._nearest(draw.get("findings", [])) for draw in runs[FINDINGS]]
        self.exact = [
            (draw["periods"][wave], draw["half_lives"][wave]) if "periods" in draw else (math.nan, math.nan)
            for draw in runs.get(EXACT, [{}] * len(self.found))
        ]

    def _nearest(self, findings: list[dict[str, Any]]) -> dict[str, Any] | None:
        near = [row for row in findings if row["kind"] == "cycle" and abs(row["period"][0] / self.period - 1) < FAR]
        return min(near, key=lambda row: abs(row["period"][0] / self.period - 1), default=None)

    def cells(self) -> list[str]:
        """Return a row: found, median errors beside the exact likelihood's on the same draws, and coverage."""
        pairs = [(row, exact) for row, exact in zip(self.found, self.exact, strict=True) if row is not None]
        cells = [f"{len(pairs) / len(self.found):.0%}"]
        if not pairs:
            return cells
        cells.append(self._errors([(row["period"][0], exact[0]) for row, exact in pairs], self.period))
        told = [(row["half_life"][0], exact[1]) for row, exact in pairs if not math.isnan(row["half_life"][0])]
        never = 1 - len(told) / len(pairs)
        cells.append(f"{np.median([own for own, _ in told]):.3g}" if told else "-")
        cells.append(self._errors(told, self.half_life) if told and not math.isinf(self.half_life) else "-")
        cells.append(f"{never:.0%}")
        truths = {"period": self.period, "half_life": self.half_life, "share_series": self.share}
        for name, truth in truths.items():
            cells.append(f"{np.mean([row[name][1] <= truth <= row[name][2] for row, _ in pairs]):.0%}")
        return cells

    def _errors(self, pairs: Sequence[tuple[float, float]], truth: float) -> str:
        errors = [
            [abs(value / truth - 1) for value in values if not math.isnan(value)] for values in zip(*pairs, strict=True)
        ]
        return " / ".join(_percent(float(np.median(own)) if own else math.nan) for own in errors)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def _load(results: Path, seed: int = TEST) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the draws by configuration and method."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in RunStore(results / "benchmarks").load(NAME):
        if one.seed == seed:
            config = {name: value for name, value in one.config.items() if name != "method"}
            runs.setdefault(repr(config), {})[one.config["method"]] = one.result["draws"]
    return runs


def planted_table(results: Path) -> Table:
    """Return what was found of planted waves."""
    runs, rows = _load(results), []
    for config in _planted_configs():
        own = runs.get(repr(config), {})
        for wave, period in enumerate(config["periods"] if FINDINGS in own else ()):
            half_life = "never" if config["half_life"] is None else f"{config['half_life']:g}"
            about = [str(config["length"]), f"{config['ratio']:g}", str(len(config["periods"]))]
            about += ["yes" if config["trend"] else "no", f"{period:g}", half_life]
            rows.append([*about, *Read(config, wave, own).cells()])
    columns = ["T", "signal to noise", "waves", "trend", "period", "half-life", "found", "error of the period"]
    columns += ["median half-life", "error of the half-life", "not determined"]
    return Table([*columns, "period covered", "half-life covered", "share covered"], rows)


def lookback_table(results: Path) -> Table:
    """Return the median half-life that forecasters read, and the share of their forecasts, by look-back."""
    found: dict[Any, dict[int, list[dict[str, Any]]]] = {}
    for one in RunStore(results / "benchmarks").load(NAME):
        if one.seed == TEST and one.config["series"] == "lookbacks":
            rows = [row for draw in one.result["draws"] for row in draw["findings"] if row["kind"] == "cycle"]
            found.setdefault(one.config["half_life"], {})[one.config["lookback"]] = rows
    table = []
    for half_life in sorted(found, key=lambda value: -(value or math.inf)):
        cells = []
        for lookback in LOOKBACKS:
            rows = found[half_life].get(lookback, [])
            told = [row["half_life"][0] for row in rows if not math.isnan(row["half_life"][0])]
            shares = [row["share_forecast"][0] for row in rows]
            text = f"{np.median(told):.3g}" if told else "not determined"
            cells.append(f"{text}; {np.median(shares):.0%}" if shares else "-")
        table.append(["never" if half_life is None else f"{half_life:g}", *cells])
    return Table(["half-life", *(f"look-back {lookback}" for lookback in LOOKBACKS)], table)


def empty_table(results: Path) -> Table:
    """Return how often something was found where nothing is, with standard errors."""
    runs, rows = _load(results), []
    for kind in EMPTY:
        cells = []
        for config in _empty_configs():
            if config["kind"] == kind:
                own = runs.get(repr(config), {})
                cells.append(_rate([bool(draw.get("findings")) for draw in own.get(FINDINGS, [])]))
                if config["count"] == 1:
                    cells.append(_rate([draw["chance"] < 0.05 for draw in own.get(PERIODOGRAM, [])]))
        rows.append([kind, *cells])
    columns = [f"{name}, T = {length}" for length in LENGTHS for name in ("findings", "periodogram")]
    return Table(["series", *columns, f"findings, {PANEL} series"], rows)


def _rate(hits: Sequence[bool]) -> str:
    if not hits:
        return "-"
    rate = float(np.mean(hits))
    return f"{rate:.1%} ± {math.sqrt(max(rate, 1 / len(hits)) * (1 - rate) / len(hits)):.1%}"


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
