"""The data of the paper's experiments, real and simulated, as numpy arrays.

A loader takes its files from the directory that `PARALLELRNN_DATA` names, from earlier downloads, or from the web
(`parallelrnn.lab.datasets.files`); its errors say which file to put where. `load_table` returns a `Table` of series,
with windows as in Informer; the others return `Splits` into `Examples`. `read_ts` and `read_arff` read further files of
the UEA and UCR archive.
"""

from parallelrnn.lab.datasets.cifar10 import load_cifar10
from parallelrnn.lab.datasets.ett_wth import Table, load_table
from parallelrnn.lab.datasets.files import DatasetError, Source, locate
from parallelrnn.lab.datasets.mnist import load_mnist
from parallelrnn.lab.datasets.simulations import (
    adding_problem,
    feature_simulation,
    tradeoff_simulation,
    tradeoff_weights,
)
from parallelrnn.lab.datasets.splits import Examples, Splits, TrainingSplits
from parallelrnn.lab.datasets.uea_ucr import load_eigenworms, load_stand_walk_jump, load_worms, read_arff, read_ts

__all__ = [
    "DatasetError",
    "Examples",
    "Source",
    "Splits",
    "Table",
    "TrainingSplits",
    "adding_problem",
    "feature_simulation",
    "load_cifar10",
    "load_eigenworms",
    "load_mnist",
    "load_stand_walk_jump",
    "load_table",
    "load_worms",
    "locate",
    "read_arff",
    "read_ts",
    "tradeoff_simulation",
    "tradeoff_weights",
]
