"""Do the C kernels stay within their memory, avoid undefined behaviour, and never race? Sanitizers and valgrind check.

    python stress/sanitizers.py                   # all checks; needs gcc with its sanitizers, and valgrind
    python stress/sanitizers.py --only threads    # one check

`driver`, `threads` and `valgrind` run stress/kernels.c, which calls every kernel at odd sizes on heap memory of exact
size, under the address and undefined-behaviour sanitizers, the thread sanitizer, and valgrind. `tests` runs the
kernels' tests in a copy of the package whose library is built with the first two. All instruction sets of the processor
are covered (under valgrind those that it knows). The table that is printed is in docs/reliability.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from parallelrnn.kernels.library import BUILT
from parallelrnn.lab.benchmarks.measuring import provenance
from parallelrnn.lab.tables import Table

HERE = Path(__file__).parent
ROOT = HERE.parent
DRIVER = HERE / "kernels.c"
SOURCES = ROOT / "src" / "parallelrnn" / "kernels" / "csrc"
TESTS = ("cpu", "attention", "linear", "memory", "operators", "validation")
# Those of setup.py, but -O1 instead of -O3, so that a report leads to the line.
FLAGS = ["-std=gnu11", "-O1", "-g1", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-fvisibility=hidden", "-fPIC", "-fopenmp", "-fno-omit-frame-pointer"]
ADDRESS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
VALGRIND_STRIDE = 7  # every so many cases of the driver, as valgrind is fifty times slower; divides no loop's count
FINDING = re.compile(r"ERROR: AddressSanitizer|runtime error:|WARNING: ThreadSanitizer|ERROR SUMMARY: [1-9]")
Outcome = tuple[int, int]  # cases and findings


def build(folder: Path, flags: list[str]) -> list[str]:
    """Compile all kernels with a sanitizer. Those for instructions that the processor lacks only have to link."""
    runs = {"library", *(instructions.name for instructions in BUILT.instruction_sets)}

    def compile_source(source: Path) -> str:
        target = folder / f"{source.stem}.o"
        if not target.exists():
            gcc(*FLAGS, *(flags if source.stem in runs else ["-O0"]), "-c", str(source), "-o", str(target))
        return str(target)

    folder.mkdir(exist_ok=True)
    with ThreadPoolExecutor() as pool:
        return list(pool.map(compile_source, sorted(SOURCES.glob("*.c"))))


def check_driver(folder: Path) -> Outcome:
    """Check addresses and undefined behaviour, and leaks too, since the driver frees what it allocates."""
    objects = build(folder / "address", ADDRESS)
    gcc(*FLAGS, *ADDRESS, f"-I{SOURCES}", str(DRIVER), *objects, "-lm", "-o", str(folder / "driver"))
    return drive([str(folder / "driver")])


def check_threads(folder: Path) -> Outcome:
    """Look for races, with plain threads in place of OpenMP's, whose library the sanitizer cannot see into."""
    sanitizer = ["-fsanitize=thread"]
    objects = build(folder / "thread", sanitizer)
    driver = str(folder / "thread" / "driver.o")
    gcc(*FLAGS, *sanitizer, "-DOWN_THREADS", f"-I{SOURCES}", "-c", str(DRIVER), "-o", driver)
    gcc(*sanitizer, driver, *objects, "-lm", "-lpthread", "-o", str(folder / "threads"))  # without OpenMP's library
    # The sanitizer needs memory where it expects it, which a randomised layout may not have.
    return drive([*(["setarch", "-R"] if shutil.which("setarch") else []), str(folder / "threads")])


def check_valgrind(folder: Path) -> Outcome:
    """Look for accesses out of bounds and uninitialised values in the library as it is installed."""
    program = str(folder / "valgrind")
    gcc(*FLAGS, f"-I{SOURCES}", str(DRIVER), str(BUILT.path), f"-Wl,-rpath,{BUILT.path.parent}", "-lm", "-o", program)
    leaks = ["--leak-check=full", "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]
    return drive(["valgrind", "--error-exitcode=1", *leaks, program, str(VALGRIND_STRIDE)])


def drive(command: list[str]) -> Outcome:
    """Run the driver, which ends with the instruction sets and the number of its cases."""
    done = subprocess.run(command, capture_output=True, text=True)
    return int((done.stdout.split() or ["0"])[-1]), count_findings(done)


def count_findings(done: subprocess.CompletedProcess[str]) -> int:
    """Count reports, and show them; a failure without a report is one, too."""
    findings = len(FINDING.findall(done.stdout + done.stderr)) or int(done.returncode != 0)
    if findings:
        print(done.stdout[-4000:], done.stderr[-4000:], file=sys.stderr)
    return findings


def check_tests(folder: Path) -> Outcome:
    """Run the kernels' tests on a copy of the package with the instrumented library."""
    ignore = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src" / "parallelrnn", folder / "parallelrnn", ignore=ignore)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder)
    library = folder / "parallelrnn" / "kernels" / "csrc" / BUILT.path.name
    gcc("-shared", "-fopenmp", *ADDRESS, *build(folder / "address", ADDRESS), "-o", str(library))
    # The sanitizer has to be loaded before torch, with libstdc++, whose exceptions it looks for as it starts.
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
    return int(passed[1]) if passed else 0, count_findings(done)


CHECKS: dict[str, tuple[str, Callable[[Path], Outcome]]] = {
    "driver": ("address and undefined-behaviour sanitizers, every kernel on memory of exact size", check_driver),
    "threads": ("thread sanitizer, the same", check_threads),
    "valgrind": ("valgrind, the library as it is installed", check_valgrind),
    "tests": ("address and undefined-behaviour sanitizers, the kernels' tests", check_tests),
}


def gcc(*arguments: str) -> str:
    """Run the compiler and return what it prints."""
    return subprocess.run(["gcc", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Run the checks; exit with 1 unless all are clean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), help="checks to run (all)")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in parser.parse_args().only:
            label, check = CHECKS[name]
            cases, findings = check(Path(folder))
            rows.append([label, f"{cases:,}", str(findings)])
            print(*rows[-1], sep=", ", flush=True)
    print(Table(["check", "cases", "findings"], rows).markdown(), provenance(2), gcc("--version"), sep="\n\n")
    raise SystemExit(0 if all(findings == "0" for *_, findings in rows) else 1)


if __name__ == "__main__":
    main()
