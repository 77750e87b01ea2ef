"""Runs of experiments, as `reproduce status` and `reproduce tables` read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fuzz_targets import grammar
from fuzz_targets.target import Target
from parallelrnn.io import json_checksum
from parallelrnn.lab.experiments.experiment import run_key
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.results_page import results_page, select_all

_RESULTS = Path(__file__).parents[2] / "results"


def _seeds(folder: Path) -> list[bytes]:
    """Return the first run of each experiment that has some."""
    return [file.read_bytes() for name in EXPERIMENTS for file in sorted((_RESULTS / name).glob("*.json"))[:1]]


def _read(data: bytes, folder: Path) -> None:
    """Read a run, with key and checksum made right, so that what is behind these is reached."""
    name = "speed"
    try:
        run: dict[str, Any] = json.loads(data)
        name = run["experiment"] if run["experiment"] in EXPERIMENTS else name
        run["key"] = run_key(run["experiment"], run["config"], run["seed"])
        run.pop("checksum", None)
        data = json.dumps({**run, "checksum": json_checksum(run)}).encode()
        path = folder / name / f"{run['key']}.json"
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        path = folder / name / "0123456789abcdef.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    try:
        results_page(select_all(folder))
    finally:
        path.unlink()


TARGETS = [Target(name="results", seeds=_seeds, read=_read, mutate=grammar.mutate)]
