"""`SequenceClassifier` beside classifiers that people use: accuracy and time on two sets of the UEA and UCR archive.

    pip install aeon==1.6.0
    python -m parallelrnn.lab.benchmarks.classification run PATH results/benchmarks/classification.jsonl     # cut off, it goes on
    python -m parallelrnn.lab.benchmarks.classification table results/benchmarks/classification.jsonl

PATH holds Worms.npz and StandWalkJump.npz: X_train, y_train, X_test, y_test. All options are defaults. The vanilla
cells are ours with one block as wide as the layer, which is what `torch.nn` computes, trained in the same way.
Contenders take turns, and each fits something small first, so that what is compiled once is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parallelrnn import SequenceClassifier
from parallelrnn.lab.benchmarks.journal import go_on, load
from parallelrnn.lab.benchmarks.kernels import conditions

SETS = ("Worms", "StandWalkJump")
THREADS, SEEDS = 2, 5


def ours(cell: str, vanilla: bool) -> Callable[[int], Any]:
    """A classifier for each seed."""
    hidden_size = SequenceClassifier().hidden_size
    blocks = {"block_size": hidden_size} if vanilla else {}
    return lambda seed: SequenceClassifier(cell=cell, random_state=seed, progress=False, **blocks)


def rocket(seed: int) -> Any:
    """Random convolutions and a linear classifier."""
    from aeon.classification.convolution_based import RocketClassifier

    return RocketClassifier(random_state=seed, n_jobs=THREADS)


def nearest(_: int) -> Any:
    """The class of the nearest neighbour; nothing in it is random."""
    from aeon.classification.distance_based import KNeighborsTimeSeriesClassifier

    return KNeighborsTimeSeriesClassifier(n_neighbors=1, distance="dtw", n_jobs=THREADS)


CONTENDERS: dict[str, Callable[[int], Any]] = {
    "para GRU": ours("gru", vanilla=False),
    "para LSTM": ours("lstm", vanilla=False),
    "vanilla GRU": ours("gru", vanilla=True),
    "vanilla LSTM": ours("lstm", vanilla=True),
    "ROCKET (aeon)": rocket,
    "1-NN DTW (aeon)": nearest,
}


def run(folder: Path, path: Path) -> None:
    """Measure what the file does not hold yet; each result is written as it comes."""
    torch.set_num_threads(THREADS)
    done = {(line["data"], line["name"], line["seed"]) for line in go_on(path, current_conditions())}
    for data in SETS:
        arrays = dict(np.load(folder / f"{data}.npz"))
        little = {key: array[:6] for key, array in arrays.items()}
        little |= {"y_train": np.arange(6) % 2, "y_test": np.arange(6) % 2}
        warm: set[str] = set()
        for seed in range(SEEDS):
            for name, make in CONTENDERS.items():
                if (data, name, seed) in done:
                    continue
                if name not in warm:
                    measure(make(seed), name, little)
                    warm.add(name)
                found = {"data": data, "name": name, "seed": seed, **measure(make(seed), name, arrays)}
                print(found, flush=True)
                with path.open("a") as file:
                    file.write(json.dumps(found) + "\n")


def measure(classifier: Any, name: str, arrays: dict[str, Any]) -> dict[str, float]:
    """Fit and score; aeon has time last."""
    train, test = arrays["X_train"], arrays["X_test"]
    if "aeon" in name:
        train, test = train.transpose(0, 2, 1), test.transpose(0, 2, 1)
    began = time.perf_counter()
    classifier.fit(train, arrays["y_train"])
    fitted = time.perf_counter()
    accuracy = float((classifier.predict(test) == arrays["y_test"]).mean())
    return {"accuracy": accuracy, "fit": fitted - began, "predict": time.perf_counter() - fitted}


def current_conditions() -> dict[str, Any]:
    """With what the numbers are made."""
    found = asdict(conditions.current(THREADS))
    del found["other_load"]
    return {**found, "aeon": version("aeon")}


def table(made_under: dict[str, Any], lines: list[dict[str, Any]]) -> str:
    """Means and ranges over seeds, medians of times, in Markdown."""
    rows = ["; ".join(f"{name} {value}" for name, value in made_under.items()), ""]
    rows += ["| data | classifier | accuracy | seconds to fit | seconds to classify the test set |"]
    rows += ["| --- | --- | --- | --- | --- |"]
    for data in SETS:
        for name in CONTENDERS:
            mine = [line for line in lines if line["data"] == data and line["name"] == name]
            if not mine:
                continue
            right = [line["accuracy"] for line in mine]
            spread = "" if min(right) == max(right) else f" ({min(right):.2f} to {max(right):.2f})"
            times = [f"{statistics.median(line[what] for line in mine):.2f}" for what in ("fit", "predict")]
            rows.append(f"| {data} | {name} | {statistics.mean(right):.3f}{spread} | {' | '.join(times)} |")
    return "\n".join(rows)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    running = parts.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("path", type=Path)
    parts.add_parser("table").add_argument("path", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.folder, arguments.path)
    else:
        print(table(*load(arguments.path)))


if __name__ == "__main__":
    main()
