"""Does the reading tell the truth? Planted damped waves, and how well their periods and half-lives come back.

    python -m parallelrnn.lab.benchmarks.recovery run results/benchmarks/recovery.jsonl     # hours; cut off, it goes on where it was
    python -m parallelrnn.lab.benchmarks.recovery tables results/benchmarks/recovery.jsonl
    python -m parallelrnn.lab.benchmarks.recovery real PATH/ETTh1.csv                       # sunspots, a year of load

A series is the sum of damped waves that are driven by noise, and observed with noise: x(t+1) = A x(t) + w(t) and
y(t) = C x(t) + v(t). Both truths are known: the forecast modes of the best predictor are the eigenvalues of A, its
recurrence features those of A - K C, with K the steady-state gain of the Kalman filter. A linear ParaRNN is fitted by
gradient descent to predict the next value, and so is a tanh one; statsmodels maximises the exact likelihood of the same
model, an ARMA(2n, 2n) for n waves, from its own start and, as nobody could, from the true parameters.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib.metadata import version
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
from parallelrnn.lab.benchmarks.journal import go_on, load
from parallelrnn.nn.initialize import waves_

Array = NDArray[np.float64]
WAVES = {"one": ((24.0, 0.98),), "three": ((24.0, 0.98), (7.3, 0.97), (60.0, 0.99))}  # period, modulus
NOISE = {"low": 0.1, "high": 1.0}  # variance of v, in units of the waves' own
LENGTHS = (500, 2000)
DRAWS = 100
REPLICATES = 30  # of the bootstrap
METHODS = (
    "linear",
    "linear, twice the blocks",
    "tanh",
    "tanh, twice the blocks",
    "statsmodels",
    "statsmodels from truth",
)


@dataclass(frozen=True)
class Setting:
    """One row of the tables."""

    waves: str
    noise: str
    length: int


class Planted:
    """Waves of variance one each, and what the best predictor of their sum knows."""

    def __init__(self, setting: Setting) -> None:
        self.length = setting.length
        self.waves = [
            Mode(1, modulus * complex(math.cos(2 * math.pi / period), math.sin(2 * math.pi / period)))
            for period, modulus in WAVES[setting.waves]
        ]
        rotations = [
            np.array([[w.eigenvalue.real, w.eigenvalue.imag], [-w.eigenvalue.imag, w.eigenvalue.real]])
            for w in self.waves
        ]
        self.transition = block_diag(*rotations)
        self.reading = np.tile([1.0, 0.0], len(self.waves))[None]
        self.state_noise = block_diag(*[(1 - w.modulus**2) * np.eye(2) for w in self.waves])
        self.noise = NOISE[setting.noise] * len(self.waves)
        covariance = solve_discrete_are(self.transition.T, self.reading.T, self.state_noise, [[self.noise]])
        self.error = float((self.reading @ covariance @ self.reading.T)[0, 0]) + self.noise  # of the best predictor
        gain = self.transition @ covariance @ self.reading.T / self.error
        self.memory = self.transition - gain @ self.reading

    def draw(self, seed: int) -> Array:
        """A series of variance one, about."""
        random = np.random.default_rng(seed)
        state = random.standard_normal(len(self.transition))
        driven = random.standard_normal((self.length, len(state))) @ np.sqrt(self.state_noise)
        observed = math.sqrt(self.noise) * random.standard_normal(self.length)
        series = []
        for t in range(self.length):
            series.append(float((self.reading @ state)[0]) + observed[t])
            state = self.transition @ state + driven[t]
        return np.array(series) / math.sqrt(self.variance)

    @property
    def variance(self) -> float:
        """Of a series before it is scaled."""
        return len(self.waves) + self.noise


def make(blocks: int, nonlinearity: str) -> ParaRNN:
    """A one-step predictor."""
    readout = nn.Linear(2 * blocks, 1, bias=False, dtype=torch.float64)
    return ParaRNN(1, 2 * blocks, nonlinearity=nonlinearity, bias=False, aggregate=readout, dtype=torch.float64)


def fit(series: Array, blocks: int, nonlinearity: str, seed: int = 0) -> tuple[ParaRNN, float]:
    """From the best twelve of a hundred random memories with the readout that suits each; the best three go on."""
    torch.manual_seed(seed)
    x, target = torch.from_numpy(series)[:-1, None], torch.from_numpy(series)[1:, None]
    starts = sorted((_start(make(blocks, nonlinearity), x, target) for _ in range(100)), key=lambda start: start[1])
    trained = sorted((train(layer, series, 100) for layer, _ in starts[:12]), key=lambda found: found[1])
    return min((train(layer, series, 1000) for layer, _ in trained[:3]), key=lambda found: found[1])


@torch.no_grad()
def _start(layer: ParaRNN, x: Tensor, target: Tensor) -> tuple[ParaRNN, float]:
    periods = torch.empty(layer.num_blocks).uniform_(math.log(3), math.log(120)).exp().tolist()
    half_lives = torch.empty(layer.num_blocks).uniform_(math.log(1), math.log(60)).exp().tolist()
    waves_(layer, periods, half_lives)
    states = layer.block_states(x)
    readout = torch.linalg.lstsq(states, target).solution
    layer.aggregate.weight.copy_(readout.T)
    return layer, float(((states @ readout - target) ** 2).mean())


def train(layer: ParaRNN, series: Array, steps: int) -> tuple[ParaRNN, float]:
    """Gradient descent on the mean squared one-step error, by L-BFGS."""
    x, target = torch.from_numpy(series)[:-1, None], torch.from_numpy(series)[1:, None]
    optimizer = torch.optim.LBFGS(
        layer.parameters(), max_iter=steps, history_size=50, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        error = ((layer(x)[0] - target) ** 2).mean()
        if not error.isfinite():  # a step into what diverges; the line search turns back
            for parameter in layer.parameters():
                parameter.grad = torch.zeros_like(parameter)
            return torch.tensor(1e30, dtype=torch.float64)
        error.backward()
        return error.detach()

    optimizer.step(loss)
    return layer, float(loss())


def by_parallelrnn(planted: Planted, series: Array, method: str) -> dict[str, Any]:
    """Modes and features of a fit, and of fits to bootstrap series where there are as many linear blocks as waves."""
    nonlinearity = method.split(",")[0]
    blocks = len(planted.waves) * (2 if "twice" in method else 1)
    layer, loss = fit(series, blocks, nonlinearity)
    found: dict[str, Any] = {"modes": _values(forecast_modes(layer)), "loss": loss}
    found["features"] = _values(recurrence_features(layer))
    if method == "linear":
        found["replicates"] = _replicates(layer, torch.from_numpy(series)[:, None])
    return found


def _replicates(layer: ParaRNN, x: Tensor) -> list[list[list[float]]]:
    """The modes of fits to bootstrap series; none of those that cannot be drawn or fitted."""
    try:
        drawn = bootstrap_series(layer, None, x, REPLICATES).numpy()  # (T, REPLICATES, 1)
    except ValueError:  # the fitted model grows
        return []
    replicates = []
    for index in range(REPLICATES):
        refit, loss = train(copy.deepcopy(layer), drawn[:, index, 0].copy(), 300)
        replicates.append(_values(forecast_modes(refit)) if loss < 1e30 else [])
    return replicates


def by_statsmodels(planted: Planted, series: Array, method: str) -> dict[str, Any]:
    """The roots of an ARMA fitted by its exact likelihood."""
    from statsmodels.tsa.arima.model import ARIMA

    order = 2 * len(planted.waves)
    start = None
    if "truth" in method:
        ar, ma = (np.real(np.poly(np.linalg.eigvals(m)))[1:] for m in (planted.transition, planted.memory))
        start = np.concatenate([-ar, ma, [planted.error / planted.variance]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its own start is poor, or that it has not converged, which is kept
        model = ARIMA(series, order=(order, 0, order), trend="n")
        result = model.fit(start_params=start, method_kwargs={"maxiter": 1000})  # by itself it stops after 50
    modes, features = (1 / np.asarray(roots, dtype=complex) for roots in (result.arroots, result.maroots))
    return {
        "modes": _pairs(modes),
        "features": _pairs(features),
        "loss": float(result.params[-1]),
        "converged": bool(result.mle_retvals["converged"]),
    }


def _values(rows: Any) -> list[list[float]]:
    return _pairs(row.eigenvalue for row in rows)


def _pairs(values: Iterable[complex]) -> list[list[float]]:
    return [[round(value.real, 7), round(value.imag, 7)] for value in values if value.imag >= 0]


def work(setting: Setting, method: str, draw: int) -> dict[str, Any]:
    """One fit."""
    torch.set_num_threads(1)
    planted = Planted(setting)
    began = time.perf_counter()
    solve = by_statsmodels if method.startswith("statsmodels") else by_parallelrnn
    try:
        found = solve(planted, planted.draw(draw), method)
    except (ValueError, np.linalg.LinAlgError) as error:  # a fit that went wrong counts as one that found nothing
        found = {"modes": [], "features": [], "problem": str(error)}
    return {
        **asdict(setting),
        "method": method,
        "draw": draw,
        "seconds": round(time.perf_counter() - began, 2),
        **found,
    }


def jobs() -> Iterator[tuple[Setting, str, int]]:
    """All fits, so that every setting grows evenly."""
    for draw in range(DRAWS):
        for waves in WAVES:
            for noise in NOISE:
                for length in LENGTHS:
                    for method in METHODS:
                        yield Setting(waves, noise, length), method, draw


def run(path: Path, workers: int) -> None:
    """Fit what the file does not hold yet; each result is written as it comes."""
    lines = go_on(path, conditions())
    done = {_key(line) for line in lines}
    wanted = [job for job in jobs() if (*asdict(job[0]).values(), job[1], job[2]) not in done]
    print(f"{len(done)} fits are there, {len(wanted)} to go", flush=True)
    # Fits run side by side, each on one thread; the workers read these as they start.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool, path.open("a") as file:
        futures = [pool.submit(work, *job) for job in wanted]
        for count, future in enumerate(as_completed(futures), 1):
            file.write(json.dumps(future.result()) + "\n")
            file.flush()
            if count % 100 == 0:
                print(f"{count} of {len(wanted)}", flush=True)


def conditions() -> dict[str, str]:
    """With what the numbers were made."""
    versions = {name: version(name) for name in ("parallelrnn", "torch", "numpy", "scipy", "statsmodels")}
    return {"python": platform.python_version(), "machine": platform.machine(), **versions}


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["waves"], line["noise"], line["length"], line["method"], line["draw"]


class Truth:
    """How far what was found lies from what was planted; all draws of one setting and method."""

    def __init__(self, lines: list[dict[str, Any]], setting: Setting, method: str) -> None:
        planted = Planted(setting)
        self.waves = planted.waves
        self.lines = [one for one in lines if _key(one)[:4] == (*asdict(setting).values(), method)]
        memory = [Mode(1, complex(value)) for value in np.linalg.eigvals(planted.memory) if value.imag >= 0]
        self.modes = [pair for line in self.lines for pair in _match(planted.waves, _rows(line["modes"]))]
        self.features = [pair for line in self.lines for pair in _match(memory, _rows(line["features"]))]

    def error(self, name: str) -> str:
        """The median relative error of the matched modes, over all waves and draws."""
        errors = [
            math.inf if found is None else abs(getattr(found, name) / getattr(true, name) - 1)
            for true, found in self.modes
        ]
        return _percent(float(np.median(errors)))

    @property
    def lost(self) -> str:
        """The part of the waves whose period is more than a fifth away."""
        return _percent(
            float(np.mean([found is None or abs(found.period / true.period - 1) > 0.2 for true, found in self.modes]))
        )

    @property
    def feature_error(self) -> str:
        """The median distance of eigenvalues of the recurrent matrix."""
        apart = [
            math.inf if found is None else abs(found.eigenvalue - true.eigenvalue) for true, found in self.features
        ]
        return f"{np.median(apart):.3f}"

    def coverage(self) -> list[str]:
        """How often the bootstrap's intervals of 90 % hold period and half-life; what was not found is a miss."""
        held = []
        for line in self.lines:
            fitted = _table(line["modes"])
            replicates = [_table(values) for values in line.get("replicates", []) if values]
            found = match_fits(replicates, fitted, method="bootstrap") if len(replicates) > 1 else ()
            for true, mode in _match(self.waves, fitted.rows):
                matched = next((one for one in found if one.row is mode), None)
                pairs = [] if matched is None else [(matched.period, true.period), (matched.half_life, true.half_life)]
                held.append([interval.low <= value <= interval.high for interval, value in pairs] or [False, False])
        return [f"{part:.0%}" for part in np.mean(held, axis=0)]


def tables(lines: list[dict[str, Any]]) -> str:
    """All that was found, in Markdown."""
    settings = [Setting(waves, noise, length) for waves in WAVES for noise in NOISE for length in LENGTHS]
    found = {(setting, method): Truth(lines, setting, method) for setting in settings for method in METHODS}
    settings = [setting for setting in settings if all(found[setting, method].lines for method in METHODS)]
    if not settings:
        return "There is no setting yet with fits by all methods."
    draws = {len(found[setting, method].lines) for setting in settings for method in METHODS}
    linear, twice, tanh, tanh_twice, own, best = METHODS

    def rows(cells: Callable[[Setting], list[str]], columns: list[str]) -> list[str]:
        head = ["waves", "noise", "T", *columns]
        body = [[one.waves, one.noise, str(one.length), *cells(one)] for one in settings]
        return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *body)]

    def errors(methods: list[str]) -> Callable[[Setting], list[str]]:
        return lambda one: [
            f"{found[one, method].error('period')}, {found[one, method].error('half_life')} ({found[one, method].lost})"
            for method in methods
        ]

    def features(one: Setting) -> list[str]:
        return [found[one, method].feature_error for method in (linear, own, best)]

    return "\n".join(
        [
            f"{min(draws)} to {max(draws)} draws of each setting." if len(draws) > 1 else f"{min(draws)} draws each.",
            "Median relative error of period, of half-life (waves lost: period off by more than a fifth):",
            "",
            *rows(errors([linear, twice, own, best]), ["linear", twice, own, best]),
            "",
            *rows(errors([tanh, tanh_twice]), [tanh, tanh_twice]),
            "",
            f"Coverage of 90 % intervals from {REPLICATES} bootstrap series, linear:",
            "",
            *rows(lambda one: found[one, linear].coverage(), ["period", "half-life"]),
            "",
            "Recurrence features: median distance of the eigenvalues of W from those of A - K C:",
            "",
            *rows(features, ["linear", own, best]),
        ]
    )


def real(path: Path) -> str:
    """The modes of two series that everybody knows."""
    import pandas as pd
    from statsmodels.datasets import sunspots

    spots = np.sqrt(sunspots.load_pandas().data["SUNACTIVITY"].to_numpy())
    load = pd.read_csv(path)["HUFL"].to_numpy()[: 365 * 24]
    texts = []
    for name, series, blocks, freq, horizon in (("Sunspots", spots, 4, "YS", 50), ("ETTh1, HUFL", load, 8, "h", 336)):
        scaled = (series - series.mean()) / series.std()
        layer, _ = fit(scaled, blocks, "linear")
        modes = forecast_modes(layer, x=torch.from_numpy(scaled)[:, None], freq=freq, horizon=horizon)
        texts.append(f"{name}: {len(series)} steps, {blocks} blocks\n\n{modes.summary(6)}\n")
    return "\n".join(texts)


def _rows(values: list[list[float]]) -> tuple[Mode, ...]:
    return tuple(Mode(1, complex(*value)) for value in values)


def _table(values: list[list[float]]) -> ForecastModes:
    return ForecastModes(_rows(values), "", Step())


def _match(true: Sequence[Mode], found: Sequence[Mode]) -> list[tuple[Mode, Mode | None]]:
    """Each truth with what was found of it, so that all together are nearest."""
    if not found:
        return [(one, None) for one in true]
    pairs = dict(zip(*linear_sum_assignment(distances(true, found)), strict=True))
    return [(one, found[pairs[index]] if index in pairs else None) for index, one in enumerate(true)]


def _percent(value: float) -> str:
    return "endless" if math.isinf(value) else f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "tables", "real"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.path, arguments.workers)
    else:
        print(real(arguments.path) if arguments.what == "real" else tables(load(arguments.path)[1]))


if __name__ == "__main__":
    main()
