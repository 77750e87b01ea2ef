"""What is measured: the shapes, the cells and the kinds of work."""

from __future__ import annotations

from dataclasses import dataclass, replace

CELLS = ("RNN", "LSTM", "GRU")
KINDS = ("forward", "training")
PARTS = ("cases", "memory", "scaling")


@dataclass(frozen=True)
class Case:
    """A stack of layers and the batch of sequences that it is given."""

    name: str
    length: int  # T
    input_size: int
    hidden_size: int  # d
    batch: int  # B
    num_layers: int = 1
    block_size: int = 2

    @property
    def rows(self) -> int:
        """(step, batch entry) pairs."""
        return self.length * self.batch


CASES = {
    case.name: case
    for case in (
        Case("S1", 128, 1, 128, 128),
        Case("S2", 784, 1, 128, 128, num_layers=2),
        Case("S3", 336, 7, 128, 32, num_layers=2),
        Case("S3-96", 96, 7, 128, 32, num_layers=2),
        Case("S4", 17984, 6, 32, 8, num_layers=2),
    )
}
QUICK = ("S1", "S3")


# How time grows with each size, around S1: Figure 2(c) of arXiv 2605.02692, right.
SWEEPS: dict[str, tuple[int, ...]] = {
    "length": (32, 64, 128, 256, 512, 1024),
    "hidden_size": (32, 64, 128, 256, 512),
    "batch": (8, 32, 128, 512),
    "block_size": (1, 2, 4, 8, 16, 32),
}


def scaled(size: str, value: int) -> Case:
    """S1 with one of its sizes changed; named after its sizes, so that S1 itself is one case in all sweeps."""
    case = replace(CASES["S1"], **{size: value})  # type: ignore[arg-type]
    name = f"T={case.length} d={case.hidden_size} B={case.batch} block_size={case.block_size}"
    return replace(case, name=name)


def scaling_cases() -> list[Case]:
    """The cases of all sweeps, each once."""
    return list(dict.fromkeys(scaled(size, value) for size, values in SWEEPS.items() for value in values))
