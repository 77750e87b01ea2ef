"""What forecasts say of twins, and of the features of trained models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from scipy import stats

from parallelrnn.experiments.feature_types import total
from parallelrnn.experiments.models import twin
from parallelrnn.experiments.reading import paper
from parallelrnn.experiments.reading.claims.counts import LOW, RARE_IN_WORDS, are_rare, listed, summed
from parallelrnn.experiments.reading.claims.verdict import DRAWN, Finding, Told
from parallelrnn.experiments.reading.comparison import (
    REPLICATES,
    Twins,
    Wins,
    difference,
    find_twins,
    rows_of_twins,
    winning_counts,
)
from parallelrnn.experiments.reading.picking import NOT_RUN, Picked, Runs

_LOSS = 1.02  # times the twin's error, on the geometric mean
_CHANCE = 0.05  # below which chance alone does not explain who wins


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
        about, whole = f"{vanilla}, {twin(vanilla)}", len(twins) == len(settings)
        rule = (
            f"over all {len(settings)} settings, the 95 % interval of the geometric mean of MSE ratios, by Student's "
        )
        rule += f"t of their logarithms, lies below {_LOSS}; it does not if it lies above 1"
        yield _loss(twins, whole).of(said["loss"], about, _ratios_of_paper(vanilla), rule)
        of_paper = f"{paper.WINS[vanilla]} and {paper.WINS[twin(vanilla)]} of 32"
        rule = (
            f"of all {len(settings)} settings the para model has the lower MSE in so many that chance alone has them "
        )
        rule += f"with less than {_CHANCE:.0%} (two-sided sign test); it does not if in so few"
        wins = [counts.get(model) for model in (vanilla, twin(vanilla))]
        yield _wins(twins, whole, wins).of(said["wins"], about, of_paper, rule)
    lower = [
        error < paper.FORECASTS[dataset, horizon, twin(model), metric]
        for (dataset, horizon, model, metric), error in paper.FORECASTS.items()
        if metric == "mse" and model.startswith("Para")
    ]
    of_paper = f"MSE lower in {sum(lower)} of {len(lower)} comparisons"
    rule = f"MSE is significantly lower in one or more of all comparisons of {REPLICATES} replicates or more, jointly "
    rule += "(Bonferroni); that there is none is never shown"
    yield _gain(everyone).of(said["gain"], "", of_paper, rule)
    yield from _types(picked, len(settings))


def _loss(twins: Sequence[Twins], whole: bool) -> Told:
    """Whether errors are higher than those of twins, over settings; one far from the others widens the interval."""
    if not twins:
        return Told()
    logarithms = dict(enumerate(math.log(_ratio(one)) for one in twins))
    found = difference(logarithms, dict.fromkeys(logarithms, 0.0))
    assert found is not None
    ours = f"MSE {math.expm1(found.mean):+.1%} on the geometric mean of {len(twins)} settings"
    if not found.is_known or found.margin is None:
        return Told(ours.removesuffix("s") if len(twins) == 1 else ours, None, _of(twins))
    low, high = found.mean - found.margin, found.mean + found.margin
    middle = math.expm1(statistics.median(logarithms.values()))
    ours += f" ({math.expm1(low):+.1%} to {math.expm1(high):+.1%}), {middle:+.1%} on the median; "
    extremes = [pick(twins, key=_ratio) for pick in (min, max)]
    ours += " and ".join(f"{_ratio(one) - 1:+.0%} on {_place(one)}" for one in extremes)
    holds = True if high < math.log(_LOSS) else False if low > 0 else None
    return Told(ours, holds if whole else None, _of(twins))


def _wins(twins: Sequence[Twins], whole: bool, wins: Sequence[Wins | None]) -> Told:
    """Who has the lower error more often; MSE and MAE of a setting go together, so that only one of them counts."""
    vanilla, para = wins
    if not twins or vanilla is None or para is None:
        return Told()
    lower = sum(_ratio(one) < 1 for one in twins)
    chance = float(stats.binomtest(lower, len(twins)).pvalue)
    ours = f"{vanilla.wins} and {para.wins} of {para.compared}; MSE lower in {lower} of {len(twins)} settings, "
    ours += f"p = {chance:.2g}"
    return Told(ours, 2 * lower > len(twins) if whole and chance < _CHANCE else None, _of(twins))


def _ratios_of_paper(vanilla: str) -> str:
    """The geometric mean of the paper's MSE ratios."""
    errors = {place[:3]: error for place, error in paper.FORECASTS.items() if place[3] == "mse"}
    ratios = [
        errors[dataset, horizon, twin(vanilla)] / error
        for (dataset, horizon, model), error in errors.items()
        if model == vanilla
    ]
    return f"MSE {statistics.geometric_mean(ratios) - 1:+.1%} on the geometric mean"


def _ratio(twins: Twins) -> float:
    vanilla, para = twins.means("mse").values()
    return para / vanilla


def _place(twins: Twins) -> str:
    return f"{twins.para.cell['dataset']}-{twins.para.cell['horizon']}"


def _gain(twins: Sequence[Twins]) -> Told:
    if not twins:
        return Told()
    found = [gain for one in twins if (gain := one.gain("mse")) is not None and gain.is_known]
    lower, higher = (sum(gain.is_significant and gain.mean * sign > 0 for gain in found) for sign in (-1, 1))
    jointly = sum(gain.is_apart(len(found)) and gain.mean < 0 for gain in found)
    ours = f"of {len(found)} comparisons that have {REPLICATES} replicates, MSE is significantly lower in {lower} and "
    ours += f"higher in {higher}, each by itself; jointly lower in {jointly}"
    return Told(ours, True if jointly else None, _of(twins))


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
    others = {label: count for label, count in counts.items() if label not in LOW}
    only = Told(ours, are_rare(others, counts, whole), trained)
    yield only.of(said["types"], "", "no other types", f"in all cells together, {RARE_IN_WORDS}")
    para = [one for one in picked.runs if one.cell["model"] in map(twin, vanilla)]
    of_para = summed(total(line["details"].get("features", {})) for one in para for line in one.lines)
    ours += f"; in para models {listed(of_para)}" if of_para else ""
    waves = Told(ours, counts.get("C-1", 0) > counts.get("R-1", 0) if whole else None, trained)
    yield waves.of(said["waves"], "", DRAWN, "there are more C-1 than R-1, and all cells were run")
