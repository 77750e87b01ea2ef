"""What a page says, without a browser."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN, contributions, forecast_modes, report
from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError, MissingPackageError
from parallelrnn.interpret import ForecastModes, Mode, match_fits
from parallelrnn.interpret.display import Step
from parallelrnn.interpret.layers import fold_in
from parallelrnn.interpret.report import read
from parallelrnn.interpret.report.page import page
from parallelrnn.interpret.report.sentences import lead, phrase
from tests.interpret.models import planted
from tests.support import raises


def noise(steps: int = 60, inputs: int = 1) -> torch.Tensor:
    return torch.randn(steps, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_the_first_sentence_names_the_cycle() -> None:
    cycles, memory, validity = lead(read(planted((24, 0.98)), noise(), freq="h", horizon=48))
    for fact in ("24 h", "34.3 h", "100%", "2 d"):
        assert fact in cycles
    assert "24 h" not in memory
    assert "exact" in validity


def test_then_come_the_other_cycles_by_share() -> None:
    layer = planted((24, 0.98), (7, 0.9))
    modes = forecast_modes(layer, x=noise(), horizon=100)
    first = lead(read(layer, noise()))[0]
    larger, smaller = modes.most_important(2)
    facts = (f"{larger.period:.0f} steps", f"{larger.share:.0%}", f"{smaller.period:.0f} steps", f"{smaller.share:.0%}")
    places = [first.index(fact) for fact in facts]
    assert places == sorted(places)


def test_intervals_are_in_the_first_sentence() -> None:
    tables = [forecast_modes(planted((period, 0.98)), x=noise(), freq="h") for period in (23.5, 24, 24.6)]
    first = lead(read(planted((24, 0.98)), noise(), freq="h", uncertainty=match_fits(tables)))[0]
    assert "90%" in first
    assert "23.5 h to 24.6 h" in first


def test_a_model_that_is_not_linear_is_measured() -> None:
    torch.manual_seed(0)
    reading = read(ParaGRU(1, 8, aggregate=nn.Linear(8, 1)), noise())
    _, memory, validity = lead(reading)
    assert reading.local is not None
    assert memory.startswith("Along the data")
    assert "not linear" in validity
    assert 'id="local"' in page(reading)


def test_a_model_that_keeps_cycling() -> None:
    layer = planted((24, 0.98))
    tanh = ParaRNN(1, 2, bias=False, block_size=2, aggregate=layer.aggregate).double()
    tanh.load_state_dict(layer.state_dict())
    with torch.no_grad():
        tanh.weight_hh_l0.copy_(layer.weight_hh_l0 + 0.1 * torch.eye(2))
    reading = read(tanh, noise(), freq="h")
    assert reading.modes.cycle.is_regular
    assert f"a wave of {reading.time.format(reading.modes.cycle.period)}" in lead(reading)[0]


def test_a_model_that_does_not_forecast_its_input_has_no_modes() -> None:
    torch.manual_seed(0)
    reading = read(ParaLSTM(2, 4), noise(inputs=2))
    assert reading.modes is None
    assert lead(reading)[0].startswith(reading.missing["modes"])
    assert 'id="modes"' not in page(reading)


def test_a_layer_that_runs_both_ways_and_one_that_projects() -> None:
    torch.manual_seed(0)
    reading = read(ParaGRU(1, 4, bidirectional=True), noise())
    assert reading.response is None
    text = page(reading)
    assert 'id="components"' in text
    assert reading.missing["response"] in text
    for shown in (text, page(read(nn.LSTM(1, 4, proj_size=2), noise()))):  # neither is linear
        assert "exact" not in shown[: shown.index("<script")]


@pytest.mark.parametrize("cls", [nn.RNN, nn.LSTM, nn.GRU])
def test_layers_of_torch_are_read_as_one_block(cls: Any) -> None:
    torch.manual_seed(0)
    reading = read(cls(1, 4, batch_first=True), noise()[None].float(), readout=nn.Linear(4, 1))
    assert reading.modes is not None
    assert reading.components is None
    assert reading.response is not None
    assert page(reading)


def test_components_are_parts_of_the_forecast() -> None:
    """A linear readout is folded in: the components are parts of the forecast, not of what the readout gets."""
    torch.manual_seed(0)
    for aggregate in (None, "linear"):
        layer, readout = ParaGRU(1, 6, aggregate=aggregate, batch_first=True).double(), nn.Linear(6, 1).double()
        x = noise()[None]
        result = contributions(fold_in(layer, readout), x)
        torch.testing.assert_close(result.parts.sum(-2) + result.bias, readout(layer(x)[0]))
        reading = read(layer, x, readout=readout)
        torch.testing.assert_close(reading.components.total, result.total)


def test_a_frame_brings_names_and_frequency() -> None:
    frame = pd.DataFrame(
        noise(40, 2).numpy(), index=pd.date_range("2024", periods=40, freq="15min"), columns=["load", "temperature"]
    )
    reading = read(ParaRNN(2, 4, nonlinearity="linear", aggregate=nn.Linear(4, 2)), frame)
    assert reading.inputs == reading.outputs == ("load", "temperature")
    assert reading.about[1] == "40 steps of data, 15 min apart"
    assert read(planted((24, 0.98)), list(range(30))).about[1] == "30 steps of data"  # a list brings neither


@pytest.mark.parametrize(
    ("index", "about"),
    [
        (pd.date_range("2024", periods=40, freq="D").delete(0).insert(0, pd.Timestamp("2024-01-01")), "1 d apart"),
        (pd.date_range("2024", periods=40, freq="us"), "40 steps of data"),  # which has no name here
        (pd.RangeIndex(40), "40 steps of data"),
    ],
)
def test_a_series_of_pandas(index: Any, about: str) -> None:
    series = pd.Series(noise(40)[:, 0].numpy(), index, name="load")
    reading = read(planted((24, 0.98)), series)
    assert reading.inputs == ("load",)
    assert reading.about[1].endswith(about)


def test_missing_parts_do_not_prevent_the_page() -> None:
    constant = read(planted((24, 0.98)), torch.zeros(20, 1))
    assert "constant" in lead(constant)[0]
    short = read(planted((24, 0.98)), noise(1))
    for reading, part in ((constant, "shares"), (short, "response")):
        assert reading.missing[part] in page(reading)


@pytest.mark.parametrize("width", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_readouts_and_aggregates_that_are_not_linear(width: int) -> None:
    torch.manual_seed(0)
    readout = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, width))
    for layer, after in (
        (nn.GRU(width, 4), readout),
        (nn.GRU(width, width), nn.Sequential(nn.Linear(width, width), nn.Tanh())),
        (ParaRNN(width, 4, aggregate=readout), None),
        (ParaRNN(width, 4, nonlinearity="linear", aggregate="fc"), nn.Linear(4, width)),
        (ParaRNN(width, 4, nonlinearity="linear", aggregate="ffn"), nn.Linear(4, width)),
    ):
        reading = read(layer, noise(inputs=width), readout=after, names=["a", "b"][:width])
        assert not reading.is_linear
        assert lead(reading)[-1].startswith("The model is not linear")
        assert reading.outputs[0] != "a"  # they are not what the readout puts out
        expected = forecast_modes(layer, after, noise(inputs=width))
        assert [mode.modulus for mode in reading.modes] == pytest.approx([mode.modulus for mode in expected])
        assert page(reading)


def test_a_model_that_leaves_all_bounds() -> None:
    layer = ParaRNN(1, 2, nonlinearity="relu", aggregate=nn.Linear(2, 1)).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
    reading = read(layer, noise())
    assert reading.modes is None
    assert "without bound" in lead(reading)[0]


@pytest.mark.parametrize(
    ("order", "eigenvalue", "words"),
    [
        (1, 0.98 * np.exp(2j * np.pi / 24), "a cycle of 24 h that fades with a half-life of 34.3 h"),
        (1, 0.03 * np.exp(2j * np.pi / 24), "a decay with a half-life of 0.198 h"),  # gone before it turns
        (1, 1.1 * np.exp(2j * np.pi / 24), "a cycle of 24 h that grows"),
        (1, 0.5, "a decay with a half-life of 1 h"),
        (1, -0.5, "an alternation from step to step that fades with a half-life of 1 h"),
        (1, 1.0, "a constant level"),
        (2, 1.0, "a linear trend"),
        (1, 2.0**0.25, "exponential growth that doubles every 4 h"),
    ],
)
def test_modes_have_names_that_people_use(order: int, eigenvalue: complex, words: str) -> None:
    assert phrase(Mode(order=order, eigenvalue=complex(eigenvalue)), Step.of("h")) == words


def test_no_more_than_all_is_explained() -> None:
    rows = (Mode(order=1, eigenvalue=0.9 + 0.1j, share=1.4), Mode(order=1, eigenvalue=0.5 + 0j, share=-0.4))
    reading = replace(read(planted((24, 0.98)), noise()), modes=ForecastModes(rows=rows, where="", time=Step()))
    assert "100%" in lead(reading)[0]
    assert "cancel" in lead(reading)[0]


def test_uncertainty_is_the_result_of_match_fits() -> None:
    with raises(ArgumentTypeError, argument="uncertainty", got="Mode"):
        read(planted((24, 0.98)), noise(), uncertainty=forecast_modes(planted((24, 0.98))))


def test_of_many_responses_the_largest_are_shown() -> None:
    torch.manual_seed(0)
    reading = read(ParaGRU(3, 8), noise(inputs=3))
    assert len(reading.inputs) * len(reading.outputs) == 24
    assert "Of 24 pairs of an input and an output, the 12 with" in page(reading)


def test_bad_data_are_rejected_and_no_file_is_left(tmp_path: Path) -> None:
    layer, path = planted((24, 0.98)), tmp_path / "page.html"
    with raises(ArgumentError, argument="x", got=(10, 2)):
        report(layer, noise(10, 2), path)
    with raises(InputError):
        report(layer, np.array([1.0, np.nan, 2.0]), path)
    with raises(ArgumentError, argument="names", got=["a", "b"]):
        report(layer, noise(), path, names=["a", "b"])
    with raises(ArgumentTypeError, got="Linear"):
        report(nn.Linear(1, 1), noise(), path)
    with raises(FileNotFoundError, "nowhere"):
        report(layer, noise(), tmp_path / "nowhere" / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_nothing_in_a_figure_can_end_its_script() -> None:
    text = page(read(planted((24, 0.98)), noise(), names=["</script>"]))
    (figures,) = re.findall(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert "<" not in figures
    assert {"modes", "forecast", "features", "response"} <= set(json.loads(figures))


def test_without_plotly_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with raises(MissingPackageError, "parallelrnn[report]"):
        report(planted((24, 0.98)), noise(), tmp_path / "page.html")
