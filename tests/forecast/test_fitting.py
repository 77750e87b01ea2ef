from __future__ import annotations

from typing import Any

import pytest
import torch

from parallelrnn.forecast.fitting import pruned_networks
from parallelrnn.forecast.model import Network, NetworkConfig
from parallelrnn.forecast.windows import Batch
from parallelrnn.nn import WaveDecoder
from parallelrnn.training.losses import pointwise
from tests.training.samples import hourly, quick

LOOKBACK, HORIZON, WAVES, DECAYS = 12, 6, 3, 2
LOSS = pointwise("mse")


def network(decoder: str = "waves") -> Network:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"block_size": 2, "hidden_size": 4, "num_layers": 1, "num_waves": WAVES}
    rest = {"num_decays": DECAYS, "normalize": "mean", "segment": 1, "gate": True, "dropout": 0.0}
    made = Network(NetworkConfig(lookback=LOOKBACK, horizon=HORIZON, cell="linear", decoder=decoder, **sizes, **rest))
    for parameter in made.decoder.parameters():
        torch.nn.init.normal_(parameter)
    return made.eval()


@torch.no_grad()
def batch(truth: Network) -> Batch:
    """Windows of noise, followed by what a network forecasts."""
    past = torch.randn(50, LOOKBACK, 1, generator=torch.Generator().manual_seed(1))
    none = torch.zeros(50, LOOKBACK + HORIZON, 0)
    future = torch.zeros(50, HORIZON, 1)
    noise = Batch(past, None, future, torch.ones_like(future), none[:, :LOOKBACK], none, none[:, 0])
    return noise._replace(target=truth(noise)[..., 0])


def without(full: Network, *blocks: int) -> Network:
    """The same network, in which some blocks carry nothing."""
    smaller = network()
    smaller.load_state_dict(full.state_dict())
    assert isinstance(smaller.decoder, WaveDecoder)
    with torch.no_grad():
        for block in blocks:
            units = [2 * block, 2 * block + 1] if block < WAVES else [WAVES + block]
            smaller.decoder.amplitudes.weight[units] = 0
            smaller.decoder.amplitudes.bias[units] = 0
    return smaller


def rates(made: Network) -> list[float]:
    assert isinstance(made.decoder, WaveDecoder)
    return [*made.decoder.angle.tolist(), *made.decoder.decay_log_rate.tolist()]


@pytest.mark.parametrize("silent", [(1,), (0, 4), (2, 3)])
def test_blocks_that_carry_nothing_are_removed(silent: tuple[int, ...]) -> None:
    full = without(network(), *silent)
    # The target is not the forecast, so that there is a loss to compare with.
    candidates = list(pruned_networks(full, batch(network()), LOSS))
    remaining = {rate for block, rate in enumerate(rates(full)) if block not in silent}
    assert candidates
    for pruned in candidates:
        assert set(rates(pruned)) <= remaining
        assert pruned.config.num_waves + pruned.config.num_decays == len(rates(pruned))
    assert len(rates(full)) == WAVES + DECAYS  # the given network is left alone


def test_blocks_that_are_missed_stay() -> None:
    full = network()
    windows = batch(without(full, 3))
    # Without block 3 there is no loss at all, and without any other there is one.
    pruned = next(pruned_networks(full, windows, LOSS))
    assert rates(pruned) == [rate for block, rate in enumerate(rates(full)) if block != 3]
    torch.testing.assert_close(pruned(windows)[..., 0], windows.target)


def test_a_linear_decoder_has_nothing_to_remove() -> None:
    assert list(pruned_networks(network("linear"), batch(network()), LOSS)) == []


@pytest.mark.parametrize(("loss", "is_taken"), [(0.0, True), (1e9, False)])
def test_pruning_is_taken_back_if_training_does_not_make_up_for_it(
    loss: float, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`loss` is the validation loss of every network that was pruned and trained."""
    smaller = network()
    monkeypatch.setattr("parallelrnn.forecast.fitting.pruned_networks", lambda *_: iter([smaller]))
    monkeypatch.setattr("parallelrnn.training.trainer.Trainer.run", lambda trainer, **_: trained(trainer, loss))

    def trained(trainer: Any, loss: float) -> Network:
        trainer.progress.history.append({"validation": loss if trainer.network is smaller else 1.0})
        return trainer.network.eval()  # type: ignore[no-any-return]

    forecaster = quick(HORIZON, LOOKBACK).fit(hourly(ids=("a",)))
    assert forecaster._state is not None
    assert (forecaster._state.network is smaller) == is_taken
