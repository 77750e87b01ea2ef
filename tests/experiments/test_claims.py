"""Verdicts follow their rules, and nothing is concluded from what was not run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parallelrnn.experiments.claims import FAILS, HOLDS, SMALLER, UNKNOWN, Finding, findings
from parallelrnn.experiments.picking import pick
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.store import Line
from tests.experiments.lines import line


def found(words: str, lines: Sequence[Line]) -> Finding:
    """The first claim with these words."""
    picked = {
        name: pick(experiment, [one for one in lines if one["experiment"] == name])
        for name, experiment in EXPERIMENTS.items()
    }
    return next(one for one in findings(picked) if words in one.claim)


def test_nothing_is_known_without_runs() -> None:
    picked = {name: pick(experiment, []) for name, experiment in EXPERIMENTS.items()}
    everything = findings(picked)
    assert len(everything) > 40
    assert {one.verdict for one in everything} == {UNKNOWN}
    assert {one.ours for one in everything} == {"not run"}


def tradeoff(errors: dict[int, list[float]], **config: object) -> list[Line]:
    return [
        line("tradeoff", {"mse": error}, seed, block_size=size, recurrent_scale=1.0, **config)
        for size, some in errors.items()
        for seed, error in enumerate(some)
    ]


@pytest.mark.parametrize(
    ("twos", "drops", "levels"),
    [
        ([1.0, 1.1, 1.2], HOLDS, HOLDS),
        ([2.9, 3.1, 3.0], FAILS, FAILS),  # as bad as one, and worse than 128
        ([1.5, 1.6, 1.7], HOLDS, FAILS),
        ([1.5, 1.6], UNKNOWN, UNKNOWN),  # two replicates are too few
    ],
)
def test_tradeoff(twos: list[float], drops: str, levels: str) -> None:
    lines = tradeoff({1: [3.0, 3.1, 2.9], 2: twos, 128: [1.05, 1.08, 1.17]})
    assert (
        found("from blocks of 1 to blocks of 2 (noise variance 1, recurrent weights N(0, 1))", lines).verdict == drops
    )
    assert found("from blocks of 2 on", lines).verdict == levels
    assert found("noise variance 5", lines).verdict == UNKNOWN


def test_a_smaller_budget_is_told() -> None:
    errors = {1: [3.0, 3.1, 2.9], 2: [1.0, 1.1, 1.2]}
    told = found("blocks of 1 to", tradeoff(errors, max_epochs=5))
    assert told.verdict == HOLDS + SMALLER
    assert "max_epochs 5 (not 40)" in told.budget
    assert "3 replicates" in told.budget


@pytest.mark.parametrize(
    ("model", "vanilla", "para", "verdict"),
    [
        ("ParaRNN", 0.90, 0.91, HOLDS),
        ("ParaRNN", 0.90, 0.895, FAILS),  # the paper claims more
        ("ParaGRU", 0.90, 0.895, HOLDS),
        ("ParaGRU", 0.90, 0.88, FAILS),
    ],
)
def test_accuracies(model: str, vanilla: float, para: float, verdict: str) -> None:
    pairs = ((model.removeprefix("Para"), vanilla), (model, para))
    lines = [line("pmnist", {"accuracy": accuracy}, model=name) for name, accuracy in pairs]
    told = found(f"permuted MNIST: {model}", lines)
    assert told.verdict == verdict
    assert told.ours == f"{100 * vanilla:.2f} % and {100 * para:.2f} %"
    lines[0]["config"]["max_epochs"] = 3  # a budget that the twin has not
    assert found(f"permuted MNIST: {model}", lines).verdict == UNKNOWN


def forecasts(ratio: float, types: dict[str, int], cells: int = 16) -> list[Line]:
    lines = []
    settings = dict.fromkeys((one.dataset, one.horizon) for one in EXPERIMENTS["forecasting"].cells())
    for dataset, horizon in list(settings)[:cells]:
        for model, error in (("GRU", 1.0), ("ParaGRU", ratio)):
            config = {"dataset": dataset, "horizon": horizon, "model": model}
            details = {"features": {"0 reset": types, "1 reset": {"R-1": 1}}}
            lines.append(line("forecasting", {"mse": error, "mae": error}, details=details, **config))
    return lines


@pytest.mark.parametrize(("ratio", "verdict"), [(0.9, HOLDS), (1.01, HOLDS), (1.05, FAILS)])
def test_forecasts(ratio: float, verdict: str) -> None:
    told = found("forecasts of ParaGRU", forecasts(ratio, {"R-1": 3, "C-1": 9}))
    assert told.verdict == verdict
    assert told.ours.startswith("32 and 0 of 32" if ratio > 1 else "0 and 32 of 32")
    assert found("forecasts of ParaGRU", forecasts(ratio, {"R-1": 3, "C-1": 9}, cells=15)).verdict == UNKNOWN
    assert found("forecasts of ParaLSTM", forecasts(ratio, {})).verdict == UNKNOWN


def test_types_of_trained_models() -> None:
    usual = forecasts(1.0, {"R-1": 3, "C-1": 9})
    assert found("R-1 and C-1 only", usual).verdict == HOLDS
    assert found("R-1 and C-1 only", usual).ours == "C-1: 144, R-1: 64"  # of the vanilla models
    assert found("more frequent", usual).verdict == HOLDS
    rare = forecasts(1.0, {"R-1": 9, "C-1": 3, "R-2": 1})
    assert found("R-1 and C-1 only", rare).verdict == FAILS
    assert found("more frequent", rare).verdict == FAILS


def test_adding() -> None:
    def runs(model: str, errors: list[float], iterations: float) -> list[Line]:
        metrics = [{"mse": error, **({"iterations_to_0.01": iterations} if error < 0.01 else {})} for error in errors]
        return [line("adding", one, seed, model=model, length=100) for seed, one in enumerate(metrics)]

    good = [*runs("LSTM", [1e-4, 2e-4], 5000), *runs("ParaLSTM", [1e-4, 1e-5], 3000)]
    assert found("100 steps: ParaLSTM ends", good).verdict == HOLDS
    assert found("100 steps: ParaLSTM takes fewer", good).verdict == HOLDS
    slow = [*runs("GRU", [1e-4, 2e-4], 5000), *runs("ParaGRU", [1e-4, 0.17], 3000)]
    assert found("100 steps: ParaGRU ends", slow).verdict == FAILS
    assert found("100 steps: ParaGRU takes more", slow).verdict == UNKNOWN


def test_features_in_training() -> None:
    def runs(last: dict[str, int]) -> list[Line]:
        steps = [{"0 reset": {"R-4": 2}}, {"0 reset": last}]
        return [
            line("feature-evolution", {}, details={"features": steps}, model=cell.model, initial=cell.initial)
            for cell in EXPERIMENTS["feature-evolution"].cells()
        ]

    assert found("features become", runs({"R-1": 2, "C-1": 3})).verdict == HOLDS
    assert found("most of them are C-1", runs({"R-1": 2, "C-1": 3})).verdict == HOLDS
    assert found("features become", runs({"R-4": 1, "C-1": 2})).verdict == FAILS
    assert found("most of them are C-1", runs({"R-1": 3, "C-1": 2})).verdict == FAILS
    assert found("features become", runs({"R-1": 2, "C-1": 3})[1:]).verdict == UNKNOWN


def test_recovery() -> None:
    def runs(distance: float, last: dict[str, int]) -> list[Line]:
        metrics = {"distance": distance, "first_distance": 2.0}
        details = {"features": [{"counts": {}}, {"counts": last}]}
        cells = [cell for cell in EXPERIMENTS["feature-recovery"].cells() if cell.truth == "mixed"]
        return [
            line("feature-recovery", metrics, details=details, truth=cell.truth, initial=cell.initial) for cell in cells
        ]

    assert found("converges to the true one (mixed", runs(0.1, {"R-1": 4})).verdict == HOLDS
    assert found("converges to the true one (mixed", runs(1.9, {"R-1": 4})).verdict == FAILS
    assert found("at the end (mixed", runs(0.1, {"R-1": 4})).verdict == HOLDS
    assert found("at the end (mixed", runs(0.1, {"R-2": 4})).verdict == FAILS
    assert found("converges to the true one (normal", runs(0.1, {"R-1": 4})).verdict == UNKNOWN


def test_speed() -> None:
    def run(times: dict[int, float]) -> list[Line]:
        metrics = {f"{size} total median": time for size, time in times.items()} | {"torch.nn.RNN total median": 9.0}
        return [line("speed", metrics)]

    flat = dict.fromkeys((1, 2, 4, 8, 16, 32, 64, 128), 5.0)
    assert found("linearly", run(flat)).verdict == FAILS
    assert found("linearly", run({size: float(size) for size in flat})).verdict == HOLDS
