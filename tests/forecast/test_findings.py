"""What data show: planted cycles are found where they are, and noise shows nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parallelrnn import Forecaster
from parallelrnn.errors import InputError
from parallelrnn.forecast.data import Series
from parallelrnn.forecast.findings import find
from parallelrnn.forecast.search import Search
from parallelrnn.forecast.shares import forecast_shares
from parallelrnn.interpret.display import Step
from parallelrnn.interpret.findings import Finding, Findings
from parallelrnn.interpret.uncertainty import Interval
from parallelrnn.lab.benchmarks.planted import Planted, as_series
from tests.classical.test_structural import Array, wave

WEEK = [7.0]


def single(values: Array) -> Series:
    empty = np.zeros((len(values), 0))
    observed = np.isfinite(values)[:, None]
    return Series(
        name="a", position=0, values=values[:, None], observed=observed, past=empty, future=empty, static=empty[0]
    )


def findings(values: Array, horizon: int = 24) -> list[Finding]:
    return [finding for finding, _ in find([single(values)], WEEK, horizon)[0]]


def ar(coefficient: float) -> Callable[[np.random.Generator], Array]:
    def draw(rng: np.random.Generator) -> Array:
        errors, values = rng.standard_normal(500), [0.0]
        for error in errors:
            values.append(coefficient * values[-1] + error)
        return np.array(values[101:])

    return draw


NOISES: dict[str, Callable[[np.random.Generator], Array]] = {
    "white": lambda rng: rng.standard_normal(400),
    "walk": lambda rng: rng.standard_normal(400).cumsum(),
    "ar 0.5": ar(0.5),
    "ar 0.9": ar(0.9),
    "ma": lambda rng: np.convolve(rng.standard_normal(401), [1, 0.6], "valid"),
    "counts": lambda rng: rng.poisson(3.0, 400).astype(float),
    "heavy tails": lambda rng: rng.standard_t(2.5, 400),
}


@pytest.mark.parametrize("noise", NOISES)
def test_noise_shows_nothing(noise: str) -> None:
    # At a rate of one in twenty, four or more of fifteen would come in one of 200 tests.
    found = [bool(findings(NOISES[noise](np.random.default_rng(seed)))) for seed in range(15)]
    assert sum(found) < 4


@pytest.mark.parametrize(("period", "half_life"), [(24.0, 60.0), (7.3, 20.0), (24.0, math.inf), (7.3, math.inf)])
def test_a_cycle_is_found_with_its_period_and_half_life(period: float, half_life: float) -> None:
    inside = []
    for seed in range(4):
        (finding,) = findings(wave(800, period, half_life, seed))
        assert finding.kind == "cycle"
        assert finding.period.estimate == pytest.approx(period, rel=0.05)
        if math.isinf(half_life):
            assert finding.period.estimate == pytest.approx(period, rel=1e-3)
            assert finding.half_life.low > 800
        inside.append(finding.period.low <= period <= finding.period.high)
        inside.append(finding.half_life.low <= half_life <= finding.half_life.high)
        assert finding.share_series.low < finding.share_series.estimate < finding.share_series.high
    assert sum(inside) >= 5  # of 8; fewer come in one of 200 tests at 90 %


def test_a_half_life_that_data_do_not_determine_is_not_a_number() -> None:
    (finding,) = findings(wave(400, 24, math.inf, seed=0))
    assert math.isnan(finding.half_life.estimate)
    assert 400 < finding.half_life.low < finding.half_life.high == math.inf


def test_a_week_is_told_from_a_neighbour() -> None:
    days = np.arange(600)
    rng = np.random.default_rng(0)
    weekly = 2.0 * (days % 7 == 2) + rng.standard_normal(600)
    assert [(finding.kind, finding.period.estimate) for finding in findings(weekly)] == [("calendar", 7.0)]
    near = [finding.kind for finding in findings(wave(600, 7.3, 20, seed=0))]
    assert near == ["cycle"]


def test_a_trend_is_named() -> None:
    rng = np.random.default_rng(1)
    (finding,) = findings(0.01 * np.arange(300) + rng.standard_normal(300))
    assert finding.kind == "trend"
    assert math.isnan(finding.period.estimate)
    assert finding.half_life.estimate == math.inf


def test_a_panel_shares_its_findings() -> None:
    pairs, _ = find([single(wave(300, 24, 60, seed)) for seed in range(6)], WEEK, 24)
    (finding,) = [finding for finding, _ in pairs]
    assert finding.period.low < 24 < finding.period.high
    assert finding.half_life.low < 60 < finding.half_life.high


def test_gaps_do_not_matter() -> None:
    values = wave(600, 24, 60, seed=1)
    full = findings(values)[0]
    values[100:130] = np.nan
    gappy = findings(values)[0]
    assert gappy.period.estimate == pytest.approx(full.period.estimate, rel=0.03)


def test_nothing_is_found_in_too_little() -> None:
    assert find([single(np.arange(10.0))], WEEK, 2) == ([], "unknown")
    assert find([single(np.ones(100))], WEEK, 2) == ([], "unknown")


def test_hidden_blocks_do_not_count_as_cycles() -> None:
    search = Search([np.convolve(np.random.default_rng(0).standard_normal(2002), [1, 0.6], "valid")], [0], [])
    assert search.waves == []


def test_shares_of_forecasts_are_those_of_the_parts() -> None:
    ahead, rng = np.arange(1, 25), np.random.default_rng(0)
    basis = np.column_stack([np.cos(2 * math.pi * ahead / 12), np.sin(2 * math.pi * ahead / 12)])
    slope = (ahead - ahead.mean())[:, None]
    parts = rng.standard_normal((200, 2)) @ basis.T, rng.standard_normal((200, 1)) @ slope.T / slope.std()
    forecasts = 5 + parts[0] + parts[1]
    shares = forecast_shares(forecasts, [basis, slope])
    assert sum(share.estimate for share in shares) == pytest.approx(1, abs=1e-4)
    for share in shares:
        assert share.low < share.estimate < share.high
        assert share.estimate == pytest.approx(0.5, abs=0.1)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    stamps = pd.date_range("2024-01-01", periods=400, freq="h")
    return pd.DataFrame({"ds": stamps, "y": wave(400, 15, 60, seed=5)})


@pytest.mark.filterwarnings("ignore:Something may have changed")  # an epoch leaves errors that wander
def test_the_reading_does_not_depend_on_the_lookback(table: pd.DataFrame, tmp_path: Path) -> None:
    frames = []
    for lookback in (24, 90):
        forecaster = Forecaster(12, lookback, max_epochs=1, progress=False).fit(table)
        frames.append(forecaster.explain().findings)
        forecaster.save(tmp_path / "model")
        loaded = Forecaster.load(tmp_path / "model").explain()
        pd.testing.assert_frame_equal(loaded.findings, frames[-1])
        assert loaded.summary() == forecaster.explain().summary()
    shared = [name for name in frames[0] if not name.startswith("share_forecast")]
    pd.testing.assert_frame_equal(frames[0][shared], frames[1][shared])
    assert frames[0]["kind"].tolist() == ["cycle"]
    names = [f"{name}{end}" for name in ("period", "half_life") for end in ("", "-lo-90", "-hi-90")]
    assert set(names) < set(frames[0])


def test_noise_gets_an_empty_table_and_a_page_that_says_so(tmp_path: Path) -> None:
    stamps = pd.date_range("2024-01-01", periods=300, freq="D")
    values = np.random.default_rng(0).standard_normal(300)
    forecaster = Forecaster(10, max_epochs=1, progress=False).fit(pd.DataFrame({"ds": stamps, "y": values}))
    explanation = forecaster.explain()
    assert len(explanation.findings) == 0
    assert "half_life-hi-90" in explanation.findings
    page = forecaster.report(tmp_path / "page.html").read_text()
    assert "No trend, calendar cycle or other cycle stands out from noise" in page
    assert "move little" in page
    assert "A single fit cannot tell" not in page


def test_a_model_of_an_earlier_version_has_no_findings() -> None:
    old = Path(__file__).parents[1] / "data" / "0.1.0"
    loaded = Forecaster.load(old / "covariates")
    explanation = loaded.explain(None)
    assert explanation.reading is None
    with pytest.raises(InputError, match="without findings"):
        explanation.findings  # noqa: B018


def test_a_share_is_known_where_noise_may_be_short_memory() -> None:
    months = np.arange(180)
    for seed in range(4):
        values = 10 + 3 * np.sin(2 * math.pi * months / 12) + np.random.default_rng(seed).standard_normal(180)
        ((finding, _),), _ = find([single(values)], [12.0], 12)
        assert finding.share_series.estimate == pytest.approx(4.5 / 5.5, abs=0.06)
        assert 0.02 < finding.share_series.high - finding.share_series.low < 0.15


def test_short_series_do_not_hide_what_long_ones_show() -> None:
    days = np.arange(1200)
    year = np.sin(2 * math.pi * days / 365.25) + 0.3 * np.random.default_rng(0).standard_normal(1200)
    pieces = [single(np.random.default_rng(seed).standard_normal(n)) for seed, n in ((1, 40), (2, 22))]
    kinds = [finding.kind for finding, _ in find([single(year), *pieces, single(year[::-1])], [7.0, 365.25], 28)[0]]
    assert kinds == ["calendar"]


def test_gaps_do_not_shrink_the_share_of_a_trend() -> None:
    values = 0.05 * np.arange(400) + np.random.default_rng(3).standard_normal(400)
    full = findings(values)[0].share_series
    values[100:250] = np.nan
    seen = np.isfinite(values)
    variance = (0.05 * np.arange(400))[seen].var()
    gappy = findings(values)[0].share_series
    assert full.estimate == pytest.approx(33.3 / 34.3, abs=0.02)
    assert gappy.estimate == pytest.approx(variance / (variance + 1), abs=0.02)


def test_a_large_offset_hides_nothing() -> None:
    values = 1e9 + wave(400, 24, math.inf, seed=1)
    assert [finding.kind for finding in findings(values)] == ["cycle"]


@pytest.mark.parametrize(("values", "said"), [(np.arange(8.0) % 3, "too few"), (np.full(60, 2.0), "too little")])
def test_what_cannot_be_read_is_said(values: Array, said: str) -> None:
    found, rest = find([single(values)], WEEK, 2)
    reading = Findings(rows=(), explained=-0.1, rest=rest, time=Step(), horizon=2, series=1)
    assert not found
    assert said in " ".join(reading.sentences())
    assert "stands out" not in " ".join(reading.sentences())
    assert "more is possible" not in " ".join(reading.sentences())


def test_words_follow_the_evidence() -> None:
    time, interval = Step(), Interval(10.0, 9.0, 11.0)

    def said(*share: float) -> str:
        shares = {"share_forecast": Interval(math.nan, math.nan, math.nan), "share_series": Interval(*share)}
        finding = Finding(kind="cycle", period=interval, half_life=interval, **shares)
        reading = Findings(rows=(finding,), explained=0.5, rest="noise", time=time, horizon=5, series=1)
        return " ".join(reading.sentences())

    assert "The data show a cycle of 10 (9 to 11) steps" in said(0.5, 0.4, 0.6)
    assert "small beside the rest" in said(0.02, 0.015, 0.03)
    assert "signs of" in said(0.3, 0.01, 0.9)
    assert "movement" not in said(0.5, 0.4, 0.6)  # forecasts of one step do not move
    assert "more is possible" in said(0.8, 0.7, 0.9)
    assert "more is possible" not in said(0.6, 0.54, 0.7)  # by so little that it may be chance


def test_harmonics_belong_to_their_cycle() -> None:
    time = np.arange(450)
    values = 3.0 * (time % 17) / 17 + 0.4 * np.random.default_rng(0).standard_normal(len(time))
    (finding,) = findings(values, horizon=17)
    assert finding.period.low < 17 < finding.period.high
    assert finding.period.estimate == pytest.approx(17, rel=1e-3)
    # A sawtooth has the variance of a uniform distribution, of which its first line alone makes up 6 / pi^2.
    truth = 3.0**2 / 12 / (3.0**2 / 12 + 0.4**2)
    assert 0.85 * truth < finding.share_series.estimate < 1.02 * truth


def test_waves_that_do_not_fit_into_a_turn_stay_apart() -> None:
    values = wave(800, 24.0, math.inf, 1) + wave(800, 7.3, math.inf, 2)
    assert sorted(round(finding.period.estimate, 1) for finding in findings(values)) == [7.3, 24.0]


def test_a_wave_beside_a_trend_is_told_from_short_memory() -> None:
    """Its first fit may leave no noise, and then look like a wave of three steps."""
    model = Planted([7.3], 8.0, trend=True, ratio=4.0, length=2000)
    for seed in (0, 1, 4):
        found, _ = find([as_series(model.draw(seed))], [7.0, 365.25], 24)
        assert [finding.kind for finding, _ in found] == ["trend", "cycle"]


@pytest.mark.parametrize("length", [500, 2000])
def test_shares_beside_a_trend_are_those_of_the_whole_series(length: int) -> None:
    model = Planted([24.0], None, trend=True, ratio=4.0, length=length)
    shares = [find([as_series(model.draw(seed))], [], 24)[0][1][0].share_series.estimate for seed in range(4)]
    assert np.mean(shares) == pytest.approx(model.true_shares(24)[0], rel=0.04)  # a standard error of 1 %
