"""From a file of series to forecasts and a report, as typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import parallelrnn
from parallelrnn import Forecaster
from parallelrnn.cli import demo
from parallelrnn.cli.forecasting import CELLS, DECODERS
from parallelrnn.cli.tables import ID_NAMES
from parallelrnn.forecast import model
from parallelrnn.nn import encoder
from parallelrnn.training.trainer import Trainer
from tests.cli import run
from tests.training.samples import hourly, quick


@pytest.fixture(autouse=True)
def _short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(horizon: int, lookback: int | None = None, **options: Any) -> Forecaster:
        return quick(horizon, lookback or 48, **options)

    short.load = Forecaster.load  # type: ignore[attr-defined]
    for module in (parallelrnn, demo):
        monkeypatch.setattr(module, "Forecaster", short)


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    wide = hourly().pivot(index="ds", columns="unique_id", values="y").reset_index(names="date")
    wide.to_csv(path, index=False)
    return path


def test_fit_says_what_it_guessed_and_what_it_learned(csv: Path, tmp_path: Path) -> None:
    first, *others = run("fit", csv, "--horizon", 12, "--out", tmp_path / "model").stdout.splitlines()
    for fact in ("400 rows", "load.csv", "time column 'date'", "targets 'a', 'b'; give --target to choose"):
        assert fact in first
    for fact in ("frequency 'h'", "24 h", "share"):
        assert fact in "\n".join(others)
    assert [file.suffix for file in (tmp_path / "model").iterdir()] == [".safetensors"]


def test_fit_prints_its_first_line_before_it_imports_torch(csv: Path, tmp_path: Path) -> None:
    words = ["parallelrnn", "fit", str(csv), "--horizon", "3", "--out", str(tmp_path / "model")]
    script = (
        f"import sys; sys.argv = {words}\n"
        "from parallelrnn.cli import forecasting, main\n"
        "def stop(text): sys.exit(str([name for name in ('torch', 'scipy', 'rich') if name in sys.modules]))\n"
        "forecasting._print = stop\n"
        "main()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stderr.strip() == "[]"


def test_forecast_writes_what_the_model_predicts(csv: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "forecast.csv"
    run("fit", csv, "--time", "date", "--target", "b", "--horizon", 12, "--out", model)
    assert "12 rows" in run("forecast", model, "--level", 80, "--level", 95, "--out", out).output
    expected = Forecaster.load(model).predict(level=[80, 95])
    pd.testing.assert_frame_equal(pd.read_csv(out, parse_dates=["date"]), expected, check_dtype=False)
    printed = run("forecast", model, "--json").stdout
    np.testing.assert_allclose([row["yhat"] for row in json.loads(printed)], expected["yhat"])
    assert run("forecast", model).stdout.splitlines()[0] == "date,yhat"


def test_forecast_continues_a_newer_file_and_writes_parquet(csv: Path, tmp_path: Path) -> None:
    model, newer, out = tmp_path / "model", tmp_path / "newer.parquet", tmp_path / "forecast.parquet"
    run("fit", csv, "--target", "a", "--horizon", 12, "--out", model)
    wide = hourly(420).pivot(index="ds", columns="unique_id", values="y").reset_index(names="date")
    wide.to_parquet(newer)
    assert "unused columns: b" in run("forecast", model, "--data", newer, "--decompose", "--out", out).output
    other = tmp_path / "other.csv"
    wide.drop(columns="a").to_csv(other, index=False)
    message = run("forecast", model, "--data", other, code=3).output
    for fact in ("other.csv", "no column 'a'", "'date', 'b'"):
        assert fact in message
    forecast = pd.read_parquet(out)
    assert forecast["date"].min() == wide["date"].max() + pd.Timedelta(hours=1)
    np.testing.assert_allclose(forecast.drop(columns=["date", "yhat"]).sum(axis=1), forecast["yhat"], rtol=1e-5)


def test_explain_prints_and_writes_a_report(csv: Path, tmp_path: Path) -> None:
    model, page = tmp_path / "model", tmp_path / "report.html"
    run("fit", csv, "--horizon", 12, "--out", model)
    result = run("explain", model, "--html", page)
    assert "Forecast modes" in result.output
    assert "Recurrence features" in result.output
    assert "</html>" in page.read_text()
    assert "expected a file, got a directory" in run("explain", model, "--html", tmp_path, code=3).output
    missing = run("explain", model, "--html", tmp_path / "no" / "page.html", code=3).output.replace("\n", "")
    assert f"no directory {tmp_path / 'no'}; create it first" in missing
    explanation = json.loads(run("explain", model, "--json").stdout)
    assert explanation["modes"][0]["period"] == pytest.approx(24)
    assert len(explanation["features"]) == 8


def test_evaluate_compares_cells_with_baselines(csv: Path) -> None:
    table = run("evaluate", csv, "--horizon", 12, "--test-size", 60, "--rows", 390).output
    options = ("--test-size", 60, "--level", 90, "--cell", "linear", "--cell", "gru", "--json")
    evaluation = json.loads(run("evaluate", csv, "--horizon", 12, *options).stdout)
    assert evaluation["windows"] == 2 * 49
    assert list(evaluation["scores"][0]["coverage"]) == ["90"]
    names = [score["name"] for score in evaluation["scores"]]
    for name, part in zip(names, ("(linear,", "(gru,", "naive", "seasonal naive", "NLinear"), strict=True):
        assert part in name
        assert name in table or "gru" in name


def test_times_are_parsed_as_people_write_them(csv: Path, tmp_path: Path) -> None:
    table = pd.read_csv(csv, parse_dates=["date"])[["date", "a"]]
    american, later, model, time_format = (
        tmp_path / "us.csv",
        tmp_path / "later.csv",
        tmp_path / "model",
        "%m/%d/%Y %H:%M",
    )
    table.assign(date=table["date"].dt.strftime(time_format)).to_csv(american, index=False)
    assert repr(time_format) in run("fit", american, "--horizon", 12, "--out", model).stderr
    expected = run("forecast", model).stdout
    assert expected.splitlines()[1].startswith("2024-01-17 16:00:00,")
    table.tail(60).assign(date=table["date"].dt.strftime(time_format)).to_csv(later, index=False)
    guessed = run("forecast", model, "--data", later)
    forecast = run("forecast", model, "--data", later, "--time-format", time_format)
    assert guessed.stdout == forecast.stdout == expected
    assert repr(time_format) in guessed.stderr
    assert not forecast.stderr
    assert "--time-format" in run("forecast", model, "--data", later, "--time-format", "%Y", code=3).output


@pytest.mark.parametrize("ids", [("007", "12"), ("7", "12"), ("NA", "nan")])
def test_ids_stay_what_they_are(ids: tuple[str, str], tmp_path: Path) -> None:
    data, out, model = tmp_path / "shops.csv", tmp_path / "forecast.csv", tmp_path / "model"
    hourly(ids=ids).to_csv(data, index=False)
    run("fit", data, "--horizon", 12, "--out", model)
    run("forecast", model, "--data", data, "--level", 80, "--out", out)
    assert tuple(pd.read_csv(out, dtype=str, keep_default_na=False)["unique_id"].unique()) == ids


def test_times_may_be_integers(tmp_path: Path) -> None:
    data, model = tmp_path / "steps.csv", tmp_path / "model"
    hourly(ids=("a",)).assign(ds=lambda t: 202000 + 5 * np.arange(len(t))).drop(columns="unique_id").to_csv(data)
    assert "3" in run("fit", data, "--target", "y", "--horizon", 12, "--freq", 3, "--out", model, code=3).output
    run("fit", data, "--target", "y", "--horizon", 12, "--freq", 5, "--out", model)
    assert run("forecast", model).stdout.splitlines()[1].startswith("204000,")


def test_a_model_fitted_on_polars_forecasts_into_the_same_file(tmp_path: Path) -> None:
    quick(max_epochs=1).fit(pl.from_pandas(hourly())).save(tmp_path / "model")
    run("forecast", tmp_path / "model", "--out", tmp_path / "forecast.csv")
    assert list(pd.read_csv(tmp_path / "forecast.csv").columns) == ["unique_id", "ds", "yhat"]


def test_future_covariates_come_from_a_file(csv: Path, tmp_path: Path) -> None:
    model, future, page = tmp_path / "model", tmp_path / "future.csv", tmp_path / "page.html"
    run("fit", csv, "--target", "a", "--future", "b", "--horizon", 12, "--out", model)
    assert "--future" in run("forecast", model, code=3).output
    assert "--future" in run("explain", model, "--html", page, code=3).output
    hours = pd.date_range(pd.read_csv(csv, parse_dates=["date"])["date"].max(), periods=13, freq="h")[1:]
    pd.DataFrame({"date": hours, "b": 30.0}).to_csv(future, index=False)
    assert len(run("forecast", model, "--future", future).stdout.splitlines()) == 13
    run("explain", model, "--html", page, "--future", future)
    assert page.exists()


@pytest.mark.parametrize(
    ("words", "code", "fact"),
    [
        ("fit nowhere.csv --horizon 3 --out m", 3, "nowhere.csv"),
        ("fit lad.csv --horizon 3 --out m", 3, "did you mean 'load.csv'?"),
        ("fit . --horizon 3 --out m", 3, ". is a directory; give a CSV or Parquet file"),
        ("fit load.csv --horizon 3 --target z --out m", 3, "--target: load.csv has no column 'z'"),
        ("fit load.csv --horizon 3 --time dates --target a --out m", 3, "did you mean 'date'?"),
        ("fit load.csv --horizon 3 --target a,b --out m", 3, "--target a --target b"),
        ("fit load.csv --horizon 3 --target a --id b --out m", 3, "'b' has 400 ids in 400 rows; check --id"),
        ("fit load.csv --horizon 3 --freq W --out m", 3, "the steps look like 'h'; give another --freq"),
        ("fit load.csv --horizon 3 --out load.csv", 2, "--out: load.csv is a file; give a directory"),
        ("fit load.csv --horizon week --out m", 2, "--horizon: expected an integer of at least 1, got 'week'"),
        ("evaluate load.csv --horizon 3 --level 80,95", 2, "--level: expected a number, got '80,95'; repeat"),
        ("fit load.csv --horizon 3 --time a --out m", 3, "'a'"),
        (
            "fit load.csv --horizon 3 --time date --target date --out m",
            3,
            "'date' is both the time column and a target",
        ),
        ("fit load.csv --horizon 3 --target a --past a --out m", 3, "'a' is both a target and a past covariate"),
        ("fit load.csv --horizon 3 --target a --target a --out m", 3, "'a' is given twice"),
        ("fit load.csv --horizon 0 --out m", 2, "--horizon: expected an integer of at least 1, got '0'"),
        (
            "fit nowhere.csv --horizon 3 --cell x --out m",
            2,
            "--cell: expected one of 'linear', 'rnn', 'lstm', 'gru', 'brt'",
        ),
        ("fit nowhere.csv --horizon 3 --decoder x --out m", 2, "--decoder: expected one of 'waves', 'linear'"),
        ("fit nowhere.csv --horizon 3 --transform x --out m", 2, "--transform: expected one of 'auto', 'log', 'none'"),
        ("evaluate nowhere.csv --horizon 3 --cell linear --cell x", 2, "--cell"),
        ("fit load.csv --horizon 3 --val-size 400 --out m", 2, "--val-size"),
        ("fit load.csv --horizon 3 --val-size 396 --out m", 2, "--val-size: expected at most 395 of the 400 steps"),
        ("fit load.csv --horizon 400 --out m", 3, "400"),
        ("forecast nowhere", 4, "nowhere; give the directory given to `parallelrnn fit --out`"),
        ("explain nowhere", 4, "nowhere"),
        ("forecast load.csv", 4, "load.csv is a file; give the directory"),
        ("evaluate load.csv --horizon 12 --test-size 3", 2, "--test-size"),
        ("evaluate load.csv --horizon 12 --rows 20", 3, "--test-size"),
    ],
)
@pytest.mark.usefixtures("csv")
def test_errors_are_sentences(
    words: str, code: int, fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("noon.csv").write_text("date,y\n2020-01-01,3\nnoon,4\n")
    assert fact in " ".join(run(*words.split(), code=code).output.split())


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "bad.csv is empty; give a file with a header and rows"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"a,b\n1,2\n", "'a', 'b'"),
        (b"id,ds,y\nNA,2020-01-01,1\n,2020-01-02,1\n", "'id'"),
        (b"date,price\n2020,$x\n2021,y\n2022,z\n", "'$x'"),
        (b"y,spots\n1700,5\n1701,11\n1702,16\n", "--time"),
    ],
)
def test_files_that_hold_no_series(content: bytes, fact: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    assert fact in run("fit", path, "--horizon", 3, "--out", tmp_path / "model", code=3).output


def test_a_table_with_repeated_times_and_no_id_is_not_one_series(csv: Path, tmp_path: Path) -> None:
    data, model = tmp_path / "shops.csv", tmp_path / "model"
    table = hourly().rename(columns={"unique_id": "shop"})
    table.to_csv(data, index=False)
    command = ("fit", data, "--horizon", 12, "--out", model)
    assert all(fact in run(*command, code=3).output for fact in ("--id", "'shop'", "2024-01-01"))
    run(*command, "--id", "shop")
    later = table.drop(columns="shop")
    later.to_csv(data, index=False)
    assert "--id\n" in run(*command, code=3).output
    run("fit", csv, "--target", "a", "--horizon", 12, "--out", model)
    later.rename(columns={"ds": "date", "y": "a"}).to_csv(data, index=False)
    assert "--id" not in run("forecast", model, "--data", data, code=3).output, "forecast has no such option"


def test_a_text_column_that_may_identify_series_is_named(tmp_path: Path) -> None:
    data = tmp_path / "shops.csv"
    hourly(ids=("a",)).assign(unique_id=["x", "y"] * 200).rename(columns={"unique_id": "shop"}).to_csv(
        data, index=False
    )
    assert "'shop'" in run("fit", data, "--horizon", 12, "--out", tmp_path / "model").output


def test_help_names_the_columns_that_are_tried_and_the_choices() -> None:
    text = " ".join(run("fit", "--help").output.split())
    for name in (*ID_NAMES, *CELLS, *DECODERS):
        assert name in text
    assert (CELLS, DECODERS) == (encoder.CELLS, model.DECODERS)


def test_an_interrupted_fit_says_how_to_resume(csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "model"
    command = ("fit", csv, "--horizon", 3, "--out", model)
    step = Trainer._step

    def interrupt(self: Trainer[Any]) -> None:
        if self.progress.epoch == 1:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", interrupt)
        assert "--resume" in run(*command, code=130).stderr
    assert "--resume" in run(*command, code=3).stderr
    assert "--resume" in run("forecast", model, code=4).stderr
    assert "no checkpoint" not in run(*command, "--resume").stderr
    assert "no checkpoint" in run(*command, "--resume").stderr


def test_a_table_without_column_names_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    path.write_text("".join(f"2020-01-{day:02},{day % 7}\n" for day in range(1, 32)))
    command = ("fit", path, "--horizon", 3, "--out", tmp_path / "model")
    assert "'2020-01-01'" in run(*command, code=3).output
    run(*command, "--time", "2020-01-01", "--target", "1")  # if these are the names


def test_demo_tells_a_story(tmp_path: Path) -> None:
    page = tmp_path / "sunspots.html"
    text = run("demo", "--out", page).output
    for fact in ("naive", "2009", "Forecast modes", "sunspots.html"):
        assert fact in text
    assert page.exists()
