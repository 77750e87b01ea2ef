"""The page of results in Markdown: for each experiment its tables, the paper's numbers beside ours, and conditions."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from parallelrnn.lab import paper
from parallelrnn.lab.benchmarks.timing import PASSES
from parallelrnn.lab.experiments.adding import SOLVED
from parallelrnn.lab.experiments.feature_types import total
from parallelrnn.lab.experiments.forecasting import BASELINES, DETERMINISTIC, HORIZONS
from parallelrnn.lab.experiments.models import MODELS
from parallelrnn.lab.experiments.registry import EXPERIMENTS, TITLES
from parallelrnn.lab.experiments.speed import VANILLA
from parallelrnn.lab.experiments.tradeoff import BLOCK_SIZES
from parallelrnn.lab.runs import Run, RunStore
from parallelrnn.lab.select_runs import (
    CellRuns,
    Pair,
    Selection,
    count_wins,
    malformed_runs_rejected,
    paired,
    select_runs,
)
from parallelrnn.lab.tables import Table, escape_markdown, mean, mean_and_deviation, number, paired_interval, span

HEAD = """# Results beside the paper's

The paper is arXiv 2605.02692; [docs/reproducing.md](../docs/reproducing.md) says which of its statements hold. Each
cell shows the runs of one budget, the largest that both paired models have. A number followed by ± is a mean over runs
and their standard deviation; a difference followed by ± and pairs is a mean over the seeds that both have, and half of
its 95 % interval by Student's t. Budgets are those of our runs; a value in brackets is that of the experiment's own
configuration, which has the paper's values as far as the paper gives them.
"""

NOT_RUN = "not run"
_CLOCK = (
    "Seconds are wall-clock time, whatever else the machine did: what runs cost, not how fast models are. See the "
    "table of `speed` and docs/performance.md for speed."
)


def select_all(results: Path) -> dict[str, Selection]:
    """Return the runs to show of each experiment."""
    store = RunStore(results)
    return {name: select_runs(experiment, store.load(name)) for name, experiment in EXPERIMENTS.items()}


def results_page(selections: Mapping[str, Selection], figures: Mapping[str, Sequence[str]] | None = None) -> str:
    """Return the page of all experiments in the order of the paper; `figures` are the addresses of their figures."""
    sections = [section(name, selections[name], (figures or {}).get(name, ())) for name in selections]
    return "\n".join([HEAD, "## Paired differences\n", paired_differences(selections).markdown() + "\n", *sections])


def experiments_table(results: Path) -> Table:
    """Return the experiments and what of the paper each is."""
    return Table(["experiment", "in the paper"], [[f"`{name}`", title] for name, title in TITLES.items()])


@malformed_runs_rejected()
def section(name: str, selection: Selection, figures: Sequence[str] = ()) -> str:
    """Return the part of the page on one experiment: tables, figures, budgets and conditions."""
    source, _, title = TITLES[name].partition(": ")
    parts = [f"## {name}: {title}", f"{source} of the paper."]
    left_out = (("other budgets", selection.other_budgets), ("other cells", selection.other_cells))
    counts = [f"{count} of {what}" for what, count in left_out if count]
    not_shown = [f"Runs that are not shown: {', '.join(counts)}."] if counts else []
    if not selection.groups:
        return "\n\n".join([*parts, "Not run.", *not_shown]) + "\n"
    budgets = _Budgets()
    parts += [table.markdown() for table in _TABLES[name](name, selection, budgets)]
    parts += [f"![{name}]({address})" for address in figures]
    parts += ["\n".join(f"- budget {place}: {text}" for text, place in budgets.items())] if budgets else []
    if any(group.is_odd for group in selection.groups):
        parts.append("† Run with another budget than most of its paired models: do not compare it with them.")
    runs = [run for group in selection.groups for run in group.runs]
    return "\n\n".join([*parts, *not_shown, f"Conditions: {escape_markdown(_conditions(runs))}."]) + "\n"


class _Budgets(dict[str, int]):
    """The budgets that the tables of a section name, numbered in order of appearance."""

    def number(self, group: CellRuns) -> str:
        place = self.setdefault(escape_markdown(group.budget_text), len(self) + 1)
        return f"{place}{'†' if group.is_odd else ''}"


def _conditions(runs: Sequence[Run]) -> str:
    """Return where, with what and when runs were made; a run that was resumed may have several commits."""

    def distinct(values: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    machines = [defaultdict(lambda: "?", run.provenance["machine"]) for run in runs]
    processors = distinct("{processor} ({cores} cores, {instruction_set})".format_map(machine) for machine in machines)
    versions = distinct("torch {torch}, parallelrnn {parallelrnn}".format_map(machine) for machine in machines)
    threads = distinct(str(machine["threads"]) for machine in machines)
    commits = [commit for run in runs for commit in (*run.provenance.get("commits", ()), run.provenance["commit"])]
    days = sorted({run.provenance["started"][:10] for run in runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    made_by = distinct(
        commit if commit.startswith("version") else commit[:10] + "+" * commit.endswith("+") for commit in commits
    )
    return f"{processors}; threads of each run {threads}; {versions}; commit {made_by}; {when}"


@malformed_runs_rejected()
def paired_differences(selections: Mapping[str, Selection]) -> Table:
    """Return how para models differ from their vanilla models, over all pairs of the same budget."""
    rows = []
    for name, selection in selections.items():
        if name == "forecasting":
            for model in dict.fromkeys(pair.vanilla.cell["model"] for pair in selection.pairs):
                pairs = [pair for pair in selection.pairs if pair.vanilla.cell["model"] == model]
                rows.append([name, f"{model}, Para{model}", *_mse_ratio(pairs)])
            continue
        for pair in selection.pairs:
            place = [f"{key} {pair.para.cell[key]}" for key in ("dataset", "length") if key in pair.para.cell]
            names = [", ".join([name, *place]), f"{pair.vanilla.cell['model']}, {pair.para.cell['model']}"]
            for measure, scale, form in _MEASURES.get(name, _MEASURES["pmnist"]):
                vanilla, para = (
                    _seconds_to_solve(group) if measure == "seconds to 0.01" else group.by_seed(measure)
                    for group in (pair.vanilla, pair.para)
                )
                if difference := paired_interval(para, vanilla, scale):
                    shown = [number(scale * mean(list(values.values())), form) for values in (vanilla, para)]
                    rows.append([*names, measure, *shown, str(difference)])
    title = (
        "Para models less their vanilla models, on the same seeds and at the same budget. For forecasts, the change of "
        "the geometric mean of MSEs over all settings; its interval is over data sets, whose horizons are not "
        "independent."
    )
    return Table(["runs", "models", "measure", "vanilla", "para", "difference"], rows, title)


_MEASURES: dict[str, tuple[tuple[str, float, str], ...]] = {  # name, factor and format
    "pmnist": (("accuracy", 100.0, ".2f"),),
    "feature-evolution": (),
    "adding": (("mse", 1.0, ".2g"), ("iterations_to_0.01", 1.0, ".3g"), ("seconds to 0.01", 1.0, ".3g")),
}


def _mse_ratio(pairs: Sequence[Pair]) -> list[str]:
    """Return the change of MSE of a para model over all settings."""
    logarithms = [math.log(para / vanilla) for vanilla, para in (pair.means("mse") for pair in pairs)]
    by_dataset: dict[str, list[float]] = {}
    for pair, logarithm in zip(pairs, logarithms, strict=True):
        by_dataset.setdefault(pair.para.cell["dataset"], []).append(logarithm)
    means = {dataset: mean(values) for dataset, values in by_dataset.items()}
    interval = paired_interval(means, dict.fromkeys(means, 0.0))
    text = f"{math.expm1(mean(logarithms)):+.1%}"
    if interval is not None and interval.margin is not None:
        low, high = (math.expm1(interval.mean + sign * interval.margin) for sign in (-1, 1))
        text += f" ({low:+.1%} to {high:+.1%}, {interval.pairs} data sets)"
    lower, median = sum(value < 0 for value in logarithms), math.expm1(statistics.median(logarithms))
    return [f"MSE, lower in {lower} of {len(pairs)} settings; median {median:+.1%}", "-", "-", text]


def _tradeoff(name: str, selection: Selection, budgets: _Budgets) -> Iterator[Table]:
    data = list(itertools.product(selection.values("recurrent_scale"), selection.values("noise_variance")))
    groups = {
        (size, kind): selection.get(block_size=size, recurrent_scale=kind[0], noise_variance=kind[1])
        for size in BLOCK_SIZES
        for kind in data
    }

    def error(group: CellRuns | None) -> str:
        if group is None:
            return NOT_RUN
        count = f"n {len(group.runs)}, budget {budgets.number(group)}"
        return f"{mean_and_deviation(group.values('mse'))} ({count})"

    def difference(size: int, other: int, kind: tuple[float, float]) -> str:
        pair = paired(groups[size, kind], groups[other, kind])
        return "-" if pair is None else str(paired_interval(pair[0].by_seed("mse"), pair[1].by_seed("mse")))

    columns = [f"scale {scale:g}, noise {variance:g}" for scale, variance in data]
    rows = [
        [str(size), *(error(groups[size, kind]) for kind in data)]
        + [number(paper.TRADEOFF_SD[variance][size], ".2f") for variance in paper.TRADEOFF_SD]
        for size in BLOCK_SIZES
    ]
    guess = ["mean of the targets"]
    for kind in data:
        there = [group for size in BLOCK_SIZES if (group := groups[size, kind]) is not None]
        guess.append(number(mean(there[0].values("variance")), ".4g") if there else "-")
    yield Table(
        ["block_size", *columns, *(f"paper's sd, noise {v:g}" for v in paper.TRADEOFF_SD)],
        [*rows, guess],
        "Mean test MSE, its standard deviation, and in brackets the number of runs and their budget. `scale` is "
        "`recurrent_scale`: 1, the paper's, makes the data chaotic, and 0.0884 is the edge of chaos. No model can "
        "expect less than the noise variance; guessing the mean gives the last row.",
    )
    differences = [[str(size), *(difference(size, 128, kind) for kind in data)] for size in BLOCK_SIZES[:-1]]
    differences.append(["2, less 1", *(difference(2, 1, kind) for kind in data)])
    yield Table(
        ["block_size", *columns],
        differences,
        "Differences of test MSE to block_size 128 on the same data, seed by seed: mean, half of the 95 % interval by "
        "Student's t, pairs. The last row is block_size 2 less block_size 1.",
    )
    costs, counted = [], ("epochs", "parameters")
    for size in BLOCK_SIZES:
        same = [group for group in selection.groups if group.cell["block_size"] == size]
        epochs, parameters = ([value for group in same for value in group.values(what)] for what in counted)
        costs.append([str(size), span(epochs), span([s for group in same for s in group.seconds]), span(parameters)])
    yield Table(["block_size", "epochs", "s per run", "parameters"], costs, note=_CLOCK)


def _speed(name: str, selection: Selection, budgets: _Budgets) -> Iterator[Table]:
    group = selection.groups[0]

    def time(layer: str, which: str, what: str) -> float:
        values = group.values(f"{layer} {which} {what}")
        if not values:
            return math.nan
        return math.sqrt(mean([value**2 for value in values])) if what == "sd" else mean(values)  # sd within runs

    rows = []
    for layer in (*map(str, BLOCK_SIZES), VANILLA):
        row = [layer]
        for which in PASSES:
            average, spread = (time(layer, which, what) for what in ("mean", "sd"))
            row.append("-" if math.isnan(average) else f"{average:.3g} ± {spread:.2g}")
            row.append("-" if layer == VANILLA else number(paper.SPEED_SD[which][int(layer)], ".2f"))
        median = time(layer, "total", "median")
        faster = time(VANILLA, "total", "median") / median
        rows.append([*row, *("-" if math.isnan(value) else f"{value:.3g}" for value in (median, faster))])
    header = [f"{which}, ms" if ours else "paper's sd" for which in PASSES for ours in (True, False)]
    disturbed = [run for run in group.runs if run.result["details"].get("disturbed")]
    counts = [f"{run.result['details']['disturbed_rounds']} of {run.config['rounds']}" for run in disturbed]
    note = f"Runs: {len(group.runs)}, budget {budgets.number(group)}."
    note += f"\n\nOther processes disturbed {', '.join(counts)} rounds: measure again." if counts else ""
    yield Table(
        ["block_size", *header, "total, median ms", f"times {VANILLA}"],
        rows,
        "Mean milliseconds of a pass and their standard deviation. The last column is how many times faster a training "
        f"step is than that of {VANILLA}, by medians. The paper prints standard deviations only, on a V100, without "
        "their unit.",
        note,
    )


def _forecasting(name: str, selection: Selection, budgets: _Budgets) -> Iterator[Table]:
    counts = count_wins(selection.pairs)
    wins = [
        ["paper", *(f"{paper.WINS[model]} of 32" for model in MODELS)],
        ["ours", *(f"{sum(counts[model])} of {len(counts[model])}" if model in counts else "-" for model in MODELS)],
    ]
    yield Table(
        ["", *MODELS],
        wins,
        "How often a model is better than its paired model or as good (Table 1(a)), over data sets, horizons, MSE and "
        "MAE: at three decimals, and only where both were run with the same budget, on the seeds that both have.",
    )
    won = {
        (*pair.para.cell.values(), metric): count_wins([pair], [metric])
        for pair in selection.pairs
        for metric in ("mse", "mae")
    }

    def error(group: CellRuns | None, model: str, metric: str) -> str:
        if group is None:
            return NOT_RUN
        values = group.values(metric)[: 1 if model in DETERMINISTIC else None]
        text = mean_and_deviation(values, ".3f") + ("†" if group.is_odd else "")
        cell = {**group.cell, "model": f"Para{model.removeprefix('Para')}"}
        wins = won.get((*cell.values(), metric), {})
        return f"**{text}**" if any(wins.get(model, ())) else text

    def cost(group: CellRuns | None) -> str:
        if group is None:
            return NOT_RUN
        model, epochs = group.cell["model"], group.values("epochs")
        count = 1 if model in DETERMINISTIC else len(group.runs)
        parts = [str(count), *([f"{mean(epochs):.3g}"] if epochs else [])]
        parts.append(f"{number(statistics.median(group.seconds[:count]))} s")
        return ", ".join(parts) + ("" if model in BASELINES else f" ({budgets.number(group)})")

    errors, costs = [], []
    for dataset, horizons in HORIZONS.items():
        for horizon in horizons:
            groups = {
                model: selection.get(dataset=dataset, horizon=horizon, model=model) for model in (*MODELS, *BASELINES)
            }
            for metric in ("mse", "mae"):
                theirs = {model: paper.FORECASTS[dataset, horizon, model, metric] for model in MODELS}
                row = [dataset, str(horizon), metric.upper()]
                row += [f"{theirs[model]:.3f} / {error(groups[model], model, metric)}" for model in MODELS]
                errors.append(row + [error(groups[model], model, metric) for model in BASELINES])
            costs.append([dataset, str(horizon), *map(cost, groups.values())])
    others = [f"{model}‡" if model == "Forecaster" else model for model in BASELINES]
    yield Table(
        ["data", "horizon", "", *MODELS, *others],
        errors,
        "Errors of standardised values, the paper's / ours (Table S.4). Ours are bold where better than the paired "
        "model's of the same budget, or as good, on the seeds that both have. On the right are baselines that any "
        "model should beat, and our Forecaster.",
        "‡ Forecaster's defaults were chosen among some sixty variants by errors on the test sets of ETT; WTH took no "
        "part in that (docs/forecasting.md). All other choices were made on validation sets, except the initial "
        "values of para models' blocks, which were chosen after test results of permuted MNIST were seen "
        "(docs/reproducing.md).",
    )
    yield Table(
        ["data", "horizon", *MODELS, *others],
        costs,
        "Costs: runs, mean epochs, median seconds, and in brackets the number of the budget, for the paper's models.",
        _CLOCK,
    )
    types: dict[str, Counter[str]] = defaultdict(Counter)
    for group in selection.groups:
        for run in group.runs:
            if features := run.result["details"].get("features"):
                types[group.cell["model"]].update(total(features))
    rows = [[model, type_counts(counted)] for model, counted in types.items()]
    yield Table(["model", "features"], rows, "Recurrence features by type, over all runs above.")


def _classification(name: str, selection: Selection, budgets: _Budgets) -> Iterator[Table]:
    rows = []
    for cell in selection.cells:
        names = [cell[key] for key in ("dataset", "model") if key in cell]
        of_paper = cell.get("dataset", "EigenWorms") == "EigenWorms"
        theirs = paper.ACCURACIES[name].get(cell["model"]) if of_paper else None
        row = [*names, "-" if theirs is None else f"{theirs:.2f}"]
        group = selection.get(**cell)
        if group is None:
            rows.append([*row, NOT_RUN])
            continue
        epochs, largest = group.values("epochs"), group.values("largest_class")
        paces = [spent / count for spent, count in zip(group.seconds, epochs, strict=True)]
        row.append(mean_and_deviation([100 * value for value in group.values("accuracy")], ".2f"))
        row += [f"{100 * mean(largest):.2f}" if largest else "-", str(len(group.runs)), span(epochs)]
        row += [number(statistics.median(paces)), span(group.values("parameters")), budgets.number(group)]
        rows.append(row)
    names = [title for key, title in (("dataset", "data"), ("model", "model")) if key in selection.cells[0]]
    columns = ["paper", "ours", "largest class", "runs", "epochs", "s per epoch", "parameters", "budget"]
    title = "Test accuracy in percent, and that of always answering the most frequent class of the training examples."
    yield Table([*names, *columns], rows, title, _CLOCK)


def _rows(
    selection: Selection, names: Sequence[str], rows_of: Callable[[CellRuns], Iterable[Sequence[str]]]
) -> list[list[str]]:
    """Return the rows of all cells, each after the cell's values of `names`."""
    rows = []
    for cell in selection.cells:
        group = selection.get(**cell)
        rows += [[*(str(cell[name]) for name in names), *row] for row in (rows_of(group) if group else [[NOT_RUN]])]
    return rows


def _feature_evolution(name: str, selection: Selection, budgets: _Budgets) -> Iterator[Table]:
    def rows_of(group: CellRuns) -> Iterator[list[str]]:
        for run in group.runs:
            metrics, history = run.result["metrics"], run.result["details"]["features"]
            gate = next(iter(history[0]))  # the first gate of the first layer, which the figure shows
            row = [*(type_counts(history[at][gate]) for at in (0, -1)), _low_order_from(run)]
            row += [type_counts(total(history[-1])), f"{100 * metrics['accuracy']:.2f}", span([metrics["epochs"]])]
            yield [*row, *_seconds_and_budget(group, run, budgets)]

    yield Table(
        ["model", "initial", "before", "after", "low from", "all, after", "accuracy, %", "epochs", "s", "budget"],
        _rows(selection, ("model", "initial"), rows_of),
        "Recurrence features by type, of the first layer's first gate before and after training, and of all layers and "
        "gates after. `low from` says when the last feature of an order above 1 was gone.",
        _CLOCK,
    )


def _feature_recovery(name: str, selection: Selection, budgets: _Budgets) -> Iterator[Table]:
    def rows_of(group: CellRuns) -> Iterator[list[str]]:
        for run in group.runs:
            metrics, details = run.result["metrics"], run.result["details"]
            row = [number(run.result["curve"][-1][which]) for which in ("training", "validation")]
            row += [number(metrics[which]) for which in ("first_distance", "distance")]
            readings = (details["true"], details["features"][0], details["features"][-1])
            row += [*(type_counts(reading["counts"]) for reading in readings), span([metrics["epochs"]])]
            yield [*row, *_seconds_and_budget(group, run, budgets)]

    columns = ["training MSE", "validation MSE", "distance before", "after", "true types", "types before", "after"]
    yield Table(
        ["truth", "initial", *columns, "epochs", "s", "budget"],
        _rows(selection, ("truth", "initial"), rows_of),
        "Distances are Frobenius norms of the recurrent matrix less the true one. The noise has variance 0.0001, below "
        "which no error can stay.",
        _CLOCK,
    )


def _adding(name: str, selection: Selection, budgets: _Budgets) -> Iterator[Table]:
    def rows_of(group: CellRuns) -> Iterator[list[str]]:
        reached, seconds, errors = group.by_seed("iterations_to_0.01"), _seconds_to_solve(group), group.values("mse")
        paces = [spent / run.config["iterations"] for spent, run in zip(group.seconds, group.runs, strict=True)]
        yield [
            f"{sum(error < SOLVED for error in errors)} of {len(group.runs)}",
            ", ".join(f"{error:.2g}" for error in errors),
            ", ".join(f"{reached[run.seed]:.0f}" if run.seed in reached else "-" for run in group.runs),
            ", ".join(f"{spent:.0f}" for spent in group.seconds),
            number(1000 * mean(paces)),
            number(statistics.median(seconds.values())) if seconds else "-",
            budgets.number(group),
        ]

    columns = ["solved", "last test MSE", "iterations to 0.01", "s", "s per 1,000", "s to 0.01", "budget"]
    yield Table(
        ["length", "model", *columns],
        _rows(selection, ("length", "model"), rows_of),
        f"A run is solved if its last test MSE is below {SOLVED}; guessing the mean gives 0.167. Values of replicates "
        "are in the order of their seeds. `iterations to 0.01` are those until the test MSE first was below, and `s to "
        "0.01` is the median of their times.",
        _CLOCK,
    )


def _seconds_to_solve(group: CellRuns) -> dict[int, float]:
    """Return by seed the iterations until the test MSE first was below 0.01, at the pace of the run."""
    pace = {run.seed: run.result["metrics"]["seconds"] / run.config["iterations"] for run in group.runs}
    return {seed: count * pace[seed] for seed, count in group.by_seed("iterations_to_0.01").items()}


def _seconds_and_budget(group: CellRuns, run: Run, budgets: _Budgets) -> list[str]:
    seed = f", seed {run.seed}" if run.seed else ""
    return [number(run.result["metrics"]["seconds"]), budgets.number(group) + seed]


def _low_order_from(run: Run) -> str:
    """Return the first step from which on all features are of order 1, as far as was read."""
    history = run.result["details"]["features"]
    high = [at for at, gates in enumerate(history) if any(not label.endswith("-1") for label in total(gates))]
    first, steps = high[-1] + 1 if high else 0, run.config["epoch_steps"]
    if first == len(history):
        return "not yet"
    return f"epoch {first}" if steps is None else f"step {first * steps}"


def type_counts(counts: Mapping[str, int]) -> str:
    """Return the counts of feature types, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {escape_markdown(label)}" for label, count in ordered)


_TABLES: dict[str, Callable[[str, Selection, _Budgets], Iterator[Table]]] = {
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
