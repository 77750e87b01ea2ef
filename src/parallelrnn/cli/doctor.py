"""What computes here, and why: the facts behind `parallelrnn doctor`."""

from __future__ import annotations

import importlib.util
import textwrap
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from parallelrnn.kernels import Weights, cpu, dispatch, library, triton
from parallelrnn.lab.runs import machine
from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN

TOLERANCE = 1e-5  # float32 over a few steps, values and gradients of order 1
EXTRAS = {
    "cli": ("typer", "rich"),
    "datasets": ("pooch", "threadpoolctl", "tqdm"),
    "demo": ("statsmodels",),
    "forecast": ("lightning_fabric", "narwhals", "pandas", "safetensors"),
    "onnx": ("onnx", "onnxscript"),
    "plot": ("matplotlib", "pandas"),
    "report": ("plotly", "jinja2"),
    "sequences": ("lightning_fabric", "rich", "safetensors", "sklearn"),
}


@dataclass(frozen=True)
class Diagnosis:
    """What was found."""

    backend: str  # that runs a float32 layer on the CPU
    why: str
    library: str  # the path of the C kernels
    instruction_sets: tuple[str, ...]
    instruction_set: str | None
    variable: str  # of the environment: which instruction set to use
    has_threads: bool
    threads: int
    triton: bool
    gpu: str | None
    versions: dict[str, str]
    extras: dict[str, bool]
    errors: dict[str, float]  # by cell: how far the fast kernels are from the reference
    advice: str

    @property
    def agrees(self) -> bool:
        """Whether the fast kernels give what the reference gives."""
        return bool(self.errors) and all(error <= TOLERANCE for error in self.errors.values())

    @property
    def healthy(self) -> bool:
        """Whether the fast kernels run, and run right."""
        return self.backend == "cpu" and self.agrees

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {**asdict(self), "agrees": self.agrees, "healthy": self.healthy}


def diagnose() -> Diagnosis:
    """Look at what the layers will look at."""
    weights = Weights(torch.zeros(2, 1), torch.zeros(1, 1, 2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is slow without C kernels is told below
        backend = dispatch.choose("auto", weights)
    problem = library.LIBRARY.problem or cpu.problem(weights)
    instructions = library.INSTRUCTIONS
    if backend == "cpu" and instructions is not None:
        why = f"C kernels, with {instructions.name} instructions"
    else:
        why = f"a loop in Python, because {problem or 'the C kernels were not chosen'}"
    return Diagnosis(
        backend=backend,
        why=why,
        library=str(library.LIBRARY.path),
        instruction_sets=tuple(one.name for one in library.BUILT.instruction_sets),
        instruction_set=None if instructions is None else instructions.name,
        variable=library.VARIABLE,
        has_threads=library.LIBRARY.has_threads,
        threads=torch.get_num_threads(),
        triton=triton.is_available(),
        gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        versions={name: machine(1)[name] for name in ("parallelrnn", "torch", "numpy", "python")},
        extras={name: all(map(_is_installed, modules)) for name, modules in EXTRAS.items()},
        errors=_errors() if backend == "cpu" else {},
        advice="" if backend == "cpu" else library.LIBRARY.advice,
    )


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _errors() -> dict[str, float]:
    """One small layer of each kind, values and gradients, by the fast kernels and by the reference."""
    errors = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for cell, kind in (("RNN", ParaRNN), ("LSTM", ParaLSTM), ("GRU", ParaGRU)):
            layer = kind(3, 10, num_layers=2)
            x = torch.randn(9, 5, 3)
            expected = _values_and_gradients(layer, x, "reference")
            pairs = zip(_values_and_gradients(layer, x, "cpu"), expected, strict=True)
            distances = [(fast - slow).abs().max() / slow.abs().max().clamp(min=1) for fast, slow in pairs]
            errors[cell] = float(torch.stack(distances).max())
    return errors


def _values_and_gradients(layer: ParaRNN | ParaLSTM | ParaGRU, x: Tensor, backend: str) -> list[Tensor]:
    layer.backend = backend
    with torch.no_grad():
        inference = layer(x)[0]  # another path through the kernels than training
    output = layer(x)[0]
    grads = torch.autograd.grad(output.square().sum(), list(layer.parameters()))
    return [inference, output.detach(), *grads]


def lines(diagnosis: Diagnosis) -> list[tuple[str, bool]]:
    """What to print, and whether each line is good news; at most 80 columns, but for a path or a command."""
    found = diagnosis
    others = [name for name in found.instruction_sets if name != found.instruction_set]
    sets = ", ".join(found.instruction_sets) or "none"
    items: list[tuple[str, str, bool]] = [
        ("backend", f"{found.backend} for a float32 layer on the CPU: {found.why}", found.backend == "cpu"),
        ("C library", found.library, bool(found.instruction_sets)),
        ("instructions", f"{sets}; in use: {found.instruction_set or 'none'}", True),
    ]
    if others:
        items.append(("", f"for another: {found.variable}={others[0]} in the environment", True))
    if found.instruction_sets:
        threads = "yes" if found.has_threads else "no: built without OpenMP, so it runs in one thread"
        items.append(("threads", f"{threads}; torch.get_num_threads() is {found.threads}", found.has_threads))
    items += [
        ("agreement", _agreement(found), found.agrees),
        ("Triton", "installed" if found.triton else "not installed (only for GPUs: pip install triton)", True),
        ("GPU", found.gpu or "none that torch can use", True),
        ("versions", ", ".join(f"{name} {version}" for name, version in found.versions.items()), True),
        ("extras", ", ".join(f"{name}: {'yes' if here else 'no'}" for name, here in found.extras.items()), True),
    ]
    if found.advice:
        items.append(("what to do", found.advice, False))
    return [(line, good) for label, text, good in items for line in _hang(label, text)]


def _agreement(found: Diagnosis) -> str:
    if not found.errors:
        return "not checked: there is nothing but the reference"
    errors = ", ".join(f"{cell} {error:.0e}" for cell, error in found.errors.items())
    if found.agrees:
        return f"the kernels give what the reference gives ({errors})"
    return f"the kernels differ from the reference ({errors}; at most {TOLERANCE:.0e} expected); please report it"


def _hang(label: str, text: str) -> list[str]:
    """A label, and its text beside it; paths and commands stay whole."""
    return textwrap.wrap(
        text,
        width=79,
        initial_indent=f"{label:<14}",
        subsequent_indent=" " * 14,
        break_long_words=False,
        break_on_hyphens=False,
    )
