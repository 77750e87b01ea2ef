"""Helpers to open pages in a headless Chromium."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, CHROMEDRIVER = shutil.which("chromium"), shutil.which("chromedriver")
HOSTILE = "<b>bold</b> <script>window.hacked = 1</script> & </script><img src=x onerror='window.hacked = 1'>"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,1000",
)


def start() -> Iterator[Any]:
    """Yield a browser, and quit it afterwards."""
    if CHROMIUM is None or CHROMEDRIVER is None:
        if "CI" in os.environ:
            pytest.fail("CI has to install chromium and chromium-driver")
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
        yield driver
        driver.quit()


def open_page(browser: Any, path: Path, scheme: str = "light", width: int = 1100) -> None:
    """Open a page and wait until its figures are drawn; PARALLELRNN_SCREENSHOTS names a folder for screenshots."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for log in ("browser", "performance"):
        browser.get_log(log)  # drop the entries of earlier pages
    browser.get(path.as_uri())
    WebDriverWait(browser, 30).until(lambda d: d.execute_script("return document.documentElement.dataset.ready"))
    if shots := os.environ.get("PARALLELRNN_SCREENSHOTS"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        (Path(shots) / f"{path.stem}-{scheme}-{width}.png").write_bytes(base64.b64decode(shot["data"]))


def complaints(browser: Any) -> list[str]:
    """Return what was logged to the console since the last call."""
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser: Any) -> list[str]:
    """Return the URLs requested since the last call."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    urls = [parameters["request"]["url"] for parameters in sent]
    # A browser that has just started may still be fetching its own start page.
    return [url for url in urls if not url.startswith(("data:", "chrome:", "chrome-untrusted:"))]
