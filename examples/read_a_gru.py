"""Read an `nn.GRU` that is already trained: how does it remember? Then turn it into a ParaGRU."""

from __future__ import annotations

import numpy as np
import torch
from statsmodels.datasets import sunspots
from torch import nn

from parallelrnn import from_torch, impulse_response, recurrence_features


def train_gru() -> tuple[nn.GRU, torch.Tensor]:
    """Return a GRU trained to forecast next year's sunspots, and the series."""
    torch.manual_seed(0)
    series = np.sqrt(sunspots.load_pandas().data["SUNACTIVITY"].to_numpy())
    x = torch.tensor((series - series.mean()) / series.std(), dtype=torch.float32)[:, None]  # (T, 1)
    gru, readout = nn.GRU(1, 8), nn.Linear(8, 1)
    optimizer = torch.optim.Adam([*gru.parameters(), *readout.parameters()], 0.02)
    for _ in range(80):
        loss = nn.functional.mse_loss(readout(gru(x[:-1])[0])[11:], x[12:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"The GRU has a mean squared error of {loss.item():.2f}; the variance of the series is 1.")
    return gru, x


def main() -> None:
    """Show the recurrence features and the impulse response, and compare with the ParaGRU."""
    gru, x = train_gru()
    print(recurrence_features(gru).summary())
    response = impulse_response(gru, x, lags=12)
    sizes = np.abs(response.mean).sum((1, 2))  # over all units
    print("How much of an impulse is left in the outputs after 0, 1, 2, ... years:")
    print("  " + "  ".join(f"{share:.2f}" for share in (sizes / sizes[0]).tolist()))
    para_gru = from_torch(gru)
    with torch.no_grad():
        difference = (para_gru(x)[0] - gru(x)[0]).abs().max()
    print(f"The same weights in a ParaGRU with one block: outputs differ by at most {difference:.1e}.")


if __name__ == "__main__":
    main()
