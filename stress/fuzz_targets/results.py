"""Lines of results, as `reproduce status` and `reproduce tables` read them."""

from __future__ import annotations

import json
from pathlib import Path

from fuzz_targets import grammar
from fuzz_targets.target import Target
from parallelrnn.io import json_checksum
from parallelrnn.lab.document import document
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running.store import Store

_RESULTS = Path(__file__).parents[2] / "results"
_SEEDS = 2  # lines of each experiment


def _seeds(folder: Path) -> list[bytes]:
    """The first results of each experiment that has some, as JSON of a name and lines."""
    found = []
    for name in EXPERIMENTS:
        lines = Store(_RESULTS).lines(name)[:_SEEDS]
        if lines:
            found.append(json.dumps([name, *lines]).encode())
    return found


def _read(data: bytes, folder: Path) -> None:
    try:
        name, *lines = json.loads(data)
        text = "".join(json.dumps({**line, "sha256": json_checksum(line)}) + "\n" for line in lines)
    except (TypeError, ValueError, RecursionError):
        name, text = "speed", None
    if not isinstance(name, str) or name not in EXPERIMENTS:
        name = "speed"
    store = Store(folder)
    path = store.path(name)
    path.write_bytes(data if text is None else text.encode())
    try:
        document({name: store.lines(name)})
    finally:
        path.unlink()


TARGETS = [Target("results", _seeds, _read, mutate=grammar.mutate)]
