"""Read an `nn.GRU` that you have trained already: how does it remember, and what would blocks of it be?"""

from __future__ import annotations

import numpy as np
import torch
from statsmodels.datasets import sunspots
from torch import nn

from parallelrnn import from_torch, impulse_response, recurrence_features


def trained() -> tuple[nn.GRU, torch.Tensor]:
    """A GRU that learned to forecast the next year's sunspots; the kind of model that you may have."""
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
    print(f"A GRU with a mean squared error of {loss.item():.2f} of a variance of 1.")
    return gru, x


def main() -> None:
    """Features of its matrices, the response to a pulse, and the same numbers from a layer of ours."""
    gru, x = trained()
    print(recurrence_features(gru).summary())
    response = impulse_response(gru, x, lags=12)
    left = np.abs(response.mean).sum((1, 2))  # of all units
    print("What is left of a nudge in the outputs, by years after it, of what it was at first:")
    print("  " + "  ".join(f"{part:.2f}" for part in (left / left[0]).tolist()))
    ours = from_torch(gru)
    with torch.no_grad():
        largest = (ours(x)[0] - gru(x)[0]).abs().max()
    print(f"The same GRU as a ParaGRU of one block; outputs differ by at most {largest:.1e}.")


if __name__ == "__main__":
    main()
