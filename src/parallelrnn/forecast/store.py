"""A fitted forecaster as words and tensors, in a directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from parallelrnn.errors import check_choice, check_integer
from parallelrnn.forecast.conformal import LEVELS, Calibration
from parallelrnn.forecast.decomposition import Origins
from parallelrnn.forecast.fitted import Fitted
from parallelrnn.forecast.grid import Grid
from parallelrnn.forecast.model import DECODERS, NORMALIZATIONS, Architecture, Encoded, Network
from parallelrnn.forecast.options import Options
from parallelrnn.forecast.panel import Columns, Series
from parallelrnn.forecast.seasonality import Cycle
from parallelrnn.forecast.windows import CovariateScale, Profile
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

KIND, VERSION = "parallelrnn forecaster", 2
_LONGEST = 10_000_000  # steps of a look-back
_FURTHEST = 2**53  # steps from the origin: what floats can count
# Of what was asked for and what a network is made of; None: it was left to us.
_SAME = ("block_size", "cell", "decoder", "dropout", "hidden_size", "horizon", "lookback", "num_layers", "segment")
_BACKENDS = tuple(library.value for library in nw.Implementation)  # of tables


def save(path: str | Path, arguments: dict[str, Any], backend: str, fitted: Fitted) -> Path:
    """Write a forecaster; one that was there before is replaced at once."""
    words = {"arguments": arguments, "backend": backend, **_words(fitted)}
    return save_model(path, KIND, VERSION, words, _tensors(fitted))


def load(path: str | Path) -> tuple[Options, str, Fitted]:
    """Read a forecaster: what it was told, the kind of tables it makes, and what it has learned."""
    return load_model(path, KIND, VERSION, _whole)


def _whole(words: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[Options, str, Fitted]:
    options = Options(**words["arguments"])
    made_of = Architecture(**words["architecture"])
    _check_sizes(words, made_of, tensors)
    check_shapes(
        {**shapes_of(lambda: Network(made_of), "network."), **_shapes(words, made_of, tensors)},
        tensors,
    )
    fitted = _fitted(words, made_of, tensors)
    _check_words(options, fitted)
    return options, str(words["backend"]), fitted


def _check_sizes(words: dict[str, Any], made_of: Architecture, tensors: dict[str, Tensor]) -> None:
    """Whether words and tensors agree, before memory is taken for what the words say."""
    check_counts(made_of)
    check_choice("decoder", made_of.decoder, DECODERS)
    check_choice("normalize", made_of.normalize, NORMALIZATIONS)
    series = words["series"]
    count, _, horizon, channels = tensors["calibration.table"].shape
    has_waves = made_of.decoder == "waves"
    checks = {
        **check_encoder(made_of, "network.encoder", tensors),
        "horizon": horizon == made_of.horizon == words["arguments"]["horizon"],
        "channels": channels == made_of.channels,
        "series": len(series) > 0 and count == len(series) + 1,
        "sample": all(0 <= index < len(series) for index in words["sample"]["series"]),
        "num_waves": not has_waves or len(tensors["network.decoder.log_rate"]) == made_of.num_waves,
        "num_decays": not has_waves or len(tensors["network.decoder.decay_log_rate"]) == made_of.num_decays,
        "static": all(tensors[f"series.{index}.static"].shape == (made_of.static,) for index in range(len(series))),
        "lookback": 1 <= made_of.lookback <= _LONGEST,
        "backend": words["backend"] in _BACKENDS,
        "quantiles": made_of.quantiles == len(words["quantiles"] or [0]),
    }
    check_agreement(checks)


def _shapes(words: dict[str, Any], made_of: Architecture, tensors: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Of all tensors but those of the network."""
    channels, past, future, static = made_of.channels, made_of.past, made_of.future, made_of.static
    covariates = {"past": past, "known": future, "static": static}
    shapes: dict[str, tuple[int, ...]] = {
        f"covariates.{n}_{what}": (c,) for n, c in covariates.items() for what in ("mean", "scale")
    }
    for index, about in enumerate(words["series"]):
        one = f"series.{index}."
        steps = min(len(tensors[f"{one}values"]), made_of.lookback)
        columns = {"values": channels, "observed": channels, "past": past, "future": future}
        shapes |= {f"{one}{name}": (steps, count) for name, count in columns.items()}
        shapes |= {f"{one}{name}": (channels,) for name in ("mean", "scale", "grain")}
        shapes[f"{one}static"] = (static,)
        for number in range(len(about["cycles"])):
            harmonics = len(tensors[f"{one}cosines.{number}"])
            shapes |= {f"{one}{name}.{number}": (harmonics, channels) for name in ("cosines", "sines")}
    count, rows = len(words["series"]) + 1, len(words["sample"]["series"])
    shapes["calibration.table"] = (count, LEVELS, made_of.horizon, channels)
    shapes["calibration.counts"] = (count, made_of.horizon)
    shapes["sample.state"] = (rows, made_of.hidden_size + static)
    shapes |= {f"sample.{name}": (rows, 1, channels) for name in ("level", "scale")}
    shapes["sample.added"] = (rows, made_of.horizon, channels)
    return shapes


def _check_words(options: Options, fitted: Fitted) -> None:
    """Whether forecasts can be made by what was loaded: at times that there are, of series that are told apart."""
    columns, sample, made_of = fitted.columns, fitted.sample, fitted.network.made_of
    checks = {
        **{name: getattr(options, name) in (None, getattr(made_of, name)) for name in _SAME},
        "gate": options.gate in (None, made_of.gate),
        "normalize": options.normalize in ("auto", made_of.normalize),
        "quantiles": options.quantiles == fitted.quantiles,
        "targets": made_of.channels in (1, len(columns.targets)),
        "covariates": (columns.past, columns.future, columns.static)
        == (options.past_covariates, options.future_covariates, options.static_covariates),
        "columns": len(set(columns.all)) == len(columns.all) and all(isinstance(name, str) for name in columns.all),
        "names": len(fitted.profiles) == len(fitted.recent) and all(map(_is_name, fitted.profiles)),
        "periods": all(period >= 2 for period in fitted.periods),
        "sample": len(sample.positions) == len(sample.series) > 0,
        "cycles": all(cycle.period >= 2 for one in fitted.profiles.values() for cycle in one.cycles),
        "steps": all(len(one) > 0 for one in fitted.recent),
    }
    check_agreement(checks)
    for position in (*sample.positions, *fitted.trained.values(), *(one.position for one in fitted.recent)):
        check_integer("position", position, -_FURTHEST)
        if position > _FURTHEST:
            raise ValueError(f"position {position} is out of all bounds")
    for end in {min(one.end for one in fitted.recent), max(one.end for one in fitted.recent)}:
        fitted.grid.stamps(end, fitted.horizon)  # which no calendar may have


def _words(fitted: Fitted) -> dict[str, Any]:
    origin = fitted.grid.origin
    return {
        "architecture": dataclasses.asdict(fitted.network.made_of),
        "columns": dataclasses.asdict(fitted.columns),
        "freq": fitted.grid.freq,
        "origin": int(origin) if isinstance(fitted.grid.freq, int) else origin.isoformat(),
        "unit": None if isinstance(fitted.grid.freq, int) else origin.unit,  # to which time stamps are exact
        "periods": list(fitted.periods),
        "named": fitted.named,
        "quantiles": fitted.quantiles,
        "history": list(fitted.history),
        "series": [
            {
                "name": _plain_name(one.name),
                "position": one.position,
                "trained": fitted.trained[one.name],
                "cycles": [cycle.period for cycle in fitted.profiles[one.name].cycles],
            }
            for one in fitted.recent
        ],
        "sample": {"series": list(fitted.sample.series), "positions": list(fitted.sample.positions)},
    }


def _plain_name(name: Any) -> Any:
    if isinstance(name, np.generic):
        name = name.item()
    if not _is_name(name):
        raise TypeError(f"a series is named {name!r}, a {type(name).__name__}; only texts and numbers can be saved")
    return name


def _is_name(name: Any) -> bool:
    return isinstance(name, str | int | float | bool)


def _tensors(fitted: Fitted) -> dict[str, Tensor]:
    tensors = {f"network.{name}": tensor.detach() for name, tensor in fitted.network.state_dict().items()}
    for field in dataclasses.fields(CovariateScale):
        tensors[f"covariates.{field.name}"] = torch.from_numpy(getattr(fitted.covariates, field.name))
    for index, one in enumerate(fitted.recent):
        for name in ("values", "observed", "past", "future", "static"):
            tensors[f"series.{index}.{name}"] = torch.from_numpy(np.ascontiguousarray(getattr(one, name)))
        profile = fitted.profiles[one.name]
        tensors[f"series.{index}.mean"] = torch.from_numpy(profile.mean)
        tensors[f"series.{index}.scale"] = torch.from_numpy(profile.scale)
        tensors[f"series.{index}.grain"] = torch.from_numpy(profile.grain)
        for number, cycle in enumerate(profile.cycles):
            tensors[f"series.{index}.cosines.{number}"] = torch.from_numpy(cycle.cosines)
            tensors[f"series.{index}.sines.{number}"] = torch.from_numpy(cycle.sines)
    tensors["calibration.table"] = fitted.calibration.table
    tensors["calibration.counts"] = fitted.calibration.counts
    for name in ("state", "level", "scale", "added"):
        tensors[f"sample.{name}"] = getattr(fitted.sample.held, name)
    return tensors


def _fitted(words: dict[str, Any], made_of: Architecture, tensors: dict[str, Tensor]) -> Fitted:
    with torch.random.fork_rng(devices=[]):
        network = Network(made_of)
    network.load_state_dict(tensors_under("network.", tensors))
    columns: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in words["columns"].items()
    }
    freq = words["freq"]
    recent, profiles, trained = [], {}, {}
    for index, about in enumerate(words["series"]):
        arrays = {
            name: tensors[f"series.{index}.{name}"].numpy()
            for name in ("values", "observed", "past", "future", "static")
        }
        recent.append(Series(about["name"], about["position"], **arrays))
        cycles = [
            Cycle(period, tensors[f"series.{index}.cosines.{n}"].numpy(), tensors[f"series.{index}.sines.{n}"].numpy())
            for n, period in enumerate(about["cycles"])
        ]
        scale = [tensors[f"series.{index}.{name}"].numpy() for name in ("mean", "scale", "grain")]
        profiles[about["name"]] = Profile(scale[0], scale[1], tuple(cycles), scale[2])
        trained[about["name"]] = about["trained"]
    sample = Origins(
        Encoded(**{name: tensors[f"sample.{name}"] for name in ("state", "level", "scale", "added")}),
        series=tuple(words["sample"]["series"]),
        positions=tuple(words["sample"]["positions"]),
    )
    return Fitted(
        network.eval(),
        Columns(**columns),
        Grid(freq, words["origin"] if isinstance(freq, int) else pd.Timestamp(words["origin"]).as_unit(words["unit"])),
        tuple(words["periods"]),
        bool(words["named"]),
        CovariateScale(*(tensors[f"covariates.{field.name}"].numpy() for field in dataclasses.fields(CovariateScale))),
        profiles,
        trained,
        tuple(recent),
        Calibration(tensors["calibration.table"], tensors["calibration.counts"]),
        sample,
        None if words["quantiles"] is None else tuple(words["quantiles"]),
        tuple(words["history"]),
    )
