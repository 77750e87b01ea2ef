"""Long sequences of motion: Section 6.4 of arXiv 2605.02692, its Table 1(e), on EigenWorms.

UCR Worms and StandWalkJump stand beside it under their own names: they are smaller, and no results on EigenWorms.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from parallelrnn.lab.datasets import load_eigenworms, load_stand_walk_jump, load_worms
from parallelrnn.lab.experiments.classification import ClassificationConfig, classify
from parallelrnn.lab.experiments.experiment import Experiment, ExperimentError, Outcome, Workspace
from parallelrnn.lab.experiments.models import MODELS

LOADERS = {"EigenWorms": load_eigenworms, "Worms": load_worms, "StandWalkJump": load_stand_walk_jump}


@dataclass(frozen=True)
class WormsConfig(ClassificationConfig):
    """Two layers of width 32; transformers of four layers, all recurrent, their sequences in 18 segments.

    The paper gives no batch size, and no rate but that of images: sixteen sequences, and that one.
    """

    dataset: str = "EigenWorms"
    hidden_size: int = 32
    batch_size: int = 16
    max_epochs: int = 100
    transformer_layers: int = 4
    num_segments: int = 18
    all_recurrent: bool = True


def cells() -> list[WormsConfig]:
    """All models, on the paper's data and on what stands beside them."""
    return [WormsConfig(model, dataset=name) for name in LOADERS for model in MODELS]


def run(config: WormsConfig, seed: int, workspace: Workspace) -> Outcome:
    """Re-split 70/15/15 by the seed, standardised by the training part."""
    if config.dataset not in LOADERS:
        raise ExperimentError(f"dataset is one of {', '.join(LOADERS)}, got {config.dataset!r}")
    splits = LOADERS[config.dataset](seed)
    seen = torch.from_numpy(splits.train.inputs).flatten(0, 1)
    mean, deviation = seen.mean(0), seen.std(0)

    def prepare(sequences: Tensor) -> Tensor:
        return (sequences - mean) / deviation

    return classify(config, splits, prepare, seed, workspace)


EXPERIMENT = Experiment("worms", "Table 1(e): EigenWorms, and UCR Worms beside it", WormsConfig, cells, run, 10)
