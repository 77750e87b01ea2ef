"""Feed mutated files to every reader of files that may come from others, guided by coverage.

    python stress/fuzz.py --seconds 180 --at-once 2

Each target starts from small valid files. A finding is an error that is not a documented one raised by our own code, a
read of more than 5 seconds, or more than 2 GB of memory. Inputs that are findings stay in the folder that is named at
the end; the table that is printed is in docs/reliability.md.

Needs atheris (CPython from 3.11 on, Linux or macOS): pip install atheris==3.0.0
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODULES = {  # of fuzz_targets, with their targets
    "tables": ("csv", "parquet"),
    "models": ("forecaster", "sequence-estimators", "model-bytes", "model-0.1.0"),
    "checkpoints": ("checkpoints",),
    "datasets": ("ts", "arff", "mnist-idx", "cifar", "ett-table"),
    "results": ("results",),
}
NAMES = [name for names in MODULES.values() for name in names]
TIMEOUT = 5  # seconds
MAX_MEMORY = 2048  # MB
MAX_INPUT = 1 << 16  # bytes
MAX_KINDS = 200  # of findings that are saved per target
COLUMNS = ["reader", "inputs", "seconds in all", "branches reached", "most memory, MB", "findings"]


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Fuzz one target in this process, which ends with it."""
    import resource

    import atheris

    os.nice(5)
    with atheris.instrument_imports(include=["parallelrnn"]):
        module = import_module(f"fuzz_targets.{next(module for module, names in MODULES.items() if name in names)}")
    from fuzz_targets.target import finding

    target = next(target for target in module.TARGETS if target.name == name)
    corpus, findings, scratch = (folder / part for part in ("corpus", "findings", "scratch"))
    for directory in (corpus, findings, scratch):
        directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as seeds:
        for number, seed in enumerate(target.seeds(Path(seeds))):
            (corpus / f"seed-{number}").write_bytes(seed)
            problem = finding(target, seed, scratch)
            if problem is not None:
                raise SystemExit(f"{name}: a seed is rejected, {problem}")
    statm = Path("/proc/self/statm")
    if statm.exists():  # make allocations beyond the limit fail, whether or not the memory is touched
        limit = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + MAX_MEMORY * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    kinds: set[str] = set()

    def read(data: bytes) -> None:
        problem = finding(target, data, scratch)
        if problem is None:
            return
        place, _, message = problem.partition(":")
        kind = place + re.sub(r"0x[0-9a-f]+|\d+", "0", message)[:40]
        if kind not in kinds and len(kinds) < MAX_KINDS:
            kinds.add(kind)
            (findings / f"{len(kinds):03d}.input").write_bytes(data)
            text = problem.encode("utf-8", errors="backslashreplace")
            (findings / f"{len(kinds):03d}.txt").write_bytes(text)

    options: dict[str, Any] = {} if target.mutate is None else {"custom_mutator": target.mutate}
    arguments = [
        f"-max_total_time={seconds}",
        f"-timeout={TIMEOUT}",
        f"-rss_limit_mb={MAX_MEMORY}",
        f"-max_len={MAX_INPUT}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        "-len_control=0",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *arguments], read, **options)
    atheris.Fuzz()


def run(seconds: int, parent: Path, name: str) -> tuple[list[str], list[str]]:
    """Fuzz a target in a process of its own; return its row of the table, and its findings."""
    folder = parent / name
    start = time.monotonic()
    command = [sys.executable, __file__, "--only", name, "--seconds", str(seconds), "--in-process", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    folder.mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    seconds_in_all = str(round(time.monotonic() - start))
    text = (folder / "log").read_text(encoding="utf-8", errors="replace")

    def last(pattern: str) -> str:
        return f"{int(([*re.findall(pattern, text)] or ['0'])[-1]):,}"

    findings = [path.read_text(encoding="utf-8").strip() for path in sorted((folder / "findings").glob("*.txt"))]
    findings += [f"{path.name}: timed out, or took too much memory" for path in (folder / "findings").glob("*-*")]
    if status != 0 and not findings:
        findings = [f"the process ended with status {status}: {text[-500:]}"]
    inputs, branches = last(r"number_of_executed_units:\s+(\d+)"), last(r"cov: (\d+) ft:")
    return [name, inputs, seconds_in_all, branches, last(r"peak_rss_mb:\s+(\d+)"), str(len(findings))], findings


def main() -> None:
    """Fuzz; exit with 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="targets to fuzz (all)")
    parser.add_argument("--seconds", type=int, default=180, help="for each target (180)")
    parser.add_argument("--at-once", type=int, default=1, help="targets at once, each in a process (1)")
    parser.add_argument("--in-process", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.in_process is not None:
        fuzz(arguments.only[0], arguments.seconds, arguments.in_process)
        return
    from parallelrnn.lab.benchmarks.measuring import provenance
    from parallelrnn.lab.tables import Table

    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    rows, clean = [], True
    with ThreadPoolExecutor(arguments.at_once) as pool:
        for row, findings in pool.map(partial(run, arguments.seconds, folder), arguments.only):
            rows.append(row)
            clean &= not findings
            print(", ".join(row), *findings, sep="\n  ", flush=True)
    print(Table(COLUMNS, rows).markdown(), provenance(1), f"inputs are in {folder}", sep="\n\n")
    raise SystemExit(0 if clean else 1)


if __name__ == "__main__":
    main()
