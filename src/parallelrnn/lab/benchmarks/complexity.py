"""How long does a ParaRNN take, by block size? Figure 2(c) of arXiv 2605.02692, beside the counts of Theorem 2.

    pip install 'parallelrnn[plot]'
    python -m parallelrnn.lab.benchmarks.complexity run results/benchmarks/complexity.json    # wants the machine for itself
    python -m parallelrnn.lab.benchmarks.complexity table results/benchmarks/complexity.json
    python -m parallelrnn.lab.benchmarks.complexity figure results/benchmarks/complexity.json docs/figures/complexity.png

One ParaRNN layer with a linear aggregate, d = 128, T = 128 and one input as in the paper. The paper gives no batch
size: 128 sequences here, the case S1 of `parallelrnn bench`. `torch.nn.RNN` of the same width, without an aggregate,
is beside it. Forward is that of a training step, backward that of a fixed random gradient of the output; both are timed
in the same pass, and total is their sum. A round is one pass of each, in a new order, and there are a hundred rounds.
One in which other processes used more than 0.12 of a processor is taken again, up to eight times; how many were busy to
the last is in the file.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from parallelrnn import ParaRNN
from parallelrnn.io import write_text
from parallelrnn.lab.benchmarks.kernels import conditions, gate
from parallelrnn.lab.benchmarks.kernels.cases import CASES
from parallelrnn.lab.benchmarks.kernels.contenders import make_input
from parallelrnn.lab.benchmarks.kernels.turns import PASSES, Pass, measure_in_turns
from parallelrnn.theory.complexity import plot_complexity

CASE = CASES["S1"]
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
VANILLA = "torch.nn.RNN"


def run(path: Path, threads: int, repetitions: int) -> None:
    """Compare with `torch.nn`, measure, and write quartiles with their conditions."""
    torch.set_num_threads(threads)
    gate.check([], ["RNN"], [replace(CASE, block_size=size) for size in BLOCK_SIZES])
    torch.manual_seed(0)
    x, grad = make_input(CASE)
    layers: dict[str, nn.Module] = {
        str(size): ParaRNN(CASE.input_size, CASE.hidden_size, block_size=size) for size in BLOCK_SIZES
    }
    layers[VANILLA] = nn.RNN(CASE.input_size, CASE.hidden_size)
    rounds, busy = measure_in_turns(layers, x, grad, repetitions)
    found = {
        "conditions": asdict(conditions.current(threads)),
        "case": asdict(CASE),
        "repetitions": repetitions,
        "busy": busy,  # rounds that others disturbed
        "times": {name: quartiles([one[name] for one in rounds]) for name in layers},
    }
    write_text(path, json.dumps(found, indent=1) + "\n")


def quartiles(passes: list[Pass]) -> dict[str, list[float]]:
    """Of forward, backward and total: lower quartile, median, upper quartile, in seconds."""
    forward, backward = np.array(passes).T
    columns = dict(zip(PASSES, (forward, backward, forward + backward), strict=True))
    return {name: [float(value) for value in np.quantile(times, (0.25, 0.5, 0.75))] for name, times in columns.items()}


def table(found: dict[str, Any]) -> str:
    """Medians and quartiles in milliseconds, in Markdown."""
    rows = ["; ".join(f"{name} {value}" for name, value in found["conditions"].items())]
    rows += [f"{found['repetitions']} rounds, {found['busy']} of them disturbed by other processes", ""]
    rows += ["| block_size | " + " | ".join(PASSES) + " |", "| --- " * (1 + len(PASSES)) + "|"]
    for name, times in found["times"].items():
        cells = [
            f"{1e3 * middle:.2f} ({1e3 * low:.2f} to {1e3 * high:.2f})"
            for low, middle, high in (times[one] for one in PASSES)
        ]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def figure(found: dict[str, Any], path: Path) -> None:
    """Counts and times beside each other."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    times = found["times"]
    case = found["case"]
    by_pass = {one: {size: times[str(size)][one] for size in BLOCK_SIZES} for one in PASSES}
    _, measured = plot_complexity(
        case["input_size"], case["hidden_size"], case["length"], BLOCK_SIZES, by_pass, times[VANILLA]
    )
    made_under = found["conditions"]
    measured.set_title(
        f"{made_under['processor']}, {made_under['threads']} thread(s), {made_under['dtype']}, B = {case['batch']}",
        fontsize="small",
    )
    plt.savefig(path, dpi=110)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    for what in ("run", "table", "figure"):
        parts.add_parser(what).add_argument("results", type=Path)
    parts.choices["run"].add_argument("--threads", type=int, default=1)
    parts.choices["run"].add_argument("--repetitions", type=int, default=100)
    parts.choices["figure"].add_argument("path", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.results, arguments.threads, arguments.repetitions)
        return
    found = json.loads(arguments.results.read_text())
    if arguments.what == "table":
        print(table(found))
    else:
        figure(found, arguments.path)


if __name__ == "__main__":
    main()
