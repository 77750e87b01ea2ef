"""A fitted forecaster as metadata and tensors, its series stacked, in one checksummed file."""

from __future__ import annotations

import dataclasses
import math
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
from parallelrnn.forecast.local import MAX_PERIOD, PARTS, Bank, LocalModels
from parallelrnn.forecast.model import DECODERS, NORMALIZATIONS, EncodedWindows, Network, NetworkConfig
from parallelrnn.forecast.seasonality import HARMONICS
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.forecast.windows import CovariateScaler, Cycle, SeriesScaler
from parallelrnn.interpret.findings import KINDS, NUMBERS, RESTS, Finding, Findings
from parallelrnn.interpret.uncertainty import Interval
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
_BACKENDS = tuple(library.value for library in nw.Implementation)  # of tables
_ROWS = ("values", "observed", "past", "future")  # arrays with a row for each step of a series
_SCALES = ("mean", "scale", "integer_valued", "non_negative", "floor")
_EXOG = ("past", "future", "static")
_ENCODED = ("state", "level", "scale", "exog_effect", "local")
_LOCAL = ("prior", "weights", "states")
_CALIBRATION = tuple(field.name for field in dataclasses.fields(Calibration))
_INTEGERS = (
    *("series.steps", "cycle.series", "sample.origins"),
    *("calibration.row", "calibration.changed", "findings.kind", "findings.rest", "local.models"),
)
# Arguments that the network has too; None leaves the choice to `fit`.
_SHARED = (
    *("block_size", "cell", "decoder", "dropout", "gate"),
    *("hidden_size", "horizon", "lookback", "num_layers", "segment"),
)


def save(path: str | Path, forecaster: Forecaster, state: ForecasterState, backend: str) -> Path:
    """Write a forecaster; an earlier one is replaced atomically."""
    freq, origin = state.grid.freq, state.grid.origin
    metadata = {
        "arguments": forecaster.arguments(),
        "backend": backend,
        "architecture": dataclasses.asdict(state.network.config),
        "columns": dataclasses.asdict(state.columns),
        "freq": freq,
        "origin": origin if isinstance(freq, int) else origin.isoformat(),
        "unit": None if isinstance(freq, int) else origin.unit,  # of the resolution of timestamps
        "periods": state.periods,
        "history": state.history,
        "names": [_plain_name(series.name) for series in state.recent],
        "logs": None if state.local is None else state.local.logs,
    }
    findings = () if state.findings is None else state.findings.rows
    numbers = [[dataclasses.astuple(getattr(finding, name)) for name in NUMBERS] for finding in findings]
    until = zip(state.recent, state.trained_until, strict=True)
    cycles = [(index, cycle) for index, scaler in enumerate(state.scalers) for cycle in scaler.cycles]
    waves = np.array([(cycle.cosines, cycle.sines) for _, cycle in cycles], dtype=np.float64)
    arrays = {
        **{f"covariates.{name}": getattr(state.covariates, name) for name in _EXOG},
        **{f"series.{name}": np.concatenate([getattr(series, name) for series in state.recent]) for name in _ROWS},
        "series.static": np.stack([series.static for series in state.recent]),
        "series.steps": np.array([(len(series), series.position, end) for series, end in until]),
        "scaler": np.array(
            [[np.broadcast_to(getattr(own, name), own.mean.shape) for name in _SCALES] for own in state.scalers]
        ),
        "cycle.series": np.array([index for index, _ in cycles], dtype=np.int64),
        "cycle.period": np.array([cycle.period for _, cycle in cycles], dtype=np.float64),
        "cycle.waves": waves.reshape(-1, 2, HARMONICS, state.network.config.channels),
        "sample.origins": state.sample_origins,
        "findings.kind": np.array([KINDS.index(finding.kind) for finding in findings], dtype=np.int64),
        "findings.numbers": np.array(numbers, dtype=np.float64).reshape(-1, len(NUMBERS), 3),
        "findings.explained": np.array([math.nan if state.findings is None else state.findings.explained]),
        "findings.rest": np.array([0 if state.findings is None else RESTS.index(state.findings.rest)]),
    }
    if state.local is not None:
        arrays |= {f"local.{name}": np.asarray(getattr(state.local, name)) for name in _LOCAL}
        if state.local.bank.kept is not None:
            arrays["local.models"] = np.array(state.local.bank.kept, dtype=np.int64)
    if state.findings is None:
        arrays = {name: array for name, array in arrays.items() if not name.startswith("findings.")}
    tensors = {
        **{f"network.{name}": tensor for name, tensor in state.network.state_dict().items()},
        **{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()},
        **{f"calibration.{name}": getattr(state.calibration, name) for name in _CALIBRATION},
        **{f"sample.{name}": getattr(state.sample, name) for name in _ENCODED},
    }
    return save_model(path, KIND, VERSION, metadata, tensors)


def load(path: str | Path, cls: type[Forecaster]) -> tuple[Forecaster, ForecasterState, str]:
    """Read a forecaster, its state, and the library of its tables."""
    return load_model(path, KIND, VERSION, partial(_build, cls), _upgrade)


def _plain_name(name: Any) -> Any:
    name = name.item() if isinstance(name, np.generic) else name
    if not _is_plain(name):
        raise ArgumentTypeError(
            f"series {name!r} is named by a {type(name).__name__}; only text and numbers can be saved"
        )
    return name


def _is_plain(name: Any) -> bool:
    return isinstance(name, str | int | float | bool)


def _build(cls: type[Forecaster], metadata: Metadata, tensors: Tensors) -> tuple[Forecaster, ForecasterState, str]:
    forecaster, config = cls(**metadata["arguments"]), NetworkConfig(**metadata["architecture"])
    options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in metadata["columns"].items()}
    columns, names = Columns(**options), metadata["names"]
    _check_metadata(forecaster, config, columns, metadata, tensors)
    shapes = shapes_of(lambda: Network(config), "network.") | _shapes(config, len(names), tensors)
    check_shapes(shapes, tensors)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items() if not name.startswith("network.")}
    lengths, positions, trained_until = arrays["series.steps"].T
    owners = np.concatenate([arrays["cycle.series"], arrays["sample.origins"][:, 0]])
    steps = np.concatenate([positions, trained_until, arrays["sample.origins"][:, 1]])
    check_agreement(
        {
            "lengths": bool((lengths > 0).all() and lengths.sum() == len(arrays["series.values"])),
            "lookback": bool((lengths <= config.lookback).all()),
            "series": bool(((owners >= 0) & (owners < len(names))).all()),
            "positions": bool((abs(steps) <= _MAX_POSITION).all()),
            "sample": len(arrays["sample.origins"]) > 0,
            "cycles": bool((arrays["cycle.period"] >= 2).all()),
        }
    )
    freq, origin = metadata["freq"], metadata["origin"]
    grid = Grid(freq, origin if isinstance(freq, int) else pd.Timestamp(origin).as_unit(metadata["unit"]))
    for end in {int((positions + lengths).min()), int((positions + lengths).max())}:
        grid.stamps(end, config.horizon).to_numpy()  # raises if no calendar or 64-bit integer has them
    with torch.random.fork_rng(devices=[]):
        network = Network(config)
    network.load_state_dict(tensors_under("network.", tensors))
    cycles: list[list[Cycle]] = [[] for _ in names]
    for index, period, waves in zip(*(arrays[f"cycle.{key}"] for key in ("series", "period", "waves")), strict=True):
        cycles[index].append(Cycle(float(period), *waves))
    rows = [np.split(arrays[f"series.{name}"], np.cumsum(lengths)[:-1]) for name in _ROWS]
    series = zip(names, positions.tolist(), *rows, arrays["series.static"], strict=True)
    keys = ("name", "position", *_ROWS, "static")
    state = ForecasterState(
        network=network.eval(),
        columns=columns,
        grid=grid,
        periods=tuple(metadata["periods"]),
        named_cycles=forecaster.cycles not in (None, "calendar"),
        covariates=CovariateScaler(**{name: arrays[f"covariates.{name}"] for name in _EXOG}),
        scalers=tuple(
            SeriesScaler(cycles=tuple(own), **dict(zip(_SCALES, rows, strict=True)))
            for rows, own in zip(arrays["scaler"], cycles, strict=True)
        ),
        trained_until=tuple(trained_until.tolist()),
        recent=tuple(Series(**dict(zip(keys, values, strict=True))) for values in series),
        calibration=Calibration(**{name: tensors[f"calibration.{name}"] for name in _CALIBRATION}),
        sample=EncodedWindows(**{name: tensors[f"sample.{name}"] for name in _ENCODED}),
        sample_origins=arrays["sample.origins"],
        quantiles=None if forecaster.quantiles is None else tuple(forecaster.quantiles),
        history=tuple(metadata["history"]),
        findings=_findings(arrays, grid, config.horizon, len(names) * config.channels),
        local=_local_models(config, metadata, tensors),
        positive=forecaster.positive,
    )
    return forecaster, state, str(metadata["backend"])


def _findings(arrays: dict[str, Any], grid: Grid, horizon: int, series: int) -> Findings | None:
    """Return what the series showed, None in a model that was saved without it."""
    if "findings.kind" not in arrays:
        return None
    rows = tuple(
        Finding(kind=KINDS[kind], **{name: Interval(*map(float, own)) for name, own in zip(NUMBERS, each, strict=True)})
        for kind, each in zip(arrays["findings.kind"], arrays["findings.numbers"], strict=True)
    )
    (explained,), (rest,) = arrays["findings.explained"].tolist(), arrays["findings.rest"].tolist()
    return Findings(rows=rows, explained=explained, rest=RESTS[rest], time=grid.step, horizon=horizon, series=series)


def _local_models(config: NetworkConfig, metadata: Metadata, tensors: Tensors) -> LocalModels | None:
    """Return the local models, None if the network forecasts alone."""
    if "local.weights" not in tensors:
        return None
    weights, states = tensors["local.weights"], tensors["local.states"]
    bank, prior = _bank(config, tensors), tensors["local.prior"].numpy()
    return LocalModels(bank, prior, weights, states, metadata["logs"])


def _bank(config: NetworkConfig, tensors: Tensors) -> Bank:
    """Return the bank whose models a forecaster has kept."""
    bank, kept = Bank(config.season, config.horizon), tensors.get("local.models", torch.zeros(0)).tolist()
    count = len(bank.models)
    check_agreement({"models": len(set(kept)) == len(kept) and all(0 <= number < count for number in kept)})
    return Bank(config.season, config.horizon, tuple(kept)) if kept else bank


def _check_metadata(
    forecaster: Forecaster, config: NetworkConfig, columns: Columns, metadata: Metadata, tensors: Tensors
) -> None:
    """Check that metadata and tensors agree, before memory is allocated for what the metadata say."""
    check_counts(config)
    check_choice("decoder", config.decoder, DECODERS)
    check_choice("normalize", config.normalize, NORMALIZATIONS)
    names, has_waves = metadata["names"], config.decoder == "waves"
    rows, _, horizon, channels = tensors["calibration.table"].shape
    check_agreement(
        {
            **check_encoder(config, "network.encoder", tensors),
            **{name: getattr(forecaster, name) in (None, getattr(config, name)) for name in _SHARED},
            "normalize": forecaster.normalize in ("auto", config.normalize),
            "horizon": horizon == config.horizon == forecaster.horizon,
            "channels": channels == config.channels,
            "series": 0 < len(names) == len(tensors["calibration.row"]) - 1,
            "names": all(map(_is_plain, names)) and len(set(names)) == len(names),
            "num_waves": not has_waves or len(tensors["network.decoder.log_rate"]) == config.num_waves,
            "num_decays": not has_waves or len(tensors["network.decoder.decay_log_rate"]) == config.num_decays,
            "lookback": 1 <= config.lookback <= _MAX_LOOKBACK,
            "ungated": config.ungated <= config.hidden_size,
            "share": 0 <= config.share <= 1,
            "season": 1 <= config.season <= MAX_PERIOD,
            "logs": metadata["logs"] is None or isinstance(metadata["logs"], bool),
            "local": all(_is_finite(tensors[f"local.{name}"]) for name in _LOCAL if f"local.{name}" in tensors)
            and not bool((tensors.get("local.weights", torch.zeros(0)) < 0).any()),
            "scaler": _is_finite(tensors["scaler"])
            and bool((tensors["scaler"][:, 1] > 0).all() and (tensors["scaler"][:, -1] >= 0).all()),
            "backend": metadata["backend"] in _BACKENDS,
            "quantiles": config.quantiles == len(forecaster.quantiles or [0]),
            "periods": all(period >= 2 for period in metadata["periods"]),
            "columns": len(set(columns.all)) == len(columns.all) and all(isinstance(name, str) for name in columns.all),
            "targets": config.channels in (1, len(columns.targets)),
            "covariates": all(getattr(columns, name) == getattr(forecaster, f"{name}_covariates") for name in _EXOG),
            **{name: tensors[f"series.{name}"].shape[1] == getattr(config, name) for name in _EXOG},
            "findings": _in_range("findings.kind", len(KINDS), tensors)
            and _in_range("findings.rest", len(RESTS), tensors),
            "changes": _in_range("calibration.changed", _MAX_LOOKBACK, tensors),
            "calibration": _in_range("calibration.row", rows, tensors) and _is_calibration(tensors),
            "integers": all(tensors[name].dtype == torch.int64 for name in _INTEGERS if name in tensors),
        }
    )


def _is_calibration(tensors: Tensors) -> bool:
    """Return whether quantiles are those of residuals: above zero, rising, and known where some were counted."""
    table, size, counts, scale = (tensors[f"calibration.{name}"] for name in ("table", "size", "counts", "scale"))
    if (table.dtype, size.dtype, counts.dtype) != (torch.float16, torch.float32, torch.int64):
        return False
    is_known = (counts > 0)[:, :, None]
    is_table = ((table >= 0) & torch.isfinite(table)).all(1) & (table[:, 1:] >= table[:, :-1]).all(1)
    is_size = (size >= 0) & torch.isfinite(size)
    return bool(
        (counts >= 0).all()
        and ((is_table & is_size) | ~is_known).all()
        and _is_finite(scale)
        and not scale.is_complex()
        and (scale > 0).all()
    )


def _is_finite(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and bool(tensor.isfinite().all())


def _in_range(name: str, count: int, tensors: Tensors) -> bool:
    return name not in tensors or bool(((tensors[name] >= 0) & (tensors[name] < count)).all())


def _shapes(config: NetworkConfig, count: int, tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors but those of the network; `count` is the number of series."""
    channels, horizon, steps = config.channels, config.horizon, len(tensors["series.values"])
    cycles, sample = len(tensors["cycle.series"]), len(tensors["sample.origins"])
    rows, findings = len(tensors["calibration.table"]), {}
    if "findings.kind" in tensors:
        found = len(tensors["findings.kind"])
        findings = {"kind": (found,), "numbers": (found, len(NUMBERS), 3), "explained": (1,), "rest": (1,)}
    local, parts = {}, 0 if config.share == 1 else len(PARTS) + 1
    if "local.weights" in tensors or config.share < 1:
        bank = _bank(config, tensors)
        models = len(bank.models)
        local = {"prior": (2 * models,), "weights": (count, channels, models), "states": (count, channels, bank.size)}
        if bank.kept is not None:
            local["models"] = (models,)
    return {
        **{f"local.{name}": shape for name, shape in local.items()},
        **{f"findings.{name}": shape for name, shape in findings.items()},
        **{f"covariates.{name}": (2, getattr(config, name)) for name in _EXOG},
        **{f"series.{name}": (steps, channels) for name in ("values", "observed")},
        **{f"series.{name}": (steps, getattr(config, name)) for name in ("past", "future")},
        "series.static": (count, config.static),
        "series.steps": (count, 3),
        "scaler": (count, len(_SCALES), channels),
        "cycle.series": (cycles,),
        "cycle.period": (cycles,),
        "cycle.waves": (cycles, 2, HARMONICS, channels),
        "calibration.table": (rows, len(LEVELS), horizon, channels),
        "calibration.size": (rows, horizon, channels),
        "calibration.counts": (rows, horizon),
        "calibration.scale": (count + 1, channels),
        **{f"calibration.{name}": (count + 1,) for name in ("row", "changed")},
        "sample.origins": (sample, 2),
        "sample.state": (sample, config.hidden_size + config.static),
        **{f"sample.{name}": (sample, 1, channels) for name in ("level", "scale")},
        "sample.exog_effect": (sample, horizon, channels),
        "sample.local": (sample, horizon, channels, parts),
    }


def _upgrade(metadata: Metadata, tensors: Tensors) -> tuple[Metadata, Tensors]:
    """Turn what version 0.1.0 saved, with tensors for each series, into the layout of today."""
    series, sample, channels = metadata["series"], metadata["sample"], metadata["architecture"]["channels"]
    cycles = [(index, number) for index, single in enumerate(series) for number in range(len(single["cycles"]))]
    origins = zip(sample["series"], sample["positions"], strict=True)

    def each(name: str) -> list[Tensor]:
        return [tensors[f"series.{index}.{name}"] for index in range(len(series))]

    def integers(values: list[Any], *shape: int) -> Tensor:
        array = np.array(values).reshape(-1, *shape)
        if array.size and array.dtype != np.int64:
            raise ValueError("an index or position is not an integer")
        return torch.from_numpy(array.astype(np.int64))

    steps = [
        (len(rows), single["position"], single["trained"]) for rows, single in zip(each("values"), series, strict=True)
    ]
    waves = [torch.stack([tensors[f"series.{i}.{name}.{n}"] for name in ("cosines", "sines")]) for i, n in cycles]
    zeros = torch.zeros(len(series), channels, dtype=torch.float64)
    none = torch.zeros(0, 2, HARMONICS, channels, dtype=torch.float64)
    upgraded = {name: tensor for name, tensor in tensors.items() if name.startswith("network.")}
    calibration = Calibration.from_levels(tensors["calibration.table"], tensors["calibration.counts"])
    upgraded |= {f"calibration.{name}": getattr(calibration, name) for name in _CALIBRATION}
    for name, old in (("past", "past"), ("future", "known"), ("static", "static")):
        upgraded[f"covariates.{name}"] = torch.stack([tensors[f"covariates.{old}_{part}"] for part in _SCALES[:2]])
    upgraded |= {
        **{f"series.{name}": torch.cat(each(name)) for name in _ROWS},
        "series.static": torch.stack(each("static")),
        "series.steps": integers(steps, 3),
        "scaler": torch.stack([*(torch.stack(each(name)) for name in ("mean", "scale", "grain")), zeros, zeros], 1),
        "cycle.series": integers([index for index, _ in cycles]),
        "cycle.period": torch.tensor([float(p) for single in series for p in single["cycles"]], dtype=torch.float64),
        "cycle.waves": torch.stack(waves) if waves else none,
        "sample.origins": integers(list(origins), 2),
        **{f"sample.{name}": tensors[f"sample.{name}"] for name in ("state", "level", "scale")},
        "sample.exog_effect": tensors["sample.added"],
        "sample.local": tensors["sample.added"][..., None][..., :0],
    }
    return {**metadata, "names": [single["name"] for single in series], "logs": None}, upgraded
