"""A fitted estimator of sequences as words and tensors, in a directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from parallelrnn.errors import check_choice
from parallelrnn.io import (
    check_agreement,
    check_counts,
    check_shapes,
    load_model,
    save_model,
    shapes_of,
    tensors_under,
)
from parallelrnn.nn.encoder import check_encoder
from parallelrnn.sequence.data import NORMALIZATIONS, Scale
from parallelrnn.sequence.learned import Learned, TargetScale
from parallelrnn.sequence.model import READOUTS, SequenceArchitecture, SequenceNetwork

if TYPE_CHECKING:
    from parallelrnn.sequence.base import SequenceEstimator

_VERSION = 2
_PAIRS = "pairs"  # what a dictionary is kept as
EstimatorT = TypeVar("EstimatorT", bound="SequenceEstimator")


def _kind(cls: type) -> str:
    return f"parallelrnn {cls.__name__}"


def save(estimator: SequenceEstimator, path: str | Path) -> Path:
    """Write an estimator; one that was there before is replaced at once."""
    learned = estimator._known()
    arguments = estimator.get_params()
    if isinstance(arguments["random_state"], np.random.RandomState):
        arguments["random_state"] = None  # it has done its part
    metadata = {
        "arguments": {name: _plain(name, value) for name, value in arguments.items()},
        "config": dataclasses.asdict(learned.network.made_of),
        "normalize": learned.scale.how,
        "history": list(learned.history),
        "fitted": estimator._seen(),
    }
    tensors = {f"network.{name}": tensor.detach().float() for name, tensor in learned.network.state_dict().items()}
    tensors |= {
        "scale.mean": torch.from_numpy(learned.scale.mean),
        "scale.deviation": torch.from_numpy(learned.scale.deviation),
        "target.scale": torch.from_numpy(learned.target.scale),
        "target.level": torch.from_numpy(learned.target.level),
        "sample": learned.sample,
    }
    return save_model(path, _kind(type(estimator)), _VERSION, metadata, tensors)


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, tuple):
        value = [_plain(name, one) for one in value]
    if isinstance(value, dict):  # JSON has no keys but strings
        return {_PAIRS: [[_plain(name, key), _plain(name, one)] for key, one in value.items()]}
    if not isinstance(value, str | int | float | bool | list | None):
        raise TypeError(f"{name}={value!r}, a {type(value).__name__}, cannot be saved")
    return value


def load(cls: type[EstimatorT], path: str | Path) -> EstimatorT:
    """Read an estimator."""

    def build(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> EstimatorT:
        arguments: dict[str, Any] = {
            name: dict(value[_PAIRS]) if isinstance(value, dict) else value
            for name, value in metadata["arguments"].items()
        }
        arguments["epoch_steps"] = tuple(arguments["epoch_steps"])
        estimator = cls(**arguments)
        estimator._check()
        estimator._learned = _learned(metadata, tensors)
        estimator._see(metadata["fitted"])
        return estimator

    return load_model(path, _kind(cls), _VERSION, build, _upgrade)


def _upgrade(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the metadata of a model of version 0.1.0 under today's names."""
    return {**metadata, "config": metadata["architecture"], "fitted": metadata["seen"]}, tensors


def _learned(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> Learned:
    made_of = SequenceArchitecture(**metadata["config"])
    _check_sizes(made_of, tensors)
    check_shapes({**shapes_of(lambda: SequenceNetwork(made_of), "network."), **_shapes(made_of, tensors)}, tensors)
    with torch.random.fork_rng(devices=[]):
        network = SequenceNetwork(made_of)
    network.load_state_dict(tensors_under("network.", tensors))
    check_choice("normalize", metadata["normalize"], NORMALIZATIONS)
    scale = Scale(metadata["normalize"], tensors["scale.mean"].numpy(), tensors["scale.deviation"].numpy())
    target = TargetScale(tensors["target.scale"].numpy(), tensors["target.level"].numpy())
    return Learned(network.double().eval(), scale, target, tensors["sample"], tuple(metadata["history"]))


def _check_sizes(made_of: SequenceArchitecture, tensors: dict[str, Tensor]) -> None:
    """Whether words and tensors agree, before memory is taken for what the words say."""
    check_counts(made_of)
    check_choice("readout", made_of.readout, READOUTS)
    outputs, width = tensors["network.layer.aggregate.weight"].shape
    directions = 2 if made_of.bidirectional else 1
    checks = {
        **check_encoder(made_of, "network.layer", tensors),
        "bidirectional": width == directions * made_of.hidden_size == tensors["sample"].shape[1],
        "channels": tensors["scale.mean"].shape == (made_of.channels,),
        "outputs": outputs == made_of.outputs == len(tensors["target.level"]),
    }
    check_agreement(checks)


def _shapes(made_of: SequenceArchitecture, tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Of all tensors but those of the network."""
    channels, outputs = (made_of.channels,), (made_of.outputs,)
    width = made_of.hidden_size * (2 if made_of.bidirectional else 1)
    scales: dict[str, tuple[int, ...]] = {"scale.mean": channels, "scale.deviation": channels}
    return {**scales, "target.scale": outputs, "target.level": outputs, "sample": (len(tensors["sample"]), width)}
