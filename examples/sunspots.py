"""Train a small ParaLSTM on three centuries of yearly sunspots, and read what it learned."""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from scipy.signal import periodogram
from statsmodels.datasets import sunspots
from statsmodels.tsa.ar_model import AutoReg
from torch import Tensor, nn

from parallelrnn import ParaLSTM

HELD_OUT = 50  # years at the end that training never sees
LOOKBACK, WARM_UP = 44, 11  # years in a training window, and how many of them only build up the state
EPOCHS, SEEDS = 300, 3


class OneStepModel(nn.Module):
    """The next year's value from all years before it."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = ParaLSTM(1, 16)  # 8 blocks of 2 units
        self.readout = nn.Linear(16, 1)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # x (T, B)
        """The forecast made at each step, (T, B), and the state after the last one."""
        output, state = self.recurrent(x.unsqueeze(-1), state)
        forecast: Tensor = self.readout(output).squeeze(-1)
        return forecast, state


def train(series: Tensor, seed: int) -> tuple[OneStepModel, float]:
    """Fit one-step forecasts on all windows of the series; the model, and the error that is left."""
    torch.manual_seed(seed)
    model = OneStepModel()
    windows = series.unfold(0, LOOKBACK + 1, 1).T  # (LOOKBACK + 1, B)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=EPOCHS)
    for _ in range(EPOCHS):
        forecast, _ = model(windows[:-1])
        loss = nn.functional.mse_loss(forecast[WARM_UP:], windows[WARM_UP + 1 :])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model, loss.item()


@torch.no_grad()
def free_run(model: OneStepModel, series: Tensor, steps: int) -> Tensor:
    """Feed forecasts back in as if they had been observed."""
    forecast, state = model(series.unsqueeze(1))
    last = forecast[-1:]
    path = [last]
    while len(path) < steps:
        last, state = model(last, state)
        path.append(last)
    return torch.cat(path)[:, 0]


@torch.no_grad()
def shares(model: OneStepModel, series: Tensor) -> Tensor:
    """The part of the forecast's variance that each block's additive contribution explains; they add up to one."""
    layer, aggregate = model.recurrent, model.recurrent.aggregate
    assert isinstance(aggregate, nn.Linear)
    seen: list[Tensor] = []
    with aggregate.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
        layer(series[:, None])
    blocks = seen[0]  # (T, 16): the states before aggregation, in which the forecast is linear
    weights = model.readout.weight[0] @ aggregate.weight
    parts = (blocks * weights).unflatten(1, (layer.num_blocks, 2)).sum(-1)[WARM_UP:]  # (T, K)
    total = parts.sum(1)
    centred = parts - parts.mean(0)
    explained: Tensor = (centred * (total - total.mean())[:, None]).sum(0) / (total - total.mean()).square().sum()
    return explained


def main_cycle(path: np.ndarray) -> tuple[float, float]:
    """Period in years of the largest peak of the periodogram, and the standard deviation of the path."""
    frequencies, power = periodogram(path, nfft=32768)  # padded with zeros, to read the peak between whole periods
    return float(1 / frequencies[power.argmax()]), float(path.std())


def describe(matrix: np.ndarray) -> str:
    """Which recurrence feature a 2 x 2 block is."""
    first, second = np.linalg.eigvals(matrix)
    if first.imag:
        return f"C-1   period {2 * math.pi / abs(np.angle(first)):.1f} years, {half_life(abs(first))}"
    return f"R-1   {first.real:+.2f}, {half_life(abs(first))}; {second.real:+.2f}, {half_life(abs(second))}"


def half_life(modulus: float) -> str:
    """In years, or that there is none."""
    return f"half-life {math.log(0.5) / math.log(modulus):.1f}" if modulus < 1 else "growing"


def sketch(years: np.ndarray, path: np.ndarray) -> None:
    """A bar for each year."""
    for year, value in zip(years, path, strict=True):
        print(f"  {year}  {value:5.0f}  {'#' * round(value / 4)}")


def main() -> None:
    """Train, compare, forecast, read."""
    torch.set_num_threads(1)  # the matrices are too small to share
    data = sunspots.load_pandas().data
    years, spots = data["YEAR"].to_numpy().astype(int), data["SUNACTIVITY"].to_numpy()
    past = slice(None, len(spots) - HELD_OUT)
    root = np.sqrt(spots)  # evens out the spread of high and low years
    mean, scale = root[past].mean(), root[past].std()
    series = torch.tensor((root - mean) / scale, dtype=torch.float32)

    def to_spots(values: Tensor | np.ndarray) -> np.ndarray:
        back: np.ndarray = np.clip(np.asarray(values) * scale + mean, 0, None) ** 2
        return back

    print(f"Yearly sunspots {years[0]} to {years[-1]}, all but the last {HELD_OUT} for training.")
    print(f"{SEEDS} ParaLSTMs of 8 blocks, from different seeds:")
    start = time.perf_counter()
    models, forecasts = [], []
    for seed in range(SEEDS):
        model, loss = train(series[past], seed)
        models.append(model)
        with torch.no_grad():
            forecasts.append(model(series[:-1, None])[0][-HELD_OUT:, 0])
        print(f"  seed {seed}   mean squared error {loss:.3f} of a variance of 1   {time.perf_counter() - start:.0f} s")

    actual = spots[-HELD_OUT:]
    linear = AutoReg(series[past].double().numpy(), 9).fit().append(series[-HELD_OUT:].double().numpy())
    autoregression = linear.predict(len(spots) - HELD_OUT, len(spots) - 1)
    print(f"\nMean absolute error of forecasts one year ahead, {years[-HELD_OUT]} to {years[-1]}, in spots:")
    rows = [
        ("repeat the last value", spots[-HELD_OUT - 1 : -1]),
        ("autoregression of order 9", to_spots(autoregression)),
    ]
    rows += [(f"ParaLSTM, seed {seed}", to_spots(forecast)) for seed, forecast in enumerate(forecasts)]
    rows += [(f"mean of the {SEEDS} ParaLSTMs", to_spots(torch.stack(forecasts).mean(0)))]
    for name, values in rows:
        print(f"  {name:28s}{np.abs(values - actual).mean():6.1f}")

    model = models[0]
    path = to_spots(free_run(model, series, 1000))
    (period, spread), (observed, usual) = main_cycle(path), main_cycle(spots)
    print(f"\nLeft to itself for {len(path)} years, the first model has a cycle of {period:.1f} years and a standard")
    print(f"deviation of {spread:.0f} spots; observed are {observed:.1f} and {usual:.0f}. Its first years:")
    sketch(np.arange(years[-1] + 1, years[-1] + 1 + 2 * WARM_UP), path[: 2 * WARM_UP])

    print("\nIts forecast, of the root of the spots, is a sum over 8 blocks. The share of each (below zero: it offsets")
    print("others), and how the candidate for its cell remembers the block's last state: memory, not the Sun's cycle.")
    share = shares(model, series)
    candidates = [block.matrix for block in model.recurrent.recurrent_blocks() if block.gate == "cell"]
    for block in share.argsort(descending=True).tolist():
        print(f"  block {block}   {share[block]:6.1%}   {describe(candidates[block].detach().numpy())}")


if __name__ == "__main__":
    main()
