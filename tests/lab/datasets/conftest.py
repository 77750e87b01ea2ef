from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the reader's own files or writes to the reader's cache."""
    monkeypatch.delenv("PARALLELRNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "parallelrnn"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that PARALLELRNN_DATA names."""
    path = tmp_path / "own"
    path.mkdir()
    monkeypatch.setenv("PARALLELRNN_DATA", str(path))
    return path


@dataclass
class Web:
    """A server on this machine: what it serves, where, and which paths it was asked for."""

    folder: Path
    address: str
    requests: list[str] = field(default_factory=list)
    led: dict[str, str] = field(default_factory=dict)  # which paths lead elsewhere


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "web"
    folder.mkdir()
    requests: list[str] = []
    led: dict[str, str] = {}

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            requests.append(self.path)

        def do_GET(self) -> None:
            if self.path in led:
                self.send_response(302)
                self.send_header("Location", led[self.path])
                self.end_headers()
            else:
                super().do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield Web(folder, f"http://127.0.0.1:{server.server_port}", requests, led)
    server.shutdown()
    server.server_close()
    thread.join()
