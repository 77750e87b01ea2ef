"""The documentation as a site: it builds, asks nothing of the network, shows all that is public, and its links hold."""

from __future__ import annotations

import functools
import http.server
import importlib
import inspect
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from typer.main import get_command

from parallelrnn.cli.app import app
from tests.browser import complaints, requests
from tests.test_documents import split

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# What a browser fetches by itself when it shows a page; `a` is for the reader to follow.
FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
PACKAGES = [
    "parallelrnn",
    *(f"parallelrnn.{name}" for name in ("nn", "interpret", "classical", "estimators", "datasets")),
]
THEORY = ("bounds", "complexity", "density", "equivalence", "networks", "random_matrices", "regression")
MODULES = [
    "parallelrnn.nn.initialize",
    "parallelrnn.interpret.plots",
    *(f"parallelrnn.theory.{name}" for name in THEORY),
    "parallelrnn.lab.experiments.experiment",
]
HELPERS = {"check_steps"}  # for other modules of the package, and no part of the reference


@dataclass
class Shown(HTMLParser):
    """A page as a browser takes it."""

    path: Path
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text())
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if FETCHED.get(tag) in values and values.get("rel") not in ("next", "prev", "canonical"):
            self.fetched.append(values[FETCHED[tag]])

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("material", reason="needs the docs extra")
    pytest.importorskip("mkdocstrings", reason="needs the docs extra")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    # The theme's own announcement about a later version of MkDocs is no warning about this site.
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    built = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Shown]:
    return {path: Shown(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_document_is_a_page_and_in_the_navigation(pages: dict[Path, Shown], site: Path) -> None:
    navigation = set(re.findall(r"^ +- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} <= navigation | {"index.md"}
    assert {site / name.replace(".md", ".html") for name in navigation | {"index.md"}} == set(pages)


def test_only_pages_figures_and_data_are_on_the_site(site: Path) -> None:
    assert not [path for path in site.rglob("*") if path.suffix in (".py", ".pyc", ".jinja", ".md")]


def test_pages_fetch_nothing_from_outside(pages: dict[Path, Shown], site: Path) -> None:
    assert all(page.fetched for page in pages.values())
    outside = {address for page in pages.values() for address in page.fetched if urlsplit(address).netloc}
    sheets = "".join(path.read_text() for path in site.rglob("*.css"))
    outside |= set(re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", sheets))
    assert not outside


def test_a_browser_fetches_nothing_from_outside_and_has_no_complaint(served: str, browser: Any) -> None:
    for page in ("index.html", "mathematics.html", "api/nn.html"):
        requests(browser), complaints(browser)  # of pages before
        browser.get(served + page)
        asked = requests(browser)
        assert served + page in asked
        assert [url for url in asked if not url.startswith(served)] == []
        assert complaints(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_is_wider_than_the_screen(served: str, browser: Any, site: Path, pages: Any, width: int) -> None:
    """Wide tables and code scroll by themselves."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wide = []
    for path in pages:
        browser.get(served + path.relative_to(site).as_posix())
        if browser.execute_script("return document.documentElement.scrollWidth > window.innerWidth"):
            wide.append(path.name)
    assert wide == []


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of the site on this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_links_within_the_site_lead_somewhere(pages: dict[Path, Shown], site: Path) -> None:
    """Those that the theme, the reference and the hooks write, too, which MkDocs does not check."""
    broken = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].ids if target in pages else set()
            if not target.exists() or (address.fragment and unquote(address.fragment) not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def public_names() -> list[tuple[str, str]]:
    named = [(module, name) for module in PACKAGES for name in importlib.import_module(module).__all__]
    return named + [(module, name) for module in MODULES for name in defined_in(importlib.import_module(module))]


def defined_in(module: ModuleType) -> list[str]:
    """Functions and classes that a module without a list of its public names defines."""
    found = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in found if name[0] != "_" and name not in HELPERS and callable(getattr(module, name))]


def test_the_reference_shows_every_public_name_with_what_it_says(pages: dict[Path, Shown]) -> None:
    reference = [page for path, page in pages.items() if path.parent.name == "api"]
    names = public_names()
    assert len(names) > 150
    missing = []
    for module, name in names:
        value = getattr(importlib.import_module(module), name)
        if isinstance(value, ModuleType):
            continue  # among the modules
        # What can be imported from the top is shown by that name, and what is called as its module is, by its place.
        addresses = {f"{module}.{name}", f"parallelrnn.{name}", f"{value.__module__}.{name}"}
        page = next((one for one in reference if addresses & one.ids), None)
        first = " ".join((inspect.getdoc(value) or "?").split("\n\n")[0].replace("`", "").split())
        if page is None or first not in page.text:
            missing.append(f"{module}.{name}: {first}")
    assert missing == []


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = (DOCS / "api" / "command-line.md").read_text()
    sections = {section.split("\n")[0]: section for section in page.split("\n## ")[1:]}
    commands = dict(get_command(app).commands)
    experiments = commands.pop("reproduce").commands
    commands |= {f"reproduce {name}": experiments[name] for name in ("status", "tables")}
    commands["reproduce"] = experiments["adding"]  # the options of all experiments
    assert set(sections) == set(commands)
    for name, command in commands.items():
        found = re.findall(r"^\| `(.*?)` \| (.*) \|$", sections[name], re.MULTILINE)
        options = [(one.opts[0] if one.opts[0][0] == "-" else one.opts[0].upper(), one) for one in command.params]
        assert [shown for shown, _ in found] == [shown for shown, _ in options], name
        assert all(text.startswith(one.help) for (_, text), (_, one) in zip(found, options, strict=True)), name


@pytest.mark.slow
def test_the_commands_of_the_quickstart_print_what_it_shows(tmp_path: Path) -> None:
    """In order, in an empty folder. Seconds differ from machine to machine, other numbers by rounding."""
    blocks = re.findall(
        r"^```(python|bash|console)\n(.*?)^```", (DOCS / "quickstart.md").read_text(), re.DOTALL | re.MULTILINE
    )
    commands = {"python": [sys.executable, "-c"], "bash": ["bash", "-euc"]}
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed, compared = "", 0
    for language, block in blocks:
        if language == "console":
            words, numbers = split(without_seconds(block))
            expected = split(without_seconds(printed))
            assert (words, numbers) == (expected[0], pytest.approx(expected[1], rel=0.05, abs=0.02))
            compared += 1
            continue
        ran = subprocess.run(
            [*commands[language], block],
            cwd=tmp_path,
            env={**os.environ, "PATH": here, "COLUMNS": "120"},
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        printed = ran.stdout.removeprefix("wrote 12 rows to forecast.csv\n")
    assert compared == 3
    assert (tmp_path / "report.html").stat().st_size > 100_000


def without_seconds(text: str) -> str:
    return re.sub(r"\d+\.\d s\b", "", text)


def test_what_the_questions_quote_is_what_the_tables_say() -> None:
    """Counts of settings in the answers are those of docs/forecasting.md, which the results are held to."""
    answers = " ".join((DOCS / "faq.md").read_text().split())
    tables = (DOCS / "forecasting.md").read_text()
    inside = re.search(r"intervals of 80 %: within 3 points in (\d+ of \d+) settings", tables)
    beaten = re.search(r"the MSE of seasonal naive: at or below in (\d+ of \d+) settings", tables)
    assert inside is not None
    assert beaten is not None
    assert f"{inside[1]} settings were within 3 points of 80 %" in answers
    assert f"On ETT and WTH in {beaten[1]} settings." in answers
