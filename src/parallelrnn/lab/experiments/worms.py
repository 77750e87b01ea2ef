"""Long sequences of motion: Section 6.4 of arXiv 2605.02692, its Table 1(e), on EigenWorms.

UCR Worms and StandWalkJump are smaller data sets. They have their own names: results on them are not on EigenWorms.
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


@dataclass(frozen=True, kw_only=True)
class WormsConfig(ClassificationConfig):
    """Two layers of width 32; transformers of four layers, all recurrent, with 18 segments.

    The paper gives no batch size, here 16, and no learning rate but that of images, which is used here too.
    """

    dataset: str = "EigenWorms"
    hidden_size: int = 32
    batch_size: int = 16
    max_epochs: int = 100
    transformer_layers: int = 4
    num_segments: int = 18
    all_recurrent: bool = True


def cells() -> list[WormsConfig]:
    """Return all models on all data sets."""
    return [WormsConfig(model=model, dataset=name) for name in LOADERS for model in MODELS]


def run(config: WormsConfig, seed: int, workspace: Workspace) -> Outcome:
    """Run a configuration; the seed splits the data 70/15/15, and the training part standardises them."""
    if config.dataset not in LOADERS:
        raise ExperimentError(f"there is no dataset {config.dataset!r}", hint=f"choose from {', '.join(LOADERS)}")
    splits = LOADERS[config.dataset](seed)
    steps = torch.from_numpy(splits.train.inputs).flatten(0, 1)
    mean, deviation = steps.mean(0), steps.std(0)

    def prepare(sequences: Tensor) -> Tensor:
        return (sequences - mean) / deviation

    return classify(config, splits, prepare, seed, workspace)


EXPERIMENT = Experiment(name="worms", config=WormsConfig, cells=cells, run=run, replicates=10)
