"""The data of the paper's experiments: real sets, each found, checked and split, and simulated ones.

A loader takes its files from the directory that `PARALLELRNN_DATA` names, from earlier downloads, or from the web
(`parallelrnn.lab.datasets.sources`), and says which file to put where if it cannot. Everything is a numpy array.
`load_table` gives a `Table` of series, with windows as in Informer; the others give `Splits` into `Examples`.
`read_ts` and `read_arff` read further files of the UEA and UCR archive.
"""

from parallelrnn.lab.datasets.adding import adding_problem
from parallelrnn.lab.datasets.archive import read_arff, read_ts
from parallelrnn.lab.datasets.cifar10 import load_cifar10
from parallelrnn.lab.datasets.examples import Examples, Splits, TrainingSplits
from parallelrnn.lab.datasets.mnist import load_mnist
from parallelrnn.lab.datasets.simulations import feature_simulation, tradeoff_simulation, tradeoff_weights
from parallelrnn.lab.datasets.sources import DatasetError, Source, locate
from parallelrnn.lab.datasets.tables import Table, load_table
from parallelrnn.lab.datasets.worms import load_eigenworms, load_stand_walk_jump, load_worms

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
