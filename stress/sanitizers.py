"""Do the C kernels stay within their memory, do nothing undefined, and never race? Sanitizers and valgrind watch them.

    python stress/sanitizers.py            # all checks; needs gcc with its sanitizers, and valgrind
    python stress/sanitizers.py threads    # one check

Checks: `driver`, `threads` and `valgrind` run stress/kernels.c, which calls every kernel at odd sizes on heap memory of
exact size, under the address and undefined-behaviour sanitizers, the thread sanitizer and valgrind; `tests` runs the
kernels' tests in a copy of the package whose library is built with the first two. Each uses all instruction sets that
the processor has (valgrind: those that it knows). Results are added to stress/results/sanitizers.json as they come.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from parallelrnn.io import write_text
from parallelrnn.kernels.library import BUILT
from parallelrnn.lab.running.provenance import COMMIT, machine

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "sanitizers.json"
DRIVER = HERE / "kernels.c"
SOURCES = ROOT / "src" / "parallelrnn" / "kernels" / "csrc"
TESTS = ("cpu", "attention", "linear", "memory", "operators", "validation")
# Those of setup.py, but for -O1 instead of -O3: a report then leads to the line.
FLAGS = ["-std=gnu11", "-O1", "-g1", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-fvisibility=hidden", "-fPIC", "-fopenmp", "-fno-omit-frame-pointer"]
ADDRESS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
EVERY = 7  # of the driver's cases under valgrind, which is some fifty times slower; no divisor of its loops' counts
FINDING = re.compile(r"ERROR: AddressSanitizer|runtime error:|WARNING: ThreadSanitizer|ERROR SUMMARY: [1-9]")


def build(folder: Path, flags: list[str]) -> list[str]:
    """The object files of all kernels, watched. Those for instructions that the processor lacks only have to link."""
    runs = {"library", *(instructions.name for instructions in BUILT.instruction_sets)}

    def compile_one(source: Path) -> str:
        target = folder / f"{source.stem}.o"
        if not target.exists():
            gcc(*FLAGS, *(flags if source.stem in runs else ["-O0"]), "-c", str(source), "-o", str(target))
        return str(target)

    folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor() as pool:
        return list(pool.map(compile_one, sorted(SOURCES.glob("*.c"))))


def check_driver(folder: Path) -> dict[str, Any]:
    """Address and undefined behaviour; leaks too, since the driver frees what it takes."""
    objects = build(folder / "address", ADDRESS)
    gcc(*FLAGS, *ADDRESS, f"-I{SOURCES}", str(DRIVER), *objects, "-lm", "-o", str(folder / "driver"))
    return drive([str(folder / "driver")])


def check_threads(folder: Path) -> dict[str, Any]:
    """Races, with plain threads in the place of OpenMP's: its library says nothing to the sanitizer."""
    watched = ["-fsanitize=thread"]
    objects = build(folder / "thread", watched)
    own = str(folder / "thread" / "driver.o")
    gcc(*FLAGS, *watched, "-DOWN_THREADS", f"-I{SOURCES}", "-c", str(DRIVER), "-o", own)
    gcc(*watched, own, *objects, "-lm", "-lpthread", "-o", str(folder / "threads"))  # not linked with OpenMP's library
    # The sanitizer wants memory where it expects it, which a randomised layout may not have.
    return drive([*(["setarch", "-R"] if shutil.which("setarch") else []), str(folder / "threads")])


def check_valgrind(folder: Path) -> dict[str, Any]:
    """Memory out of bounds, and numbers that nobody wrote; in the library as it is installed."""
    program = str(folder / "valgrind")
    gcc(*FLAGS, f"-I{SOURCES}", str(DRIVER), str(BUILT.path), f"-Wl,-rpath,{BUILT.path.parent}", "-lm", "-o", program)
    leaks = ["--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]
    return drive(["valgrind", "--error-exitcode=1", *leaks, program, str(EVERY)])


def drive(words: list[str]) -> dict[str, Any]:
    """Run the driver, which ends with the instruction sets and the number of its cases."""
    done = subprocess.run(words, capture_output=True, text=True)
    findings = len(FINDING.findall(done.stderr))
    *names, cases = done.stdout.split() or ["0"]
    if done.returncode or findings:
        print(done.stderr[-4000:], file=sys.stderr)
    clean = done.returncode == 0 and not findings
    return {"clean": clean, "findings": findings, "cases": int(cases), "instruction_sets": names}


def check_tests(folder: Path) -> dict[str, Any]:
    """The kernels' tests, on a copy of the package with the library that is watched."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "parallelrnn", folder / "parallelrnn", ignore=ignore)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    library = folder / "parallelrnn" / "kernels" / "csrc" / BUILT.path.name
    gcc("-shared", "-fopenmp", *ADDRESS, *build(folder / "address", ADDRESS), "-o", str(library))
    # The sanitizer has to be there before torch is; with libstdc++, whose exceptions it looks for as it starts.
    preload = [gcc(f"-print-file-name={name}").strip() for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "LD_PRELOAD": " ".join(preload),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # Python itself keeps memory until the end
        "OMP_NUM_THREADS": "2",
    }
    where = "from parallelrnn.kernels.library import LIBRARY; print(LIBRARY.path, LIBRARY.problem)"
    loaded = subprocess.run([sys.executable, "-c", where], cwd=folder, env=environment, capture_output=True, text=True)
    if loaded.stdout.strip() != str(library):
        raise SystemExit(f"expected {library} to be loaded, got {loaded.stdout}{loaded.stderr}")
    files = [f"tests/kernels/test_{name}.py" for name in TESTS]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    passed = re.search(r"(\d+) passed", done.stdout)
    findings = len(FINDING.findall(done.stdout + done.stderr))
    if done.returncode or findings:
        print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
    clean = done.returncode == 0 and not findings
    return {"clean": clean, "findings": findings, "passed": int(passed.group(1)) if passed else 0}


CHECKS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "driver": check_driver,
    "threads": check_threads,
    "valgrind": check_valgrind,
    "tests": check_tests,
}


def gcc(*words: str) -> str:
    """Run the compiler: what it says."""
    return subprocess.run(["gcc", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Run the checks that are asked for; the exit status tells whether all were clean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", nargs="*", help=f"one or more of: {', '.join(CHECKS)} (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results go")
    arguments = parser.parse_args()
    unknown = [check for check in arguments.check if check not in CHECKS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: expected checks among {', '.join(CHECKS)}")
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    clean = True
    made_under = {"commit": COMMIT, **machine(2), "compiler": gcc("--version").splitlines()[0]}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.check or CHECKS:
            begin = time.perf_counter()
            found = CHECKS[name](Path(folder))
            results[name] = {"conditions": made_under, "seconds": round(time.perf_counter() - begin), **found}
            write_text(arguments.out, json.dumps(results, indent=1) + "\n")
            print(f"{name}: {json.dumps(found)}", flush=True)
            clean &= found["clean"]
    raise SystemExit(0 if clean else 1)


if __name__ == "__main__":
    main()
