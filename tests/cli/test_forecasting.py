"""From a file of series to forecasts and a page, as typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

from parallelrnn import Forecaster
from parallelrnn.cli import demo, forecasting
from parallelrnn.cli.app import app
from parallelrnn.training.trainer import Trainer
from tests.training.samples import hourly, quick


@pytest.fixture(autouse=True)
def _short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(horizon: int, lookback: int | None = None, **options: Any) -> Forecaster:
        return quick(horizon, lookback or 48, **options)

    short.load = Forecaster.load  # type: ignore[attr-defined]
    monkeypatch.setattr(forecasting, "Forecaster", short)


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    wide = hourly().pivot(index="ds", columns="unique_id", values="y").reset_index(names="date")
    wide.to_csv(path, index=False)
    return path


def run(*words: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output + str(result.exception)
    assert "Traceback" not in result.output
    return result


def test_fit_says_what_it_guessed_and_what_it_learned(csv: Path, tmp_path: Path) -> None:
    result = run("fit", csv, "--horizon", 12, "--out", tmp_path / "model")
    for text in ("guessed: time column 'date'", "guessed: targets 'a', 'b'", "guessed: frequency 'h'", "24 h", "share"):
        assert text in result.output
    assert sorted(file.suffix for file in (tmp_path / "model").iterdir()) == [".json", ".safetensors"]


def test_forecast_writes_what_the_model_predicts(csv: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "forecast.csv"
    run("fit", csv, "--time", "date", "--target", "b", "--horizon", 12, "--out", model)
    result = run("forecast", model, "--level", 80, "--level", 95, "--out", out)
    assert "12 rows are in" in result.output.replace("\n", " ")
    found = pd.read_csv(out, parse_dates=["date"])
    expected = Forecaster.load(model).predict(level=[80, 95])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    printed = run("forecast", model, "--json").stdout
    np.testing.assert_allclose([row["yhat"] for row in json.loads(printed)], expected["yhat"])
    assert run("forecast", model).stdout.splitlines()[0] == "date,yhat"


def test_forecast_goes_on_from_a_newer_file_and_writes_parquet(csv: Path, tmp_path: Path) -> None:
    model, newer, out = tmp_path / "model", tmp_path / "newer.parquet", tmp_path / "forecast.parquet"
    run("fit", csv, "--target", "a", "--horizon", 12, "--out", model)
    wide = hourly(420).pivot(index="ds", columns="unique_id", values="y").reset_index(names="date")
    wide.to_parquet(newer)
    assert "not used: b" in run("forecast", model, "--data", newer, "--decompose", "--out", out).output
    other = tmp_path / "other.csv"
    wide.drop(columns="a").to_csv(other, index=False)
    assert "other.csv has no column 'a'; it has 'date', 'b'" in run("forecast", model, "--data", other, code=3).output
    found = pd.read_parquet(out)
    assert found["date"].min() == wide["date"].max() + pd.Timedelta(hours=1)
    np.testing.assert_allclose(found.drop(columns=["date", "yhat"]).sum(axis=1), found["yhat"], rtol=1e-5)


def test_explain_prints_and_writes_a_page(csv: Path, tmp_path: Path) -> None:
    model, page = tmp_path / "model", tmp_path / "report.html"
    run("fit", csv, "--horizon", 12, "--out", model)
    result = run("explain", model, "--html", page)
    assert "Forecast modes" in result.output
    assert "Recurrence features" in result.output
    assert "What this forecast is made of" in page.read_text()
    words = json.loads(run("explain", model, "--json").stdout)
    assert words["modes"][0]["period"] == pytest.approx(24)
    assert len(words["features"]) == 8


def test_evaluate_puts_simple_methods_beside(csv: Path) -> None:
    result = run("evaluate", csv, "--horizon", 12, "--test-size", 60, "--rows", 390)
    for text in ("Forecaster (linear, waves)", "naive: the last value", "seasonal naive: the last 24 h", "NLinear"):
        assert text in result.output
    words = json.loads(run("evaluate", csv, "--horizon", 12, "--test-size", 60, "--level", 90, "--json").stdout)
    assert words["windows"] == 2 * 49
    assert list(words["scores"][0]["coverage"]) == ["90"]


def test_cells_are_evaluated_side_by_side(csv: Path) -> None:
    words = json.loads(
        run("evaluate", csv, "--horizon", 12, "--test-size", 60, "--cell", "linear", "--cell", "gru", "--json").stdout
    )
    assert [score["name"] for score in words["scores"]] == [
        "Forecaster (linear, waves)",
        "Forecaster (gru, waves)",
        "naive: the last value",
        "seasonal naive: the last 24 h",
        "linear (NLinear)",
    ]


def test_dates_are_read_as_people_write_them(csv: Path, tmp_path: Path) -> None:
    table = pd.read_csv(csv, parse_dates=["date"])[["date", "a"]]
    form = "%m/%d/%Y %H:%M"
    american, later, model = tmp_path / "american.csv", tmp_path / "later.csv", tmp_path / "model"
    table.assign(date=table["date"].dt.strftime(form)).to_csv(american, index=False)
    fitted = run("fit", american, "--horizon", 12, "--out", model)
    assert f"note: times are written as '{form}'" in fitted.output
    expected = run("forecast", model).stdout
    assert expected.splitlines()[1].startswith("2024-01-17 16:00:00,")
    table.tail(60).assign(date=table["date"].dt.strftime(form)).to_csv(later, index=False)
    found = run("forecast", model, "--data", later)
    assert found.stdout == expected
    assert f"note: times are written as '{form}'" in found.stderr
    given = run("forecast", model, "--data", later, "--time-format", form)
    assert given.stdout == expected
    assert not given.stderr
    assert "--time-format" in run("forecast", model, "--data", later, "--time-format", "%Y", code=3).output


def test_ids_stay_what_they_are(tmp_path: Path) -> None:
    table, data, out = hourly(), tmp_path / "shops.csv", tmp_path / "forecast.csv"
    for names, kept in (({"a": "007", "b": "12"}, ["007", "12"]), ({"a": "7", "b": "12"}, ["7", "12"])):
        table.assign(unique_id=table["unique_id"].map(names)).to_csv(data, index=False)
        run("fit", data, "--horizon", 12, "--out", tmp_path / "model")
        run("forecast", tmp_path / "model", "--data", data, "--level", 80, "--out", out)
        assert list(pd.read_csv(out, dtype=str)["unique_id"].unique()) == kept


def test_times_may_be_whole_numbers(tmp_path: Path) -> None:
    data = tmp_path / "steps.csv"
    hourly(ids=("a",)).assign(ds=lambda t: 202000 + 5 * np.arange(len(t))).drop(columns="unique_id").to_csv(data)
    refused = run("fit", data, "--target", "y", "--horizon", 12, "--freq", 3, "--out", tmp_path / "m", code=3)
    assert "3" in refused.output
    run("fit", data, "--target", "y", "--horizon", 12, "--freq", 5, "--out", tmp_path / "m")
    assert run("forecast", tmp_path / "m").stdout.splitlines()[1].startswith("204000,")


def test_a_model_of_polars_forecasts_into_the_same_file(csv: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "forecast.csv"
    table = hourly()
    quick(max_epochs=1).fit(pl.from_pandas(table)).save(model)
    run("forecast", model, "--out", out)
    assert list(pd.read_csv(out).columns) == ["unique_id", "ds", "yhat"]


def test_covariates_are_named(csv: Path, tmp_path: Path) -> None:
    model, ahead = tmp_path / "model", tmp_path / "ahead.csv"
    run("fit", csv, "--target", "a", "--future", "b", "--horizon", 12, "--out", model)
    assert "by --future" in run("forecast", model, code=3).output
    stamps = pd.date_range(pd.read_csv(csv, parse_dates=["date"])["date"].max(), periods=13, freq="h")[1:]
    pd.DataFrame({"date": stamps, "b": 30.0}).to_csv(ahead, index=False)
    assert len(run("forecast", model, "--future", ahead).stdout.splitlines()) == 13
    page = tmp_path / "page.html"
    assert "by --future" in run("explain", model, "--html", page, code=3).output
    run("explain", model, "--html", page, "--future", ahead)
    assert page.exists()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["fit", "nowhere.csv", "--horizon", "3", "--out", "m"], 3, "there is no file nowhere.csv"),
        (["fit", "{csv}", "--horizon", "3", "--target", "z", "--out", "m"], 3, "has no column 'z'"),
        (["fit", "{csv}", "--horizon", "3", "--time", "a", "--out", "m"], 3, "time column 'a'"),
        (
            ["fit", "{csv}", "--horizon", "3", "--time", "date", "--target", "date", "--out", "m"],
            3,
            "the column 'date' is given by --time and by --target; each needs a column of its own",
        ),
        (["fit", "{csv}", "--horizon", "0", "--out", "m"], 2, "horizon"),
        (["fit", "{csv}", "--horizon", "3", "--cell", "x", "--out", "m"], 2, "cell should be one of"),
        (["fit", "{csv}", "--horizon", "400", "--out", "m"], 3, "no series is long enough"),
        (["forecast", "nowhere"], 4, "there is no model in nowhere"),
        (["explain", "nowhere"], 4, "there is no model in nowhere"),
        (["evaluate", "{csv}", "--horizon", "12", "--test-size", "3"], 3, "a test of 3 steps"),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(
    words: list[str], code: int, message: str, csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*[word.replace("{csv}", str(csv)) for word in words], code=code)
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read: No columns to parse from file"),
        (b"\xff\xfe\x00", "is not written in UTF-8 (invalid start byte); save it as UTF-8"),
        (b"a,b\n1,2\n", "none of the columns 'a', 'b' looks like time stamps"),
        (b"date,y\n2020,x\n2021,y\n2022,z\n", "'y'"),
    ],
)
def test_files_that_hold_no_series(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    result = run("fit", path, "--horizon", 3, "--out", tmp_path / "m", code=3)
    assert message in " ".join(result.output.split())


def test_a_series_may_be_called_na(tmp_path: Path) -> None:
    path, model = tmp_path / "countries.csv", tmp_path / "m"
    hourly(ids=("NA", "nan")).to_csv(path, index=False)
    run("fit", path, "--horizon", 3, "--out", model)
    ids = [line.split(",")[0] for line in run("forecast", model).stdout.splitlines()[1:]]
    assert ids == ["NA"] * 3 + ["nan"] * 3
    path.write_text(path.read_text() + ",2024-02-01 00:00:00,1\n")
    assert "the id column 'unique_id' is empty there" in run("fit", path, "--horizon", 3, "--out", model, code=3).output


def test_times_called_y_are_not_taken_for_the_target(tmp_path: Path) -> None:
    path = tmp_path / "years.csv"
    pd.DataFrame({"y": range(1700, 1900), "spots": np.sin(np.arange(200))}).to_csv(path, index=False)
    told = run("fit", path, "--horizon", 3, "--time", "y", "--out", tmp_path / "m", code=3).output
    assert "the column 'y' has the name of one that forecasts have; rename it" in told


def test_what_was_cut_off_is_told_of(csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m"
    step = Trainer._step

    def cut(self: Trainer[Any]) -> None:
        if self.progress.epoch == 1:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", cut)
        told = run("fit", csv, "--horizon", 3, "--out", model, code=130).output
    assert "the same command with --resume goes on" in told
    told = run("forecast", model, code=4).output
    assert "holds a training that was cut off, and no model yet; go on with it" in " ".join(told.split())
    assert "starts anew" not in run("fit", csv, "--horizon", 3, "--out", model, "--resume").output
    assert "this one starts anew" in " ".join(
        run("fit", csv, "--horizon", 3, "--out", model, "--resume").output.split()
    )


def test_times_that_nobody_can_guess_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "noon.csv"
    path.write_text("date,y\n" + "".join(f"noon of 2020-01-{day:02},{day}\n" for day in range(1, 29)))
    result = run("fit", path, "--time", "date", "--horizon", 3, "--out", tmp_path / "m", code=3)
    assert "say how times are written, by --time-format '%d.%m.%Y' say" in " ".join(result.output.split())


def test_a_table_without_a_line_of_names_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    path.write_text("".join(f"2020-01-{day:02},{day % 7}\n" for day in range(1, 32)))
    result = run("fit", path, "--horizon", 3, "--out", tmp_path / "m", code=3)
    assert "put a line of names above it" in " ".join(result.output.split())
    named = ("--time", "2020-01-01", "--target", "1")  # if they are really called so
    run("fit", path, "--horizon", 3, "--out", tmp_path / "m", *named)


def test_help_teaches_by_example() -> None:
    for command in ("fit", "forecast", "explain", "evaluate", "demo", "doctor", "bench"):
        assert f"Example: parallelrnn {command}" in " ".join(run(command, "--help").output.split())


def test_demo_tells_a_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "Forecaster", forecasting.Forecaster)
    page = tmp_path / "sunspots.html"
    text = run("demo", "--out", page).output
    for part in ("naive: the last value", "2009", "Forecast modes", "sunspots.html"):
        assert part in text
    assert page.exists()
