"""A fitted forecaster as metadata and tensors, the series stacked, in one checksummed file."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from parallelrnn.errors import ArgumentTypeError, check_choice
from parallelrnn.forecast.conformal import LEVELS, Calibration
from parallelrnn.forecast.data import Columns, Series
from parallelrnn.forecast.frequency import Grid
from parallelrnn.forecast.model import DECODERS, NORMALIZATIONS, EncodedWindows, Network, NetworkConfig
from parallelrnn.forecast.seasonality import HARMONICS
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.forecast.windows import CovariateScaler, Cycle, SeriesScaler
from parallelrnn.io import (
    Metadata,
    Tensors,
    check_agreement,
    check_counts,
    check_shapes,
    load_model,
    save_model,
    shapes_of,
    tensors_under,
)
from parallelrnn.nn.encoder import check_encoder

if TYPE_CHECKING:
    from parallelrnn.forecast.api import Forecaster

KIND, VERSION = "parallelrnn forecaster", 2
_MAX_LOOKBACK = 10_000_000  # steps
_MAX_POSITION = 2**53  # steps from the origin that floats can count
# Arguments that the network has too; None leaves the choice to `fit`.
_SHARED = ("block_size", "cell", "decoder", "dropout", "gate", "hidden_size", "horizon", "lookback", "num_layers", "segment")
_BACKENDS = tuple(library.value for library in nw.Implementation)  # of tables
_ROWS = ("values", "observed", "past", "future")  # arrays with a row for each step of a series
_INTEGERS = ("series.length", "series.position", "series.trained_until", "cycle.series", "sample.series", "sample.position")
_SCALES = ("mean", "scale", "integer_valued")
_ENCODED = tuple(field.name for field in dataclasses.fields(EncodedWindows))
_COVARIATES = tuple(field.name for field in dataclasses.fields(CovariateScaler))


def save(path: str | Path, forecaster: Forecaster, state: ForecasterState, backend: str) -> Path:
    """Write a forecaster; an earlier one is replaced atomically."""
    freq, origin = state.grid.freq, state.grid.origin
    metadata = {
        "arguments": forecaster.arguments(),
        "backend": backend,
        "network": dataclasses.asdict(state.network.config),
        "columns": dataclasses.asdict(state.columns),
        "freq": freq,
        "origin": origin if isinstance(freq, int) else origin.isoformat(),
        "unit": None if isinstance(freq, int) else origin.unit,  # of the resolution of timestamps
        "periods": list(state.periods),
        "history": list(state.history),
        "names": [_plain_name(series.name) for series in state.recent],
    }
    return save_model(path, KIND, VERSION, metadata, _tensors(state))


def load(path: str | Path, cls: type[Forecaster]) -> tuple[Forecaster, ForecasterState, str]:
    """Read a forecaster, its state, and the library of its tables."""
    return load_model(path, KIND, VERSION, partial(_build, cls), _upgrade)


def _plain_name(name: Any) -> Any:
    name = name.item() if isinstance(name, np.generic) else name
    if not _is_plain(name):
        raise ArgumentTypeError(f"series {name!r} is named by a {type(name).__name__}; only text and numbers can be saved")
    return name


def _is_plain(name: Any) -> bool:
    return isinstance(name, str | int | float | bool)


def _tensors(state: ForecasterState) -> Tensors:
    cycles = [(index, cycle) for index, scaler in enumerate(state.scalers) for cycle in scaler.cycles]
    waves = np.array([(cycle.cosines, cycle.sines) for _, cycle in cycles])  # (K, 2, harmonics, C)
    waves = waves.reshape(-1, 2, HARMONICS, state.network.config.channels)
    arrays = {
        **{f"covariates.{name}": getattr(state.covariates, name) for name in _COVARIATES},
        **{f"series.{name}": np.concatenate([getattr(series, name) for series in state.recent]) for name in _ROWS},
        "series.static": np.stack([series.static for series in state.recent]),
        "series.length": np.array([len(series) for series in state.recent]),
        "series.position": np.array([series.position for series in state.recent]),
        "series.trained_until": np.array(state.trained_until),
        **{f"scaler.{name}": np.stack([getattr(scaler, name) for scaler in state.scalers]) for name in _SCALES},
        "cycle.series": np.array([index for index, _ in cycles], dtype=np.int64),
        "cycle.period": np.array([cycle.period for _, cycle in cycles], dtype=np.float64),
        "cycle.cosines": waves[:, 0],
        "cycle.sines": waves[:, 1],
        "sample.series": state.sample_series,
        "sample.position": state.sample_positions,
    }
    return {
        **{f"network.{name}": tensor for name, tensor in state.network.state_dict().items()},
        **{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()},
        "calibration.table": state.calibration.table,
        "calibration.counts": state.calibration.counts,
        **{f"sample.{name}": getattr(state.sample, name) for name in _ENCODED},
    }


def _build(cls: type[Forecaster], metadata: Metadata, tensors: Tensors) -> tuple[Forecaster, ForecasterState, str]:
    forecaster = cls(**metadata["arguments"])
    config = NetworkConfig(**metadata["network"])
    _check_sizes(forecaster, metadata, config, tensors)
    check_shapes({**shapes_of(lambda: Network(config), "network."), **_shapes(metadata, config, tensors)}, tensors)
    state = _state(forecaster, metadata, config, tensors)
    _check_state(forecaster, state)
    return forecaster, state, str(metadata["backend"])


def _check_sizes(forecaster: Forecaster, metadata: Metadata, config: NetworkConfig, tensors: Tensors) -> None:
    """Check that metadata and tensors agree, before memory is allocated for what the metadata say."""
    check_counts(config)
    check_choice("decoder", config.decoder, DECODERS)
    check_choice("normalize", config.normalize, NORMALIZATIONS)
    names = metadata["names"]
    count, _, horizon, channels = tensors["calibration.table"].shape
    has_waves = config.decoder == "waves"
    check_agreement(
        {
            **check_encoder(config, "network.encoder", tensors),
            "horizon": horizon == config.horizon == forecaster.horizon,
            "channels": channels == config.channels,
            "series": 0 < len(names) == count - 1,
            "names": all(map(_is_plain, names)) and len(set(names)) == len(names),
            "num_waves": not has_waves or len(tensors["network.decoder.log_rate"]) == config.num_waves,
            "num_decays": not has_waves or len(tensors["network.decoder.decay_log_rate"]) == config.num_decays,
            "static": tensors["series.static"].shape == (len(names), config.static),
            "lookback": 1 <= config.lookback <= _MAX_LOOKBACK,
            "backend": metadata["backend"] in _BACKENDS,
            "quantiles": config.quantiles == len(forecaster.quantiles or [0]),
            "integers": all(tensors[name].dtype == torch.int64 for name in _INTEGERS),
        }
    )


def _shapes(metadata: Metadata, config: NetworkConfig, tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors but those of the network."""
    count, steps, channels, horizon = len(metadata["names"]), len(tensors["series.values"]), config.channels, config.horizon
    cycles, harmonics, _ = tensors["cycle.cosines"].shape
    sample = len(tensors["sample.series"])
    sizes = {"past": config.past, "future": config.future, "static": config.static}
    return {
        **{f"covariates.{name}": (sizes[name.partition("_")[0]],) for name in _COVARIATES},
        **{f"series.{name}": (steps, channels) for name in ("values", "observed")},
        **{f"series.{name}": (steps, sizes[name]) for name in ("past", "future")},
        "series.static": (count, config.static),
        **{f"series.{name}": (count,) for name in ("length", "position", "trained_until")},
        **{f"scaler.{name}": (count, channels) for name in _SCALES},
        **{f"cycle.{name}": (cycles,) for name in ("series", "period")},
        **{f"cycle.{name}": (cycles, harmonics, channels) for name in ("cosines", "sines")},
        "calibration.table": (count + 1, LEVELS, horizon, channels),
        "calibration.counts": (count + 1, horizon),
        **{f"sample.{name}": (sample,) for name in ("series", "position")},
        **{f"sample.{name}": (sample, 1, channels) for name in ("level", "scale")},
        "sample.state": (sample, config.hidden_size + config.static),
        "sample.exog_effect": (sample, horizon, channels),
    }


def _state(forecaster: Forecaster, metadata: Metadata, config: NetworkConfig, tensors: Tensors) -> ForecasterState:
    with torch.random.fork_rng(devices=[]):
        network = Network(config)
    network.load_state_dict(tensors_under("network.", tensors))
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if not name.startswith("network.")}
    names, freq, lengths = metadata["names"], metadata["freq"], arrays["series.length"]
    check_agreement(
        {
            "series.length": 1 <= lengths.min() <= lengths.max() <= config.lookback
            and lengths.sum() == len(arrays["series.values"]),
            "cycle.series": ((arrays["cycle.series"] >= 0) & (arrays["cycle.series"] < len(names))).all(),
            "sample.series": ((arrays["sample.series"] >= 0) & (arrays["sample.series"] < len(names))).all(),
        }
    )
    rows = {name: np.split(arrays[f"series.{name}"], np.cumsum(lengths)[:-1]) for name in _ROWS}
    positions = arrays["series.position"].tolist()
    cycles: list[list[Cycle]] = [[] for _ in names]
    keys = ("series", "period", "cosines", "sines")
    for index, period, cosines, sines in zip(*(arrays[f"cycle.{key}"] for key in keys), strict=True):
        cycles[index].append(Cycle(float(period), cosines, sines))
    columns = {name: tuple(value) if isinstance(value, list) else value for name, value in metadata["columns"].items()}
    origin = metadata["origin"]
    return ForecasterState(
        network=network.eval(),
        columns=Columns(**columns),
        grid=Grid(freq, origin if isinstance(freq, int) else pd.Timestamp(origin).as_unit(metadata["unit"])),
        periods=tuple(metadata["periods"]),
        named_cycles=forecaster.cycles not in (None, "calendar"),
        covariates=CovariateScaler(**{name: arrays[f"covariates.{name}"] for name in _COVARIATES}),
        scalers=tuple(
            SeriesScaler(
                mean=arrays["scaler.mean"][index],
                scale=arrays["scaler.scale"][index],
                cycles=tuple(own),
                integer_valued=arrays["scaler.integer_valued"][index],
            )
            for index, own in enumerate(cycles)
        ),
        trained_until=tuple(arrays["series.trained_until"].tolist()),
        recent=tuple(
            Series(
                name=name,
                position=positions[index],
                static=arrays["series.static"][index],
                **{key: parts[index] for key, parts in rows.items()},
            )
            for index, name in enumerate(names)
        ),
        calibration=Calibration(tensors["calibration.table"], tensors["calibration.counts"]),
        sample=EncodedWindows(**{name: tensors[f"sample.{name}"] for name in _ENCODED}),
        sample_series=arrays["sample.series"],
        sample_positions=arrays["sample.position"],
        quantiles=forecaster.quantiles if forecaster.quantiles is None else tuple(forecaster.quantiles),
        history=tuple(metadata["history"]),
    )


def _check_state(forecaster: Forecaster, state: ForecasterState) -> None:
    """Check that forecasts can be made from what was loaded: at times that exist, with the columns of the arguments."""
    columns, config = state.columns, state.network.config
    covariates = (forecaster.past_covariates, forecaster.future_covariates, forecaster.static_covariates)
    positions = np.array([series.position for series in state.recent])
    steps = np.concatenate([positions, state.trained_until, state.sample_positions])
    check_agreement(
        {
            **{name: getattr(forecaster, name) in (None, getattr(config, name)) for name in _SHARED},
            "normalize": forecaster.normalize in ("auto", config.normalize),
            "targets": config.channels in (1, len(columns.targets)),
            "covariates": (columns.past, columns.future, columns.static) == covariates,
            "columns": len(set(columns.all)) == len(columns.all) and all(isinstance(name, str) for name in columns.all),
            "periods": all(period >= 2 for period in state.periods),
            "cycles": all(cycle.period >= 2 for scaler in state.scalers for cycle in scaler.cycles),
            "sample": len(state.sample_series) > 0,
            "positions": bool((abs(steps) <= _MAX_POSITION).all()),
        }
    )
    ends = [series.end for series in state.recent]
    for end in {min(ends), max(ends)}:
        state.grid.stamps(end, state.horizon)  # raises if no calendar has them


def _upgrade(metadata: Metadata, tensors: Tensors) -> tuple[Metadata, Tensors]:
    """Turn what version 0.1.0 saved, with tensors of each series, into the layout of today."""
    series, sample = metadata["series"], metadata["sample"]
    config = metadata["architecture"]

    def each(name: str) -> list[Tensor]:
        return [tensors[f"series.{index}.{name}"] for index in range(len(series))]

    def integers(values: list[Any]) -> Tensor:
        if not all(type(value) is int for value in values):  # which torch would round
            raise ValueError("an index or position is not an integer")
        return torch.tensor(values, dtype=torch.int64)

    cycles = [(index, number) for index, one in enumerate(series) for number in range(len(one["cycles"]))]
    waves = {
        name: torch.stack([tensors[f"series.{index}.{name}.{number}"] for index, number in cycles])
        if cycles
        else torch.zeros(0, HARMONICS, config["channels"], dtype=torch.float64)
        for name in ("cosines", "sines")
    }
    upgraded = {name: tensor for name, tensor in tensors.items() if name.startswith(("network.", "calibration."))}
    upgraded |= {
        **{f"covariates.{name}": tensors[f"covariates.{name.replace('future', 'known')}"] for name in _COVARIATES},
        **{f"series.{name}": torch.cat(each(name)) for name in _ROWS},
        "series.static": torch.stack(each("static")),
        "series.length": integers([len(values) for values in each("values")]),
        "series.position": integers([one["position"] for one in series]),
        "series.trained_until": integers([one["trained"] for one in series]),
        "scaler.mean": torch.stack(each("mean")),
        "scaler.scale": torch.stack(each("scale")),
        "scaler.integer_valued": torch.stack(each("grain")),
        "cycle.series": integers([index for index, _ in cycles]),
        "cycle.period": torch.tensor([float(p) for one in series for p in one["cycles"]], dtype=torch.float64),
        **{f"cycle.{name}": waves[name] for name in waves},
        "sample.series": integers(sample["series"]),
        "sample.position": integers(sample["positions"]),
        **{f"sample.{name}": tensors[f"sample.{name}"] for name in ("state", "level", "scale")},
        "sample.exog_effect": tensors["sample.added"],
    }
    names = ("arguments", "backend", "columns", "freq", "origin", "unit", "periods", "history")
    kept = {name: metadata[name] for name in names}
    return {**kept, "network": config, "names": [one["name"] for one in series]}, upgraded
