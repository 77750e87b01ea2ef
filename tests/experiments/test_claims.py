"""Verdicts follow their rules, and nothing is concluded from what was not run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from parallelrnn.experiments import paper
from parallelrnn.experiments.claims import FAILS, HOLDS, NOT_RUN, SMALLER, UNKNOWN, UNTOLD, Finding, findings
from parallelrnn.experiments.picking import pick
from parallelrnn.experiments.registry import EXPERIMENTS
from parallelrnn.experiments.store import Line
from tests.experiments.lines import line

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def everything(lines: Sequence[Line]) -> list[Finding]:
    return findings(
        {
            name: pick(experiment, [one for one in lines if one["experiment"] == name])
            for name, experiment in EXPERIMENTS.items()
        }
    )


def found(experiment: str, claim: str, lines: Sequence[Line], about: str = "") -> Finding:
    """The first of a claim that is about these words."""
    said = paper.CLAIMS[experiment][claim]
    return next(one for one in everything(lines) if one.claim is said and about in one.about)


def test_nothing_is_known_without_runs() -> None:
    told = everything([])
    assert len(told) > 40
    assert {one.verdict for one in told} == {UNKNOWN}
    assert {one.ours for one in told} == {NOT_RUN}
    assert all(one.rule for one in told)


def test_every_claim_has_a_finding_and_every_finding_a_claim() -> None:
    claims = [claim for some in paper.CLAIMS.values() for claim in some.values()]
    assert len(set(claims)) == len(claims)
    assert {one.claim for one in everything([])} == set(claims)
    texts = [(one.text, one.claim.place) for one in everything([])]
    assert len(set(texts)) == len(texts)


def tradeoff(errors: dict[int, list[float]], variance: float = 100.0, **config: Any) -> list[Line]:
    return [
        line("tradeoff", {"mse": error, "variance": variance}, seed, block_size=size, **config)
        for size, some in errors.items()
        for seed, error in enumerate(some)
    ]


@pytest.mark.parametrize(
    ("twos", "verdict"),
    [
        ([1.0, 1.1, 1.2], HOLDS),
        ([2.8, 3.1, 2.9], FAILS),  # an interval with zero in it
        ([2.9, 3.0, 2.8], FAILS),  # significant: the same 0.1 on each seed, but no substantial drop
        ([1.5, 1.6], UNKNOWN),  # two replicates are too few
        ([1.0, 1.1, float("nan")], UNKNOWN),  # diverged
        ([0.0, 2.9, 1.0], FAILS),  # more than two standard errors, but not by Student's t
    ],
)
def test_a_drop_is_significant_and_substantial(twos: list[float], verdict: str) -> None:
    lines = tradeoff({1: [3.0, 3.1, 2.9], 2: twos})
    assert found("tradeoff", "drop", lines).verdict == verdict
    assert found("tradeoff", "drop, more noise", lines).verdict == UNKNOWN


def test_all_sizes_are_compared_with_128() -> None:
    last = [1.0, 1.2, 1.1]
    errors = {size: [1.02, 1.19, 1.1] for size in SIZES[1:]} | {128: last}
    told = found("tradeoff", "level", tradeoff(errors))
    assert told.verdict == HOLDS
    far = errors | {16: [1.3, 1.5, 1.41]}
    told = found("tradeoff", "level", tradeoff(far))
    assert told.verdict == FAILS  # 2 is as 128 is, and 16 is not
    assert "the largest difference to 128 is +0.303 ± 0.014 (3 pairs), of 16; significant: 16" in told.ours
    assert found("tradeoff", "level", tradeoff({size: errors[size] for size in (2, 4, 128)})).verdict == UNKNOWN


def test_errors_vary_most_at_one() -> None:
    errors = {size: [1.0, 1.1, 1.2, 1.3, 1.4] for size in SIZES}
    wide = errors | {1: [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert found("tradeoff", "spread", tradeoff(wide)).verdict == HOLDS
    assert found("tradeoff", "spread", tradeoff(errors | {4: wide[1]})).verdict == FAILS
    four = {size: some[:4] for size, some in wide.items()}
    assert found("tradeoff", "spread", tradeoff(four)).verdict == UNKNOWN
    seven = {size: some for size, some in wide.items() if size != 64}
    assert found("tradeoff", "spread", tradeoff(seven)).verdict == UNKNOWN


def test_nothing_is_told_by_data_that_cannot_be_learned() -> None:
    errors = {size: [8.0 + size / 1000, 8.1, 8.2] for size in SIZES}
    for claim in ("drop", "level"):
        told = found("tradeoff", claim, tradeoff(errors, variance=10.0))
        assert told.verdict == UNTOLD
        assert "the variance of the targets 10" in told.ours
        assert found("tradeoff", claim, tradeoff(errors, variance=10.5)).verdict != UNTOLD
    calm = tradeoff(errors, variance=10.0, recurrent_scale=0.0884)  # was only trained too little
    assert found("tradeoff", "drop", calm, "1/128").verdict == UNKNOWN


def test_a_smaller_budget_is_told() -> None:
    errors = {1: [3.0, 3.1, 2.9], 2: [1.0, 1.1, 1.2]}
    told = found("tradeoff", "drop", tradeoff(errors, max_epochs=5))
    assert told.verdict == HOLDS + SMALLER
    assert "max_epochs 5 (not 40)" in told.budget
    assert "3 replicates" in told.budget
    assert found("tradeoff", "drop", tradeoff(errors, length=64)).verdict == HOLDS + SMALLER


def accuracies(vanilla: list[float], para: list[float], model: str = "GRU", **more: float) -> list[Line]:
    return [
        line("pmnist", {"accuracy": accuracy, **more}, seed, model=name)
        for name, some in ((model, vanilla), (f"Para{model}", para))
        for seed, accuracy in enumerate(some)
    ]


@pytest.mark.parametrize(
    ("para", "verdict"),
    [
        ([0.92, 0.93, 0.92], HOLDS),
        ([0.90, 0.93, 0.89], FAILS),  # better, but not significantly
        ([0.88, 0.89, 0.88], FAILS),
        ([0.92, 0.93], UNKNOWN),
    ],
)
def test_better_is_significantly_better(para: list[float], verdict: str) -> None:
    assert found("pmnist", "better", accuracies([0.90, 0.90, 0.90], para, "RNN")).verdict == verdict


@pytest.mark.parametrize(
    ("para", "tested", "verdict"),
    [
        (0.89, {}, HOLDS),
        (0.88, {}, FAILS),
        (0.88, {"tested": 10_000}, FAILS),
        (0.85, {"tested": 100}, HOLDS),  # two standard errors are six points
        (0.83, {"tested": 100}, FAILS),
    ],
)
def test_as_accurate(para: float, tested: dict[str, float], verdict: str) -> None:
    lines = accuracies([0.90], [para], **tested)
    told = found("pmnist", "comparable", lines, "ParaGRU")
    assert told.verdict == verdict
    assert told.ours.startswith(f"90.00 % and {100 * para:.2f} %")
    assert told.ours.endswith("1 replicate")
    lines[0]["config"]["max_epochs"] = 3  # a budget that the twin has not
    assert found("pmnist", "comparable", lines, "ParaGRU").verdict == UNKNOWN


def test_guessing_twins_are_not_comparable() -> None:
    assert found("pmnist", "comparable", accuracies([0.11], [0.12]), "ParaGRU").verdict == UNKNOWN
    lines = [line("worms", {"accuracy": 0.3}, dataset="Worms", model=model) for model in ("GRU", "ParaGRU")]
    told = found("worms", "comparable", lines, "UCR Worms, not the paper's data: GRU")
    assert (told.verdict, told.paper) == (HOLDS, "-")
    lines = [line("worms", {"accuracy": 0.3}, dataset="StandWalkJump", model=model) for model in ("GRU", "ParaGRU")]
    assert found("worms", "comparable", lines, "StandWalkJump, not the paper's data: GRU").verdict == UNKNOWN


SETTINGS = list(dict.fromkeys((one.dataset, one.horizon) for one in EXPERIMENTS["forecasting"].cells()))


def forecasts(
    errors: dict[str, Sequence[float]], types: dict[str, int] | None = None, cells: int = 16, **config: Any
) -> list[Line]:
    """Errors of replicates by model, the same in all settings."""
    details = {"features": {"0 reset": types or {}, "1 reset": {"R-1": 1}}}
    return [
        line("forecasting", {"mse": error, "mae": error}, seed, None, details, **place, **config)
        for dataset, horizon in SETTINGS[:cells]
        for model, some in errors.items()
        for seed, error in enumerate(some)
        for place in [{"dataset": dataset, "horizon": horizon, "model": model}]
    ]


@pytest.mark.parametrize(("ratio", "verdict"), [(0.9, HOLDS), (1.01, HOLDS), (1.05, FAILS)])
def test_forecasts(ratio: float, verdict: str) -> None:
    errors = {"GRU": [1.0], "ParaGRU": [ratio]}
    told = found("forecasting", "loss", forecasts(errors), "ParaGRU")
    assert told.verdict == verdict
    assert told.ours.startswith("32 and 0 of 32" if ratio > 1 else "0 and 32 of 32")
    assert found("forecasting", "loss", forecasts(errors, cells=15), "ParaGRU").verdict == UNKNOWN
    assert found("forecasting", "loss", forecasts(errors), "ParaLSTM").verdict == UNKNOWN


def test_forecasts_are_compared_on_common_seeds_and_all_budgets_are_told() -> None:
    lines = forecasts({"GRU": [1.0, 9.0], "ParaGRU": [1.2]})  # the second seed is the vanilla model's alone
    told = found("forecasting", "loss", lines, "ParaGRU")
    assert "MSE +20.0%" in told.ours
    assert told.ours.startswith("32 and 0 of 32")
    last = SETTINGS[-1]
    rest = [one for one in lines if (one["config"]["dataset"], one["config"]["horizon"]) != last]
    short = forecasts({"GRU": [1.0, 1.0], "ParaGRU": [1.0, 1.0]}, max_epochs=5)[-4:]
    told = found("forecasting", "loss", [*rest, *short], "ParaGRU")
    assert told.verdict == FAILS + SMALLER  # one of sixteen is
    assert told.budget.startswith("1 to 2 replicates; 2 budgets: max_epochs 40")
    assert "max_epochs 5 (not 40)" in told.budget


def test_gains() -> None:
    lower = {"GRU": [1.0, 1.1, 1.2], "ParaGRU": [0.9, 1.0, 1.1], "RNN": [1.0, 1.1, 1.2], "ParaRNN": [1.0, 1.11, 1.19]}
    told = found("forecasting", "gain", forecasts(lower))
    assert (told.verdict, told.ours[:51]) == (HOLDS, "MSE significantly lower in 16 and higher in 0 of 32")
    same = lower | {"ParaGRU": lower["ParaRNN"]}
    assert found("forecasting", "gain", forecasts(same)).verdict == FAILS
    two = {model: some[:2] for model, some in lower.items()}
    assert found("forecasting", "gain", forecasts(two)).verdict == UNKNOWN


def test_types_of_trained_models() -> None:
    models = {model: [1.0] for model in ("RNN", "LSTM", "GRU", "ParaGRU")}
    usual = forecasts(models, {"R-1": 3, "C-1": 9})
    told = found("forecasting", "types", usual)
    assert told.verdict == HOLDS
    assert told.ours == "C-1: 432, R-1: 192; 48 trained models, in 48 of 48 cells (3 models, 16 settings)"
    assert found("forecasting", "waves", usual).verdict == HOLDS
    rare = forecasts(models, {"R-1": 9, "C-1": 3, "R-2": 1}, max_epochs=5)
    assert found("forecasting", "types", rare).verdict == FAILS + SMALLER
    assert found("forecasting", "waves", rare).verdict == FAILS + SMALLER
    assert found("forecasting", "types", usual[1:]).verdict == UNKNOWN


def adding(model: str, errors: list[float], reached: Sequence[float] = (), **config: Any) -> list[Line]:
    metrics = [{"mse": error, "seconds": 60.0 if model.startswith("Para") else 120.0} for error in errors]
    for one, count in zip(metrics, reached, strict=False):
        one["iterations_to_0.01"] = count
    config = {"length": 100} | config
    return [line("adding", one, seed, model=model, **config) for seed, one in enumerate(metrics)]


@pytest.mark.parametrize(
    ("vanilla", "para", "verdict"),
    [
        ([1e-4, 2e-4, 0.17], [1e-4, 1e-5, 0.17], HOLDS),
        ([1e-4, 0.17, 0.17], [1e-4, 1e-5, 0.17], HOLDS),
        ([1e-4, 1e-4, 1e-4], [1e-4, 1e-5, 0.17], FAILS),
        ([0.17, 0.17, 0.17], [0.16, 0.16, 0.16], UNKNOWN),  # nobody has learned anything
        ([1e-4, 1e-4], [1e-4, 1e-5], UNKNOWN),
    ],
)
def test_the_end_of_adding(vanilla: list[float], para: list[float], verdict: str) -> None:
    lines = [*adding("LSTM", vanilla), *adding("ParaLSTM", para)]
    assert found("adding", "end", lines, "length 100: LSTM").verdict == verdict
    apart = [*adding("LSTM", vanilla), *adding("ParaLSTM", para, iterations=1000)]
    assert found("adding", "end", apart, "length 100: LSTM").verdict == UNKNOWN  # not the same budget


def test_iterations_and_time_to_converge() -> None:
    good, many = [1e-4] * 3, [5000.0, 5500.0, 6000.0]
    fewer, noisy = [4000.0, 4400.0, 5100.0], [4000.0, 5600.0, 5100.0]

    def verdicts(model: str, vanilla: list[float], para: list[float]) -> tuple[str, str]:
        lines = [*adding(model, good, vanilla), *adding(f"Para{model}", good, para)]
        claim = "fewer" if model == "LSTM" else "more"
        iterations = found("adding", claim, lines, "length 100")
        return iterations.verdict, found("adding", "time", lines, f"length 100: {model}").verdict

    assert verdicts("LSTM", many, fewer) == (HOLDS, HOLDS)
    assert verdicts("LSTM", many, noisy) == (FAILS, HOLDS)  # an iteration takes half as long
    assert verdicts("LSTM", fewer, many) == (FAILS, HOLDS)
    assert verdicts("GRU", fewer, many) == (HOLDS, HOLDS)
    assert verdicts("GRU", fewer, [3 * count for count in many]) == (HOLDS, FAILS)
    assert verdicts("GRU", fewer, many[:2]) == (UNKNOWN, UNKNOWN)
    lines = [*adding("GRU", good, fewer), *adding("ParaGRU", good, many)]
    assert found("adding", "time", lines, "100: GRU").ours.startswith("9 and 6 s on a machine with other load")


@pytest.mark.parametrize(
    ("vanilla", "para", "verdict"),
    [
        ([1e-4, 0.17, 1e-4], [1e-4] * 3, HOLDS),
        ([1e-4, 0.17, 1e-4], [1e-4, 1e-4, 0.17], FAILS),
        ([1e-4] * 3, [1e-4] * 3, UNKNOWN),  # three that did not fail say little
        ([1e-4] * 10, [1e-4] * 10, FAILS),
        ([1e-4, 0.17], [1e-4] * 2, UNKNOWN),
    ],
)
def test_lstm_fails_at_500(vanilla: list[float], para: list[float], verdict: str) -> None:
    lines = [*adding("LSTM", vanilla, length=500), *adding("ParaLSTM", para, length=500)]
    assert found("adding", "fails", lines).verdict == verdict


def test_features_in_training() -> None:
    def runs(last: dict[str, int], middle: str = "C-2") -> list[Line]:
        steps = [{"0 reset": {"R-4": 2}}, {"0 reset": last, "1 reset": {middle: 1}}, {"0 reset": last}]
        return [
            line("feature-evolution", {}, details={"features": steps}, model=cell.model, initial=cell.initial)
            for cell in EXPERIMENTS["feature-evolution"].cells()
        ]

    def verdicts(lines: list[Line]) -> list[str]:
        return [found("feature-evolution", claim, lines).verdict for claim in ("low", "waves", "others")]

    # The experiment's own configuration is shorter than the paper's.
    assert verdicts(runs({"R-1": 2, "C-1": 3})) == [HOLDS + SMALLER] * 3
    assert verdicts(runs({"R-4": 1, "C-1": 2})) == [FAILS + SMALLER, HOLDS + SMALLER, HOLDS + SMALLER]
    assert verdicts(runs({"R-1": 3, "C-1": 2})) == [HOLDS + SMALLER, FAILS + SMALLER, HOLDS + SMALLER]
    # It was there for a while, in another layer.
    assert verdicts(runs({"R-1": 2, "C-1": 3}, "R-2")) == [HOLDS + SMALLER, HOLDS + SMALLER, FAILS + SMALLER]
    assert verdicts(runs({"R-1": 2, "C-1": 3})[1:]) == [UNKNOWN] * 3


def test_recovery() -> None:
    def verdicts(truth: str, distance: float, last: str = "R-1", modulus: float = 0.5) -> list[str]:
        metrics = {"distance": distance, "first_distance": 2.0}
        history = [
            {"counts": {"R-7": 1}, "modulus": [1.0] * 5, "angle": [0.01] * 5},
            {"counts": {last: 4}, "modulus": [modulus] * 5, "angle": [0.03] * 5},
        ]
        details = {"features": history, "true": {"modulus": [0.4] * 5, "angle": [0.0] * 5}}
        lines = [
            line("feature-recovery", metrics, details=details, truth=truth, initial=cell.initial)
            for cell in EXPERIMENTS["feature-recovery"].cells()
            if cell.truth == truth
        ]
        about = {"normal": "normal", "mixed": "R-4"}[truth]
        claims = ("matrix", "percentiles", "types") if truth == "normal" else ("matrix", "types")
        assert {found("feature-recovery", claim, lines[1:], about).verdict for claim in claims} == {UNKNOWN}
        return [found("feature-recovery", claim, lines, about).verdict for claim in claims]

    assert verdicts("mixed", 0.1) == [HOLDS, HOLDS]
    assert verdicts("mixed", 1.9, "R-2") == [FAILS, FAILS]
    assert verdicts("normal", 0.1) == [HOLDS, HOLDS, HOLDS]  # angles began near, and are
    assert verdicts("normal", 0.1, modulus=0.75) == [HOLDS, FAILS, HOLDS]


def speed(times: dict[int, float], disturbed: bool = False, seed: int = 0, **config: Any) -> Line:
    metrics = {f"{size} total median": time for size, time in times.items()} | {"torch.nn.RNN total median": 9.0}
    return line("speed", metrics, seed, details={"disturbed": disturbed}, **config)


def test_speed() -> None:
    linear = {size: max(size, 8.0) for size in SIZES}  # from 8 on
    assert found("speed", "linear", [speed(linear)]).verdict == HOLDS
    assert found("speed", "linear", [speed(dict.fromkeys(SIZES, 5.0))]).verdict == FAILS
    assert found("speed", "linear", [speed({size: size**1.5 for size in SIZES})]).verdict == FAILS
    assert found("speed", "linear", [speed(linear, disturbed=True)]).verdict == UNKNOWN
    assert "slope 0.60, from 8 on 1.00" in found("speed", "linear", [speed(linear)]).ours


def test_times_are_averaged_and_those_of_other_shapes_left_out() -> None:
    lines = [speed({size: factor * size for size in SIZES}, seed=seed) for seed, factor in enumerate((1.0, 3.0))]
    narrow = speed(dict.fromkeys(SIZES[:-1], 1.0), hidden_size=64)
    told = found("speed", "linear", [narrow, *lines])
    assert told.verdict == HOLDS
    assert "1: 2.0, 2: 4.0" in told.ours
    assert found("speed", "linear", [narrow]).ours == NOT_RUN
    assert found("speed", "linear", [speed({1: 1.0, 8: 2.0})]).verdict == UNKNOWN  # sizes are missing


def test_rules_and_verdicts_are_words_of_few_kinds() -> None:
    verdicts = {"".join(pair) for pair in itertools.product((HOLDS, FAILS), ("", SMALLER))} | {UNKNOWN, UNTOLD}
    lines = [*tradeoff({size: [1.0, 1.1, 1.2] for size in SIZES}, max_epochs=3), speed(dict.fromkeys(SIZES, 1.0))]
    assert {one.verdict for one in everything(lines)} <= verdicts
    assert all("|" not in one.rule + one.ours + one.text for one in everything(lines))
