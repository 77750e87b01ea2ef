"""The series of the reading benchmark, and what is known of them, held to simulation and to outside software."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parallelrnn.lab.benchmarks.planted import Array, Planted
from parallelrnn.lab.benchmarks.reading import FINDINGS, fisher, fit_exact
from parallelrnn.lab.benchmarks.reading_tables import Read

FADING = Planted([24.0], 30.0, False, 4.0, 3000)


def test_planted_waves_have_their_autocovariance() -> None:
    rng = np.random.default_rng(0)
    wave = np.concatenate([FADING.wave(rng, 24.0) for _ in range(20)])
    for lag in (0, 12, 24):
        expected = 4.0 * 0.5 ** (lag / 30) * math.cos(2 * math.pi * lag / 24)
        covariance = float(np.mean(wave[lag:] * wave[: len(wave) - lag]))
        assert covariance == pytest.approx(expected, abs=0.5)  # of 700 independent swings


def test_shares_of_the_best_forecasts_are_those_of_long_series() -> None:
    """The Riccati equation against the filter run along series."""
    observed = np.mean([FADING.observed_shares(FADING.draw(seed), 24)[0] for seed in range(6)])
    assert observed == pytest.approx(FADING.true_shares(24)[0], abs=0.03)


def test_the_exact_likelihood_moves_from_its_start() -> None:
    planted = Planted([24.0], 30.0, True, 4.0, 600)
    exact = fit_exact(planted, planted.draw(3))
    assert exact["half_lives"][0] != 30.0
    assert exact["periods"][0] == pytest.approx(24.0, rel=0.1)


def test_fishers_test_is_uniform_in_noise() -> None:
    chances: Array = np.array(
        [fisher(np.random.default_rng(seed).standard_normal(200))["chance"] for seed in range(300)]
    )
    assert abs(np.mean(chances < 0.2) - 0.2) < 0.07  # three standard errors


def test_shares_of_waves_that_may_never_fade_are_those_observed() -> None:
    config = {"periods": [24.0], "half_life": 30.0, "trend": False, "ratio": 4.0, "length": 3000}
    row = {"kind": "cycle", "period": [24.0, 23.0, 25.0], "half_life": [math.nan, 100.0, math.inf]}
    draws = [{"findings": [{**row, "share_series": [0.9, 0.88, 0.92]}], "observed_shares": [0.91]}]
    assert Read(config, 0, {FINDINGS: draws}).cells()[-1] == "100%"
    draws = [{"findings": [{**row, "half_life": [30.0, 20.0, 40.0], "share_series": [0.9, 0.88, 0.92]}]}]
    assert Read(config, 0, {FINDINGS: draws}).cells()[-1] == "0%"
