"""What forecasts say of twins, and of the features of trained models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from parallelrnn.lab import paper
from parallelrnn.lab.claims.counts import LOW, RARE_IN_WORDS, are_rare, listed, summed
from parallelrnn.lab.claims.verdict import DRAWN, Finding, Told
from parallelrnn.lab.comparison import REPLICATES, Twins, Wins, difference, find_twins, rows_of_twins, winning_counts
from parallelrnn.lab.experiments.feature_types import total
from parallelrnn.lab.experiments.models import twin
from parallelrnn.lab.picking import NOT_RUN, Picked, Runs, mean

_LOSS = 1.02  # times the twin's error, on the geometric mean


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
        rule = f"over all {len(settings)} settings, the 95 % interval of the geometric mean of MSE ratios lies below "
        rule += f"{_LOSS}; it does not if it lies above 1, however little; the interval is by Student's t of the means "
        rule += "of logarithms in each data set, whose horizons are not independent"
        yield _loss(twins, whole).of(said["loss"], about, _ratios_of_paper(vanilla), rule)
        of_paper = f"{paper.WINS[vanilla]} and {paper.WINS[twin(vanilla)]} of 32"
        rule = f"all {len(settings)} settings were run, and in each data set the para model has the lower MSE at more "
        rule += "horizons than its twin; it does not if at fewer in each"
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
    logarithms = [math.log(_ratio(one)) for one in twins]
    ours = f"MSE {math.expm1(mean(logarithms)):+.1%} on the geometric mean of {_settings(len(twins))}"
    by_data = [mean([math.log(_ratio(one)) for one in some]) for some in _by_data(twins)]
    found = difference(dict(enumerate(by_data)), dict.fromkeys(range(len(by_data)), 0.0))
    if found is None or not found.is_known or found.margin is None:
        return Told(ours, None, _of(twins))
    low, high = found.mean - found.margin, found.mean + found.margin
    middle = math.expm1(statistics.median(logarithms))
    ours += f" ({math.expm1(low):+.1%} to {math.expm1(high):+.1%}), {middle:+.1%} on the median; "
    lowest, highest = (pick(twins, key=_ratio) for pick in (min, max))
    rest = math.expm1(mean([math.log(_ratio(one)) for one in twins if one is not lowest]))
    ours += f"{_ratio(lowest) - 1:+.0%} on {_place(lowest)}, without which the geometric mean is {rest:+.1%}, and "
    ours += f"{_ratio(highest) - 1:+.0%} on {_place(highest)}"
    holds = False if low > 0 else True if high < math.log(_LOSS) else None
    return Told(ours, holds if whole else None, _of(twins))


def _wins(twins: Sequence[Twins], whole: bool, wins: Sequence[Wins | None]) -> Told:
    """Who has the lower error more often; MSE and MAE of a setting go together, so that only one of them counts."""
    vanilla, para = wins
    if not twins or vanilla is None or para is None:
        return Told()
    lower = sum(_ratio(one) < 1 for one in twins)
    ahead = [sum(_sign(one) for one in some) for some in _by_data(twins)]
    ours = f"{vanilla.wins} and {para.wins} of {para.compared}; MSE lower in {lower} of {_settings(len(twins))}"
    holds = True if min(ahead) > 0 else False if max(ahead) < 0 else None
    return Told(ours, holds if whole else None, _of(twins))


def _by_data(twins: Sequence[Twins]) -> list[list[Twins]]:
    """Those of each data set together."""
    found: dict[str, list[Twins]] = {}
    for one in twins:
        found.setdefault(one.para.cell["dataset"], []).append(one)
    return list(found.values())


def _sign(twins: Twins) -> int:
    """Of a win of the para model, 1; of a loss, -1."""
    ratio = _ratio(twins)
    return (ratio < 1) - (ratio > 1)


def _settings(count: int) -> str:
    return f"{count} setting{'s' if count != 1 else ''}"


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
    ours = f"of {len(found)} comparisons that have {REPLICATES} replicates or more, MSE is significantly lower in "
    ours += f"{lower} and higher in {higher}, each by itself; jointly lower in {jointly}"
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
    yield only.of(said["types"], "", "no other types", f"of all features together {RARE_IN_WORDS}")
    para = [one for one in picked.runs if one.cell["model"] in map(twin, vanilla)]
    of_para = summed(total(line["details"].get("features", {})) for one in para for line in one.lines)
    ours += f"; in para models {listed(of_para)}" if of_para else ""
    waves = Told(ours, counts.get("C-1", 0) > counts.get("R-1", 0) if whole else None, trained)
    yield waves.of(said["waves"], "", DRAWN, "there are more C-1 than R-1, and all cells were run")
