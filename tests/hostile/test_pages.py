"""Pages, figures and Markdown show names that come from files as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from parallelrnn import Forecaster, ParaRNN, report
from parallelrnn.errors import printable
from parallelrnn.lab.results_page import section
from parallelrnn.lab.runs import RunStore
from tests.browser import complaints, open_page, requests
from tests.hostile.names import NAMES, OBEYED
from tests.lab.samples import MACHINE, make_run, select

SPY = "window.alerts = []; window.alert = (words) => window.alerts.push(words)"


@pytest.fixture
def watched(browser: Any) -> Iterator[Any]:
    """A browser that counts what a page cries out."""
    spy = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SPY})
    yield browser
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", spy)


def assert_text_alone(browser: Any, path: Path) -> None:
    open_page(browser, path)
    assert browser.execute_script("return window.alerts") == []
    assert complaints(browser) == []  # an image that is not there would be one
    assert requests(browser) == [path.as_uri()]
    assert browser.execute_script("return document.querySelectorAll('img, iframe, object').length") == 0
    assert browser.execute_script("return document.querySelectorAll('script').length") == 3


def choices(browser: Any, section: str) -> list[str]:
    options: list[str] = browser.execute_script(
        f"return [...document.querySelectorAll('#{section} option')].map(option => option.textContent)"
    )
    return options


def test_the_spy_hears(watched: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<html data-ready=1><script>{NAMES[0].removeprefix('<script>')}</html>")
    open_page(watched, page)
    assert watched.execute_script("return window.alerts") == [1]


def test_a_page_about_a_forecaster(watched: Any, hostile_forecaster: Forecaster, tmp_path: Path) -> None:
    assert_text_alone(watched, hostile_forecaster.report(tmp_path / "page.html", title=" ".join(NAMES)))
    assert choices(watched, "outlook") == list(NAMES[:12])  # as many as a page shows


@pytest.mark.slow  # it draws a figure for each pair of names
def test_a_page_about_a_layer(watched: Any, tmp_path: Path) -> None:
    count = len(NAMES)
    layer = ParaRNN(count, 4, aggregate=torch.nn.Linear(4, count))
    path = report(layer, torch.randn(40, count), tmp_path / "page.html", names=NAMES, title=" ".join(NAMES), lags=5)
    assert_text_alone(watched, path)
    assert choices(watched, "components") == list(NAMES)
    title = watched.execute_script("return document.querySelector('h1').textContent")
    assert title == " ".join(NAMES).replace("\r\n", "\n").replace("\x00", "")  # which HTML has not


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_shows_a_name_and_no_formula(name: str, hostile_forecaster: Forecaster, tmp_path: Path) -> None:
    figure = Figure(figsize=(2, 2))
    axes = hostile_forecaster.plot(name, ax=figure.subplots())
    assert axes.get_ylabel() == printable(name)
    figure.savefig(tmp_path / "figure.png")


def test_markdown_of_results_has_no_markup_of_theirs(tmp_path: Path) -> None:
    note = " ".join(NAMES) + " | a | ![x](http://a) `b`"
    run = make_run("speed", {"2 total median": 1.0, "torch.nn.RNN total median": 2.0}, rounds=3)
    provenance = {**run.provenance, "machine": {**MACHINE, "processor": note}}
    RunStore(tmp_path).save(replace(run, config={**run.config, "note": note}, provenance=provenance))
    text = section("speed", select(*RunStore(tmp_path).load("speed")))
    assert not set(text) & set(OBEYED)
    lines = [line for line in text.splitlines() if "alert(1)" in line]
    assert len(lines) >= 2  # its budget and its conditions
    for line in lines:
        ours = line.replace("†", "").removeprefix("- ")
        assert not set(ours.strip("| ").replace(" | ", "").replace("**", "")) & set("<>`[]*|")
