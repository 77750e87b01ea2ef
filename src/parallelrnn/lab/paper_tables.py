"""The tables of each experiment, the paper's numbers beside ours."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from parallelrnn.lab import paper
from parallelrnn.lab.benchmarks.kernels.turns import PASSES
from parallelrnn.lab.comparison import (
    SOLVED,
    find_twins,
    paired_difference,
    rows_of_twins,
    seconds_to_converge,
    solved,
    winning_counts,
)
from parallelrnn.lab.experiments.feature_types import total
from parallelrnn.lab.experiments.forecasting import HORIZONS, NEIGHBOURS
from parallelrnn.lab.experiments.models import MODELS
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.experiments.tradeoff import BLOCK_SIZES
from parallelrnn.lab.markdown import interval, number, spread, table, types
from parallelrnn.lab.page import Page
from parallelrnn.lab.picking import NOT_RUN, Picked, Runs, mean
from parallelrnn.lab.running.store import Line


def _tradeoff(page: Page) -> list[str]:
    picked = page.picked
    kinds = list(itertools.product(picked.all("recurrent_scale"), picked.all("noise_variance")))

    def runs(size: int, kind: tuple[float, float]) -> Runs | None:
        return picked.get(block_size=size, recurrent_scale=kind[0], noise_variance=kind[1])

    def error(one: Runs | None) -> str:
        return (
            NOT_RUN if one is None else f"{spread(one.values('mse'))} (n {len(one.lines)}, budget {page.budget(one)})"
        )

    def less(one: Runs | None, other: Runs | None) -> str:
        return str(paired_difference(one, other, "mse") or "-")

    columns = [f"scale {scale:g}, noise {variance:g}" for scale, variance in kinds]
    errors = [
        [str(size), *(error(runs(size, kind)) for kind in kinds)]
        + [number(paper.TRADEOFF_SD[variance][size], ".2f") for variance in paper.TRADEOFF_SD]
        for size in BLOCK_SIZES
    ]
    guess = ["mean of the targets"]
    for kind in kinds:
        there = [one for size in BLOCK_SIZES if (one := runs(size, kind)) is not None]
        guess.append(number(mean(there[0].values("variance")), ".4g") if there else "-")
    against = [[str(size), *(less(runs(size, kind), runs(128, kind)) for kind in kinds)] for size in BLOCK_SIZES[:-1]]
    against.append(["2, less 1", *(less(runs(2, kind), runs(1, kind)) for kind in kinds)])
    return [
        "Mean test MSE, its standard deviation, and in brackets the runs and their budget. `scale` is "
        "`recurrent_scale`: 1, the paper's, makes the data chaotic, and 0.0884 is the edge of that. No model can "
        "expect less than the noise variance; to guess the mean gives the last row.",
        table(["block_size", *columns, *(f"paper's sd, noise {v:g}" for v in paper.TRADEOFF_SD)], [*errors, guess]),
        "Differences of test MSE to block_size 128 on the same data, seed by seed: mean, half of the 95 % interval by "
        "Student's t, pairs. The last row is block_size 2 less block_size 1.",
        table(["block_size", *columns], against),
        table(["block_size", "epochs", "s per run", "parameters"], _costs(picked.runs)),
        _BY_THE_CLOCK,
    ]


def _costs(found: Sequence[Runs]) -> list[list[str]]:
    """By block size."""
    rows = []
    for size in BLOCK_SIZES:
        some = [one for one in found if one.cell["block_size"] == size]
        values = [
            [value for one in some for value in one.values("epochs")],
            [value for one in some for value in one.seconds],
            [value for one in some for value in one.values("parameters")],
        ]
        rows.append([str(size), *map(interval, values)])
    return rows


def _speed(page: Page) -> list[str]:
    one = page.picked.runs[0]

    def found(name: str, which: str, what: str) -> float:
        values = one.values(f"{name} {which} {what}")
        if not values:
            return math.nan
        return math.sqrt(mean([value**2 for value in values])) if what == "sd" else mean(values)  # sd within runs

    rows = []
    for name in (*map(str, BLOCK_SIZES), VANILLA):
        row = [name]
        for which in PASSES:
            ours = (
                "-"
                if math.isnan(found(name, which, "mean"))
                else (f"{found(name, which, 'mean'):.3g} ± {found(name, which, 'sd'):.2g}")
            )
            row += [ours, "-" if name == VANILLA else number(paper.SPEED_SD[which][int(name)], ".2f")]
        times = found(VANILLA, "total", "median") / found(name, "total", "median")
        rows.append([*row, "-" if math.isnan(times) else f"{times:.3g}"])
    header = [f"{which}, ms" if ours else "paper's sd" for which in PASSES for ours in (True, False)]
    disturbed = [line for line in one.lines if line["details"].get("disturbed")]
    words = [f"{line['details']['disturbed_rounds']} of {line['config']['rounds']}" for line in disturbed]
    return [
        "Mean milliseconds of a pass and their standard deviation. The last column is how many times faster a training "
        f"step is than that of {VANILLA}, by medians. The paper prints standard deviations only, on a V100, without "
        "their unit.",
        table(["block_size", *header, f"times {VANILLA}"], rows),
        f"Runs: {len(one.lines)}, budget {page.budget(one)}.",
        *([f"Other processes disturbed {', '.join(words)} rounds: measure again."] if words else []),
    ]


def _forecasting(page: Page) -> list[str]:
    picked = page.picked
    rows = {metric: rows_of_twins(picked, metric) for metric in ("mse", "mae")}
    counts = winning_counts([*rows["mse"], *rows["mae"]])
    errors, costs = [], []
    others = [f"{model}‡" if model == "Forecaster" else model for model in NEIGHBOURS]
    for dataset, horizons in HORIZONS.items():
        for horizon in horizons:
            found = {
                model: picked.get(dataset=dataset, horizon=horizon, model=model) for model in (*MODELS, *NEIGHBOURS)
            }
            for metric in ("mse", "mae"):
                theirs = {model: paper.FORECASTS[dataset, horizon, model, metric] for model in MODELS}
                row = [dataset, str(horizon), metric.upper()]
                place = {"dataset": dataset, "horizon": horizon}
                row += [f"{theirs[model]:.3f} / {_forecast(picked, metric, model, **place)}" for model in MODELS]
                errors.append(row + [_forecast(picked, metric, model, **place) for model in NEIGHBOURS])
            costs.append([dataset, str(horizon), *(_cost(page, one) for one in found.values())])
    ours = [counts.get(model) for model in MODELS]
    wins = [
        ["paper", *(f"{paper.WINS[model]} of 32" for model in MODELS)],
        ["ours", *("-" if one is None else f"{one.wins} of {one.compared}" for one in ours)],
    ]
    return [
        "How often a model is better than its twin or as good (Table 1(a)), over data sets, horizons, MSE and MAE: at "
        "three decimals, and only where both twins were run with the same budget, on the seeds that both have.",
        table(["", *MODELS], wins),
        "Errors of standardised values, the paper's / ours (Table S.4); ours in bold where better than the twin's of "
        "the same budget, or as good, on the seeds that both have. On the right what anyone should beat, and our "
        "Forecaster.",
        table(["data", "horizon", "", *MODELS, *others], errors),
        _FORECASTER,
        "What that took: runs, epochs of each on average, median seconds, and in brackets the number of the budget, of "
        "those that the paper has.",
        table(["data", "horizon", *MODELS, *others], costs),
        _BY_THE_CLOCK,
    ]


_BY_THE_CLOCK = (
    "Seconds are by the clock, whatever else a machine had to do: what runs cost, not how fast models are. "
    "The table of `speed`, and docs/performance.md, tell that."
)
_FORECASTER = (
    "‡ Forecaster's defaults were chosen among some sixty variants by errors on the test parts of ETT; WTH took no "
    "part in that (docs/forecasting.md). All others were selected on validation parts, but for how the blocks of para "
    "models begin, which was chosen after test results of permuted MNIST were seen (docs/reproducing.md)."
)
_CERTAIN = ("naive", "seasonal naive")  # nothing is drawn: all replicates are the same


def _forecast(picked: Picked, metric: str, model: str, **place: Any) -> str:
    one = picked.get(model=model, **place)
    if one is None:
        return NOT_RUN
    values = one.values(metric)[: 1 if model in _CERTAIN else None]
    text = spread(values, ".3f") + ("†" if one.apart else "")
    twins = find_twins(picked, model.removeprefix("Para"), **place)
    if twins is not None and winning_counts([twins.means(metric)])[model].wins:
        return f"**{text}**"
    return text


def _cost(page: Page, one: Runs | None) -> str:
    if one is None:
        return NOT_RUN
    model = one.cell["model"]
    count = 1 if model in _CERTAIN else len(one.lines)
    epochs = one.values("epochs")
    parts = [
        str(count),
        *([f"{mean(epochs):.3g}"] if epochs else []),
        f"{number(statistics.median(one.seconds[:count]))} s",
    ]
    return ", ".join(parts) + ("" if model in NEIGHBOURS else f" ({page.budget(one)})")


def _classification(page: Page) -> list[str]:
    rows = []
    for cell in page.picked.cells:
        names = [cell[name] for name in ("dataset", "model") if name in cell]
        of_paper = cell.get("dataset", "EigenWorms") == "EigenWorms"
        theirs = paper.ACCURACIES[page.name].get(cell["model"]) if of_paper else None
        one = page.picked.get(**cell)
        rows.append([*names, "-" if theirs is None else f"{theirs:.2f}", *_accuracy(page, one)])
    names = [title for name, title in (("dataset", "data"), ("model", "model")) if name in page.picked.cells[0]]
    columns = ["paper", "ours", "runs", "epochs", "s per epoch", "parameters", "budget"]
    return ["Test accuracy in percent.", table([*names, *columns], rows), _BY_THE_CLOCK]


def _accuracy(page: Page, one: Runs | None) -> list[str]:
    if one is None:
        return [NOT_RUN]
    epochs = one.values("epochs")
    return [
        spread([100 * value for value in one.values("accuracy")], ".2f"),
        str(len(one.lines)),
        interval(epochs),
        number(statistics.median(spent / count for spent, count in zip(one.seconds, epochs, strict=True))),
        interval(one.values("parameters")),
        page.budget(one),
    ]


def _feature_evolution(page: Page) -> list[str]:
    rows = []
    for cell in page.picked.cells:
        names = [cell["model"], cell["initial"]]
        one = page.picked.get(**cell)
        if one is None:
            rows.append([*names, NOT_RUN])
            continue
        for line in one.lines:
            history = line["details"]["features"]
            first = next(iter(history[0]))  # the first gate of the first layer, which the figure shows
            shown = [types(history[at][first]) for at in (0, -1)]
            everywhere = types(total(history[-1]))
            accuracy = f"{100 * line['metrics']['accuracy']:.2f}"
            passed = interval([line["metrics"]["epochs"]])
            rows.append([*names, *shown, _low_from(line), everywhere, accuracy, passed, *_end_of_row(page, one, line)])
    return [
        "Recurrence features by type, of the first layer's first gate before and after training, and of all layers and "
        "gates after. `low from` says when the last feature of an order above 1 was gone.",
        table(
            ["model", "initial", "before", "after", "low from", "all, after", "accuracy, %", "epochs", "s", "budget"],
            rows,
        ),
        _BY_THE_CLOCK,
    ]


def _feature_recovery(page: Page) -> list[str]:
    rows = []
    for cell in page.picked.cells:
        names = [cell["truth"], cell["initial"]]
        one = page.picked.get(**cell)
        if one is None:
            rows.append([*names, NOT_RUN])
            continue
        for line in one.lines:
            history, metrics = line["details"]["features"], line["metrics"]
            errors = [number(line["curve"][-1][name]) for name in ("training", "validation")]
            distances = [number(metrics[name]) for name in ("first_distance", "distance")]
            shown = [types(one["counts"]) for one in (line["details"]["true"], history[0], history[-1])]
            passed = interval([metrics["epochs"]])
            rows.append([*names, *errors, *distances, *shown, passed, *_end_of_row(page, one, line)])
    columns = ["training MSE", "validation MSE", "distance before", "after", "true types", "types before", "after"]
    return [
        "Distances are Frobenius norms of the recurrent matrix less the true one; the noise has variance 0.0001, below "
        "which no error can stay.",
        table(["truth", "initial", *columns, "epochs", "s", "budget"], rows),
        _BY_THE_CLOCK,
    ]


def _adding(page: Page) -> list[str]:
    rows = []
    for cell in page.picked.cells:
        names = [str(cell["length"]), cell["model"]]
        one = page.picked.get(**cell)
        if one is None:
            rows.append([*names, NOT_RUN])
            continue
        reached, seconds = one.by_seed("iterations_to_0.01"), seconds_to_converge(one)
        paces = [spent / line["config"]["iterations"] for spent, line in zip(one.seconds, one.lines, strict=True)]
        rows.append(
            [
                *names,
                f"{solved(one)} of {len(one.lines)}",
                ", ".join(f"{value:.2g}" for value in one.values("mse")),
                ", ".join(f"{reached[line['seed']]:.0f}" if line["seed"] in reached else "-" for line in one.lines),
                ", ".join(f"{spent:.0f}" for spent in one.seconds),
                number(1000 * mean(paces)),
                number(statistics.median(seconds.values())) if seconds else "-",
                page.budget(one),
            ]
        )
    columns = ["solved", "last test MSE", "iterations to 0.01", "s", "s per 1,000", "s to 0.01", "budget"]
    return [
        f"A run is solved if its last test MSE is below {SOLVED}; to guess the mean gives 0.167. Values of replicates "
        "are in the order of their seeds. `iterations to 0.01` are those until the test MSE first was below, and `s to "
        "0.01` is the median of their times.",
        table(["length", "model", *columns], rows),
        _BY_THE_CLOCK,
    ]


def _end_of_row(page: Page, one: Runs, line: Line) -> list[str]:
    return [number(line["metrics"]["seconds"]), page.budget(one) + (f", seed {line['seed']}" if line["seed"] else "")]


def _low_from(line: Line) -> str:
    """The first step from which on all features are R-1 or C-1, as far as was read."""
    history = line["details"]["features"]
    high = [at for at, places in enumerate(history) if any(not label.endswith("-1") for label in total(places))]
    first = high[-1] + 1 if high else 0
    if first == len(history):
        return "not yet"
    steps = line["config"]["epoch_steps"]
    return f"epoch {first}" if steps is None else f"step {first * steps}"


TABLES: dict[str, Callable[[Page], list[str]]] = {
    "tradeoff": _tradeoff,
    "speed": _speed,
    "forecasting": _forecasting,
    "pmnist": _classification,
    "pixel-cifar": _classification,
    "noise-padded-cifar": _classification,
    "worms": _classification,
    "feature-evolution": _feature_evolution,
    "feature-recovery": _feature_recovery,
    "adding": _adding,
}
