"""Small tables of series, and a forecaster that is quick to fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from parallelrnn import Forecaster


def hourly(steps: int = 400, ids: tuple[str, ...] = ("a", "b"), seed: int = 0, noise: float = 0.3) -> pd.DataFrame:
    """Series with a day, a slow wave and noise, at different levels and scales."""
    random = np.random.default_rng(seed)
    time = np.arange(steps)
    frames = []
    for index, name in enumerate(ids):
        wave = np.sin(2 * np.pi * time / 24 + index) + 0.5 * np.cos(2 * np.pi * time / 61)
        values = 10.0**index * (3 + wave + noise * random.standard_normal(steps))
        stamps = pd.date_range("2024-01-01", periods=steps, freq="h")
        frames.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": values}))
    return pd.concat(frames, ignore_index=True)


def quick(horizon: int = 12, lookback: int = 48, **options: Any) -> Forecaster:
    """Trains in a second."""
    small = {"hidden_size": 16, "num_waves": 3, "num_decays": 2, "batch_size": 64}
    short = {"max_epochs": 2, "epoch_steps": (20, 20)}
    return Forecaster(horizon, lookback, **{**small, **short, **options})
