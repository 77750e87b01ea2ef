"""`SequenceClassifier` beside classifiers that people use: accuracy and time on two sets of the UEA and UCR archive.

    pip install 'parallelrnn[cli,sequences]' aeon==1.6.0
    python -m parallelrnn.lab.benchmarks.classification DATA     # the same command resumes

DATA is a folder with Worms.npz and StandWalkJump.npz: X_train, y_train, X_test, y_test. All options are defaults. The
vanilla cells are ours with one block as wide as the layer, which is what `torch.nn` computes, trained in the same way.
Contenders take turns, and each fits something small first, so that what is compiled once is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parallelrnn import SequenceClassifier
from parallelrnn.lab.benchmarks.measuring import provenance, run_missing
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

NAME = "classification"
DATA_SETS = ("Worms", "StandWalkJump")
THREADS, SEEDS = 2, 5


def ours(cell: str, vanilla: bool, seed: int) -> Any:
    """Return a classifier of blocks, or of one block."""
    classifier = SequenceClassifier(cell=cell, random_state=seed, progress=False)
    return classifier.set_params(block_size=classifier.hidden_size) if vanilla else classifier


def rocket(seed: int) -> Any:
    """Return random convolutions with a linear classifier."""
    from aeon.classification.convolution_based import RocketClassifier

    return RocketClassifier(random_state=seed, n_jobs=THREADS)


def nearest(_: int) -> Any:
    """Return the nearest neighbour by dynamic time warping, which is not random."""
    from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier

    return KNeighborsTimeSeriesClassifier(n_neighbors=1, distance="dtw", n_jobs=THREADS)


CONTENDERS: dict[str, Callable[[int], Any]] = {
    "para GRU": partial(ours, "gru", False),
    "para LSTM": partial(ours, "lstm", False),
    "vanilla GRU": partial(ours, "gru", True),
    "vanilla LSTM": partial(ours, "lstm", True),
    "ROCKET (aeon)": rocket,
    "1-NN DTW (aeon)": nearest,
}


def run(data: Path, results: Path = Path("results/benchmarks")) -> None:
    """Fit and score what the results do not hold yet."""
    torch.set_num_threads(THREADS)
    arrays = {name: dict(np.load(data / f"{name}.npz", allow_pickle=False)) for name in DATA_SETS}
    warm: set[tuple[str, str]] = set()

    def measure(config: dict[str, Any], seed: int) -> dict[str, float]:
        name, classifier = config["data"], config["classifier"]
        if (name, classifier) not in warm:
            small = {key: array[:6] for key, array in arrays[name].items()}
            fit_and_score(classifier, seed, small | dict.fromkeys(("y_train", "y_test"), np.arange(6) % 2))
            warm.add((name, classifier))
        return fit_and_score(classifier, seed, arrays[name])

    jobs = [
        ({"data": name, "classifier": classifier}, seed)
        for name in DATA_SETS
        for seed in range(SEEDS)
        for classifier in CONTENDERS
    ]
    run_missing(RunStore(results), NAME, jobs, measure, provenance(THREADS, ["aeon"]))


def fit_and_score(name: str, seed: int, arrays: dict[str, Any]) -> dict[str, float]:
    """Return accuracy and seconds."""
    classifier = CONTENDERS[name](seed)
    train, test = arrays["X_train"], arrays["X_test"]
    if "aeon" in name:  # it has time last
        train, test = train.transpose(0, 2, 1), test.transpose(0, 2, 1)
    began = time.perf_counter()
    classifier.fit(train, arrays["y_train"])
    fitted = time.perf_counter()
    accuracy = float((classifier.predict(test) == arrays["y_test"]).mean())
    return {"accuracy": accuracy, "fit": fitted - began, "predict": time.perf_counter() - fitted}


def table(results: Path) -> Table:
    """Return means and ranges of the accuracy over seeds, and medians of times."""
    runs = RunStore(results / "benchmarks").load(NAME)
    rows = []
    for config in ({"data": data, "classifier": name} for data in DATA_SETS for name in CONTENDERS):
        of_row = [run.result for run in runs if run.config == config]
        if of_row:
            accuracies = [result["accuracy"] for result in of_row]
            low, high = min(accuracies), max(accuracies)
            accuracy = f"{statistics.mean(accuracies):.3f}" + (f" ({low:.2f} to {high:.2f})" if low < high else "")
            times = [f"{statistics.median(result[name] for result in of_row):.2f}" for name in ("fit", "predict")]
            rows.append([*config.values(), accuracy, *times])
    return Table(["data", "classifier", "accuracy", "seconds to fit", "seconds to classify the test set"], rows)


if __name__ == "__main__":
    import typer

    typer.run(run)
