"""The examples run as they stand."""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {  # what each shows
    "arma_both_ways": "Read back from the layer",
    "classify_sequences": "three-fold",
    "forecast_a_csv": "The page about it",
    "read_a_gru": "one block",
    "swap_an_lstm": "ParaLSTM",
}


def test_all_examples_are_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_examples_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with torch.random.fork_rng():
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert SAYS[name] in capsys.readouterr().out
