"""ParaAttention beside `nn.MultiheadAttention`, and Block-Recurrent Transformers of the paper's sizes, in training.

    python -m parallelrnn.lab.benchmarks.transformer run results/benchmarks/transformer.json
    python -m parallelrnn.lab.benchmarks.transformer table results/benchmarks/transformer.json

First a gate: ParaAttention has to equal multi-head attention with the same block-diagonal maps, in outputs and
gradients. Then contenders take turns; medians and quartiles. The memory of a step, on top of the model and its data, is
that of a process of its own. Everything in float32, with all threads of the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn import BlockRecurrentTransformer, ParaAttention
from parallelrnn.io import write_bytes
from parallelrnn.lab.benchmarks.kernels import conditions
from parallelrnn.lab.benchmarks.kernels.memory import RESET, STATUS, peak, resident

ROUNDS = 9
# Vectors, their size, heads of multi-head attention, and the batch: states of the paper's two settings.
ATTENTIONS = {"128 states of 512": (128, 512, 8, 32), "32 states of 256": (32, 256, 8, 100)}
# Of supplement D.2: ETTh1 at horizon 24 (512 wide, 128 states, 2 segments) and permuted MNIST (256, 32 states, 2).
MODELS = {
    "forecasting": {"input_size": 7, "d_model": 512, "num_states": 128, "num_segments": 2, "steps": 96, "batch": 32},
    "pMNIST": {"input_size": 1, "d_model": 256, "num_states": 32, "num_segments": 2, "steps": 784, "batch": 16},
}
KINDS = ("para", "multihead")


class _Multihead(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Attention to itself."""
        found: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return found


def make(what: str, name: str, kind: str) -> tuple[nn.Module, Tensor]:
    """A module and its input."""
    torch.manual_seed(0)
    if what == "attention":
        count, size, heads, batch = ATTENTIONS[name]
        module: nn.Module = ParaAttention(size) if kind == "para" else _Multihead(size, heads)
        return module, torch.randn(batch, count, size)
    options = dict(MODELS[name])
    steps, batch = options.pop("steps"), options.pop("batch")
    return BlockRecurrentTransformer(**options, attention=kind), torch.randn(batch, steps, options["input_size"])  # type: ignore[arg-type]


def step_of(module: nn.Module, x: Tensor) -> Callable[[], None]:
    """Forward and backward."""

    def step() -> None:
        module.zero_grad()
        output = module(x)
        (output[0] if isinstance(output, tuple) else output).square().mean().backward()

    return step


def gate() -> None:
    """Nothing is timed that is not right."""
    ours = ParaAttention(16, dtype=torch.float64)
    theirs = nn.MultiheadAttention(16, 8, batch_first=True, dtype=torch.float64)
    projections = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([torch.block_diag(*one.matrices()) for one in projections]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(ours.aggregate.state_dict())
    x = torch.randn(3, 9, 16, dtype=torch.float64)
    grads = []
    for found in (lambda x: ours(x), lambda x: theirs(x, x, x, need_weights=False)[0]):
        leaf = x.clone().requires_grad_()
        output = found(leaf)
        grads.append((output, *torch.autograd.grad(output.square().sum(), leaf)))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def run(path: Path) -> None:
    """Measure all, and write it."""
    gate()
    rows = []
    for what, names in (("attention", ATTENTIONS), ("model", MODELS)):
        for name in names:
            contenders = {kind: make(what, name, kind) for kind in KINDS}
            steps = {kind: step_of(*contender) for kind, contender in contenders.items()}
            times: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for step in steps.values():
                step()
            for _ in range(ROUNDS):
                for kind, step in steps.items():
                    began = time.perf_counter()
                    step()
                    times[kind].append(time.perf_counter() - began)
            for kind in KINDS:
                low, median, high = statistics.quantiles(times[kind], n=4)
                parameters = sum(parameter.numel() for parameter in contenders[kind][0].parameters())
                command = [sys.executable, __file__, "memory", what, name, kind]
                memory = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                rows.append(
                    {"what": what, "name": name, "kind": kind, "seconds": median, "low": low, "high": high}
                    | {"memory": memory, "parameters": parameters}
                )
                print(rows[-1], flush=True)
    under = asdict(conditions.current(torch.get_num_threads()))
    write_bytes(path, json.dumps({"conditions": under, "rounds": ROUNDS, "rows": rows}, indent=1).encode())


def memory(what: str, name: str, kind: str) -> int:
    """Bytes of a step, at its peak."""
    module, x = make(what, name, kind)
    step_of(module, x[:1, :4])()
    if STATUS.exists():
        RESET.write_text("5")
    before = resident()
    step_of(module, x)()
    return peak() - before


def table(results: dict[str, Any]) -> str:
    """In Markdown."""
    lines = ["| training step | | ms (quartiles) | memory, MB | parameters |", "| --- | --- | --- | --- | --- |"]
    for row in results["rows"]:
        ours = row["what"] == "attention"
        kind = {"para": "ParaAttention", "multihead": "nn.MultiheadAttention"}[row["kind"]] if ours else row["kind"]
        low, median, high = (1000 * row[name] for name in ("low", "seconds", "high"))
        lines.append(
            f"| {row['name']} | {kind} | {median:.0f} ({low:.0f} to {high:.0f}) | {row['memory'] / 1e6:.0f} | "
            f"{row['parameters']:,} |"
        )
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="do", required=True)
    for name in ("run", "table"):
        parts.add_parser(name).add_argument("path", type=Path)
    inside = parts.add_parser("memory")
    for name in ("what", "name", "kind"):
        inside.add_argument(name)
    arguments = parser.parse_args()
    if arguments.do == "run":
        run(arguments.path)
    elif arguments.do == "table":
        print(table(json.loads(arguments.path.read_text())))
    else:
        print(memory(arguments.what, arguments.name, arguments.kind))


if __name__ == "__main__":
    main()
