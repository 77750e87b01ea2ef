"""All experiments by name, in the order of the paper; each is imported when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from parallelrnn.lab.experiments.experiment import Experiment

TITLES = {  # what of the paper an experiment is
    "tradeoff": "Figures 2(c) and D.1, Table S.2: test error by block size",
    "speed": "Figure 2(c) and Table S.3: time by block size",
    "forecasting": "Tables 1(a) and S.4, Figures 1(a) and 1(b): forecasts, and features of the trained models",
    "pmnist": "Table 1(b): permuted MNIST",
    "pixel-cifar": "Table 1(c): pixel-by-pixel CIFAR-10",
    "noise-padded-cifar": "Table 1(d): noise-padded CIFAR-10",
    "worms": "Table 1(e): EigenWorms (also UCR Worms and StandWalkJump, reported separately)",
    "feature-evolution": "Figure 3: feature types during training, from three initialisations",
    "feature-recovery": "Figures A.1 and A.2: whether training finds the matrix that made the data",
    "adding": "Figures D.2 to D.5: the adding problem",
}


class _Experiments(Mapping[str, Experiment]):
    def __getitem__(self, name: str) -> Experiment:
        if name not in TITLES:
            raise KeyError(name)
        module = importlib.import_module(f"parallelrnn.lab.experiments.{name.replace('-', '_')}")
        experiment: Experiment = module.EXPERIMENT
        return experiment

    def __iter__(self) -> Iterator[str]:
        return iter(TITLES)

    def __len__(self) -> int:
        return len(TITLES)


EXPERIMENTS: Mapping[str, Experiment] = _Experiments()
