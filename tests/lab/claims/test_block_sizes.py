"""Verdicts on errors and times by block size follow their rules."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from parallelrnn.lab.claims.verdict import FAILS, HOLDS, NOT_RUN, SMALLER, UNKNOWN, UNTOLD
from parallelrnn.lab.running.store import Line
from tests.lab.claims.findings import everything, found
from tests.lab.lines import line

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


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
        ([2.8, 3.1, 2.9], UNKNOWN),  # an interval with zero in it, and with a substantial drop
        ([2.9, 3.0, 2.8], FAILS),  # significant: the same 0.1 on each seed, but no substantial drop
        ([1.5, 1.6], UNKNOWN),  # two replicates are too few
        ([1.0, 1.1, float("nan")], UNKNOWN),  # diverged
        ([0.0, 2.9, 1.0], UNKNOWN),  # more than two standard errors, but not by Student's t
        ([3.5, 3.5, 3.5], FAILS),  # significant, and the other way
    ],
)
def test_a_drop_is_significant_and_substantial(twos: list[float], verdict: str) -> None:
    lines = tradeoff({1: [3.0, 3.1, 2.9], 2: twos})
    assert found("tradeoff", "drop", lines).verdict == verdict
    assert found("tradeoff", "drop, more noise", lines).verdict == UNKNOWN


def test_all_sizes_are_compared_with_128() -> None:
    last = [1.0, 1.2, 1.1]
    errors = {size: [1.002, 1.199, 1.1] for size in SIZES[1:]} | {128: last}
    told = found("tradeoff", "level", tradeoff(errors))
    assert told.verdict == HOLDS
    wide = errors | {16: [1.02, 1.19, 1.1]}  # not apart, but with six intervals that hold together ± 0.096
    assert found("tradeoff", "level", tradeoff(wide)).verdict == UNKNOWN
    apart = errors | {16: [1.05, 1.27, 1.16]}  # ± 0.025 alone, ± 0.063 among six
    assert found("tradeoff", "level", tradeoff(apart)).verdict == UNKNOWN
    far = errors | {16: [1.3, 1.5, 1.41]}
    told = found("tradeoff", "level", tradeoff(far))
    assert told.verdict == FAILS  # 2 is as 128 is, and 16 is not
    assert "the largest difference to 128 is +0.303 ± 0.014 (3 pairs), of 16; significant, jointly: 16" in told.ours
    assert found("tradeoff", "level", tradeoff({size: errors[size] for size in (2, 4, 128)})).verdict == UNKNOWN


def test_errors_vary_most_at_one() -> None:
    errors = {size: [1.0, 1.1, 1.2, 1.3, 1.4] for size in SIZES}
    wide = errors | {1: [1.0, 2.0, 3.0, 4.0, 5.0]}
    assert found("tradeoff", "spread", tradeoff(wide)).verdict == HOLDS  # a ratio of 100; 9.6 is significant
    assert found("tradeoff", "spread", tradeoff(errors | {1: [1.0, 1.3, 1.6, 1.9, 2.2]})).verdict == UNKNOWN  # 9
    assert found("tradeoff", "spread", tradeoff(errors | {4: wide[1]})).verdict == FAILS
    assert found("tradeoff", "spread", tradeoff(errors | {4: [1.0, 1.4, 1.8, 2.2, 2.6]})).verdict == UNKNOWN  # 16 of 8
    four = {size: some[:4] for size, some in wide.items()}
    assert found("tradeoff", "spread", tradeoff(four)).verdict == UNKNOWN
    seven = {size: some for size, some in wide.items() if size != 64}
    assert found("tradeoff", "spread", tradeoff(seven)).verdict == UNKNOWN


def test_nothing_is_told_by_data_that_cannot_be_learned() -> None:
    errors = {size: [8.0 + size / 1000, 8.1, 8.2] for size in SIZES}

    def ended(lines: list[Line], fall: float = 0.0) -> list[Line]:
        return [one | {"curve": [{"validation": (1 - fall) ** epoch} for epoch in range(5)]} for one in lines]

    assert found("tradeoff", "drop", tradeoff(errors, variance=10.0)).verdict == UNKNOWN  # nobody knows how it ended
    assert found("tradeoff", "drop", ended(tradeoff(errors, variance=10.0), 0.02)).verdict == UNKNOWN
    assert found("tradeoff", "drop", ended(tradeoff(errors, variance=10.0, train=400))).verdict == UNKNOWN
    for claim in ("drop", "level"):
        told = found("tradeoff", claim, ended(tradeoff(errors, variance=10.0, max_epochs=10), 0.005))
        assert told.verdict == UNTOLD
        assert ("validation errors change by -0.50% to -0.50% an epoch at the end" in told.ours) == (claim == "level")
        assert "the variance of the targets 10" in told.ours
        assert found("tradeoff", claim, tradeoff(errors, variance=10.5)).verdict != UNTOLD
    calm = ended(tradeoff(errors, variance=10.0, recurrent_scale=0.0884))  # was only trained too little
    assert found("tradeoff", "drop", calm, "1/128").verdict == UNKNOWN


def test_a_smaller_budget_is_told() -> None:
    errors = {1: [3.0, 3.1, 2.9], 2: [1.0, 1.1, 1.2]}
    told = found("tradeoff", "drop", tradeoff(errors, max_epochs=5))
    assert told.verdict == HOLDS + SMALLER
    assert "max_epochs 5 (not 40)" in told.budget
    assert "3 replicates" in told.budget
    assert found("tradeoff", "drop", tradeoff(errors, length=64)).verdict == HOLDS + SMALLER


def speed(times: dict[int, float], disturbed: bool = False, seed: int = 0, **config: Any) -> Line:
    metrics = {f"{size} total median": time for size, time in times.items()} | {"torch.nn.RNN total median": 9.0}
    return line("speed", metrics, seed, details={"disturbed": disturbed}, **config)


def test_speed() -> None:
    linear = {size: 30 + 0.2 * size for size in SIZES}
    assert found("speed", "linear", [speed(linear)]).verdict == HOLDS
    assert found("speed", "linear", [speed(linear | {16: 35.0})]).verdict == HOLDS
    assert found("speed", "linear", [speed(linear | {16: 45.0})]).verdict == FAILS
    # The line of least squares is 10.6 % off, and another one 8.0 %.
    measured = {1: 26.4, 2: 26.6, 4: 26.6, 8: 27.5, 16: 31.6, 32: 36.1, 64: 38.5, 128: 45.1}
    told = found("speed", "linear", [speed(measured)])
    assert told.verdict == HOLDS
    assert "the best straight line is 28.1 + 0.161 block_size, and up to 8.0% off" in told.ours
    hardly_grows = {size: 30 + 0.02 * size for size in SIZES}
    assert found("speed", "linear", [speed(hardly_grows)]).verdict == FAILS
    assert found("speed", "linear", [speed({size: 60 - 0.2 * size for size in SIZES})]).verdict == FAILS
    assert found("speed", "linear", [speed({size: size**1.5 for size in SIZES})]).verdict == FAILS
    assert found("speed", "linear", [speed(linear, disturbed=True)]).verdict == UNKNOWN
    bent = linear | {16: 45.0}
    assert found("speed", "linear", [speed(linear), speed(bent, seed=1)]).verdict == UNKNOWN
    assert found("speed", "linear", [speed(bent), speed(bent, seed=1)]).verdict == FAILS
    assert "the best straight line is 30.0 + 0.200 block_size" in found("speed", "linear", [speed(linear)]).ours


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
