"""The documentation site: it builds without a warning, fetches nothing, and shows every public name."""

from __future__ import annotations

import functools
import http.server
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import complaints, requests

ROOT = Path(__file__).parents[1]
PACKAGES = ["parallelrnn", *(f"parallelrnn.{name}" for name in ("nn", "interpret", "classical", "lab.datasets"))]
THEORY = ("bounds", "complexity", "density", "equivalence", "networks", "random_matrices", "regression")
MODULES = [
    "parallelrnn.nn.initialize",
    "parallelrnn.interpret.plots",
    *(f"parallelrnn.theory.{name}" for name in THEORY),
]


class Page(HTMLParser):
    """The links and anchors of an HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning is an error."""
    pytest.importorskip("material", reason="needs the docs extra")
    pytest.importorskip("mkdocstrings", reason="needs the docs extra")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # The theme's announcement of a later MkDocs is not a warning about this site.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_links_within_the_site_resolve(pages: dict[Path, Page], site: Path) -> None:
    """MkDocs checks those in Markdown; this checks what the theme, the reference and the hooks write, too."""
    broken = []
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            ids = pages[target].ids if target in pages else set()
            if not target.exists() or (url.fragment and unquote(url.fragment) not in ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("width", [390, pytest.param(1440, marks=pytest.mark.slow)])
def test_pages_fit_the_screen_and_fetch_nothing(
    address: str, browser: Any, site: Path, pages: dict[Path, Page], width: int
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    requests(browser), complaints(browser)  # drop those of earlier pages
    too_wide = []
    for path in pages:
        browser.get(address + path.relative_to(site).as_posix())
        if browser.execute_script("return document.documentElement.scrollWidth > window.innerWidth"):
            too_wide.append(path.name)
    requested = requests(browser)
    assert len(requested) > len(pages)
    assert [url for url in requested if not url.startswith(address)] == []
    assert complaints(browser) == []
    assert too_wide == []


def public_names() -> Iterator[tuple[str, Any]]:
    for package in map(importlib.import_module, PACKAGES):
        yield from ((name, getattr(package, name)) for name in package.__all__)
    for module in map(importlib.import_module, MODULES):
        for name, value in vars(module).items():
            if callable(value) and value.__module__ == module.__name__ and not name.startswith(("_", "check_")):
                yield name, value


def test_the_reference_lists_every_public_name(pages: dict[Path, Page]) -> None:
    """Under `parallelrnn`, under the package that exports it, or under the module that defines it."""
    ids = set().union(*(page.ids for path, page in pages.items() if path.parent.name == "api"))
    modules = {name: value.__module__ for name, value in public_names() if hasattr(value, "__module__")}
    assert len(modules) > 100
    places = {name: ("parallelrnn", module, module.rpartition(".")[0]) for name, module in modules.items()}
    assert [name for name in modules if not ids & {f"{place}.{name}" for place in places[name]}] == []
