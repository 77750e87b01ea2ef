"""What forecasts say of twins, and of the features of trained models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from parallelrnn.experiments.feature_types import total
from parallelrnn.experiments.models import twin
from parallelrnn.experiments.reading import paper
from parallelrnn.experiments.reading.claims.counts import LOW, listed, summed
from parallelrnn.experiments.reading.claims.verdict import DRAWN, Finding, Told
from parallelrnn.experiments.reading.comparison import REPLICATES, Twins, find_twins, rows_of_twins, winning_counts
from parallelrnn.experiments.reading.picking import NOT_RUN, Picked, Runs, mean

_LOSS = 1.02  # times the twin's error, on the geometric mean
_GAINS = 20  # comparisons, of which one may seem better by chance


def forecasting(name: str, picked: Picked) -> Iterator[Finding]:
    """Errors of twins over all settings, and types of features."""
    said = paper.CLAIMS[name]
    settings = list(dict.fromkeys((cell["dataset"], cell["horizon"]) for cell in picked.cells))
    counts = winning_counts([*rows_of_twins(picked, "mse"), *rows_of_twins(picked, "mae")])
    everyone: list[Twins] = []
    for vanilla in ("RNN", "LSTM", "GRU", "BRT"):
        found = [find_twins(picked, vanilla, dataset=dataset, horizon=horizon) for dataset, horizon in settings]
        twins = [one for one in found if one is not None]
        everyone += twins
        told = Told()
        if twins:
            wins = [counts[model] for model in (vanilla, twin(vanilla))]
            ratio = _geometric_mean([_ratio(one) for one in twins])
            ours = f"{wins[0].wins} and {wins[1].wins} of {wins[0].compared} wins; MSE {ratio - 1:+.1%} on the "
            ours += f"geometric mean of {len(twins)} setting{'s' if len(twins) != 1 else ''}"
            whole = len(twins) == len(settings) and math.isfinite(ratio)
            told = Told(ours, ratio <= _LOSS if whole else None, _of(twins))
        of_paper = f"{paper.WINS[vanilla]} and {paper.WINS[twin(vanilla)]} of 32 wins"
        rule = f"the geometric mean of MSE ratios over all {len(settings)} settings is at most {_LOSS}"
        yield told.of(said["loss"], f"{vanilla}, {twin(vanilla)}", of_paper, rule)
    lower = [
        error < paper.FORECASTS[dataset, horizon, twin(model), metric]
        for (dataset, horizon, model, metric), error in paper.FORECASTS.items()
        if metric == "mse" and model.startswith("Para")
    ]
    of_paper = f"MSE lower in {sum(lower)} of {len(lower)} comparisons"
    rule = f"MSE is significantly lower in more than 1 of {_GAINS} comparisons, of {_GAINS} or more"
    yield _gain(everyone).of(said["gain"], "", of_paper, rule)
    yield from _types(picked, len(settings))


def _ratio(twins: Twins) -> float:
    vanilla, para = twins.means("mse").values()
    return para / vanilla


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(mean([math.log(ratio) for ratio in ratios]))


def _gain(twins: Sequence[Twins]) -> Told:
    if not twins:
        return Told()
    found = [gain for one in twins if (gain := one.gain("mse")) is not None and gain.is_known]
    lower, higher = (sum(gain.is_significant and gain.mean * sign > 0 for gain in found) for sign in (-1, 1))
    ours = f"MSE significantly lower in {lower} and higher in {higher} of {len(found)} comparisons"
    ours += f" that have {REPLICATES} replicates"
    return Told(ours, _GAINS * lower > len(found) if len(found) >= _GAINS else None, _of(twins))


def _of(twins: Sequence[Twins]) -> list[Runs]:
    return [runs for one in twins for runs in (one.vanilla, one.para)]


def _types(picked: Picked, settings: int) -> Iterator[Finding]:
    said = paper.CLAIMS["forecasting"]
    vanilla = ("RNN", "LSTM", "GRU")
    trained = [one for one in picked.runs if one.cell["model"] in vanilla]
    counts = summed(total(line["details"].get("features", {})) for one in trained for line in one.lines)
    whole = len(trained) == len(vanilla) * settings and bool(counts)
    ours = NOT_RUN
    if trained:
        ours = f"{listed(counts)}; {sum(len(one.lines) for one in trained)} trained models, in {len(trained)} of "
        ours += f"{len(vanilla) * settings} cells ({len(vanilla)} models, {settings} settings)"
    only = Told(ours, False if counts.keys() - LOW else True if whole else None, trained)
    yield only.of(said["types"], "", "no other types", "there is no other type in any cell, and all cells were run")
    waves = Told(ours, counts.get("C-1", 0) > counts.get("R-1", 0) if whole else None, trained)
    yield waves.of(said["waves"], "", DRAWN, "there are more C-1 than R-1, and all cells were run")
