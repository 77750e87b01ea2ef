"""Files of runs that no experiment saves are rejected with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parallelrnn.errors import FileError, InputError
from parallelrnn.io import json_checksum
from parallelrnn.lab.results_page import section
from parallelrnn.lab.runs import Run, RunStore
from tests.lab.samples import MACHINE, PROVENANCE, make_run, select
from tests.support import raises

METRICS = {"2 total median": 1.0, "torch.nn.RNN total median": 2.0}
RUN = make_run("speed", METRICS)


def saved_and_shown(folder: Path, run: Run) -> str:
    RunStore(folder).save(run)
    return section("speed", select(*RunStore(folder).load("speed")))


def test_a_run_of_an_experiment_is_shown(tmp_path: Path) -> None:
    assert "EPYC (2 cores, avx2)" in saved_and_shown(tmp_path, RUN)


@pytest.mark.parametrize("text", ["[" * 100_000, "null", "9" * 5000, "\xff", "[]", "{}"])
def test_a_file_without_a_run_is_rejected(tmp_path: Path, text: str) -> None:
    file = RunStore(tmp_path).save(RUN)
    file.write_bytes(text.encode("latin-1"))
    with raises(FileError, file.name):
        RunStore(tmp_path).load("speed")


@pytest.mark.parametrize(
    ("name", "value"),
    [("experiment", None), ("config", "none"), ("seed", {}), ("result", [1]), ("provenance", 1), ("key", ["a"])],
)
def test_a_forged_file_is_rejected(tmp_path: Path, name: str, value: Any) -> None:
    """Also with the right checksum."""
    file = RunStore(tmp_path).save(RUN)
    content = {**json.loads(file.read_text()), name: value}
    del content["checksum"]
    file.write_text(json.dumps({**content, "checksum": json_checksum(content)}))
    if name == "key":
        assert RunStore(tmp_path).load("speed") == [RUN]  # the file's name decides
        return
    with raises(FileError, file.name, name):
        RunStore(tmp_path).load("speed")


@pytest.mark.parametrize(
    "changes",
    [
        {"provenance": {**PROVENANCE, "machine": "EPYC"}},
        {"provenance": {**PROVENANCE, "machine": None}},
        {"provenance": {**PROVENANCE, "commit": 3.5}},
        {"provenance": {**PROVENANCE, "started": None}},
        {"provenance": {"machine": MACHINE}},
        {"result": {}},
        {"result": {**RUN.result, "details": 7}},
        {"result": {**RUN.result, "metrics": {**METRICS, "2 total median": "a"}}},
        {"result": {**RUN.result, "metrics": {**METRICS, "2 total mean": [1]}}},
        {"config": {"hidden_size": {"a": 1}}},
        {"config": {"block_size": [[]]}},
    ],
)
def test_a_run_that_cannot_be_shown_is_rejected_or_left_out(tmp_path: Path, changes: dict[str, Any]) -> None:
    run = replace(RUN, **changes)
    try:
        text = saved_and_shown(tmp_path, run)
    except InputError as error:
        assert error.hint  # noqa: PT017
    else:
        assert "of other cells" in text
