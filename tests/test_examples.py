"""The examples run as they are."""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTS = {  # something that each prints
    "arma_both_ways": "Forecasts differ by",
    "classify_sequences": "cross-validation",
    "forecast_a_csv": "forecast.html",
    "read_a_gru": "ParaGRU",
    "swap_an_lstm": "ParaLSTM",
}


def test_all_examples_are_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTS)


@pytest.mark.parametrize("name", PRINTS)
def test_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert PRINTS[name] in capsys.readouterr().out
