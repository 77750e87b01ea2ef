from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parallelrnn.lab.benchmarks import BenchError, kernels
from parallelrnn.lab.benchmarks.cases import CASES, CELLS, Settings, scaled
from parallelrnn.lab.benchmarks.contenders import skip_reason
from parallelrnn.lab.benchmarks.memory import in_fresh_process
from parallelrnn.lab.benchmarks.timing import Timing
from parallelrnn.lab.runs import RunStore
from tests.lab.benchmarks.tiny import TINY, made_up, make_tiny
from tests.support import raises

SMALL = Settings(cases=("S1",), cells=("RNN",), parts=("cases",), rounds=2, command="parallelrnn bench")


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    make_tiny(monkeypatch)
    return []


def test_a_run_fills_a_folder_with_every_number(tmp_path: Path, reported: list[str]) -> None:
    (run,) = kernels.run(replace(SMALL, cells=CELLS), tmp_path, report=reported.append)
    assert kernels.load(tmp_path)[0].key == run.key
    assert list(run.result["times"]) == [f"{cell} {kind}" for cell in CELLS for kind in ("forward", "training")]
    for measured in run.result["times"].values():
        assert list(measured["timings"]) == ["torch", "blocks", "aggregated", "loop"]
        for name, bound in measured["bounds"].items():
            assert bound["ratio"] == pytest.approx(measured["timings"][name]["median"] / bound["seconds"])
    assert run.provenance["commands"][0]["command"] == "parallelrnn bench"
    assert {check["cell"] for check in run.result["gate"]} == set(CELLS)


def test_resuming_measures_only_what_is_missing(tmp_path: Path, reported: list[str]) -> None:
    (first,) = kernels.run(replace(SMALL, kinds=("training",)), tmp_path)
    (second,) = kernels.run(replace(SMALL, command="again"), tmp_path, resume=True, report=reported.append)
    assert [line for line in reported if line.startswith("S1")] == ["S1 RNN forward"]
    median = first.result["times"]["RNN training"]["timings"]["blocks"]["median"]
    assert second.result["times"]["RNN training"]["timings"]["blocks"]["median"] == median
    assert len(second.result["times"]) == len(second.provenance["commands"]) == 2


def test_resuming_repeats_what_was_disturbed_or_got_fewer_rounds(tmp_path: Path, reported: list[str]) -> None:
    (run,) = kernels.run(SMALL, tmp_path)
    run.result["times"]["RNN forward"]["timings"]["blocks"]["median"] = None
    RunStore(tmp_path).save(run)
    kernels.run(SMALL, tmp_path, resume=True, report=reported.append)
    assert reported[1:] == ["S1 RNN forward"]
    reported.clear()
    kernels.run(replace(SMALL, rounds=3), tmp_path, resume=True, report=reported.append)
    assert reported[1:] == ["S1 RNN forward", "S1 RNN training"]


def test_contenders_without_a_time_are_reported(reported: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.timing, "_summarize", lambda record: Timing(median=None, reason="others were busy"))
    monkeypatch.setattr(kernels, "skip_reason", lambda name, case, kind: "too slow" if name == "loop" else "")
    kernels.run(replace(SMALL, kinds=("forward",)), report=reported.append)
    expected = [f"  no time of {name}: others were busy" for name in ("torch.nn", "ours", "ours, linear")]
    assert [line for line in reported if "others were" in line] == expected


def test_results_of_another_machine_are_not_continued(tmp_path: Path, reported: list[str]) -> None:
    (run,) = kernels.run(SMALL, tmp_path)
    run.provenance["machine"] |= {"processor": "another", "torch": "1.0"}
    RunStore(tmp_path).save(run)
    with raises(BenchError, "processor: another", "torch: 1.0"):
        kernels.run(SMALL, tmp_path, resume=True)
    with raises(BenchError, "resume="):
        kernels.run(SMALL, tmp_path)
    with raises(BenchError, "empty"):
        kernels.load(tmp_path / "empty")


def test_results_survive_an_interrupt(tmp_path: Path, reported: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measure, calls = kernels.timing.measure, iter([True, False])

    def interrupted(*args: Any) -> Any:
        if not next(calls):
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(kernels.timing, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        kernels.run(SMALL, tmp_path)
    assert list(kernels.load(tmp_path)[0].result["times"]) == ["RNN forward"]


def test_the_loop_is_not_trained_on_long_sequences() -> None:
    long = replace(TINY, length=CASES["S4"].length)
    assert "17984" in skip_reason("loop", long, "training")
    assert not skip_reason("loop", long, "forward")
    assert not skip_reason("blocks", long, "training")


def test_memory_is_that_of_the_step() -> None:
    # 8 MB of output, and at most as much again in gradients; the rest of the process is hundreds.
    case = replace(TINY, length=2000, hidden_size=64, batch=16)
    assert 6e6 < in_fresh_process(kernels._take_step, "blocks", "RNN", case, 1) < 40e6


def test_tables_show_speedups_times_memory_and_scaling() -> None:
    runs = [made_up(), *(made_up(scaled("length", length), "scaling") for length in (128, 1024))]
    tables = kernels.tables(runs)
    text = "\n".join(table.markdown() for table in tables)
    assert "| S1 training | 10.0 (2.00 ms) | - | - |" in text
    assert "| S1 training, with aggregate | 4.00 (5.00 ms) | - | - |" in text
    assert "| S1 training RNN | 20.0 ±5% | 2.00 ±2% | 5.00 ±1% | - | 2.00 |" in text
    assert "| S1 GRU | 123 | - | - |" in text
    assert "| T = 1024 | 20.0 / 2.00 | - | - |" in text
    assert "| block_size = 2 | 20.0 / 2.00 | - | - |" in text  # S1 itself, which is in every sweep
    assert len(tables) == 4  # no scaling of forward
    conditions = kernels.conditions(runs)
    assert "some processor, 2 of 2 cores, avx2, float32; parallelrnn 0.1.0, torch 2.13.0" in conditions
    assert "(9 were)" in conditions


def test_three_digits() -> None:
    texts = {0.01234: "0.0123", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234.5: "1234"}
    assert {number: kernels._digits(number) for number in texts} == texts
