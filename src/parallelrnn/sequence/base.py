"""What `SequenceRegressor` and `SequenceClassifier` share: reading, training, explaining, saving."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from parallelrnn.errors import ArgumentError, check_choice, check_integer
from parallelrnn.nn.encoder import CELLS
from parallelrnn.sequence import store
from parallelrnn.sequence.data import NORMALIZATIONS, Ragged, Scale, SequenceSource, is_table, read_sequences
from parallelrnn.sequence.explanation import SequenceExplanation
from parallelrnn.sequence.learned import Learned, TargetScale
from parallelrnn.sequence.model import READOUTS, SequenceArchitecture, SequenceNetwork
from parallelrnn.training.arguments import check_blocks, check_training, epoch_limits
from parallelrnn.training.checkpoint import Checkpoint, fingerprint, train
from parallelrnn.training.distributed import is_first
from parallelrnn.training.trainer import TOGETHER, Loss, Recipe, Trainer, make_fabric, own_randomness

if TYPE_CHECKING:
    from typing_extensions import Self

_SAMPLED = 512  # sequences, by which a model is explained
_READS = 100  # of a typical sequence, by a cell that is not linear
_FEWEST = 10  # sequences that can tell when to stop
_LAST_RATE = 0.01  # of the learning rate, after all epochs
_STEPS_TOGETHER = 1 << 20  # of all sequences that go through a network at once
_WHOLE = {
    **dict.fromkeys(("block_size", "hidden_size", "num_layers", "batch_size", "max_epochs", "devices"), 1),
    "patience": 0,
}


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """A scikit-learn estimator on sequences."""

    cell: str = "gru"
    block_size: int = 2
    hidden_size: int = 64
    num_layers: int = 1
    bidirectional: bool = False
    segment: int | None = None
    readout: str = "mean"
    normalize: str | None = "channel"
    dropout: float = 0.0
    learning_rate: float = 1e-2
    batch_size: int = 32
    max_epochs: int = 100
    epoch_steps: tuple[int, int] = (16, 1000)
    patience: int = 20
    gradient_clip: float = 1.0
    validation_fraction: float = 0.1
    max_time: float | None = None
    random_state: Any = None
    accelerator: str = "cpu"
    devices: int = 1
    precision: str = "32-true"
    progress: bool | None = None

    def explain(self, X: Any = None) -> SequenceExplanation:  # noqa: N803
        """How the model remembers, with the share of each feature, and what each block adds to the outputs.

        Over some sequences X, or over a sample of those that it has learned from.
        """
        learned = self._known()
        states = learned.sample if X is None else self._states(X)
        scale, level = torch.from_numpy(learned.target.scale), torch.from_numpy(learned.target.level)
        return SequenceExplanation.of(learned.network.layer, states, learned.network.made_of.segment, scale, level)

    def save(self, path: str | Path) -> Path:
        """Write what was learned into a directory, as JSON and safetensors; of several processes, by the first."""
        self._known()
        return store.save(self, path) if is_first() else Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """An estimator from a directory that `save` wrote."""
        return store.load(cls, path)

    def _seen(self) -> dict[str, Any]:
        """What was learned from, in words."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "channels": self.n_channels_,
            "steps": getattr(self, "n_features_in_", None),
            "names": None if names is None else names.tolist(),
        }

    def _see(self, seen: dict[str, Any]) -> None:
        """As if that had been learned from."""
        self.n_channels_ = int(seen["channels"])
        if seen["steps"] is not None:
            self.n_features_in_ = int(seen["steps"])
        if seen["names"] is not None:
            self.feature_names_in_ = np.array(seen["names"], dtype=object)

    def _read(self, X: Any, reset: bool) -> Ragged:  # noqa: N803
        """Data as users have them; the first time, or in the same form as then."""
        if is_table(X):
            table = validate_data(self, X, reset=reset, dtype=np.float64)
            data = Ragged.of_array(table[:, :, None])
        else:
            data = read_sequences(X)
            if reset:  # as if there had never been a table
                for name in ("n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(name, None)
        if not reset and data.channels != self.n_channels_:
            raise ValueError(
                f"X has {data.channels} channels, and the sequences learned from had {self.n_channels_}; a single "
                "sequence (T, C) is given as X[None]"
            )
        return data

    def _learn(
        self,
        data: Ragged,
        target: Tensor,
        units: TargetScale,
        loss: Loss,
        classes: NDArray[np.int64] | None,
        checkpoint: str | Path | None,
        resume: bool,
        weight: Tensor | None = None,
    ) -> None:
        sizes = self._check()
        if checkpoint is not None and not isinstance(self.random_state, Integral):
            raise ValueError(
                f"a training that is kept needs a random_state that is a whole number, got {self.random_state!r}: it "
                "goes on with the same sequences for validation"
            )
        if resume and checkpoint is None:
            raise ValueError("resume=True goes on with a training that was kept; say where: checkpoint=directory")
        kept = None
        if checkpoint is not None:
            told = {name: value for name, value in self.get_params().items() if name not in ("progress", "max_time")}
            kept = Checkpoint(Path(checkpoint), fingerprint(told, (data.values, data.lengths, target.numpy())), resume)
        random = check_random_state(self.random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        training, validation = _split(len(data), self.validation_fraction, classes, random)
        scale = Scale.of(self.normalize, data)
        steps = int(np.median(data.lengths))
        segment = sizes.get("segment") or (1 if self.cell == "linear" else max(1, steps // _READS))
        source = SequenceSource(data, scale, segment, target, weight)
        with own_randomness(seed, self.accelerator):
            network = SequenceNetwork(
                SequenceArchitecture(
                    data.channels,
                    len(units.level),
                    self.cell,
                    sizes["block_size"],
                    sizes["hidden_size"],
                    sizes["num_layers"],
                    bool(self.bidirectional),
                    segment,
                    self.readout,
                    self.dropout,
                    steps,
                )
            )
            fabric = make_fabric(self.accelerator, sizes["devices"], self.precision)
            together = _together(data)
            trainer = Trainer(network, source, training, validation, loss, self._recipe(), seed, fabric, together)
            network = train(trainer, self.progress, kept).double()  # so that others beside it change no prediction
        rows = torch.linspace(0, len(data) - 1, min(len(data), _SAMPLED)).round().long()
        sample = torch.cat([_state(network, source, some) for some in rows.split(together)])
        self._learned = Learned(network, scale, units, sample, tuple(trainer.progress.history))
        self.n_channels_ = data.channels

    def _check(self) -> dict[str, int]:
        """Whole numbers as such, of whatever kind they are."""
        sizes = {name: check_integer(name, getattr(self, name), least) for name, least in _WHOLE.items()}
        if self.segment is not None:
            sizes["segment"] = check_integer("segment", self.segment, 1)
        check_choice("cell", self.cell, CELLS)
        check_choice("readout", self.readout, READOUTS)
        check_choice("normalize", self.normalize, NORMALIZATIONS)
        check_blocks(sizes["hidden_size"], sizes["block_size"])
        check_training(self.dropout, self.learning_rate, self.gradient_clip, self.max_time)
        epoch_limits(self.epoch_steps)
        fraction = self.validation_fraction
        if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 <= fraction < 1:
            raise ArgumentError(f"validation_fraction should be at least 0 and below 1, got {fraction!r}")
        return sizes

    def _recipe(self) -> Recipe:
        return Recipe(
            learning_rate=self.learning_rate,
            decay=_LAST_RATE ** (1 / self.max_epochs),
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            epoch_steps=epoch_limits(self.epoch_steps),
            patience=self.patience,
            gradient_clip=self.gradient_clip,
            max_time=self.max_time,
        )

    def _known(self) -> Learned:
        check_is_fitted(self, "_learned")
        learned: Learned = self._learned
        return learned

    def _states(self, X: Any) -> Tensor:  # noqa: N803
        """What the linear map gets for some sequences, (N, d)."""
        learned = self._known()
        data = self._read(X, reset=False)
        source = SequenceSource(data, learned.scale, learned.network.made_of.segment)
        rows = torch.arange(len(data)).split(_together(data))
        return torch.cat([_state(learned.network, source, some) for some in rows])

    @torch.no_grad()
    def _outputs(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Of the network, (N, outputs)."""
        learned = self._known()
        outputs = learned.network.layer.aggregate(self._states(X)).numpy()  # type: ignore[misc]
        in_units: NDArray[np.float64] = outputs * learned.target.scale + learned.target.level
        return in_units

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


@torch.no_grad()
def _state(network: SequenceNetwork, source: SequenceSource, rows: Tensor) -> Tensor:
    batch = source.batch(rows)
    return network.eval().state(batch._replace(x=batch.x.double()))


def _together(data: Ragged) -> int:
    """How many sequences may go through a network at once."""
    return max(1, min(TOGETHER, _STEPS_TOGETHER // int(data.lengths.max())))


def _split(
    count: int, fraction: float, classes: NDArray[np.int64] | None, random: np.random.RandomState
) -> tuple[Tensor, Tensor]:
    """Which sequences are trained on, and which tell when to stop: the same, where a fraction would be too few."""
    everything = torch.arange(count)
    if round(count * fraction) < _FEWEST:
        return everything, everything
    order = random.permutation(count)
    if classes is not None:  # from each class the same fraction
        order = order[np.argsort(_rank_within(classes[order]), kind="stable")]
    kept = min(count - 1, round(count * fraction))
    return torch.from_numpy(np.sort(order[kept:])), torch.from_numpy(np.sort(order[:kept]))


def _rank_within(classes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of each example, how far it comes among those of its class, from 0 to 1."""
    ranks = np.empty(len(classes))
    for one in np.unique(classes):
        rows = np.flatnonzero(classes == one)
        ranks[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return ranks
