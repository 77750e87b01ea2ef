"""The wave decoder is a free-running linear ParaRNN."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parallelrnn import ParaGRU, ParaRNN, WaveDecoder, recurrence_features
from parallelrnn.interpret import features_of_blocks

TOLERANCE = {"rtol": 1e-10, "atol": 1e-10}  # float64, at most 60 steps of contractions


def random_decoder(input_size: int, output_size: int, num_waves: int, num_decays: int) -> WaveDecoder:
    decoder = WaveDecoder(input_size, output_size, num_waves, num_decays, dtype=torch.float64)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter)
    return decoder


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    blocks=st.tuples(st.integers(0, 4), st.integers(0, 3)).filter(any),
    outputs=st.integers(1, 3),
    horizon=st.integers(1, 60),
)
def test_it_is_a_linear_layer_left_to_itself(seed: int, blocks: tuple[int, int], outputs: int, horizon: int) -> None:
    torch.manual_seed(seed)
    decoder = random_decoder(3, outputs, *blocks)
    state = torch.randn(4, 3, dtype=torch.float64)
    sizes = [2] * blocks[0] + [1] * blocks[1]
    layer = ParaRNN(
        1,
        sum(sizes),
        1,
        "linear",
        block_size=sizes,
        bias=False,
        aggregate=None,
        backend="reference",
        dtype=torch.float64,
    )
    with torch.no_grad():
        for ours, theirs in zip(layer.recurrent_blocks(), decoder.wave_blocks(), strict=True):
            ours.matrix.copy_(theirs.matrix)
    started = decoder.amplitudes(state).unflatten(-1, (outputs, -1)).flatten(0, 1)  # (4 * outputs, units)
    states, _ = layer(torch.zeros(horizon, len(started), 1, dtype=torch.float64), started[None])
    first = [sum(sizes[:index]) for index in range(len(sizes))]
    expected = states[..., first].unflatten(1, (4, outputs)).permute(1, 0, 3, 2)  # (4, H, blocks, outputs)

    torch.testing.assert_close(decoder.parts(state, horizon), expected, **TOLERANCE)
    torch.testing.assert_close(decoder(state, horizon), expected.sum(2), **TOLERANCE)


def test_its_blocks_are_the_waves_it_was_started_at() -> None:
    decoder = WaveDecoder(8, num_waves=2, num_decays=1, dtype=torch.float64).start_at([24, 168], [48, 500], [10])
    features = features_of_blocks(decoder.wave_blocks())
    assert [feature.label for feature in features] == ["C-1", "C-1", "R-1"]
    assert [feature.period for feature in features] == pytest.approx([24, 168, math.inf])
    assert [feature.half_life for feature in features] == pytest.approx([48, 500, 10], rel=1e-9)


def test_its_waves_are_no_memory() -> None:
    decoder = WaveDecoder(4, num_waves=2, num_decays=1)
    with pytest.raises(TypeError, match="forecast_modes"):
        recurrence_features(decoder)
    model = nn.ModuleDict({"encoder": ParaGRU(1, 4), "decoder": decoder})
    assert len(recurrence_features(model)) == len(recurrence_features(model["encoder"]))


@pytest.mark.parametrize("parameter", ["log_rate", "angle", "decay_log_rate", "amplitudes.weight"])
def test_gradients(parameter: str) -> None:
    torch.manual_seed(0)
    decoder = random_decoder(3, 2, 2, 1)
    state = torch.randn(4, 3, dtype=torch.float64)
    values = dict(decoder.named_parameters())

    def forecast(value: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(decoder, {**values, parameter: value}, (state, 7))

    assert torch.autograd.gradcheck(forecast, values[parameter].detach().requires_grad_())


def test_remaining_waves_contribute_as_before() -> None:
    torch.manual_seed(0)
    decoder = random_decoder(3, 2, 3, 2)
    state = torch.randn(4, 3, dtype=torch.float64)
    smaller = decoder.keep([4, 0, 2])
    assert (smaller.num_waves, smaller.num_decays) == (2, 1)
    torch.testing.assert_close(smaller.parts(state, 9), decoder.parts(state, 9)[:, :, [0, 2, 4]])


def test_a_fresh_decoder_forecasts_nothing() -> None:
    decoder = WaveDecoder(3)
    assert not decoder(torch.randn(2, 3), 10).any()
    assert len(list(decoder.wave_blocks())) == 12
