"""Train a small ParaLSTM on three centuries of yearly sunspots, and read what it learned."""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from statsmodels.datasets import sunspots
from statsmodels.tsa.ar_model import AutoReg
from torch import Tensor, nn

from parallelrnn import ParaLSTM

HELD_OUT = 50  # years at the end that training never sees
LOOKBACK, WARM_UP = 44, 11  # years in a training window, and how many of them only build up the state
EPOCHS = 300


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


def train(series: Tensor) -> OneStepModel:
    """Fit one-step forecasts on all windows of the series."""
    torch.manual_seed(0)
    model = OneStepModel()
    windows = series.unfold(0, LOOKBACK + 1, 1).T  # (LOOKBACK + 1, B)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=EPOCHS)
    start = time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        forecast, _ = model(windows[:-1])
        loss = nn.functional.mse_loss(forecast[WARM_UP:], windows[WARM_UP + 1 :])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if epoch in (1, 10, 30, 100, EPOCHS):
            print(f"  epoch {epoch:3d}   mean squared error {loss.item():.3f}")
    print(f"  {time.perf_counter() - start:.1f} s")
    return model


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


def mean_cycle(path: np.ndarray) -> float:
    """Years from one upward crossing of the mean to the next."""
    above = path > path.mean()
    rises = np.flatnonzero(~above[:-1] & above[1:])
    return float(np.diff(rises).mean())


def describe(matrix: np.ndarray) -> str:
    """Which recurrence feature a 2 x 2 block is."""
    first, second = np.linalg.eigvals(matrix)
    if first.imag:
        return f"C-1   modulus {abs(first):.2f}, period {2 * math.pi / abs(np.angle(first)):.1f} years"
    return f"R-1   {first.real:+.2f} and {second.real:+.2f}"


def sketch(years: np.ndarray, path: np.ndarray) -> None:
    """A bar for each year."""
    for year, value in zip(years, path, strict=True):
        print(f"  {year}  {value:5.0f}  {'#' * round(value / 4)}")


def main() -> None:
    """Train, compare, forecast, read."""
    data = sunspots.load_pandas().data
    years, spots = data["YEAR"].to_numpy().astype(int), data["SUNACTIVITY"].to_numpy()
    past = slice(None, len(spots) - HELD_OUT)
    root = np.sqrt(spots)  # evens out the spread of high and low years
    mean, scale = root[past].mean(), root[past].std()
    series = torch.tensor((root - mean) / scale, dtype=torch.float32)

    def to_spots(values: Tensor) -> np.ndarray:
        spots: np.ndarray = np.clip(values.numpy() * scale + mean, 0, None) ** 2
        return spots

    print(f"Yearly sunspots {years[0]} to {years[-1]}. A ParaLSTM of 8 blocks learns from all but the last {HELD_OUT}:")
    model = train(series[past])

    with torch.no_grad():
        forecast = to_spots(model(series[:-1, None])[0][-HELD_OUT:, 0])
    actual = spots[-HELD_OUT:]
    autoregression = AutoReg(spots[past], 9).fit().append(actual).predict(len(spots) - HELD_OUT, len(spots) - 1)
    print(f"\nMean absolute error of forecasts one year ahead, {years[-HELD_OUT]} to {years[-1]}:")
    for name, values in (
        ("repeat the last value", spots[-HELD_OUT - 1 : -1]),
        ("autoregression of order 9", autoregression),
        ("ParaLSTM", forecast),
    ):
        print(f"  {name:26s}{np.abs(values - actual).mean():6.1f} spots")

    path = to_spots(free_run(model, series, 1000))
    print(
        f"\nLeft to run by itself for {len(path)} years, the model has a cycle of {mean_cycle(path):.1f} years; in the"
    )
    print(f"observations it is {mean_cycle(spots):.1f}. Its first {2 * WARM_UP} years from {years[-1] + 1}:")
    sketch(np.arange(years[-1] + 1, years[-1] + 1 + 2 * WARM_UP), path[: 2 * WARM_UP])

    print("\nThe forecast is a sum over 8 blocks. How much of it each carries, and how the candidate of its cell")
    print("remembers the block's last state (that is its memory; the cycle above is the model's belief about the Sun):")
    share = shares(model, series)
    candidates = [block.matrix for block in model.recurrent.recurrent_blocks() if block.gate == "cell"]
    for block in share.argsort(descending=True).tolist():
        print(f"  block {block}   {share[block]:6.1%}   {describe(candidates[block].detach().numpy())}")


if __name__ == "__main__":
    main()
