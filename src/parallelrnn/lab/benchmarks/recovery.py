"""Is the reading of a model true? Planted damped waves, and how well their periods and half-lives are recovered.

    pip install 'parallelrnn[demo]'
    python -m parallelrnn.lab.benchmarks.recovery run                 # hours on two cores; the same command resumes
    python -m parallelrnn.lab.benchmarks.recovery real ETTh1.csv      # the modes of the sunspots and of a year of load

A series is the sum of damped waves that are driven by noise, and observed with noise: x(t+1) = A x(t) + w(t) and
y(t) = C x(t) + v(t). Both truths are known: the forecast modes of the best predictor are the eigenvalues of A, its
recurrence features those of A - K C, with K the steady-state gain of the Kalman filter. A linear ParaRNN is fitted by
gradient descent to predict the next value, and so is a tanh one; statsmodels maximises the exact likelihood of the same
model, an ARMA(2n, 2n) for n waves, from its own start and, as nobody could, from the true parameters.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag, solve_discrete_are
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from parallelrnn import ParaRNN, forecast_modes, recurrence_features
from parallelrnn.interpret import ForecastModes, Mode, bootstrap_series, match_fits
from parallelrnn.interpret.display import Step
from parallelrnn.interpret.uncertainty import distances
from parallelrnn.lab.benchmarks.measuring import THREADS, provenance, run_missing
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table
from parallelrnn.nn.initialize import waves_

NAME = "recovery"
Array = NDArray[np.float64]
WAVES = {"one": ((24.0, 0.98),), "three": ((24.0, 0.98), (7.3, 0.97), (60.0, 0.99))}  # period, modulus
NOISE = {"low": 0.1, "high": 1.0}  # variance of v, relative to the waves' own
LENGTHS = (500, 2000)
DRAWS = 100
REPLICATES = 30  # of the bootstrap
DIVERGED = 1e30  # the loss of a model that diverges
LOST = 0.2  # relative error of a period from which on its wave is lost
LINEAR, TANH, STATSMODELS, FROM_TRUTH = "linear", "tanh", "statsmodels", "statsmodels from truth"
LINEAR_TWICE, TANH_TWICE = "linear, twice the blocks", "tanh, twice the blocks"
METHODS = (LINEAR, LINEAR_TWICE, TANH, TANH_TWICE, STATSMODELS, FROM_TRUTH)
SETTINGS = [
    {"waves": waves, "noise": noise, "length": length}
    for waves, noise, length in itertools.product(WAVES, NOISE, LENGTHS)
]


class Planted:
    """Waves of variance one each, and what the best predictor of their sum knows."""

    def __init__(self, waves: str, noise: str, length: int) -> None:
        self.length = length
        self.waves = [
            Mode(order=1, eigenvalue=modulus * complex(math.cos(2 * math.pi / period), math.sin(2 * math.pi / period)))
            for period, modulus in WAVES[waves]
        ]
        values = [wave.eigenvalue for wave in self.waves]
        self.transition = block_diag(*[np.array([[z.real, z.imag], [-z.imag, z.real]]) for z in values])
        self.reading = np.tile([1.0, 0.0], len(self.waves))[None]
        self.state_noise = block_diag(*[(1 - wave.modulus**2) * np.eye(2) for wave in self.waves])
        self.noise = NOISE[noise] * len(self.waves)
        self.variance = len(self.waves) + self.noise  # of a series before it is scaled
        covariance = solve_discrete_are(self.transition.T, self.reading.T, self.state_noise, [[self.noise]])
        self.error = float((self.reading @ covariance @ self.reading.T)[0, 0]) + self.noise  # of the best predictor
        gain = self.transition @ covariance @ self.reading.T / self.error
        self.memory = self.transition - gain @ self.reading

    def draw(self, seed: int) -> Array:
        """Return a series with a variance of about one."""
        random = np.random.default_rng(seed)
        state = random.standard_normal(len(self.transition))
        driven = random.standard_normal((self.length, len(state))) @ np.sqrt(self.state_noise)
        observed = math.sqrt(self.noise) * random.standard_normal(self.length)
        series = []
        for t in range(self.length):
            series.append(float((self.reading @ state)[0]) + observed[t])
            state = self.transition @ state + driven[t]
        return np.array(series) / math.sqrt(self.variance)


def fit(series: Array, blocks: int, nonlinearity: str) -> tuple[ParaRNN, float]:
    """Return the best fit and its loss: of a hundred random starts twelve are trained briefly, three of them on."""
    torch.manual_seed(0)
    x, target = torch.from_numpy(series)[:-1, None], torch.from_numpy(series)[1:, None]
    starts = sorted((_start(blocks, nonlinearity, x, target) for _ in range(100)), key=lambda start: start[1])
    trained = sorted((train(layer, series, 100) for layer, _ in starts[:12]), key=lambda fitted: fitted[1])
    return min((train(layer, series, 1000) for layer, _ in trained[:3]), key=lambda fitted: fitted[1])


@torch.no_grad()
def _start(blocks: int, nonlinearity: str, x: Tensor, target: Tensor) -> tuple[ParaRNN, float]:
    """Return a one-step predictor of random waves, with the readout that suits them best, and its loss."""
    readout = nn.Linear(2 * blocks, 1, bias=False, dtype=torch.float64)
    layer = ParaRNN(1, 2 * blocks, nonlinearity=nonlinearity, bias=False, aggregate=readout, dtype=torch.float64)
    periods = torch.empty(blocks).uniform_(math.log(3), math.log(120)).exp().tolist()
    half_lives = torch.empty(blocks).uniform_(math.log(1), math.log(60)).exp().tolist()
    waves_(layer, periods, half_lives)
    states = layer.block_states(x)
    solution = torch.linalg.lstsq(states, target).solution
    readout.weight.copy_(solution.T)
    return layer, float(((states @ solution - target) ** 2).mean())


def train(layer: ParaRNN, series: Array, steps: int) -> tuple[ParaRNN, float]:
    """Minimise the mean squared one-step error by L-BFGS."""
    x, target = torch.from_numpy(series)[:-1, None], torch.from_numpy(series)[1:, None]
    optimizer = torch.optim.LBFGS(
        layer.parameters(), max_iter=steps, history_size=50, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        error: Tensor = ((layer(x)[0] - target) ** 2).mean()
        if not error.isfinite():  # the line search turns back
            for parameter in layer.parameters():
                parameter.grad = torch.zeros_like(parameter)
            return torch.tensor(DIVERGED, dtype=torch.float64)
        error.backward()
        return error.detach()

    optimizer.step(loss)
    return layer, float(loss())


def fit_parallelrnn(planted: Planted, series: Array, method: str) -> dict[str, Any]:
    """Return modes and features of a fit; for as many linear blocks as waves also those of bootstrap fits."""
    blocks = len(planted.waves) * (2 if "twice" in method else 1)
    layer, loss = fit(series, blocks, nonlinearity=method.split(",")[0])
    modes, features = _eigenvalues(forecast_modes(layer)), _eigenvalues(recurrence_features(layer))
    result = {"modes": modes, "loss": loss, "features": features}
    if method == LINEAR:
        result["replicates"] = _replicates(layer, torch.from_numpy(series)[:, None])
    return result


def _replicates(layer: ParaRNN, x: Tensor) -> list[list[list[float]]]:
    """Return the modes of fits to bootstrap series; none for those that cannot be drawn or fitted."""
    try:
        drawn = bootstrap_series(layer, None, x, REPLICATES).numpy()  # (T, REPLICATES, 1)
    except ValueError:  # the fitted model grows
        return []
    replicates = []
    for index in range(REPLICATES):
        refit, loss = train(copy.deepcopy(layer), drawn[:, index, 0].copy(), 300)
        replicates.append(_eigenvalues(forecast_modes(refit)) if loss < DIVERGED else [])
    return replicates


def fit_statsmodels(planted: Planted, series: Array, method: str) -> dict[str, Any]:
    """Return the roots of an ARMA that maximises its exact likelihood."""
    from statsmodels.tsa.arima.model import ARIMA

    order = 2 * len(planted.waves)
    start = None
    if method == FROM_TRUTH:
        ar, ma = (np.real(np.poly(np.linalg.eigvals(m)))[1:] for m in (planted.transition, planted.memory))
        start = np.concatenate([-ar, ma, [planted.error / planted.variance]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a poor start, or no convergence, which is recorded
        model = ARIMA(series, order=(order, 0, order), trend="n")
        result = model.fit(start_params=start, method_kwargs={"maxiter": 1000})  # by default it stops after 50
    modes, features = (1 / np.asarray(roots, dtype=complex) for roots in (result.arroots, result.maroots))
    return {
        "modes": _pairs(modes),
        "features": _pairs(features),
        "loss": float(result.params[-1]),
        "converged": bool(result.mle_retvals["converged"]),
    }


def _eigenvalues(rows: Any) -> list[list[float]]:
    return _pairs(row.eigenvalue for row in rows)


def _pairs(values: Iterable[complex]) -> list[list[float]]:
    return [[round(value.real, 7), round(value.imag, 7)] for value in values if value.imag >= 0]


def fit_draws(config: dict[str, Any], _: int) -> dict[str, Any]:
    """Fit all draws of a setting by one method."""
    torch.set_num_threads(1)
    setting = dict(config)
    method = setting.pop("method")
    solve = fit_statsmodels if method.startswith(STATSMODELS) else fit_parallelrnn
    planted = Planted(**setting)
    draws = []
    for draw in range(DRAWS):
        began = time.perf_counter()
        try:
            result = solve(planted, planted.draw(draw), method)
        except (ValueError, np.linalg.LinAlgError) as error:  # counts as a fit that recovered nothing
            result = {"modes": [], "features": [], "problem": str(error)}
        draws.append({"seconds": round(time.perf_counter() - began, 2), **result})
    return {"draws": draws}


def run(results: Path = Path("results/benchmarks"), workers: int = 2) -> None:
    """Fit the settings and methods that the results do not hold yet, each on one thread."""
    os.environ |= dict.fromkeys(THREADS, "1")  # workers read these as they start
    jobs = [({**setting, "method": method}, 0) for setting in SETTINGS for method in METHODS]
    run_missing(RunStore(results), NAME, jobs, fit_draws, provenance(1, ["scipy", "statsmodels"]), workers)


class Recovered:
    """Errors of the fits of one setting and method."""

    def __init__(self, setting: dict[str, Any], draws: list[dict[str, Any]]) -> None:
        planted = Planted(**setting)
        self.waves, self.draws = planted.waves, draws
        memory = _modes([(value.real, value.imag) for value in np.linalg.eigvals(planted.memory) if value.imag >= 0])
        self.modes = [pair for draw in draws for pair in _match(planted.waves, _modes(draw["modes"]))]
        self.features = [pair for draw in draws for pair in _match(memory, _modes(draw["features"]))]

    def errors(self) -> list[str]:
        """Return the median relative errors of period and half-life, and the part of the waves that was lost."""
        periods, half_lives = (
            [
                math.inf if fitted is None else abs(getattr(fitted, name) / getattr(true, name) - 1)
                for true, fitted in self.modes
            ]
            for name in ("period", "half_life")
        )
        period, half_life = (_percent(float(np.median(values))) for values in (periods, half_lives))
        return [f"{period}, {half_life} ({_percent(float(np.mean(np.array(periods) > LOST)))})"]

    def feature_error(self) -> list[str]:
        """Return the median distance of the eigenvalues of the recurrent matrix."""
        apart = [
            math.inf if fitted is None else abs(fitted.eigenvalue - true.eigenvalue) for true, fitted in self.features
        ]
        return [f"{np.median(apart):.3f}"]

    def coverage(self) -> list[str]:
        """Return how often 90 % bootstrap intervals cover period and half-life; a wave that was lost is a miss."""
        covered = []
        for draw in self.draws:
            fitted = _modes(draw["modes"])
            replicates = [_modes(values) for values in draw.get("replicates", []) if values]
            matches = match_fits(replicates, fitted, method="bootstrap") if len(replicates) > 1 else ()
            for true, mode in _match(self.waves, fitted):
                match = next((match for match in matches if match.row is mode), None)
                pairs = [] if match is None else [(match.period, true.period), (match.half_life, true.half_life)]
                covered.append([interval.low <= value <= interval.high for interval, value in pairs] or [False, False])
        return [f"{part:.0%}" for part in np.mean(covered, axis=0)]


def _modes(values: Sequence[Sequence[float]]) -> ForecastModes:
    rows = tuple(Mode(order=1, eigenvalue=complex(*value)) for value in values)
    return ForecastModes(rows=rows, where="", time=Step())


def _match(true: Sequence[Mode], fitted: Sequence[Mode]) -> list[tuple[Mode, Mode | None]]:
    """Return each planted mode with its fitted one, so that all together are nearest."""
    if not fitted:
        return [(mode, None) for mode in true]
    pairs = dict(zip(*linear_sum_assignment(distances(true, fitted)), strict=True))
    return [(mode, fitted[pairs[index]] if index in pairs else None) for index, mode in enumerate(true)]


def _percent(value: float) -> str:
    return "endless" if math.isinf(value) else f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def _table(
    results: Path, methods: Sequence[str], read: Callable[[Recovered], list[str]], columns: Sequence[str] = ()
) -> Table:
    """Return a table with a row for each setting: what is read off each of these methods, under its name."""
    runs = RunStore(results / "benchmarks").load(NAME)
    rows = []
    for setting in SETTINGS:
        draws = {run.config["method"]: run.result["draws"] for run in runs if setting.items() <= run.config.items()}
        if set(draws) == set(METHODS):
            cells = [text for method in methods for text in read(Recovered(setting, draws[method]))]
            rows.append([*map(str, setting.values()), *cells])
    return Table(["waves", "noise", "T", *(columns or methods)], rows)


def errors(results: Path) -> Table:
    """Return median relative errors of period and half-life (waves lost), of linear layers and statsmodels."""
    return _table(results, (LINEAR, LINEAR_TWICE, STATSMODELS, FROM_TRUTH), Recovered.errors)


def tanh_errors(results: Path) -> Table:
    """Return the same of tanh layers."""
    return _table(results, (TANH, TANH_TWICE), Recovered.errors)


def coverage(results: Path) -> Table:
    """Return the coverage of 90 % bootstrap intervals of linear layers."""
    return _table(results, (LINEAR,), Recovered.coverage, ("period", "half-life"))


def feature_errors(results: Path) -> Table:
    """Return the median distance of the eigenvalues of W from those of A - K C."""
    return _table(results, (LINEAR, STATSMODELS, FROM_TRUTH), Recovered.feature_error)


def real(path: Path) -> None:
    """Print the modes of the sunspots and of a year of ETTh1."""
    import pandas as pd
    from statsmodels.datasets import sunspots

    spots = np.sqrt(sunspots.load_pandas().data["SUNACTIVITY"].to_numpy())
    load = pd.read_csv(path)["HUFL"].to_numpy()[: 365 * 24]
    for name, series, blocks, freq, horizon in (("Sunspots", spots, 4, "YS", 50), ("ETTh1, HUFL", load, 8, "h", 336)):
        scaled = (series - series.mean()) / series.std()
        layer, _ = fit(scaled, blocks, LINEAR)
        modes = forecast_modes(layer, x=torch.from_numpy(scaled)[:, None], freq=freq, horizon=horizon)
        print(f"{name}: {len(series)} steps, {blocks} blocks\n\n{modes.summary(6)}\n")


if __name__ == "__main__":
    import typer

    app = typer.Typer()
    for command in (run, real):
        app.command()(command)
    app()
