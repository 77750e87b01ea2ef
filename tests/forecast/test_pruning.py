from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from parallelrnn.forecast.model import Architecture, Network
from parallelrnn.forecast.pruning import prune
from parallelrnn.forecast.windows import Batch
from parallelrnn.nn import WaveDecoder
from parallelrnn.training.losses import pointwise

LOOKBACK, HORIZON, WAVES, DECAYS = 12, 6, 3, 2
WINDOWS = torch.tensor([[0, origin] for origin in range(50)])
LOSS = pointwise("mse")


def network(decoder: str = "waves") -> Network:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"block_size": 2, "hidden_size": 4, "num_layers": 1, "num_waves": WAVES}
    rest = {"num_decays": DECAYS, "normalize": "mean", "segment": 1, "gate": True, "dropout": 0.0}
    made = Network(Architecture(LOOKBACK, HORIZON, cell="linear", decoder=decoder, **sizes, **rest))
    for parameter in made.decoder.parameters():
        torch.nn.init.normal_(parameter)
    return made.eval()


class Windows:
    """Of noise, after which comes what a network forecasts."""

    def __init__(self, truth: Network) -> None:
        self.truth = truth

    @torch.no_grad()
    def batch(self, windows: Tensor) -> Batch:
        count = len(windows)
        past = torch.randn(count, LOOKBACK, 1, generator=torch.Generator().manual_seed(1))
        none = torch.zeros(count, LOOKBACK + HORIZON, 0)
        batch = Batch(
            past,
            None,
            torch.zeros(count, HORIZON, 1),
            torch.ones(count, HORIZON, 1),
            none[:, :LOOKBACK],
            none,
            none[:, 0],
        )
        return batch._replace(target=self.truth(batch)[..., 0])


def without(whole: Network, *blocks: int) -> Network:
    """The same, in which some blocks carry nothing."""
    smaller = network()
    smaller.load_state_dict(whole.state_dict())
    assert isinstance(smaller.decoder, WaveDecoder)
    with torch.no_grad():
        for block in blocks:
            units = [2 * block, 2 * block + 1] if block < WAVES else [WAVES + block]
            smaller.decoder.amplitudes.weight[units] = 0
            smaller.decoder.amplitudes.bias[units] = 0
    return smaller


def periods(made: Network) -> list[float]:
    assert isinstance(made.decoder, WaveDecoder)
    return [*made.decoder.angle.tolist(), *made.decoder.decay_log_rate.tolist()]


def untrained(made: Network) -> tuple[Network, float]:
    return made, 0.0


@pytest.mark.parametrize("silent", [(1,), (0, 4), (2, 3)])
def test_blocks_that_carry_nothing_are_taken_out(silent: tuple[int, ...]) -> None:
    whole = without(network(), *silent)
    windows: Any = Windows(network())  # what comes is not what is forecast, so that there is an error to compare with
    found, after = prune(whole, windows, WINDOWS, LOSS, 1.0, untrained)
    kept = [value for block, value in enumerate(periods(whole)) if block not in silent]
    assert set(periods(found)) <= set(kept)
    assert after == 0.0
    assert found.made_of.num_waves + found.made_of.num_decays == len(periods(found))
    assert len(periods(whole)) == WAVES + DECAYS  # what was given stays whole


def test_blocks_that_are_missed_stay() -> None:
    whole = network()
    windows: Any = Windows(without(whole, 3))
    # Without block 3 there is no error at all, and without any other there is one.
    found, _ = prune(whole, windows, WINDOWS, LOSS, 1.0, untrained)
    assert periods(found) == [value for block, value in enumerate(periods(whole)) if block != 3]
    batch = windows.batch(WINDOWS)
    torch.testing.assert_close(found(batch)[..., 0], batch.target)


def test_what_gets_worse_in_spite_of_training_is_not_taken() -> None:
    whole = without(network(), 1, 2)
    windows: Any = Windows(network())
    tried = []

    def worse(made: Network) -> tuple[Network, float]:
        tried.append(made)
        return made, 1.1

    found, after = prune(whole, windows, WINDOWS, LOSS, 1.0, worse)
    assert found is whole
    assert after == 1.0
    assert 1 <= len(tried) <= 2
    assert all(len(periods(one)) <= WAVES + DECAYS - 2 for one in tried)


def test_a_linear_decoder_has_nothing_to_take_out() -> None:
    whole = network("linear")
    found, after = prune(whole, None, WINDOWS, LOSS, 1.0, untrained)  # type: ignore[arg-type]
    assert found is whole
    assert after == 1.0
