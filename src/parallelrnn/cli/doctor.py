"""What runs recurrences on this machine, and whether it is correct: the facts behind `parallelrnn doctor`."""

from __future__ import annotations

import platform
import re
import textwrap
import warnings
from importlib import metadata
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parallelrnn.kernels import Weights, cpu, dispatch, library, triton
from parallelrnn.nn import ParaGRU, ParaLSTM, ParaRNN

TOLERANCE = 1e-5  # float32 over a few steps, values and gradients of order 1
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[(.*?)\])?[^;]*; extra == ['\"](.+)['\"]$")


def diagnose() -> dict[str, Any]:
    """Return the facts, as printed by `doctor --json`."""
    weights = Weights(torch.zeros(2, 1), torch.zeros(1, 1, 2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the reference is slow
        backend = dispatch.choose("auto", weights)
    instructions = library.INSTRUCTIONS
    if backend == "cpu" and instructions is not None:
        why = f"C kernels with {instructions.name} instructions"
    else:
        problem = library.LIBRARY.problem or cpu.unsupported_reason(weights) or "the C kernels were not chosen"
        why = f"a loop in Python, because {problem}"
    errors = _kernel_errors() if backend == "cpu" else {}
    agrees = bool(errors) and max(errors.values()) <= TOLERANCE
    return {
        "backend": backend,  # for a float32 layer on the CPU
        "why": why,
        "library": str(library.LIBRARY.path),
        "instruction_sets": [instruction_set.name for instruction_set in library.BUILT.instruction_sets],
        "instruction_set": None if instructions is None else instructions.name,
        "variable": library.VARIABLE,  # of the environment, to choose the instruction set
        "has_threads": library.LIBRARY.has_threads,
        "threads": torch.get_num_threads(),
        "triton": triton.is_available(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {
            "parallelrnn": metadata.version("parallelrnn"),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "extras": {extra: not missing for extra, missing in missing_packages().items()},
        "errors": errors,  # by cell: how far the C kernels are from the reference
        "advice": "" if backend == "cpu" else library.LIBRARY.advice,
        "agrees": agrees,
        "healthy": backend == "cpu" and agrees,
    }


def missing_packages() -> dict[str, list[str]]:
    """Return the packages that each extra lacks; those needed on some platforms only do not count."""
    matches = list(filter(None, map(_REQUIREMENT.match, metadata.requires("parallelrnn") or [])))

    def lacking(extra: str) -> list[str]:
        names = []
        for package, extras, needed_by in (match.groups() for match in matches):
            if needed_by == extra and package == "parallelrnn":
                names += [name for other in extras.split(",") for name in lacking(other)]
            elif needed_by == extra and not list(metadata.distributions(name=package)):
                names.append(package)
        return names

    return {extra: lacking(extra) for extra in sorted({match[3] for match in matches})}


def _kernel_errors() -> dict[str, float]:
    """Return how far the C kernels are from the reference, in values and gradients of a small layer of each kind."""
    errors = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for cell, kind in (("RNN", ParaRNN), ("LSTM", ParaLSTM), ("GRU", ParaGRU)):
            layer, x = kind(3, 10, num_layers=2), torch.randn(9, 5, 3)
            expected = _values_and_gradients(layer, x, "reference")
            pairs = zip(_values_and_gradients(layer, x, "cpu"), expected, strict=True)
            distances = [(fast - slow).abs().max() / slow.abs().max().clamp(min=1) for fast, slow in pairs]
            errors[cell] = float(torch.stack(distances).max())
    return errors


def _values_and_gradients(layer: ParaRNN | ParaLSTM | ParaGRU, x: Tensor, backend: str) -> list[Tensor]:
    layer.backend = backend
    with torch.no_grad():
        inference = layer(x)[0]  # takes another path through the kernels than training
    output = layer(x)[0]
    grads = torch.autograd.grad(output.square().sum(), list(layer.parameters()))
    return [inference, output.detach(), *grads]


def lines(facts: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the lines to print, at most 80 columns wide except for paths, each with whether it is good news."""
    sets, in_use, agrees = facts["instruction_sets"], facts["instruction_set"], facts["agrees"]
    other = next((name for name in sets if name != in_use), None)
    errors = ", ".join(f"{cell} {error:.0e}" for cell, error in facts["errors"].items())
    verdict = "agree with the reference" if agrees else f"differ from the reference by more than {TOLERANCE:.0e}"
    threads = "" if facts["has_threads"] else "; built without OpenMP, the kernels run in one thread"
    missing = ", ".join(name for name, installed in facts["extras"].items() if not installed)
    items = [
        ("backend", f"{facts['backend']} for a float32 layer on the CPU: {facts['why']}", facts["backend"] == "cpu"),
        ("C library", facts["library"], bool(sets)),
        ("instructions", f"{', '.join(sets) or 'none'}; in use: {in_use or 'none'}", True),
        ("", f"to change: set {facts['variable']}={other}" if other else "", True),
        ("threads", f"torch.get_num_threads() is {facts['threads']}{threads}" if sets else "", facts["has_threads"]),
        ("agreement", f"the kernels {verdict} ({errors})" if errors else "not checked: no kernels", agrees),
        ("Triton", "installed" if facts["triton"] else "not installed (for GPUs: pip install triton)", True),
        ("GPU", facts["gpu"] or "none that torch can use", True),
        ("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items()), True),
        ("extras", ", ".join(name for name, installed in facts["extras"].items() if installed) or "none", True),
        ("", f"not installed: {missing}" if missing else "", True),
        ("what to do", facts["advice"] or ("" if agrees else "please report this"), False),
    ]
    wrapper = textwrap.TextWrapper(79, subsequent_indent=" " * 14, break_long_words=False, break_on_hyphens=False)
    return [(line, good) for label, text, good in items if text for line in wrapper.wrap(f"{label:<14}{text}")]
