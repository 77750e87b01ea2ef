from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from parallelrnn import WaveDecoder
from parallelrnn.forecast.model import DECODERS, NORMALIZATIONS, Network, NetworkConfig
from parallelrnn.forecast.windows import Batch
from parallelrnn.nn.encoder import CELLS, TransformerEncoder

LOOKBACK, HORIZON = 12, 6
SMALL: dict[str, Any] = {
    **{"lookback": LOOKBACK, "horizon": HORIZON, "cell": "linear", "decoder": "waves", "block_size": 2},
    **{"hidden_size": 8, "num_layers": 1, "num_waves": 2, "num_decays": 1, "normalize": "mean", "segment": 1},
    **{"gate": True, "dropout": 0.3},
}
# Single precision, sums over 12 steps in different orders.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def network(**options: Any) -> Network:
    torch.manual_seed(0)
    made = Network(NetworkConfig(**{**SMALL, **options}))
    for name, parameter in made.named_parameters():
        if not name.startswith("encoder"):
            torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def batch(past: Tensor, config: NetworkConfig, valid: Tensor | None = None) -> Batch:
    size, channels = len(past), config.channels
    random = torch.Generator().manual_seed(1)
    future = torch.zeros(size, HORIZON, channels)
    covariates = torch.randn(size, past.shape[1], config.past, generator=random)
    known = torch.randn(size, past.shape[1] + HORIZON, config.future, generator=random)
    return Batch(past, valid, future, torch.ones_like(future), covariates, known, torch.ones(size, config.static))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("options", [{}, {"segment": 5}, {"channels": 3, "past": 1, "future": 2, "static": 1}])
@pytest.mark.parametrize("quantiles", [1, 3])
def test_forecasts_have_a_shape(cell: str, decoder: str, options: dict[str, Any], quantiles: int) -> None:
    made = network(cell=cell, decoder=decoder, quantiles=quantiles, **options)
    channels = made.config.channels
    forecast = made(batch(torch.randn(4, LOOKBACK, channels), made.config))
    assert forecast.shape == (4, HORIZON, channels, quantiles)
    assert forecast.isfinite().all()


@pytest.mark.parametrize("normalize", ["mean", "last"])
def test_without_a_gate_the_linear_cell_gives_a_linear_forecast(normalize: str) -> None:
    made = network(gate=False, normalize=normalize)
    a, b = torch.randn(2, 4, LOOKBACK, 1)
    nothing, first, second, both = (made(batch(x, made.config)) for x in (torch.zeros_like(a), a, b, 2 * a - 3 * b))
    torch.testing.assert_close(both - nothing, 2 * (first - nothing) - 3 * (second - nothing), **TOLERANCE)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("normalize", ["mean", "last", "standard", "middle"])
def test_a_series_at_another_level_is_forecast_at_that_level(cell: str, normalize: str) -> None:
    made = network(cell=cell, normalize=normalize)
    past = torch.randn(4, LOOKBACK, 1)
    original, shifted = (made(batch(past + level, made.config)) for level in (0.0, 7.0))
    torch.testing.assert_close(shifted, original + 7, **TOLERANCE)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("segment", [1, 3])
@pytest.mark.parametrize("normalize", [*NORMALIZATIONS])
def test_padding_changes_nothing(cell: str, segment: int, normalize: str | None) -> None:
    made = network(cell=cell, segment=segment, normalize=normalize)
    past = torch.randn(2, LOOKBACK, 1)
    valid = torch.ones(2, LOOKBACK, dtype=torch.bool)
    valid[1, :6] = False
    together = made(batch(past, made.config, valid))
    short = Network(NetworkConfig(**{**vars(made.config), "lookback": 6})).eval()
    short.load_state_dict(made.state_dict())
    if isinstance(made.encoder, TransformerEncoder):  # whose segments are parts of the look-back
        short.encoder.transformer.segment_length = made.encoder.transformer.segment_length
    torch.testing.assert_close(together[1:], short(batch(past[1:, 6:], short.config)), **TOLERANCE)
    torch.testing.assert_close(together[:1], made(batch(past[:1], made.config)), **TOLERANCE)


def test_known_covariates_have_a_linear_effect_on_past_and_future() -> None:
    made = network(future=2)
    assert made.effect is not None
    inputs = batch(torch.randn(4, LOOKBACK, 1), made.config)
    effect = made.effect(inputs.future_exog)
    moved = inputs._replace(future_exog=torch.zeros_like(inputs.future_exog), past=inputs.past - effect[:, :LOOKBACK])
    # What is known also enters memory; with that taken out, only its effect is left.
    made.encoder.weight_ih_l0.data[:, 1:] = 0
    torch.testing.assert_close(made(inputs), made(moved) + effect[:, LOOKBACK:, :, None], **TOLERANCE)


def test_a_forecast_is_the_decoded_encoding() -> None:
    made = network(channels=2, future=1, static=1, quantiles=3)
    inputs = batch(torch.randn(4, LOOKBACK, 2), made.config)
    encoded = made.encode(inputs)
    assert isinstance(made.decoder, WaveDecoder)
    parts = made.decoder.parts(encoded.state, HORIZON).sum(2).unflatten(-1, (2, 3))
    rebuilt = parts * encoded.scale[..., None] + (encoded.level + encoded.exog_effect)[..., None]
    torch.testing.assert_close(made(inputs), rebuilt, **TOLERANCE)


def test_a_gate_only_turns_down() -> None:
    gated, plain = network(), network(gate=False)
    plain.load_state_dict({name: value for name, value in gated.state_dict().items() if not name.startswith("gate")})
    inputs = batch(torch.randn(4, LOOKBACK, 1), gated.config)
    state, ungated = gated.encode(inputs).state, plain.encode(inputs).state
    assert (state.abs() <= ungated.abs()).all()
    assert (state * ungated >= 0).all()


@pytest.mark.parametrize(("normalize", "ungated"), [("standard", 0), ("middle", 6)])
def test_a_forecast_follows_its_formula_step_by_step(normalize: str, ungated: int) -> None:
    """In numpy: a loop over time of each block, toned down, gated, and continued as waves and decays."""
    made = network(normalize=normalize, ungated=ungated)
    past = torch.randn(1, LOOKBACK, 1)
    weights = {name: value.double().numpy() for name, value in made.state_dict().items()}
    window = past[0, :, 0].double().numpy()
    level, scale = window.mean(), window.std() + 0.1
    if normalize == "middle":
        level = (level + window[-1]) / 2
    matrices = [block.matrix.detach().double().numpy() for block in made.encoder.recurrent_blocks()]
    state = np.zeros((4, 2))
    for value in (window - level) / scale:
        entering = (weights["encoder.weight_ih_l0"] * value).reshape(4, 2)
        state = np.stack([matrix @ vector for matrix, vector in zip(matrices, state, strict=True)]) + entering
    gated, rest = np.split(state.reshape(8), [8 - ungated])
    gated = gated / np.sqrt(1 + (gated**2).mean())
    last = np.append(gated / (1 + np.exp(-(weights["gate.weight"] @ gated + weights["gate.bias"]))), rest)
    started = weights["decoder.amplitudes.weight"] @ last + weights["decoder.amplitudes.bias"]
    forecast = np.zeros(HORIZON)
    unit = 0
    for block in made.decoder.wave_blocks():  # type: ignore[union-attr]
        matrix = block.matrix.detach().double().numpy()
        state = started[unit : unit + len(matrix)]
        unit += len(matrix)
        for step in range(HORIZON):
            state = matrix @ state
            forecast[step] += state[0]
    output = made(batch(past, made.config))[0, :, 0, 0].detach().numpy()
    np.testing.assert_allclose(output, forecast * scale + level, **TOLERANCE)
