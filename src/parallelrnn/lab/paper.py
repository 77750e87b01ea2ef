"""The numbers that arXiv 2605.02692 reports, to stand beside ours.

The means of Figures 2(c) and D.1 are drawn and not printed, and so are missing here. Data sets have our names: Weather
is WTH, and the horizon 228 of ETTm1 is 288, as in the protocol that the table follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from parallelrnn.lab.experiments.models import MODELS
from parallelrnn.lab.experiments.tradeoff import BLOCK_SIZES

Column = TypeVar("Column", str, int)


def _numbers(table: str, columns: Sequence[Column]) -> dict[str, dict[Column, float]]:
    """Return the rows of a text: a name, and for each column a number or a dash."""
    rows: dict[str, dict[Column, float]] = {}
    for line in table.strip().splitlines():
        parts = line.split()
        name, values = parts[: -len(columns)], parts[-len(columns) :]
        rows[" ".join(name)] = {
            column: float(value) for column, value in zip(columns, values, strict=True) if value != "-"
        }
    return rows


# Table 1(a), of 32 comparisons (16 horizons, MSE and MAE); a tie counts for both.
WINS: dict[str, int] = dict(zip(MODELS, (7, 27, 7, 26, 8, 26, 15, 21), strict=True))

# Table 1(b) to (e): test accuracies in percent. Those of noise-padded LSTMs and GRUs are with chrono initialisation.
ACCURACIES = _numbers(
    """
    pmnist              90.31 93.93  94.20 94.10  94.44 94.67  97.87 97.90
    pixel-cifar         31.80 36.37  66.35 66.40  70.61 70.06  74.01 74.06
    noise-padded-cifar      -     -  56.71 57.07  52.90 53.40  68.85 68.91
    worms               43.33 43.59  42.82 43.59  42.82 43.33  58.40 60.97
    """,
    MODELS,
)

# Table S.2: standard deviations of test MSEs over 25 replicates, by noise variance and block_size.
TRADEOFF_SD = {
    float(variance): row
    for variance, row in _numbers(
        """
        1  101.00 1.53 2.86 0.59 0.52 0.57 0.40 0.29
        5  107.50 2.93 4.01 1.39 1.87 0.95 6.31 1.78
        """,
        BLOCK_SIZES,
    ).items()
}

# Table S.3: standard deviations of times over 100 replicates, by pass and block_size; the unit is not given.
SPEED_SD = _numbers(
    """
    forward   0.09 0.12 0.09 0.14 0.18 0.24 0.29 0.41
    backward  0.40 0.34 0.34 0.33 0.48 0.43 0.51 0.41
    total     0.42 0.38 0.35 0.36 0.50 0.45 0.57 0.55
    """,
    BLOCK_SIZES,
)

# Table S.4: MSE and MAE of each model, in the order of MODELS, over three replicates.
_FORECASTS = """
    ETTh1 24   0.548 0.530  0.547 0.522  0.642 0.602  0.621 0.580  0.513 0.527  0.484 0.504  0.520 0.506  0.503 0.496
    ETTh1 48   0.527 0.519  0.525 0.521  0.598 0.577  0.616 0.595  0.523 0.526  0.529 0.522  0.533 0.518  0.537 0.522
    ETTh1 168  0.752 0.662  0.747 0.648  0.974 0.774  0.909 0.739  0.794 0.684  0.764 0.666  0.799 0.675  0.800 0.671
    ETTh1 336  0.989 0.790  0.900 0.755  1.120 0.841  0.925 0.761  0.967 0.789  0.950 0.785  1.004 0.790  1.003 0.793
    ETTh2 24   0.595 0.598  0.550 0.569  0.966 0.786  0.804 0.719  0.614 0.633  0.516 0.549  0.954 0.778  0.891 0.758
    ETTh2 48   1.144 0.852  1.025 0.826  1.437 0.953  1.322 0.949  1.149 0.868  1.119 0.873  1.466 0.987  1.374 0.956
    ETTh2 168  4.599 1.787  3.325 1.519  3.428 1.578  3.399 1.515  3.347 1.542  2.478 1.239  2.852 1.311  2.873 1.310
    ETTh2 336  3.576 1.618  2.772 1.420  3.025 1.523  2.856 1.445  2.598 1.375  2.354 1.278  2.550 1.239  2.599 1.271
    ETTm1 24   0.780 0.581  0.766 0.577  0.814 0.624  0.756 0.582  0.753 0.585  0.674 0.557  0.778 0.601  0.745 0.585
    ETTm1 48   0.972 0.698  0.924 0.697  0.968 0.719  0.968 0.699  0.768 0.623  0.744 0.602  0.581 0.554  0.578 0.554
    ETTm1 96   0.570 0.548  0.519 0.509  0.605 0.570  0.535 0.526  0.510 0.529  0.428 0.458  0.869 0.739  0.786 0.694
    ETTm1 288  0.684 0.623  0.654 0.607  0.965 0.788  0.770 0.679  0.770 0.691  0.739 0.671  1.034 0.821  1.043 0.819
    WTH 24     0.365 0.411  0.368 0.411  0.376 0.420  0.374 0.417  0.360 0.407  0.360 0.403  0.384 0.428  0.384 0.428
    WTH 48     0.479 0.492  0.481 0.492  0.489 0.499  0.484 0.494  0.468 0.484  0.464 0.484  0.486 0.497  0.486 0.498
    WTH 168    0.569 0.558  0.564 0.556  0.570 0.558  0.571 0.559  0.549 0.546  0.556 0.552  0.742 0.641  0.750 0.645
    WTH 336    0.582 0.565  0.583 0.567  0.583 0.565  0.586 0.566  0.580 0.563  0.583 0.565  0.842 0.694  0.829 0.686
"""


def _forecasts() -> dict[tuple[str, int, str, str], float]:
    columns = [f"{model} {metric}" for model in MODELS for metric in ("mse", "mae")]
    errors = {}
    for place, row in _numbers(_FORECASTS, columns).items():
        dataset, horizon = place.split()
        for column, error in row.items():
            model, metric = column.split()
            errors[dataset, int(horizon), model, metric] = error
    return errors


FORECASTS = _forecasts()  # by data set, horizon, model and metric, "mse" or "mae"
