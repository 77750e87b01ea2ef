"""Feed mutated files to every reader of files that may come from others, guided by coverage.

Each target starts from small valid files. A finding is an error that is not a refusal in words of our own, a read of
more than 5 seconds, or more than 2 GB of memory. What was found is in stress/results/fuzz.json, where a target that is
run again takes the place of itself; inputs that were findings are in the folder that is told at the end.

Needs atheris (CPython from 3.11 on, Linux or macOS): pip install atheris==3.0.0
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODULES = {  # of fuzz_targets, and what each holds
    "tables": ("csv", "parquet"),
    "models": ("forecaster", "sequence-estimators", "model-manifest", "model-weights"),
    "checkpoints": ("checkpoints",),
    "datasets": ("ts", "arff", "mnist-idx", "cifar", "ett-table"),
    "results": ("results",),
}
NAMES = [name for names in MODULES.values() for name in names]
SLOW = 5  # seconds
MEMORY = 2048  # MB
LONGEST = 1 << 16  # bytes of an input
MOST = 200  # kinds of findings that are kept of a target


def target_of(name: str) -> Any:
    """A target, of the module that holds it."""
    module = import_module(f"fuzz_targets.{next(module for module, names in MODULES.items() if name in names)}")
    return next(target for target in module.TARGETS if target.name == name)


def fuzz_one(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    os.nice(5)
    with atheris.instrument_imports(include=["parallelrnn"]):
        target = target_of(name)
    from fuzz_targets.target import finding

    corpus, found, scratch = (folder / part for part in ("corpus", "findings", "scratch"))
    for directory in (corpus, found, scratch):
        directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made:
        for number, seed in enumerate(target.seeds(Path(made))):
            (corpus / f"seed-{number}").write_bytes(seed)
            wrong = finding(target, seed, scratch)
            if wrong is not None:
                raise SystemExit(f"{name}: a seed is refused, {wrong}")
    _limit_memory()
    known: dict[str, int] = {}

    def read_one(data: bytes) -> None:
        wrong = finding(target, data, scratch)
        if wrong is None:
            return
        kind = wrong.partition(":")[0] + re.sub(r"0x[0-9a-f]+|\d+", "0", wrong.partition(":")[2])[:40]
        known[kind] = known.get(kind, 0) + 1
        if known[kind] == 1 and len(known) <= MOST:
            (found / f"{len(known):03d}.input").write_bytes(data)
            (found / f"{len(known):03d}.txt").write_text(wrong + "\n", encoding="utf-8", errors="backslashreplace")

    options: dict[str, Any] = {}
    if target.mutate is not None:
        options["custom_mutator"] = target.mutate
    arguments = [
        f"-max_total_time={seconds}",
        f"-timeout={SLOW}",
        f"-rss_limit_mb={MEMORY}",
        f"-max_len={LONGEST}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
        "-len_control=0",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *arguments], read_one, **options)
    atheris.Fuzz()


def _limit_memory() -> None:
    """Refuse what would take more memory than is allowed, touched or not."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else None
    if pages is not None:
        limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def run(seconds: int, parent: Path, name: str) -> dict[str, Any]:
    """Fuzz a target in a process of its own; what came of it."""
    folder = parent / name
    began = time.monotonic()
    words = [sys.executable, __file__, name, "--seconds", str(seconds), "--in-process", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    folder.mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        status = subprocess.run(words, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)/", text)
    runs = re.search(r"stat::number_of_executed_units:\s+(\d+)", text)
    findings = [path.read_text(encoding="utf-8").strip() for path in sorted((folder / "findings").glob("*.txt"))]
    findings += [f"{path.name}: hung, or took too much memory" for path in (folder / "findings").glob("*-*")]
    if status != 0 and not findings:
        findings = [f"the process ended with status {status}: {text[-500:]}"]
    memory = re.search(r"stat::peak_rss_mb:\s+(\d+)", text)
    return {
        "seconds": round(time.monotonic() - began),
        "runs": int(runs[1]) if runs else 0,
        "corpus": int(covered[-1][2]) if covered else 0,
        "edges": int(covered[-1][0]) if covered else 0,
        "peak_mb": int(memory[1]) if memory else None,
        "findings": findings,
    }


def conditions(seconds: int, at_once: int) -> dict[str, Any]:
    """Under which the numbers were taken."""
    from parallelrnn.lab.benchmarks.kernels.conditions import processor, versions
    from parallelrnn.lab.running.provenance import COMMIT

    return {
        "commit": COMMIT,
        "processor": processor(),
        "threads": 1,
        **versions(),
        "atheris": version("atheris"),
        "seconds_for_each_target": seconds,
        "targets_at_once": at_once,
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="some targets; all if none is named")
    parser.add_argument("--seconds", type=int, default=180, help="for each target (180)")
    parser.add_argument("--at-once", type=int, default=1, help="targets at once, each in a process (1)")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "fuzz.json", help="the file for what was found")
    parser.add_argument("--in-process", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if find_spec("atheris") is None:
        raise SystemExit(
            "this needs atheris, which is not installed: pip install atheris==3.0.0 (CPython from 3.11 on)"
        )
    if told.in_process is not None:
        fuzz_one(told.targets[0], told.seconds, told.in_process)
        return
    unknown = [name for name in told.targets if name not in NAMES]
    if unknown:
        raise SystemExit(f"there is no target {', '.join(unknown)}; there are {', '.join(NAMES)}")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    names, about = told.targets or NAMES, conditions(told.seconds, told.at_once)
    clean = True
    with ThreadPoolExecutor(told.at_once) as pool:
        for name, found in zip(names, pool.map(partial(run, told.seconds, folder), names), strict=True):
            before = json.loads(told.out.read_text(encoding="utf-8")) if told.out.exists() else {}
            told.out.write_text(json.dumps({**before, name: found | {"conditions": about}}, indent=1) + "\n", "utf-8")
            counts = f"{found['runs']} runs, corpus {found['corpus']}, {len(found['findings'])} findings"
            print("\n  ".join([f"{name}: {counts}", *found["findings"]]), flush=True)
            clean = clean and not found["findings"]
    print(f"inputs are in {folder}; numbers in {told.out}")
    raise SystemExit(0 if clean else 1)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
