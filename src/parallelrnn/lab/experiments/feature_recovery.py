"""Whether training finds the true recurrent matrix and its features: Figures A.1 and A.2 of arXiv 2605.02692.

A dense RNN generates the data, and a dense RNN of the same form learns them, with its last state as output; the matrix
that generated the data then is the only solution. The paper does not say what the input is: independent N(0, 1) here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.interpret import FeatureTracker
from parallelrnn.lab.datasets import feature_simulation
from parallelrnn.lab.experiments.experiment import Experiment, ExperimentError, Outcome, Workspace
from parallelrnn.lab.experiments.supervised import fit
from parallelrnn.lab.experiments.tradeoff import as_subset, data_checksum
from parallelrnn.nn import initialize, recurrent_blocks

TRUTHS = ("normal", "mixed")
INITIAL = {"uniform": initialize.uniform_, "identity": initialize.identity_, "mixed": initialize.mixed_order_}


@dataclass(frozen=True, kw_only=True)
class FeatureRecoveryConfig:
    """One initialisation, on data of one kind."""

    truth: str  # normal, or mixed: R-4 and C-2 features
    initial: str
    hidden_size: int = 128
    length: int = 128
    train: int = 50_000
    validation: int = 10_000
    batch_size: int = 128
    learning_rate: float = 1e-4
    max_epochs: int = 100
    patience: int = 2
    minimum_rate: float = 1e-6
    epoch_steps: int | None = None


class LastState(nn.Module):
    """An RNN without biases, whose last state is its output."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.layer = nn.RNN(1, hidden_size, bias=False, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map inputs (B, T, 1) to last states (B, d)."""
        last: Tensor = self.layer(inputs)[1][-1]
        return last


def cells() -> list[FeatureRecoveryConfig]:
    """Return three initialisations for Figure A.1, and the same for Figure A.2, whose initialisation is not given."""
    return [FeatureRecoveryConfig(truth=truth, initial=initial) for truth in TRUTHS for initial in INITIAL]


def run(config: FeatureRecoveryConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration; the result has errors, the distance to the true matrix and features of each epoch."""
    for name, choices in (("truth", TRUTHS), ("initial", tuple(INITIAL))):
        if getattr(config, name) not in choices:
            hint = f"choose from {', '.join(choices)}"
            raise ExperimentError(f"there is no {name} {getattr(config, name)!r}", hint=hint)
    torch.manual_seed(seed)
    mixed = next(recurrent_blocks(initialize.mixed_order_(nn.RNN(1, config.hidden_size)))).matrix.detach().numpy()
    splits, recurrent, _ = feature_simulation(
        seed,
        recurrent=mixed if config.truth == "mixed" else None,
        hidden_size=config.hidden_size,
        length=config.length,
        sizes=(config.train, config.validation),
    )
    network = LastState(config.hidden_size)
    INITIAL[config.initial](network.layer)
    tracker = FeatureTracker(network, [recurrent])

    def watch(network: nn.Module) -> dict[str, Any]:
        reading = asdict(tracker.record())
        return {name: reading[name] for name in ("counts", "modulus", "angle", "distance")}

    training, validation = as_subset(splits.train), as_subset(splits.validation)
    data = data_checksum(splits.train)
    options: dict[str, Any] = {"keep_best": False, "fingerprint": data, "observe": watch}
    progress = fit(network, training, validation, config, seed, workspace, **options)
    metrics = {
        "validation": progress.errors[-1],
        "distance": progress.notes[-1]["distance"],
        "first_distance": progress.notes[0]["distance"],
        "epochs": progress.epoch,
        "seconds": progress.seconds,
    }
    return Outcome(
        metrics, progress.history, {"features": progress.notes, "true": _true_features(recurrent), "data": data}
    )


def _true_features(matrix: Any) -> dict[str, Any]:
    model = nn.RNN(1, len(matrix))
    next(recurrent_blocks(model)).matrix.detach().copy_(torch.from_numpy(matrix))
    reading = asdict(FeatureTracker(model).record())
    return {name: reading[name] for name in ("counts", "modulus", "angle")}


EXPERIMENT = Experiment(name="feature-recovery", config=FeatureRecoveryConfig, cells=cells, run=run, replicates=1)
