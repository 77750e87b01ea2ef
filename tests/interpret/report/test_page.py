"""The page in a browser: it renders, asks the network for nothing, and answers to hovering."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import Select, WebDriverWait
from torch import nn

from parallelrnn import ParaGRU, forecast_modes, recurrence_features, report
from parallelrnn.interpret import match_fits
from tests.browser import HOSTILE, complaints, open_page, requests
from tests.interpret.models import planted


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wave of 24 hours in its closed loop, with intervals."""
    path = tmp_path_factory.mktemp("report") / "linear.html"
    tables, features = [], []
    x = torch.randn(80, 1, generator=torch.Generator().manual_seed(0)).double()
    for scatter in (0, 0.01, -0.01):
        layer = planted((24 * (1 + scatter), 0.98))
        tables.append(forecast_modes(layer, x=x, freq="h"))
        features.append(recurrence_features(layer, x, freq="h"))
    return report(
        planted((24, 0.98)), x, path, freq="h", uncertainty=[match_fits(tables), match_fits(features)], lags=20
    )


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GRU of two series whose names try to be more than names."""
    torch.manual_seed(0)
    index = pd.date_range("2020-01-01", periods=120, freq="h")
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(120, 2)), index, [HOSTILE, "load"])
    layer, readout = ParaGRU(2, 12), nn.Linear(12, 2)
    return report(layer, data, tmp_path_factory.mktemp("report") / "gated.html", readout=readout, title=HOSTILE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 390])
@pytest.mark.parametrize("page", ["linear", "gated"])
def test_it_renders_and_asks_for_nothing(
    browser: Any, request: pytest.FixtureRequest, page: str, scheme: str, width: int
) -> None:
    path: Path = request.getfixturevalue(page)
    open_page(browser, path, scheme, width)
    assert complaints(browser) == []
    assert requests(browser) == [path.as_uri()]
    empty = (
        "return [...document.querySelectorAll('.figure')].filter(f => !f.querySelector('.trace path')).map(f => f.id)"
    )
    assert browser.execute_script(empty) == []
    assert browser.execute_script("return document.querySelectorAll('.figure').length") >= 4
    assert browser.execute_script(f"return document.documentElement.scrollWidth <= {width}")
    ground, text = browser.execute_script(
        "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color].map("
        "c => c.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"
    )
    assert (ground > text) == (scheme == "light")
    colour = "return getComputedStyle(document.querySelector('#figure-features .xtick text')).fill"
    parts = browser.execute_script(colour).removeprefix("rgb(").rstrip(")").split(",")
    assert (sum(map(int, parts)) < 384) == (scheme == "light")


def test_hovering_says_what_a_mode_is(browser: Any, linear: Path) -> None:
    open_page(browser, linear)
    points = browser.find_elements("css selector", "#figure-modes .points path")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", points[0])
    ActionChains(browser).move_to_element(points[0]).perform()
    shown = WebDriverWait(browser, 10).until(
        lambda d: d.execute_script("return document.querySelector('#figure-modes .hoverlayer').textContent")
    )
    for words in ("C-1", "modulus 0.9800", "angle 0.2618", "period 24 h", "half-life 34.3 h", "share 100.0%"):
        assert words in shown


def test_names_stay_text(browser: Any, gated: Path) -> None:
    open_page(browser, gated)
    assert browser.execute_script("return window.hacked") is None
    assert browser.title == HOSTILE
    assert browser.find_element("css selector", "h1").text == HOSTILE
    menu = Select(browser.find_element("css selector", "#components select"))
    assert menu.options[0].text == HOSTILE


def test_the_menu_changes_the_series(browser: Any, gated: Path) -> None:
    open_page(browser, gated)
    shown = "return document.getElementById('figure-components').data.map(trace => trace.visible)"
    before = browser.execute_script(shown)
    Select(browser.find_element("css selector", "#components select")).select_by_visible_text("load")
    WebDriverWait(browser, 10).until(lambda d: d.execute_script(shown) != before)
    assert browser.execute_script(shown) == before[::-1]  # two series with as many curves each
