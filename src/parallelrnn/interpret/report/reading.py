"""All that there is to say about one model and its data, gathered for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn.interpret.contributions import Contributions, contributions
from parallelrnn.interpret.features import Features, recurrence_features
from parallelrnn.interpret.freerun import NoFreeRunError
from parallelrnn.interpret.layers import Layer, as_blocks, as_taken, fold_in, time_first
from parallelrnn.interpret.local import LocalDynamics, local_dynamics
from parallelrnn.interpret.modes import ForecastModes, NoFixedPointError, forecast_modes
from parallelrnn.interpret.response import ImpulseResponse, impulse_response
from parallelrnn.interpret.uncertainty import MatchedTables
from parallelrnn.interpret.units import Step

RECENT = 1000  # steps at the end of the data, along which responses and local dynamics are measured
ALONG = 50  # steps of a free run, where it comes to rest nowhere


@dataclass(frozen=True)
class Reading:
    """What a page shows. What does not exist for a model is None, and `missing` says why."""

    title: str
    about: tuple[str, ...]  # the model and the data, in a few words each
    inputs: tuple[str, ...]  # names
    outputs: tuple[str, ...]  # names
    time: Step
    features: Features
    modes: ForecastModes | None
    components: Contributions | None  # of a batch (T, B, ...)
    response: ImpulseResponse | None
    local: LocalDynamics | None
    uncertainty: tuple[MatchedTables, ...]
    horizon: int
    sequences: int
    recent: int  # steps at the end of the data, along which responses and local dynamics were measured
    missing: dict[str, str]

    @property
    def is_linear(self) -> bool:
        """Whether what is said holds exactly, and everywhere."""
        return self.local is None


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
    layer = as_blocks(model)
    x, found_names, found_freq = _as_data(layer, data)
    names, freq = names or found_names, freq or found_freq
    inputs = _names(names, layer.input_size)
    plain = layer
    if isinstance(readout, nn.Linear) and (layer.aggregate is None or isinstance(layer.aggregate, nn.Linear)):
        layer, readout = fold_in(layer, readout), None  # so that all that is said is about the forecast itself
    series = time_first(layer, x)
    recent = series[-RECENT:]
    lags = min(lags, len(recent) - 1)

    missing: dict[str, str] = {}
    modes = _modes(layer, readout, x, horizon, freq, missing)
    components = contributions(layer, as_taken(layer, series))
    components = replace(
        components, parts=time_first(layer, components.parts), total=time_first(layer, components.total)
    )
    outputs = components.total.shape[-1]
    response = local = None
    if layer.bidirectional:
        missing["response"] = "A layer that also runs backwards answers before it is asked."
    elif lags < 1:
        missing["response"] = "One step of data leaves no time for an answer."
    else:
        response = impulse_response(layer, as_taken(layer, recent), lags)
    if getattr(layer, "nonlinearity", None) != "linear" and not layer.bidirectional and not layer.proj_size:
        local = local_dynamics(layer, as_taken(layer, recent), freq=freq)
    return Reading(
        title,
        (_about_model(model, plain), _about_data(series, freq)),
        inputs,
        inputs if outputs == len(inputs) else tuple(f"output {index}" for index in range(outputs)),
        Step.of(freq),
        recurrence_features(layer, x, freq=freq),
        modes,
        components if len(components.blocks) > 1 else None,
        response,
        local,
        (uncertainty,) if isinstance(uncertainty, MatchedTables) else tuple(uncertainty),
        horizon,
        series.shape[1],
        len(recent),
        missing,
    )


def _modes(
    layer: Layer, readout: nn.Module | None, x: Tensor, horizon: int, freq: str | None, missing: dict[str, str]
) -> ForecastModes | None:
    try:
        return forecast_modes(layer, readout, x, horizon=horizon, freq=freq)
    except NoFreeRunError:
        missing["modes"] = (
            "This model does not forecast its own next input, so it cannot run on its own forecasts, and has no "
            "forecast modes."
        )
    except NoFixedPointError:
        try:
            return forecast_modes(layer, readout, x, along=ALONG, freq=freq)
        except ValueError:  # its states do not stay finite
            missing["modes"] = "The model's own forecasts grow without bound."
    return None


def _as_data(layer: Layer, data: Any) -> tuple[Tensor, list[str] | None, str | None]:
    """What the layer takes, and names and frequency where the data bring them."""
    names, freq = None, None
    if hasattr(data, "columns") and hasattr(data, "to_numpy"):  # a frame of pandas
        names = [str(name) for name in data.columns]
        freq = getattr(getattr(data, "index", None), "freqstr", None)
        data = data.to_numpy()
    if not isinstance(data, Tensor):
        data = torch.from_numpy(np.array(data, dtype=float))
    if data.dim() == 1:
        data = data[:, None]
    like = next(layer.parameters())
    data = data.detach().to(like)
    if data.dim() not in (2, 3) or data.shape[-1] != layer.input_size:
        raise ValueError(
            f"expected data (T, {layer.input_size}), or a batch of such sequences in the layout that the layer takes, "
            f"got {tuple(data.shape)}"
        )
    if not data.isfinite().all():
        raise ValueError("the data hold values that are not finite; fill or drop them first")
    return data, names, freq


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
