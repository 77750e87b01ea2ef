"""Lines of results and checkpoints that no run leaves are refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parallelrnn.lab.document import document
from parallelrnn.lab.experiments.experiment import ExperimentError
from parallelrnn.lab.running.store import Store
from tests.lab.lines import line

METRICS = {"2 total median": 1.0, "torch.nn.RNN total median": 2.0}


def shown(folder: Path, result: dict[str, Any]) -> str:
    Store(folder).append(result)
    return document({"speed": Store(folder).lines("speed")})


def test_a_line_that_a_run_leaves_is_shown(tmp_path: Path) -> None:
    assert "EPYC (2 cores, avx2)" in shown(tmp_path, line("speed", METRICS))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "line 1: no result"),
        ("null", "line 1: a result without key"),
        ("9" * 5000, "line 1: no result"),
        (json.dumps({**line("speed", METRICS), "key": ["a"]}), "expected key to be of the kind str, got"),
        (
            json.dumps({**line("speed", METRICS), "config": "none"}),
            "expected config to be of the kind dict, got 'none'",
        ),
        (json.dumps({**line("speed", METRICS), "seed": {}}), "expected seed to be of the kind int, got"),
        (json.dumps({**line("speed", METRICS), "metrics": [1]}), "expected metrics to be of the kind dict, got"),
    ],
)
def test_what_is_no_line_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    store = Store(tmp_path)
    store.path("speed").write_text(text + "\n")
    with pytest.raises(ExperimentError, match=message):
        store.lines("speed")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("machine", "EPYC"),
        ("machine", None),
        ("commit", 3.5),
        ("started", None),
        ("details", 7),
        ("metrics", {**METRICS, "2 total median": "a"}),
        ("metrics", {**METRICS, "2 total mean": [1]}),
        ("config", {"hidden_size": {"a": 1}}),
        ("config", {"block_size": [[]]}),
    ],
)
def test_a_line_that_cannot_be_shown_is_refused_or_left_out(tmp_path: Path, name: str, value: Any) -> None:
    result = {**line("speed", METRICS), name: value}
    try:
        text = shown(tmp_path, result)
    except ExperimentError as error:
        assert "is not what a run leaves" in str(error)  # noqa: PT017
    else:
        assert "of other cells" in text
