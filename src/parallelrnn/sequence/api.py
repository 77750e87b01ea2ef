"""SequenceClassifier and SequenceRegressor: scikit-learn estimators for sequences."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from parallelrnn.errors import ArgumentError, ArgumentTypeError, check_choice, check_integer, check_number
from parallelrnn.io import check_agreement, load_model, save_model
from parallelrnn.nn.encoder import CELLS, check_block_size
from parallelrnn.sequence.data import (
    NORMALIZATIONS,
    ChannelScaler,
    RaggedArray,
    SequenceDataset,
    is_table,
    nonzero_deviation,
    read_sequences,
)
from parallelrnn.sequence.model import READOUTS, SequenceConfig, SequenceExplanation, SequenceNetwork, load_network
from parallelrnn.training.checkpoint import Checkpoint, fingerprint
from parallelrnn.training.distributed import is_first
from parallelrnn.training.losses import LOSSES, cross_entropy, pointwise
from parallelrnn.training.optimizers import Exponential
from parallelrnn.training.trainer import EVALUATION_BATCH, Loss, Trainer, TrainerConfig, fork_rng, make_fabric

if TYPE_CHECKING:
    from typing_extensions import Self

Array = NDArray[np.float64]
_VERSION = 2  # of saved models; 1 is that of version 0.1.0
_SAMPLED = 512  # training sequences by which a model is explained
_READS = 100  # of a typical sequence, by a cell that is not linear
_MIN_VALIDATION = 10  # sequences that can tell when to stop
_FINAL_RATE = 0.01  # of the learning rate, after all epochs
_STEPS_AT_ONCE = 1 << 20  # of all sequences that go through a network together
_INTEGERS = {"block_size": 1, "hidden_size": 1, "num_layers": 1, "devices": 1}  # arguments, and their minimum


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the classifier and the regressor."""

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
        """Return recurrence features with their shares, and what each block adds to the outputs.

        Over some sequences X, or over a sample of the training sequences.
        """
        check_is_fitted(self, "_network")
        states = self._sample if X is None else self._states(X)
        scale, level = torch.from_numpy(self._target_scale), torch.from_numpy(self._target_level)
        return SequenceExplanation.of(self._network, states, scale, level)

    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator into a directory, as one safetensors file; of several processes, the first does.

        A path that ends in `.safetensors` names the file itself.
        """
        check_is_fitted(self, "_network")
        arguments = self.get_params()
        if isinstance(arguments["random_state"], np.random.RandomState):
            arguments["random_state"] = None  # it is used up
        metadata = {
            "arguments": {name: _to_json(name, value) for name, value in arguments.items()},
            "config": dataclasses.asdict(self._network.config),
            "normalize": self._scaler.how,
            "history": self._history,
            "fitted": self._fitted_attributes(),
        }
        tensors = {f"network.{name}": tensor.float() for name, tensor in self._network.state_dict().items()}
        tensors |= {
            "scale.mean": torch.from_numpy(self._scaler.mean),
            "scale.deviation": torch.from_numpy(self._scaler.deviation),
            "target.scale": torch.from_numpy(self._target_scale),
            "target.level": torch.from_numpy(self._target_level),
            "sample": self._sample,
        }
        if not is_first():
            return Path(path)
        return save_model(path, f"parallelrnn {type(self).__name__}", _VERSION, metadata, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote, in this release or in version 0.1.0."""

        def build(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
            arguments: dict[str, Any] = {
                name: dict(value["pairs"]) if isinstance(value, dict) else value
                for name, value in metadata["arguments"].items()
            }
            arguments["epoch_steps"] = tuple(arguments["epoch_steps"])
            estimator = cls(**arguments)
            estimator._check()
            check_choice("normalize", metadata["normalize"], NORMALIZATIONS)
            network = load_network(SequenceConfig(**metadata["config"]), tensors)
            estimator._network = network.double().eval()
            scale = tensors["scale.mean"].numpy(), tensors["scale.deviation"].numpy()
            estimator._scaler = ChannelScaler(metadata["normalize"], *scale)
            estimator._target_scale = tensors["target.scale"].numpy()
            estimator._target_level = tensors["target.level"].numpy()
            estimator._sample, estimator._history = tensors["sample"], metadata["history"]
            estimator._set_fitted_attributes(metadata["fitted"])
            return estimator

        estimator: Self = load_model(path, f"parallelrnn {cls.__name__}", _VERSION, build, _upgrade)
        return estimator

    def _fitted_attributes(self) -> dict[str, Any]:
        """Return the attributes that scikit-learn knows, as JSON."""
        names = getattr(self, "feature_names_in_", None)
        return {
            "channels": self.n_channels_,
            "steps": getattr(self, "n_features_in_", None),
            "names": None if names is None else names.tolist(),
        }

    def _set_fitted_attributes(self, fitted: dict[str, Any]) -> None:
        self.n_channels_ = int(fitted["channels"])
        if fitted["steps"] is not None:
            self.n_features_in_ = int(fitted["steps"])
        if fitted["names"] is not None:
            self.feature_names_in_ = np.array(fitted["names"], dtype=object)

    def _read(self, X: Any, reset: bool) -> RaggedArray:  # noqa: N803
        """Read data as users have them: for a fit, or in the same form as in the last fit."""
        if is_table(X):
            table = validate_data(self, X, reset=reset, dtype=np.float64)
            data = RaggedArray.from_array(table[:, :, None])
        else:
            data = read_sequences(X)
            if reset:  # as if there had never been a table
                for name in ("n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(name, None)
        if not reset and data.channels != self.n_channels_:
            problem = f"X has {data.channels} channels, but the training sequences had {self.n_channels_}"
            raise ArgumentError(problem, hint="give a single sequence (T, C) as X[None]")
        return data

    def _fit(
        self,
        data: RaggedArray,
        target: Tensor,
        target_scale: Array,
        target_level: Array,
        loss: Loss,
        checkpoint: str | Path | None,
        resume: bool,
        classes: NDArray[np.int64] | None = None,
        weight: Tensor | None = None,
    ) -> None:
        config = self._check()
        if resume and checkpoint is None:
            raise ArgumentError("there is no checkpoint to resume from", argument="resume", hint="give {checkpoint}")
        saved = None
        if checkpoint is not None:
            if not isinstance(self.random_state, Integral):
                expected = "an integer with checkpoint=, to resume with the same validation sequences"
                raise ArgumentError(argument="random_state", expected=expected, got=self.random_state)
            arguments = {key: value for key, value in self.get_params().items() if key not in ("progress", "max_time")}
            digest = fingerprint(arguments, (data.values, data.lengths, target.numpy()))
            saved = Checkpoint(directory=Path(checkpoint), fingerprint=digest, resume=resume)
        random = check_random_state(self.random_state)
        seed = int(random.randint(np.iinfo(np.int32).max))
        training, validation = _split(len(data), self.validation_fraction, classes, random)
        scaler = ChannelScaler.fit(self.normalize, data)
        steps = int(np.median(data.lengths))
        segment = int(self.segment or (1 if self.cell == "linear" else max(1, steps // _READS)))
        dataset = SequenceDataset(data, scaler, segment, target, weight)
        with fork_rng(seed, self.accelerator):
            network = SequenceNetwork(
                SequenceConfig(
                    channels=data.channels,
                    outputs=len(target_level),
                    cell=self.cell,
                    bidirectional=bool(self.bidirectional),
                    segment=segment,
                    readout=self.readout,
                    dropout=float(self.dropout),
                    steps=steps,
                    **{name: int(getattr(self, name)) for name in ("block_size", "hidden_size", "num_layers")},
                )
            )
            trainer = Trainer(
                network,
                dataset,
                training,
                validation,
                loss,
                config,
                seed,
                make_fabric(self.accelerator, int(self.devices), self.precision),
                checkpoint=saved,
                evaluation_batch=_batch_size(data),
            )
            trainer.resume()
            network = trainer.run(show_progress=self.progress).double()  # so that no batch changes a prediction
        rows = torch.linspace(0, len(data) - 1, min(len(data), _SAMPLED)).round().long()
        self._network, self._scaler, self._history = network, scaler, trainer.progress.history
        self._target_scale, self._target_level = target_scale, target_level
        self._sample = torch.cat([_state(network, dataset, part) for part in rows.split(_batch_size(data))])
        self.n_channels_ = data.channels

    def _check(self) -> TrainerConfig:
        """Raise if an argument is wrong, and return those of the training."""
        for name, minimum in _INTEGERS.items():
            check_integer(name, getattr(self, name), minimum)
        if self.segment is not None:
            check_integer("segment", self.segment, 1)
        check_choice("cell", self.cell, CELLS)
        check_choice("readout", self.readout, READOUTS)
        check_choice("normalize", self.normalize, NORMALIZATIONS)
        check_block_size(self.hidden_size, self.block_size)
        for name in ("dropout", "validation_fraction"):
            check_number(name, getattr(self, name), "a number of at least 0 and below 1", lambda part: 0 <= part < 1)
        check_integer("max_epochs", self.max_epochs, 1)
        return TrainerConfig(
            learning_rate=self.learning_rate,
            schedule=Exponential(_FINAL_RATE ** (1 / self.max_epochs)),
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            epoch_steps=self.epoch_steps,
            patience=self.patience,
            gradient_clip=self.gradient_clip,
            max_time=self.max_time,
        )

    def _states(self, X: Any) -> Tensor:  # noqa: N803
        """Return what the linear map gets for some sequences, (N, d)."""
        check_is_fitted(self, "_network")
        data = self._read(X, reset=False)
        dataset = SequenceDataset(data, self._scaler, self._network.config.segment)
        rows = torch.arange(len(data)).split(_batch_size(data))
        return torch.cat([_state(self._network, dataset, part) for part in rows])

    @torch.no_grad()
    def _outputs(self, X: Any) -> Array:  # noqa: N803
        """Return the outputs of the network in the units of the target, (N, outputs)."""
        states = self._states(X)
        outputs = self._network.layer.aggregate(states).numpy()  # type: ignore[misc]
        in_units: Array = outputs * self._target_scale + self._target_level
        return in_units

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn should know."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceRegressor(RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """Values of sequences, by recurrent blocks that can be read; a scikit-learn estimator.

    Sequences X are an array (N, T, C); a list of arrays (T,) or (T, C) of any lengths; or a table whose rows are
    sequences and whose columns are time steps. The states of the blocks, their mean over a sequence or the last, go
    through one linear map: a value is a sum over blocks.

    Parameters
    ----------
    cell
        "linear", "rnn", "lstm" or "gru"; or "brt", a Block-Recurrent Transformer, whose outputs are no sum over blocks.
    block_size, hidden_size, num_layers, bidirectional
        Of the blocks; one block of all units (`block_size=hidden_size`) is the dense layer of `torch.nn`.
    segment
        Steps that the cell reads at once; by default one, or as many as make a hundred of a typical long sequence.
    readout
        What the linear map sees of the states: their "mean" over the sequence, or the "last".
    normalize
        "channel": by mean and deviation of each channel over the training sequences; "sequence": each sequence by its
        own; or None.
    loss
        "mse", "mae" or "huber", of values scaled to unit variance.
    learning_rate, batch_size, max_epochs, epoch_steps, patience, gradient_clip, dropout, max_time
        Of the training by Adam, whose learning rate falls from epoch to epoch, until the validation error has not
        fallen for `patience` epochs, or `max_time` seconds are over. An epoch sees all sequences once, but has no fewer
        and no more than `epoch_steps` steps.
    validation_fraction
        Fraction of the sequences that is left out of training and tells when to stop; where that would be fewer than
        ten, all sequences are trained on, and their error tells.
    random_state
        Seed of everything random.
    accelerator, devices, precision
        As in Lightning Fabric.
    progress
        Whether to show a progress bar; by default if there is a terminal.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 30, 1))
    >>> y = X[:, :, 0].mean(1)
    >>> regressor = SequenceRegressor(random_state=0).fit(X, y)
    >>> bool(regressor.score(X, y) > 0.95)
    True
    """

    loss: str = "mse"

    def fit(self, X: Any, y: Any, *, checkpoint: str | Path | None = None, resume: bool = False) -> SequenceRegressor:  # noqa: N803
        """Fit to sequences and the value, or the values, of each.

        The state of the training is saved in the directory `checkpoint`, if given; `resume` continues from there.
        """
        check_choice("loss", self.loss, LOSSES)
        data = self._read(X, reset=True)
        if y is None:
            problem = "SequenceRegressor requires y to be passed, but the target y is None"
            raise ArgumentError(problem, hint="give each sequence a value")
        values: Array = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if values.ndim not in (1, 2):
            raise ArgumentError(argument="y", expected="values (N,) or (N, outputs)", got=values.shape)
        check_consistent_length(data.lengths, values)
        table = values.reshape(len(values), -1)
        scale, level = nonzero_deviation(table.std(0), table), table.mean(0)
        target = torch.from_numpy((table - level) / scale).float()
        loss = pointwise(self.loss)
        self._fit(
            data, target, scale, level, lambda output, *known: loss(output[..., None], *known), checkpoint, resume
        )
        self._is_one_value = values.ndim == 1
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """Return the value of each sequence, (N,), or its values (N, outputs)."""
        values = self._outputs(X)
        return values[:, 0] if self._is_one_value else values

    def _fitted_attributes(self) -> dict[str, Any]:
        return {**super()._fitted_attributes(), "one_value": self._is_one_value}

    def _set_fitted_attributes(self, fitted: dict[str, Any]) -> None:
        super()._set_fitted_attributes(fitted)
        self._is_one_value = bool(fitted["one_value"])

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn should know."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class SequenceClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """Classes of sequences, by recurrent blocks that can be read; a scikit-learn estimator.

    Sequences and parameters are those of `SequenceRegressor`, except for the loss. The log-odds of each class are a sum
    over blocks.

    Parameters
    ----------
    class_weight
        How much the sequences of each class count in training and validation: a dictionary from classes to weights,
        "balanced" for equal totals of all classes, or None for equal weights of all sequences.

    Examples
    --------
    >>> import numpy as np
    >>> steps = np.arange(40)
    >>> slow, fast = (np.sin(steps / period + np.arange(50)[:, None]) for period in (4, 1))
    >>> X, y = np.concatenate([slow, fast]), ["slow"] * 50 + ["fast"] * 50
    >>> classifier = SequenceClassifier(random_state=0).fit(X, y)
    >>> classifier.predict(X[:1]).item()
    'slow'
    """

    class_weight: Any = None

    def fit(self, X: Any, y: Any, *, checkpoint: str | Path | None = None, resume: bool = False) -> SequenceClassifier:  # noqa: N803
        """Fit to sequences and the class of each.

        The state of the training is saved in the directory `checkpoint`, if given; `resume` continues from there.
        """
        data = self._read(X, reset=True)
        if y is None:
            problem = "SequenceClassifier requires y to be passed, but the target y is None"
            raise ArgumentError(problem, hint="give each sequence a class")
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        check_consistent_length(data.lengths, labels)
        weights = compute_sample_weight(self.class_weight, labels)
        if not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
            expected = "finite weights that are not negative and not all zero"
            raise ArgumentError(argument="class_weight", expected=expected, got=self.class_weight)
        classes, numbers = np.unique(labels, return_inverse=True)
        count = len(classes)
        self._fit(
            data,
            torch.from_numpy(numbers.astype(np.int64)),
            np.ones(count),
            np.zeros(count),
            cross_entropy,
            checkpoint,
            resume,
            classes=numbers,
            weight=torch.from_numpy(weights / weights.mean()).float(),
        )
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class of each sequence, (N,)."""
        best = self._outputs(X).argmax(1)
        classes: NDArray[Any] = self.classes_[best]
        return classes

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Return the probability of each class, (N, classes), in the order of `classes_`."""
        probabilities: Array = softmax(self._outputs(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> Array:  # noqa: N803
        """Return the logarithms of `predict_proba`."""
        logarithms: Array = log_softmax(self._outputs(X), axis=1)
        return logarithms

    def _fitted_attributes(self) -> dict[str, Any]:
        dtype = self.classes_.dtype
        classes = self.classes_.astype(str) if dtype.kind == "M" else self.classes_  # JSON has no dates
        kind = "O" if dtype.hasobject else dtype.str
        return {**super()._fitted_attributes(), "classes": classes.tolist(), "kind": kind}

    def _set_fitted_attributes(self, fitted: dict[str, Any]) -> None:
        super()._set_fitted_attributes(fitted)
        classes, dtype = fitted["classes"], np.dtype(fitted["kind"])
        longest = max((len(str(name)) for name in classes), default=0)
        if dtype.kind not in "biufUSOM" or dtype.itemsize > max(16, 4 * longest):  # no more memory than they fill
            raise ValueError(f"classes cannot be of dtype {dtype}")
        self.classes_ = np.array(classes, dtype=dtype)
        check_agreement({"classes": len(self.classes_) == self._network.config.outputs})


def _upgrade(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata of a model of version 0.1.0 under today's names."""
    return {**metadata, "config": metadata["architecture"], "fitted": metadata["seen"]}, tensors


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        value = [_to_json(name, item) for item in value]
    if isinstance(value, dict):  # JSON has no keys but strings
        return {"pairs": [[_to_json(name, key), _to_json(name, item)] for key, item in value.items()]}
    if not isinstance(value, str | int | float | bool | list | None):
        raise ArgumentTypeError(argument=name, expected="text, numbers, or a dictionary of these, to save", got=value)
    return value


@torch.no_grad()
def _state(network: SequenceNetwork, dataset: SequenceDataset, rows: Tensor) -> Tensor:
    batch = dataset.batch(rows)
    return network.eval().state(batch._replace(x=batch.x.double()))


def _batch_size(data: RaggedArray) -> int:
    """Return how many sequences may go through a network together."""
    return max(1, min(EVALUATION_BATCH, _STEPS_AT_ONCE // int(data.lengths.max())))


def _split(
    count: int, fraction: float, classes: NDArray[np.int64] | None, random: np.random.RandomState
) -> tuple[Tensor, Tensor]:
    """Return rows for training and for validation: all rows for both, where a fraction would be too few."""
    rows = torch.arange(count)
    if round(count * fraction) < _MIN_VALIDATION:
        return rows, rows
    order = random.permutation(count)
    if classes is not None:  # the same fraction of each class
        order = order[np.argsort(_rank_within(classes[order]), kind="stable")]
    size = min(count - 1, round(count * fraction))
    return torch.from_numpy(np.sort(order[size:])), torch.from_numpy(np.sort(order[:size]))


def _rank_within(classes: NDArray[np.int64]) -> Array:
    """Return the rank of each example among those of its class, from 0 to 1."""
    ranks = np.empty(len(classes))
    for number in np.unique(classes):
        rows = np.flatnonzero(classes == number)
        ranks[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    return ranks
