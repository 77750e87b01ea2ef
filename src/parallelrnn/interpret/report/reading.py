"""Everything that a page shows about a model and its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, ArgumentTypeError, InputError
from parallelrnn.interpret.contributions import Contributions, NoVariationError, contributions
from parallelrnn.interpret.display import Step, count, optional
from parallelrnn.interpret.features import Features, recurrence_features
from parallelrnn.interpret.findings import Findings
from parallelrnn.interpret.freerun import GrowingForecastsError, NoFixedPointError, NoFreeRunError
from parallelrnn.interpret.layers import Layer, as_blocks, as_input, as_taken, can_fold, fold_in, is_linear, time_first
from parallelrnn.interpret.local import LocalDynamics, local_dynamics
from parallelrnn.interpret.modes import ForecastModes, forecast_modes
from parallelrnn.interpret.response import ImpulseResponse, impulse_response
from parallelrnn.interpret.uncertainty import MatchedTables
from parallelrnn.nn import BlockRecurrentTransformer

Array = NDArray[np.float64]
_RECENT_STEPS = 1000  # at the end of the data, along which responses are measured
_FREE_RUN_STEPS = 50  # along which modes are read if there is no fixed point
_LOCAL_BUDGET = 3e8  # operations for the eigenvalues of local derivatives, counted as cubes of their sizes
_NO_SHARES = "There are no shares, because the output does not vary over these data."
_TRANSFORMER = "Tokens pass through attention and feed-forward layers, so"
_MISSING_OF_TRANSFORMERS = {
    "modes": f"{_TRANSFORMER} no forecast modes can be read off the weights of this model.",
    "components": f"{_TRANSFORMER} the output is not a sum over blocks.",
    "response": f"{_TRANSFORMER} responses depend on all tokens and are not measured.",
    "local": (
        "Local dynamics are defined for layers whose state is a single vector. The matrices above map states to "
        "queries, keys and values; the gate decides what is kept from segment to segment."
    ),
}


@dataclass(frozen=True)
class Outlook:
    """The end of each series, and its forecast."""

    past: tuple[Curve, ...]  # one for each series
    future: tuple[Curve, ...]
    bands: tuple[tuple[str, tuple[Array, ...], tuple[Array, ...]], ...]  # name, lower ends and upper ends of each


@dataclass(frozen=True)
class Curve:
    """Values at times, which are time stamps or numbers."""

    times: Any
    values: Array


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Everything that a page shows; what a model does not have is None, and `missing` says why."""

    title: str
    about: tuple[str, ...]  # the model and the data, in a few words each
    is_linear: bool  # then all statements hold at every state
    inputs: tuple[str, ...]  # names
    outputs: tuple[str, ...]  # names of the outputs in components and responses
    time: Step
    features: Features
    modes: ForecastModes | None = None
    components: Contributions | None = None
    response: ImpulseResponse | None = None
    local: LocalDynamics | None = None
    uncertainty: tuple[MatchedTables, ...] = ()
    horizon: int = 0
    sequences: int = 1
    recent: int = 0  # steps at the end of the data, along which responses were measured
    missing: dict[str, str]
    outlook: Outlook | None = None  # of a forecaster
    findings: Findings | None = None  # of a forecaster
    notices: tuple[str, ...] = ()  # what a reader should know before trusting the rest


def read(
    model: nn.Module,
    data: Any,
    *,
    readout: nn.Module | None = None,
    uncertainty: MatchedTables | Sequence[MatchedTables] = (),
    freq: str | None = None,
    names: Sequence[str] | None = None,
    title: str = "What this model has learned",
    horizon: int = 100,
    lags: int = 50,
) -> Reading:
    """Compute features, modes, components, responses and local dynamics; the arguments are those of `report`."""
    if isinstance(model, BlockRecurrentTransformer):
        return _read_transformer(model, data, names, freq, title, _check_uncertainty(uncertainty))
    layer = plain = as_blocks(model)
    x, names, freq = _as_data(layer, data, names, freq)
    inputs = _input_names(names, layer.input_size)
    linear = is_linear(layer, readout)
    if isinstance(readout, nn.Linear) and can_fold(layer, readout):
        layer, readout = fold_in(layer, readout), None  # so that all statements are about the forecast itself
    series = time_first(layer, x)
    recent = min(_RECENT_STEPS, len(series))

    missing: dict[str, str] = {}
    modes = _modes(layer, readout, x, horizon, freq, missing)
    components = _components(layer, x, missing)
    response = _response(layer, x, min(lags, recent - 1), recent, missing)
    outputs = contributions(layer, as_taken(layer, series[:1])).total.shape[-1]
    same = readout is None and outputs == len(inputs)
    return Reading(
        title=title,
        about=(_about_model(model, plain), _about_data(series, freq)),
        is_linear=linear,
        inputs=inputs,
        outputs=inputs if same else tuple(f"output {index}" for index in range(outputs)),
        time=Step.of(freq),
        features=_features(layer, x, freq, missing),
        modes=modes,
        components=components,
        response=response,
        local=None if linear else _local(layer, series, recent, freq, missing),
        uncertainty=_check_uncertainty(uncertainty),
        horizon=horizon,
        sequences=series.shape[1],
        recent=recent,
        missing=missing,
    )


def _read_transformer(
    model: BlockRecurrentTransformer,
    data: Any,
    names: Sequence[str] | None,
    freq: str | None,
    title: str,
    uncertainty: tuple[MatchedTables, ...],
) -> Reading:
    """Read how the states are remembered; attention and feed-forward layers leave no sums to be told apart."""
    x, names, freq = _as_data(model, data, names, freq)
    series = x[:, None] if x.dim() == 2 else x.transpose(0, 1)  # (T, B, C)
    layers, time = len(model.recurrent_layers), Step.of(freq)
    if not layers:
        raise InputError("this model has no recurrent layer, so there is no memory to report")
    length = model.segment_length
    of_states = Step(1, "segments") if length is None else Step(time.amount * length, time.unit)
    features = replace(recurrence_features(model), time=of_states)
    recurrent = f"{layers} of {len(model.layers)} layers with {model.num_states} states of {model.d_model}"
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Reading(
        title=title,
        about=(f"BlockRecurrentTransformer: {recurrent}, {parameters:,} parameters", _about_data(series, freq)),
        is_linear=False,
        inputs=_input_names(names, model.input_size),
        outputs=tuple(f"output {index}" for index in range(model.d_model)),
        time=time,
        features=features,
        uncertainty=uncertainty,
        sequences=series.shape[1],
        missing=_MISSING_OF_TRANSFORMERS,
    )


def _modes(
    layer: Any, readout: nn.Module | None, x: Tensor, horizon: int, freq: str | None, missing: dict[str, str]
) -> ForecastModes | None:
    try:
        return forecast_modes(layer, readout, x, horizon=horizon, freq=freq)
    except NoFreeRunError:
        missing["modes"] = (
            "The output of this model is not a forecast of its next input, so the model cannot run on its own "
            "forecasts and has no forecast modes. (If a readout makes that forecast, pass it as readout=.)"
        )
    except GrowingForecastsError:
        missing["modes"] = "The model's own forecasts grow without bound, so it has no forecast modes."
    except NoFixedPointError:
        return forecast_modes(layer, readout, x, along=_FREE_RUN_STEPS, freq=freq)
    return None


def _features(layer: Any, x: Tensor, freq: str | None, missing: dict[str, str]) -> Features:
    try:
        return recurrence_features(layer, x, freq=freq)
    except NoVariationError:
        missing["shares"] = _NO_SHARES
        return recurrence_features(layer, freq=freq)


def _components(layer: Any, x: Tensor, missing: dict[str, str]) -> Contributions | None:
    components = contributions(layer, x)
    if len(components.blocks) == 1:
        missing["components"] = "The layer is a single block, so there are no separate components."
        return None
    try:
        components.shares()
    except NoVariationError:
        missing["components"] = _NO_SHARES
        return None
    return components


def _response(layer: Any, x: Tensor, lags: int, recent: int, missing: dict[str, str]) -> ImpulseResponse | None:
    if layer.bidirectional:
        missing["response"] = "A bidirectional layer responds to an input before it arrives."
    elif lags < 1:
        missing["response"] = "One step of data is too short for a response."
    else:
        return impulse_response(layer, x, lags, last=recent)
    return None


def _local(layer: Any, series: Tensor, recent: int, freq: str | None, missing: dict[str, str]) -> LocalDynamics | None:
    if layer.bidirectional or layer.proj_size:
        missing["local"] = "Local dynamics are not available for bidirectional layers, nor with proj_size."
        return None
    cubes = sum((size * layer.num_states) ** 3 for size in layer.block_sizes) * layer.num_layers * series.shape[1]
    steps = min(recent, max(10, int(_LOCAL_BUDGET / cubes)))
    return local_dynamics(layer, as_taken(layer, series), last=steps, freq=freq)


def _check_uncertainty(uncertainty: Any) -> tuple[MatchedTables, ...]:
    tables = (uncertainty,) if isinstance(uncertainty, MatchedTables) else tuple(uncertainty)
    for table in tables:
        if not isinstance(table, MatchedTables):
            expected = "the result of match_fits, or several"
            raise ArgumentTypeError(argument="uncertainty", expected=expected, got=type(table).__name__)
    return tables


def _as_data(
    layer: Layer | BlockRecurrentTransformer, data: Any, names: Sequence[str] | None, freq: str | None
) -> tuple[Tensor, Sequence[str] | None, str | None]:
    """Return the layer's input, with names and frequency from a pandas object unless they are given."""
    if hasattr(data, "index") and hasattr(data, "to_numpy"):  # a frame or series of pandas
        columns = data.columns if hasattr(data, "columns") else [data.name]
        names = names or (None if columns[0] is None else [str(name) for name in columns])
        freq = freq or _frequency(data.index)
        data = data.to_numpy()
    return as_input(layer, data), names, freq


def _frequency(index: Any) -> str | None:
    """Return the frequency of a pandas index, if it is known here."""
    freq = getattr(index, "freqstr", None)
    if freq is None and hasattr(index, "tz") and len(index) > 2:
        freq = optional("pandas").infer_freq(index)
    try:
        Step.of(freq)
    except ValueError:
        return None
    return freq


def _input_names(names: Sequence[str] | None, size: int) -> tuple[str, ...]:
    if names is None:
        return ("input",) if size == 1 else tuple(f"input {index}" for index in range(size))
    if isinstance(names, str) or len(names) != size:
        raise ArgumentError(argument="names", expected=f"one name for each of {size} inputs", got=names)
    return tuple(map(str, names))


def _about_model(model: nn.Module, layer: Layer) -> str:
    layers, blocks = count(layer.num_layers, "layer"), count(layer.num_blocks, "block")
    sizes = sorted(set(layer.block_sizes))
    size = f"size {sizes[0]}" if len(sizes) == 1 else f"sizes {sizes[0]} to {sizes[-1]}"
    activation = f", {layer.nonlinearity}" if hasattr(layer, "nonlinearity") else ""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__}{activation}: {layers} of {blocks} of {size}, {parameters:,} parameters"


def _about_data(series: Tensor, freq: str | None) -> str:
    steps, batch, _ = series.shape
    sequences = "" if batch == 1 else f" in each of {batch} sequences"
    return f"{steps:,} steps of data{sequences}" + ("" if freq is None else f", {Step.of(freq).format(1)} apart")
