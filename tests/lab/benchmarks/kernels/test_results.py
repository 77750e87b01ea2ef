from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parallelrnn.lab.benchmarks.kernels import BenchError, report, run
from parallelrnn.lab.benchmarks.kernels.cases import CASES, CELLS, scaled, scaling_cases
from parallelrnn.lab.benchmarks.kernels.memory import Memory
from parallelrnn.lab.benchmarks.kernels.memory import measure as measure_memory
from parallelrnn.lab.benchmarks.kernels.results import Results
from parallelrnn.lab.benchmarks.kernels.run import Settings
from parallelrnn.lab.benchmarks.kernels.timing import Timing
from tests.lab.benchmarks.kernels.tiny import TINY, made_up, make_tiny

SMALL = Settings(cases=("S1",), cells=("RNN",), parts=("cases",), rounds=2, command="parallelrnn bench")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    make_tiny(monkeypatch)
    return []


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    results = made_up()
    results.memory.append(Memory("torch", "RNN", TINY, None, "failed"))
    results.scaling.append(replace(results.cases[0], case=scaled("length", 32)))
    results.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert json.loads((tmp_path / "results.json").read_text())["discards"] == 6


@pytest.mark.parametrize("text", ["{", "{}", '{"conditions": {"color": "red"}}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(BenchError, match=r"other.json is not a file of results.*measure again"):
        Results.load(tmp_path / "other.json")


def test_a_run_fills_a_file_with_every_number(tmp_path: Path, heard: list[str]) -> None:
    found = run.run(replace(SMALL, cells=CELLS), tmp_path / "r.json", tell=heard.append)
    assert Results.load(tmp_path / "r.json") == found
    assert [(one.cell, one.kind) for one in found.cases] == [(c, k) for c in CELLS for k in ("forward", "training")]
    for one in found.cases:
        assert one.complete
        assert list(one.timings) == ["torch", "blocks", "aggregated", "loop"]
        for name, bound in one.bounds.items():
            assert bound.ratio == pytest.approx(one.timings[name].median / bound.seconds)
    assert found.limits is not None
    assert found.runs[0].command == "parallelrnn bench"
    assert all(check.passed for check in found.gate)


def test_resuming_measures_what_is_missing_alone(tmp_path: Path, heard: list[str]) -> None:
    path = tmp_path / "r.json"
    first = run.run(replace(SMALL, kinds=("training",)), path)
    second = run.run(SMALL, path, resume=True, tell=heard.append)
    assert [line for line in heard if line.startswith("S1")] == ["S1 RNN forward"]
    assert second.cases[0] == first.cases[0]
    assert len(second.cases) == len(second.runs) == 2


def test_resuming_measures_again_what_was_starved_or_got_fewer_rounds(tmp_path: Path, heard: list[str]) -> None:
    path = tmp_path / "r.json"
    results = run.run(SMALL, path)
    one = results.cases[0]
    results.cases[0] = replace(one, timings={**one.timings, "blocks": Timing(None, reason="others were at work")})
    results.save(path)
    assert len(run.run(SMALL, path, resume=True, tell=heard.append).cases) == 2
    assert heard[1:] == ["S1 RNN forward"]
    heard.clear()
    assert len(run.run(replace(SMALL, rounds=3), path, resume=True, tell=heard.append).cases) == 2
    assert heard[1:] == ["S1 RNN forward", "S1 RNN training"]


def test_what_could_not_be_measured_is_told(tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.timing, "_summary", lambda record: Timing(None, reason="others were at work"))
    monkeypatch.setattr(run, "why_skipped", lambda name, case, kind: "too slow" if name == "loop" else "")
    settings = replace(SMALL, kinds=("forward",))
    found = run.run(settings, tmp_path / "r.json", resume=True, tell=heard.append)
    assert not found.cases[0].complete
    assert f"{tmp_path / 'r.json'} is not there yet: measuring everything" in heard
    told = [line for line in heard if "no time" in line]
    assert [line.split(":")[0] for line in told] == [f"  no time of {n}" for n in ("torch.nn", "ours", "ours, linear")]
    assert told[0].endswith(": others were at work")


def test_resuming_under_other_conditions_is_refused(tmp_path: Path, heard: list[str]) -> None:
    path = tmp_path / "r.json"
    results = run.run(SMALL, path)
    results.conditions = replace(results.conditions, processor="another", torch="1.0")
    results.save(path)
    with pytest.raises(BenchError, match=r"other conditions \(then, now: processor: another, .*; torch: 1.0, "):
        run.run(SMALL, path, resume=True)
    with pytest.raises(BenchError, match="exists; add --resume"):
        run.run(SMALL, path)


def test_what_was_measured_before_a_cut_is_in_the_file(
    tmp_path: Path, heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, calls = run.timing.measure, iter([True, False])

    def cut_off(*args: object) -> object:
        if not next(calls):
            raise KeyboardInterrupt
        return measure(*args)

    monkeypatch.setattr(run.timing, "measure", cut_off)
    with pytest.raises(KeyboardInterrupt):
        run.run(SMALL, tmp_path / "r.json")
    assert [one.kind for one in Results.load(tmp_path / "r.json").cases] == ["forward"]


def test_the_loop_sits_out_where_it_takes_too_long(heard: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    long = replace(TINY, length=CASES["S4"].length)
    monkeypatch.setattr(run.timing, "measure", lambda steps, *_: {name: Timing(1.0) for name in steps})
    found = run._measure(long, "RNN", "training", ("torch", "blocks", "loop"), SMALL, made_up())
    assert found.timings["loop"].median is None
    assert "17984 steps" in found.timings["loop"].reason
    assert found.complete
    assert run._measure(long, "RNN", "forward", ("loop",), SMALL, made_up()).timings["loop"].median == 1.0


def test_memory_is_that_of_the_step() -> None:
    # 8 MB of output, and as much again in gradients at most; the rest of the process is hundreds.
    case = replace(TINY, length=2000, hidden_size=64, batch=16)
    found = measure_memory("blocks", "RNN", case, threads=1)
    assert found.reason == ""
    assert found.peak is not None
    assert 6e6 < found.peak < 40e6


def test_a_step_that_fails_leaves_its_reason() -> None:
    found = measure_memory("blocks", "RNN", replace(TINY, hidden_size=3), threads=1)
    assert found.peak is None
    assert "hidden_size 3" in found.reason


def test_markdown_shows_ratio_and_time() -> None:
    text = report.markdown(made_up())
    assert "| S1 training | 10.0 (2.00 ms) | - | - |" in text
    assert "| S1 training, with aggregate | 4.00 (5.00 ms) | - | - |" in text
    assert "| S1 training RNN | 20.0 ±5% | 2.00 ±2% | 5.00 ±1% | - | 2.00 |" in text
    assert "some processor, 2 of 2 cores, avx2, float32; parallelrnn 0.1.0, torch 2.13.0" in text
    assert "(3 were)" in text


def test_scaling_and_memory_have_their_tables() -> None:
    results = made_up()
    results.scaling = [replace(results.cases[0], case=scaled("length", length)) for length in (128, 1024)]
    results.memory = [Memory("torch", "GRU", CASES["S1"], 123_400_000), Memory("blocks", "GRU", CASES["S1"], None, "?")]
    text = report.markdown(results)
    assert "| T = 1024 | 20.0 / 2.00 | - | - |" in text
    assert "| block_size = 2 | 20.0 / 2.00 | - | - |" in text  # S1 itself, which is in every sweep
    assert "| S1 GRU | 123 | - | - |" in text
    assert "Scaling, forward" not in text


def test_sweeps_share_the_case_that_they_go_through() -> None:
    cases = scaling_cases()
    assert len(cases) == len(set(cases)) == 6 + 5 + 4 + 6 - 3
    assert replace(scaled("batch", 128), name="S1") == CASES["S1"]


@pytest.mark.parametrize(
    ("number", "text"), [(0.01234, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234.5, "1234")]
)
def test_three_digits(number: float, text: str) -> None:
    assert report._digits(number) == text
