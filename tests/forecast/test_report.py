"""The page about a forecaster, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from selenium.webdriver.support.ui import Select

from tests.browser import HOSTILE, complaints, open_page, requests
from tests.training.samples import hourly, quick


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = hourly().replace({"unique_id": {"b": HOSTILE}})
    return quick().fit(table).report(tmp_path_factory.mktemp("page") / "forecaster.html")


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (390, "dark")])
def test_it_renders_and_asks_for_nothing(browser: Any, page: Path, width: int, scheme: str) -> None:
    open_page(browser, page, scheme, width)
    assert complaints(browser) == []
    assert requests(browser) == [page.as_uri()]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return window.hacked") is None
    figures = browser.execute_script("return [...document.querySelectorAll('.figure')].map(f => f.id)")
    assert figures == ["figure-outlook", "figure-forecast", "figure-features"]


def test_it_says_in_words_what_drives_the_forecast(browser: Any, page: Path) -> None:
    open_page(browser, page)
    lead = browser.execute_script("return document.querySelector('.lead').innerText")
    assert "a cycle of 24 h, fixed by the calendar" in lead
    assert "exactly" in lead
    text = browser.execute_script("return document.body.innerText")
    assert "never fades" not in text  # which would be the model's belief, not a finding
    assert "to first order" not in text


def test_every_series_can_be_chosen(browser: Any, page: Path) -> None:
    open_page(browser, page)
    menu = Select(browser.find_element("css selector", "#outlook select"))
    assert [option.text for option in menu.options] == ["a", " ".join(HOSTILE.split())]
    shown = "return document.getElementById('figure-outlook').data.map(t => t.visible === true)"
    assert browser.execute_script(shown) == [True] * 4 + [False] * 4  # two bands, what was observed, the forecast
    menu.select_by_index(1)
    assert browser.execute_script(shown) == [False] * 4 + [True] * 4


def test_whole_numbers_are_times_too(browser: Any, tmp_path: Path) -> None:
    table = hourly(ids=("a",)).assign(ds=range(400)).drop(columns="unique_id")
    open_page(browser, quick(max_epochs=1).fit(pd.DataFrame(table)).report(tmp_path / "numbers.html"))
    assert complaints(browser) == []


def test_few_windows_give_no_bands(browser: Any, tmp_path: Path) -> None:
    table = hourly(28, ids=("a",))
    open_page(browser, quick(12, 16, max_epochs=1).fit(table).report(tmp_path / "short.html"))
    assert complaints(browser) == []
    names = browser.execute_script("return document.getElementById('figure-outlook').data.map(t => t.name)")
    assert names == ["observed", "forecast"]
