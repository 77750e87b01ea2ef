"""The shapes, cells, kinds of work and contenders that `parallelrnn bench` compares; importing this needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

CELLS = ("RNN", "LSTM", "GRU")
KINDS = ("forward", "training")
PARTS = ("cases", "memory", "scaling")
# In the order of a round, with their names in tables.
CONTENDERS = {"torch": "torch.nn", "blocks": "ours", "aggregated": "ours, linear", "loop": "plain loop"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A stack of layers and the batch of sequences that it processes."""

    name: str
    length: int  # T
    input_size: int
    hidden_size: int  # d
    batch: int  # B
    num_layers: int = 1
    block_size: int = 2

    @property
    def rows(self) -> int:
        """The number of (step, sequence) pairs."""
        return self.length * self.batch


_S1 = Case(name="S1", length=128, input_size=1, hidden_size=128, batch=128)
_S3 = Case(name="S3", length=336, input_size=7, hidden_size=128, batch=32, num_layers=2)
_S4 = Case(name="S4", length=17984, input_size=6, hidden_size=32, batch=8, num_layers=2)
CASES = {
    case.name: case
    for case in (
        _S1,
        replace(_S1, name="S2", length=784, num_layers=2),
        _S3,
        replace(_S3, name="S3-96", length=96),
        _S4,
    )
}
QUICK = ("S1", "S3")

# How time grows with each size, around S1: the right of Figure 2(c) of arXiv 2605.02692.
SWEEPS: dict[str, tuple[int, ...]] = {
    "length": (32, 64, 128, 256, 512, 1024),
    "hidden_size": (32, 64, 128, 256, 512),
    "batch": (8, 32, 128, 512),
    "block_size": (1, 2, 4, 8, 16, 32),
}


def scaled(size: str, value: int) -> Case:
    """Return S1 with one size changed, named after its sizes, so that S1 itself is one case in all sweeps."""
    case = replace(CASES["S1"], **{size: value})  # type: ignore[arg-type]
    name = f"T={case.length} d={case.hidden_size} B={case.batch} block_size={case.block_size}"
    return replace(case, name=name)


def scaling_cases() -> list[Case]:
    """Return the cases of all sweeps, each once."""
    return list(dict.fromkeys(scaled(size, value) for size, values in SWEEPS.items() for value in values))


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Choices of `parallelrnn bench`: measurements and their time."""

    cases: tuple[str, ...] = tuple(CASES)
    cells: tuple[str, ...] = CELLS
    kinds: tuple[str, ...] = KINDS
    parts: tuple[str, ...] = PARTS
    threads: int = 1
    rounds: int = 15
    budget: float = 60.0  # seconds for each case, cell and kind
    command: str = ""  # as typed
