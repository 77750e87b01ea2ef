"""ParaAttention beside `nn.MultiheadAttention`, and Block-Recurrent Transformers of the paper's sizes, in training.

    pip install 'parallelrnn[cli]'
    python -m parallelrnn.lab.benchmarks.transformer             # minutes

First a gate: ParaAttention has to equal multi-head attention with the same block-diagonal maps, in outputs and
gradients. Then contenders take turns; medians and quartiles. The memory of a step, on top of the model and its data, is
measured in a process of its own. Everything is float32, with all threads of the machine.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn import BlockRecurrentTransformer, ParaAttention
from parallelrnn.lab.benchmarks.measuring import provenance, run_missing
from parallelrnn.lab.benchmarks.memory import in_fresh_process, peak_of
from parallelrnn.lab.benchmarks.timing import seconds_of, take_turns
from parallelrnn.lab.runs import RunStore
from parallelrnn.lab.tables import Table

NAME = "transformer"
ROUNDS = 9
KINDS = {"para": "ParaAttention", "multihead": "nn.MultiheadAttention"}
# Number of vectors, their size, heads of multi-head attention, and batch: the states of the paper's two settings.
ATTENTIONS = {"128 states of 512": (128, 512, 8, 32), "32 states of 256": (32, 256, 8, 100)}
# Supplement D.2: ETTh1 at horizon 24 (512 wide, 128 states, 2 segments) and permuted MNIST (256, 32 states, 2).
MODELS: dict[str, dict[str, int]] = {
    "forecasting": {"input_size": 7, "d_model": 512, "num_states": 128, "num_segments": 2, "steps": 96, "batch": 32},
    "pMNIST": {"input_size": 1, "d_model": 256, "num_states": 32, "num_segments": 2, "steps": 784, "batch": 16},
}


class _SelfAttention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return output


def make(name: str, kind: str) -> tuple[nn.Module, Tensor]:
    """Return a module and its input."""
    torch.manual_seed(0)
    if name in ATTENTIONS:
        count, size, heads, batch = ATTENTIONS[name]
        module: nn.Module = ParaAttention(size) if kind == "para" else _SelfAttention(size, heads)
        return module, torch.randn(batch, count, size)
    options: dict[str, Any] = dict(MODELS[name])
    steps, batch = options.pop("steps"), options.pop("batch")
    return BlockRecurrentTransformer(**options, attention=kind), torch.randn(batch, steps, options["input_size"])


def train_step(module: nn.Module, x: Tensor) -> None:
    """Run forward and backward."""
    module.zero_grad()
    output = module(x)
    (output[0] if isinstance(output, tuple) else output).square().mean().backward()


def check() -> None:
    """Raise unless both attentions compute the same from the same weights."""
    ours = ParaAttention(16, dtype=torch.float64)
    theirs = nn.MultiheadAttention(16, 8, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        maps = [torch.block_diag(*projection.matrices()) for projection in (ours.query, ours.key, ours.value)]
        theirs.in_proj_weight.copy_(torch.cat(maps))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(ours.aggregate.state_dict())
    x = torch.randn(3, 9, 16, dtype=torch.float64)
    attentions: list[Callable[[Tensor], Tensor]] = [ours, lambda x: theirs(x, x, x, need_weights=False)[0]]
    results = []
    for attention in attentions:
        leaf = x.clone().requires_grad_()
        output = attention(leaf)
        results.append((output, *torch.autograd.grad(output.square().sum(), leaf)))
    for our_tensor, their_tensor in zip(*results, strict=True):
        torch.testing.assert_close(our_tensor, their_tensor)


def measure(config: dict[str, Any], _: int) -> dict[str, Any]:
    """Time both kinds in turns."""
    contenders = {kind: make(config["name"], kind) for kind in KINDS}
    steps = {kind: seconds_of(partial(train_step, *contender)) for kind, contender in contenders.items()}
    rounds, disturbed = take_turns(steps, ROUNDS)
    result: dict[str, Any] = {"rounds": ROUNDS, "disturbed": disturbed}
    for kind in KINDS:
        low, median, high = statistics.quantiles([taken[kind] for taken in rounds], n=4)
        result[kind] = {
            "seconds": median,
            "low": low,
            "high": high,
            "memory": in_fresh_process(measure_memory, config["name"], kind),
            "parameters": sum(parameter.numel() for parameter in contenders[kind][0].parameters()),
        }
    return result


def measure_memory(name: str, kind: str) -> int:
    """Return the bytes of a training step at its peak."""
    module, x = make(name, kind)
    train_step(module, x[:1, :4])
    return peak_of(partial(train_step, module, x))


def run(results: Path = Path("results/benchmarks")) -> None:
    """Measure what the results do not hold yet."""
    check()
    jobs = [({"name": name}, 0) for name in (*ATTENTIONS, *MODELS)]
    run_missing(RunStore(results), NAME, jobs, measure, provenance(torch.get_num_threads()))


def table(results: Path) -> Table:
    """Return times, memory and parameters of training steps."""
    by_name = {run.config["name"]: run.result for run in RunStore(results / "benchmarks").load(NAME)}
    rows = []
    for name, kind in ((name, kind) for name in (*ATTENTIONS, *MODELS) if name in by_name for kind in KINDS):
        step = by_name[name][kind]
        low, median, high = (f"{1000 * step[quartile]:.0f}" for quartile in ("low", "seconds", "high"))
        label = KINDS[kind] if name in ATTENTIONS else kind
        rows.append(
            [name, label, f"{median} ({low} to {high})", f"{step['memory'] / 1e6:.0f}", f"{step['parameters']:,}"]
        )
    return Table(["training step", "", "ms (quartiles)", "memory, MB", "parameters"], rows)


if __name__ == "__main__":
    import typer

    typer.run(run)
