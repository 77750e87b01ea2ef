"""All that there is to say about one model and its data, gathered for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from parallelrnn.interpret.contributions import Contributions, NoVariationError, contributions
from parallelrnn.interpret.features import Features, recurrence_features
from parallelrnn.interpret.freerun import NoFreeRunError
from parallelrnn.interpret.layers import Layer, as_blocks, as_input, as_taken, fold_in, is_linear, time_first
from parallelrnn.interpret.local import LocalDynamics, local_dynamics
from parallelrnn.interpret.modes import ForecastModes, GrowingForecastsError, NoFixedPointError, forecast_modes
from parallelrnn.interpret.optional import optional
from parallelrnn.interpret.response import ImpulseResponse, impulse_response
from parallelrnn.interpret.uncertainty import MatchedTables
from parallelrnn.interpret.units import Step
from parallelrnn.nn import BlockRecurrentTransformer

Array = NDArray[np.float64]
RECENT = 1000  # steps at the end of the data, along which responses are measured
ALONG = 50  # steps of a free run, where it comes to rest nowhere
_WORK = 3e8  # of eigenvalues of local derivatives, in cubes of their sizes


@dataclass(frozen=True)
class Outlook:
    """The end of some series, and what comes next."""

    past: tuple[Curve, ...]  # one for each series
    future: tuple[Curve, ...]
    bands: tuple[tuple[str, tuple[Array, ...], tuple[Array, ...]], ...]  # the name of each, its lower and upper ends


@dataclass(frozen=True)
class Curve:
    """Values at times, which may be time stamps or numbers."""

    times: Any
    values: Array


@dataclass(frozen=True)
class Reading:
    """What a page shows. What does not exist for a model is None, and `missing` says why."""

    title: str
    about: tuple[str, ...]  # the model and the data, in a few words each
    is_linear: bool  # what is said holds at all states
    inputs: tuple[str, ...]  # names
    outputs: tuple[str, ...]  # names of what components and responses are about
    time: Step
    features: Features
    modes: ForecastModes | None
    components: Contributions | None
    response: ImpulseResponse | None
    local: LocalDynamics | None
    uncertainty: tuple[MatchedTables, ...]
    horizon: int
    sequences: int
    recent: int  # steps at the end of the data, along which responses were measured
    missing: dict[str, str]
    outlook: Outlook | None = None  # of a forecaster


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
    """Gather features, modes, components, responses and local dynamics; the arguments are those of `report`."""
    if isinstance(model, BlockRecurrentTransformer):
        return _read_transformer(model, data, names, freq, title, _compared(uncertainty))
    layer = plain = as_blocks(model)
    x, found_names, found_freq = _as_data(layer, data)
    names, freq = names or found_names, freq or found_freq
    inputs = _names(names, layer.input_size)
    linear = is_linear(layer, readout)
    if type(readout) is nn.Linear and type(layer.aggregate) in (nn.Linear, type(None)):
        layer, readout = fold_in(layer, readout), None  # so that all that is said is about the forecast itself
    series = time_first(layer, x)
    recent = min(RECENT, len(series))

    missing: dict[str, str] = {}
    modes = _modes(layer, readout, x, horizon, freq, missing)
    components = _components(layer, x, missing)
    response = _response(layer, x, min(lags, recent - 1), recent, missing)
    outputs = contributions(layer, as_taken(layer, series[:1])).total.shape[-1]
    same = readout is None and outputs == len(inputs)
    return Reading(
        title,
        (_about_model(model, plain), _about_data(series, freq)),
        linear,
        inputs,
        inputs if same else tuple(f"output {index}" for index in range(outputs)),
        Step.of(freq),
        _features(layer, x, freq, missing),
        modes,
        components,
        response,
        None if linear else _local(layer, series, recent, freq, missing),
        _compared(uncertainty),
        horizon,
        series.shape[1],
        recent,
        missing,
    )


def _read_transformer(
    model: BlockRecurrentTransformer,
    data: Any,
    names: Sequence[str] | None,
    freq: str | None,
    title: str,
    uncertainty: tuple[MatchedTables, ...],
) -> Reading:
    """How its states are remembered; attention and feed-forward layers leave no sums to be told apart."""
    x, found_names, found_freq = _as_data(model, data)
    names, freq = names or found_names, freq or found_freq
    series = x[:, None] if x.dim() == 2 else x.transpose(0, 1)  # (T, B, C)
    why = "Tokens go through attention and feed-forward layers, so that"
    missing = {
        "modes": f"{why} this model has no forecast modes that could be read off its weights.",
        "components": f"{why} its output is no sum over blocks.",
        "response": f"{why} responses depend on all tokens; none are measured.",
        "local": (
            "Local dynamics are read of layers whose state is one vector. The matrices above are those by which states "
            "enter queries, keys and values; what is kept from segment to segment is decided by the gate."
        ),
    }
    layers, time = len(model.recurrent_layers), Step.of(freq)
    if not layers:
        raise ValueError("this model has no recurrent layer, so there is no memory to report")
    length = model.segment_length
    of_states = Step(1, "segments") if length is None else Step(time.amount * length, time.unit)
    features = replace(recurrence_features(model), time=of_states)
    recurrent = f"{layers} of {len(model.layers)} layers with {model.num_states} states of {model.d_model}"
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Reading(
        title,
        (f"BlockRecurrentTransformer: {recurrent}, {parameters:,} parameters", _about_data(series, freq)),
        False,
        _names(names, model.input_size),
        tuple(f"output {index}" for index in range(model.d_model)),
        time,
        features,
        None,
        None,
        None,
        None,
        uncertainty,
        0,
        series.shape[1],
        0,
        missing,
    )


def _modes(
    layer: Any, readout: nn.Module | None, x: Tensor, horizon: int, freq: str | None, missing: dict[str, str]
) -> ForecastModes | None:
    try:
        return forecast_modes(layer, readout, x, horizon=horizon, freq=freq)
    except NoFreeRunError:
        missing["modes"] = (
            "This model does not put out a forecast of its own next input, so it cannot run on its own forecasts, and "
            "has no forecast modes (if a readout makes that forecast, it has to be given: readout=)."
        )
    except GrowingForecastsError:
        missing["modes"] = "Run on its own forecasts the model leaves all bounds, so it has no forecast modes."
    except NoFixedPointError:
        return forecast_modes(layer, readout, x, along=ALONG, freq=freq)
    return None


def _features(layer: Any, x: Tensor, freq: str | None, missing: dict[str, str]) -> Features:
    try:
        return recurrence_features(layer, x, freq=freq)
    except NoVariationError as error:
        missing["shares"] = f"There are no shares: {error}."
        return recurrence_features(layer, freq=freq)


def _components(layer: Any, x: Tensor, missing: dict[str, str]) -> Contributions | None:
    found = contributions(layer, x)
    if len(found.blocks) == 1:
        missing["components"] = "The layer is one block, so there are no parts to tell apart."
        return None
    try:
        found.shares()
    except NoVariationError as error:
        missing["components"] = f"There are no shares of blocks: {error}."
        return None
    return found


def _response(layer: Any, x: Tensor, lags: int, recent: int, missing: dict[str, str]) -> ImpulseResponse | None:
    if layer.bidirectional:
        missing["response"] = "A layer that also runs backwards answers before it is asked."
    elif lags < 1:
        missing["response"] = "One step of data leaves no time for an answer."
    else:
        return impulse_response(layer, x, lags, last=recent)
    return None


def _local(layer: Any, series: Tensor, recent: int, freq: str | None, missing: dict[str, str]) -> LocalDynamics | None:
    if layer.bidirectional or layer.proj_size:
        missing["local"] = "Local dynamics are not read of layers that run both ways or project their state."
        return None
    cubes = sum((size * layer.num_states) ** 3 for size in layer.block_sizes) * layer.num_layers * series.shape[1]
    steps = min(recent, max(10, int(_WORK / cubes)))
    return local_dynamics(layer, as_taken(layer, series), last=steps, freq=freq)


def _compared(uncertainty: Any) -> tuple[MatchedTables, ...]:
    found = (uncertainty,) if isinstance(uncertainty, MatchedTables) else tuple(uncertainty)
    for one in found:
        if not isinstance(one, MatchedTables):
            raise TypeError(f"uncertainty is what match_fits gives, or several of these; got {type(one).__name__}")
    return found


def _as_data(layer: Layer | BlockRecurrentTransformer, data: Any) -> tuple[Tensor, list[str] | None, str | None]:
    """What the layer takes, and names and frequency where the data bring them."""
    names, freq = None, None
    if hasattr(data, "index") and hasattr(data, "to_numpy"):  # a frame or series of pandas
        columns = data.columns if hasattr(data, "columns") else [data.name]
        names = None if columns[0] is None else [str(name) for name in columns]
        freq = _frequency(data.index)
        data = data.to_numpy()
    return as_input(layer, data), names, freq


def _frequency(index: Any) -> str | None:
    """Of an index of pandas, if it is one that has a name here."""
    freq = getattr(index, "freqstr", None)
    if freq is None and hasattr(index, "tz") and len(index) > 2:
        freq = optional("pandas").infer_freq(index)
    try:
        Step.of(freq)
    except ValueError:
        return None
    found: str | None = freq
    return found


def _names(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return ("input",) if count == 1 else tuple(f"input {index}" for index in range(count))
    if isinstance(names, str) or len(names) != count:
        raise ValueError(f"names: expected one for each of {count} inputs, got {names!r}")
    return tuple(map(str, names))


def _about_model(model: nn.Module, layer: Layer) -> str:
    layers = "1 layer" if layer.num_layers == 1 else f"{layer.num_layers} layers"
    sizes = sorted(set(layer.block_sizes))
    blocks = "1 block" if layer.num_blocks == 1 else f"{layer.num_blocks} blocks"
    size = f"size {sizes[0]}" if len(sizes) == 1 else f"sizes {sizes[0]} to {sizes[-1]}"
    activation = f", {layer.nonlinearity}" if hasattr(layer, "nonlinearity") else ""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return f"{type(model).__name__}{activation}: {layers} of {blocks} of {size}, {parameters:,} parameters"


def _about_data(series: Tensor, freq: str | None) -> str:
    steps, batch, _ = series.shape
    sequences = "" if batch == 1 else f" in each of {batch} sequences"
    return f"{steps:,} steps of data{sequences}" + ("" if freq is None else f", {Step.of(freq).format(1)} apart")
