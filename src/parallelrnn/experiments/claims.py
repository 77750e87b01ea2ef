"""What the paper claims, what the runs say, and a verdict by a rule that is stated with each.

Differences are paired by seed where twins saw the same data. "Comparable" is no more than one point of accuracy or two
percent of error behind; "significant" is more than two standard errors, and takes three replicates. Where a rule takes
runs that are not there, the verdict is that nothing is known yet; where runs were shorter than the paper's, or on fewer
examples, the verdict says that it is of this budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parallelrnn.experiments import paper
from parallelrnn.experiments.comparison import Difference, paired_difference, rows_of_twins, winning_counts
from parallelrnn.experiments.feature_types import total
from parallelrnn.experiments.models import twin
from parallelrnn.experiments.picking import Picked, Runs, mean
from parallelrnn.experiments.tradeoff import EDGE

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not yet known"
SMALLER = " at this budget"
_POINT = 0.01  # of accuracy
_LOSS = 0.02  # of an error
_REPLICATES = 3


@dataclass(frozen=True)
class Finding:
    """A claim, and what came of it."""

    claim: str
    place: str
    paper: str  # its number
    ours: str
    budget: str
    verdict: str


All = Mapping[str, Picked]  # what was picked of each experiment


def findings(picked: All) -> list[Finding]:
    """Every claim in the order of the paper."""
    return [
        *_tradeoff(picked["tradeoff"]),
        _speed(picked["speed"]),
        *_forecasting(picked["forecasting"]),
        *(finding for name in _ACCURACY for finding in _accuracy(name, picked[name])),
        *_evolution(picked["feature-evolution"]),
        *_recovery(picked["feature-recovery"]),
        *_adding(picked["adding"]),
    ]


def _tradeoff(picked: Picked) -> list[Finding]:
    found = []
    for variance in (1.0, 5.0):
        for scale in (1.0, EDGE):
            by_size = {
                size: picked.get(block_size=size, noise_variance=variance, recurrent_scale=scale)
                for size in paper.BLOCK_SIZES
            }
            place = "Figure 2(c), Table S.2" if variance == 1 else "Figure D.1, Table S.2"
            data = f"noise variance {variance:g}, recurrent weights N(0, {'1' if scale == 1 else '1/128'})"
            sds = paper.TRADEOFF_SD[variance]
            drop = paired_difference(by_size[1], by_size[2], "mse")
            rest = paired_difference(by_size[2], by_size[128], "mse")
            found.append(
                Finding(
                    f"test MSE drops substantially from blocks of 1 to blocks of 2 ({data})",
                    place,
                    f"drawn only; sd {sds[1]:g} and {sds[2]:g}",
                    _means(by_size, (1, 2), "mse", drop),
                    _budget(by_size[1], by_size[2]),
                    _verdict(drop, lambda one: one.mean > 2 * (one.error or 0), by_size[1]),
                )
            )
            found.append(
                Finding(
                    f"from blocks of 2 on, it does not change significantly ({data})",
                    place,
                    f"drawn only; sd {sds[2]:g} and {sds[128]:g}",
                    _means(by_size, (2, 128), "mse", rest),
                    _budget(by_size[2], by_size[128]),
                    _verdict(rest, lambda one: abs(one.mean) <= 2 * (one.error or 0), by_size[2]),
                )
            )
    return found


def _speed(picked: Picked) -> Finding:
    runs = picked.get()
    claim, place, of_paper = "time grows linearly with the block size", "Figure 2(c)", "drawn only, on a V100"
    if runs is None:
        return Finding(claim, place, of_paper, "not run", "-", UNKNOWN)
    metrics = runs.lines[-1]["metrics"]
    times = {size: metrics[f"{size} total median"] for size in paper.BLOCK_SIZES}
    shown = ", ".join(f"{size}: {times[size]:.1f}" for size in (1, 2, 8, 32, 128))
    linear = times[128] / times[1] > 8 and times[32] / times[8] > 2
    ours = f"median ms by block size {shown}; torch.nn.RNN {metrics['torch.nn.RNN total median']:.1f}"
    return Finding(claim, place, of_paper, ours, runs.budget_in_words, _judged(linear, runs))


def _forecasting(picked: Picked) -> list[Finding]:
    found = []
    counts = winning_counts([*rows_of_twins(picked, "mse"), *rows_of_twins(picked, "mae")])
    for cell in ("RNN", "LSTM", "GRU", "BRT"):
        para = f"Para{cell}"
        pairs = [
            (one, other)
            for one in picked.runs
            if one.cell["model"] == para
            and (other := picked.get(**one.cell | {"model": cell})) is not None
            and other.budget == one.budget
        ]
        ratios = [mean(one.values("mse")) / mean(other.values("mse")) for one, other in pairs]
        ours, verdict = "not run", UNKNOWN
        if ratios:
            average = math.exp(mean([math.log(ratio) for ratio in ratios]))
            wins = counts[cell].wins, counts[para].wins
            ours = (
                f"{wins[0]} and {wins[1]} of {counts[para].compared}; MSE of {para} {average - 1:+.1%} on the "
                f"geometric mean of {len(ratios)} settings"
            )
            enough = len(ratios) == len(_cells(picked, para))
            verdict = _judged(average <= 1 + _LOSS, pairs[0][0]) if enough else UNKNOWN
        found.append(
            Finding(
                f"forecasts of {para} are no worse than those of {cell} (wins of {cell} and {para})",
                "Tables 1(a), S.4",
                f"{paper.WINS[cell]} and {paper.WINS[para]} of 32",
                ours,
                _budget(*pairs[0]) if pairs else "-",
                verdict,
            )
        )
    types: dict[str, int] = {}
    trained = [one for one in picked.runs if one.cell["model"] in ("RNN", "LSTM", "GRU")]
    for one in trained:
        for line in one.lines:
            for label, count in total(line["details"]["features"]).items():
                types[label] = types.get(label, 0) + count
    shown = ", ".join(f"{label}: {count:,}" for label, count in sorted(types.items())) or "not run"
    budget = f"{sum(len(one.lines) for one in trained)} trained models" if trained else "-"
    found.append(
        Finding(
            "trained vanilla models have features of types R-1 and C-1 only",
            "Figure 1(b)",
            "no other types",
            shown,
            budget,
            UNKNOWN if not types else HOLDS if set(types) <= {"R-1", "C-1"} else FAILS,
        )
    )
    found.append(
        Finding(
            "C-1 features are more frequent than R-1 features",
            "Figure 1(b)",
            "drawn only",
            shown,
            budget,
            UNKNOWN if not types else HOLDS if types.get("C-1", 0) > types.get("R-1", 0) else FAILS,
        )
    )
    return found


_ACCURACY = {
    "pmnist": ("permuted MNIST", "Table 1(b)"),
    "pixel-cifar": ("pixel-by-pixel CIFAR-10", "Table 1(c)"),
    "noise-padded-cifar": ("noise-padded CIFAR-10", "Table 1(d)"),
    "worms": ("EigenWorms", "Table 1(e)"),
}


def _accuracy(name: str, picked: Picked) -> list[Finding]:
    """Twins on one data set, and UCR Worms beside EigenWorms under its own name."""
    title, place = _ACCURACY[name]
    sets = {"EigenWorms": title, "Worms": "UCR Worms (not the paper's data)"} if name == "worms" else {None: title}
    found = []
    for dataset, told in sets.items():
        where = {} if dataset is None else {"dataset": dataset}
        for cell in ("RNN", "LSTM", "GRU", "BRT"):
            para = twin(cell)
            if para not in paper.ACCURACIES[name]:
                continue
            ours = {model: picked.get(model=model, **where) for model in (cell, para)}
            better = (cell == "RNN" and name in ("pmnist", "pixel-cifar")) or (para == "ParaBRT" and name == "worms")
            gain = paired_difference(ours[para], ours[cell], "accuracy")
            words = "not run"
            if gain is not None:
                words = " and ".join(f"{100 * mean(runs.values('accuracy')):.2f} %" for runs in ours.values() if runs)
                if gain.error is not None:
                    words += f" (difference {100 * gain.mean:+.2f}, standard error {100 * gain.error:.2f})"
            numbers = paper.ACCURACIES[name]
            verdict = UNKNOWN
            if gain is not None:
                verdict = _judged(gain.mean > 0 if better else gain.mean >= -_POINT, ours[para])
            found.append(
                Finding(
                    f"{told}: {para} is {'better than' if better else 'as accurate as'} {cell}",
                    "-" if dataset == "Worms" else place,
                    "-" if dataset == "Worms" else f"{numbers[cell]:.2f} % and {numbers[para]:.2f} %",
                    words,
                    _budget(ours[para], ours[cell]),
                    verdict,
                )
            )
    return found


def _evolution(picked: Picked) -> list[Finding]:
    runs = picked.runs
    ends = [total(line["details"]["features"][-1]) for one in runs for line in one.lines]
    low = sum(types.get("R-1", 0) + types.get("C-1", 0) for types in ends)
    all_types = sum(sum(types.values()) for types in ends)
    whole = len(runs) == len(picked.cells)
    waves = sum(types.get("C-1", 0) for types in ends)
    return [
        Finding(
            "from all three initialisations features become R-1 and C-1",
            "Figure 3",
            "drawn only",
            f"{low:,} of {all_types:,} features at the end of {len(ends)} runs" if ends else "not run",
            _budget(*runs[:1]),
            _judged(low == all_types, *runs) if whole else UNKNOWN,
        ),
        Finding(
            "most of them are C-1 at the end",
            "Figure 3",
            "drawn only",
            f"{waves:,} of {all_types:,}" if ends else "not run",
            _budget(*runs[:1]),
            _judged(2 * waves > all_types, *runs) if whole else UNKNOWN,
        ),
    ]


def _recovery(picked: Picked) -> list[Finding]:
    found = []
    for truth in ("normal", "mixed"):
        runs = [one for one in picked.runs if one.cell["truth"] == truth]
        parts = {one.cell["initial"]: mean(one.values("distance")) / mean(one.values("first_distance")) for one in runs}
        whole = len(runs) == sum(cell["truth"] == truth for cell in picked.cells)
        found.append(
            Finding(
                f"the recurrent matrix converges to the true one ({truth} truth)",
                "Figure A.1" if truth == "normal" else "Figure A.2",
                "drawn only",
                "distance to it at the end over that at the beginning: "
                + ", ".join(f"{name} {part:.2f}" for name, part in parts.items())
                if parts
                else "not run",
                _budget(*runs[:1]),
                _judged(max(parts.values()) < 0.5, *runs) if whole else UNKNOWN,
            )
        )
        ends = [line["details"]["features"][-1]["counts"] for one in runs for line in one.lines]
        others = sum(count for types in ends for label, count in types.items() if label not in ("R-1", "C-1"))
        found.append(
            Finding(
                f"its features are R-1 and C-1 at the end ({truth} truth)",
                "Figure A.1" if truth == "normal" else "Figure A.2",
                "drawn only",
                f"{others} others of {sum(sum(types.values()) for types in ends)}" if ends else "not run",
                _budget(*runs[:1]),
                _judged(not others, *runs) if whole else UNKNOWN,
            )
        )
    return found


_ADDING = {("LSTM", 100): "D.2", ("LSTM", 500): "D.3", ("GRU", 100): "D.4", ("GRU", 500): "D.5"}


def _adding(picked: Picked) -> list[Finding]:
    found = []
    for length in (100, 500):
        for cell in ("LSTM", "GRU"):
            vanilla, para = (picked.get(length=length, model=model) for model in (cell, f"Para{cell}"))
            words, verdict, speed, faster = "not run", UNKNOWN, "not run", UNKNOWN
            if vanilla is not None and para is not None:
                errors = [one.values("mse") for one in (vanilla, para)]
                words = " and ".join(", ".join(f"{error:.1e}" for error in some) for some in errors)
                solved = [sum(error < _POINT for error in some) for some in errors]
                verdict = _judged(solved[1] >= solved[0] and solved[1] == len(errors[1]), vanilla)
                steps = [one.values("iterations_to_0.01") for one in (vanilla, para)]
                if all(len(some) == len(error) for some, error in zip(steps, errors, strict=True)):
                    speed = " and ".join(f"{mean(some):,.0f}" for some in steps)
                    fewer = mean(steps[1]) < mean(steps[0])
                    faster = _judged(fewer == (cell == "LSTM"), vanilla)
                else:
                    speed = "not all came to 0.01"
            found.append(
                Finding(
                    f"adding problem, {length} steps: Para{cell} ends at about the error of {cell}",
                    f"Figure {_ADDING[cell, length]}",
                    "drawn only",
                    words,
                    _budget(vanilla, para),
                    verdict,
                )
            )
            found.append(
                Finding(
                    f"adding problem, {length} steps: Para{cell} takes {'fewer' if cell == 'LSTM' else 'more'} "
                    f"iterations than {cell}",
                    "Section D.6",
                    "drawn only",
                    speed,
                    _budget(vanilla, para),
                    faster,
                )
            )
    return found


def _verdict(found: Difference | None, rule: Callable[[Difference], bool], *runs: Runs | None) -> str:
    if found is None or found.pairs < _REPLICATES:
        return UNKNOWN
    return _judged(rule(found), *runs)


def _judged(holds: bool, *runs: Runs | None) -> str:
    smaller = any(one.is_smaller for one in runs if one is not None)
    return (HOLDS if holds else FAILS) + (SMALLER if smaller else "")


def _means(runs: Mapping[int, Runs | None], sizes: Sequence[int], metric: str, found: Difference | None) -> str:
    there = [one for size in sizes if (one := runs[size]) is not None]
    if found is None or len(there) < len(sizes):
        return "not run"
    words = " and ".join(f"{mean(one.values(metric)):.3f}" for one in there)
    return words + ("" if found.error is None else f" (difference {found.mean:.3f}, standard error {found.error:.3f})")


def _budget(*runs: Runs | None) -> str:
    there = [one for one in runs if one is not None]
    if not there:
        return "-"
    count = min(len(one.lines) for one in there)
    return f"{there[0].budget_in_words}; {count} replicate{'s' if count != 1 else ''}"


def _cells(picked: Picked, model: str) -> list[dict[str, object]]:
    return [cell for cell in picked.cells if cell["model"] == model]
