from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from utilsforecast.losses import mae, mse, quantile_loss

from parallelrnn import Forecaster
from parallelrnn.errors import ArgumentError, CheckpointError, TrainingError
from parallelrnn.forecast.data import Series
from parallelrnn.forecast.windows import Batch, CovariateScaler, SeriesScaler, WindowDataset
from parallelrnn.training import trainer as training
from parallelrnn.training.checkpoint import FILE
from parallelrnn.training.losses import pinball, pointwise
from parallelrnn.training.trainer import Recipe, Trainer, make_fabric
from tests.training.samples import hourly, quick


def weights(forecaster: Forecaster) -> dict[str, torch.Tensor]:
    assert forecaster._fitted is not None
    return forecaster._fitted.network.state_dict()


def same(first: Forecaster, second: Forecaster) -> bool:
    mine, its = weights(first), weights(second)
    return mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)


@pytest.mark.parametrize("cell", ["linear", "gru"])
def test_the_same_seed_gives_the_same_bits_and_leaves_other_generators_alone(cell: str) -> None:
    df = hourly()
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index, union-attr] # noqa: NPY002
    first, second, other = (quick(cell=cell, random_state=seed).fit(df) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index, union-attr] # noqa: NPY002
    assert same(first, second)
    assert not same(first, other)


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_other_precisions_train_to_about_the_same(precision: str) -> None:
    df = hourly()
    usual, other = (quick(precision=one).fit(df).predict() for one in ("32-true", precision))
    scale = df.groupby("unique_id")["y"].std()[usual["unique_id"]].to_numpy()
    assert (abs(usual["yhat"] - other["yhat"]) / scale).max() < 0.1


class CutOffError(Exception):
    """What stops a training in the middle."""


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_training_that_was_cut_off_goes_on_to_the_same_bits(
    epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = hourly()
    options: dict[str, Any] = {"max_epochs": 4, "patience": 4, "dropout": 0.2}
    whole = quick(**options).fit(df)
    epoch = Trainer._epoch

    def cut(self: Trainer[Any]) -> float:
        if self.progress.epoch == epochs:
            raise CutOffError
        return epoch(self)

    with monkeypatch.context() as patched:
        patched.setattr(training.Trainer, "_epoch", cut)
        with pytest.raises(CutOffError):
            quick(**options).fit(df, checkpoint=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
    resumed = quick(**options).fit(df, checkpoint=tmp_path, resume=True)
    assert same(whole, resumed)
    assert resumed._fitted is not None
    assert len(resumed._fitted.history) == 4


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    df = hourly()
    first = quick().fit(df, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="other data or other arguments"):
        quick(random_state=1).fit(df, checkpoint=tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="other data or other arguments"):
        quick().fit(df.assign(y=df["y"] + 1), checkpoint=tmp_path, resume=True)
    kept = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(kept[:20])
    with pytest.raises(CheckpointError, match=r"has no checksum.*delete it to start over"):
        quick().fit(df, checkpoint=tmp_path, resume=True)
    assert same(quick().fit(df, checkpoint=tmp_path), first)  # anew
    shutil.rmtree(tmp_path)
    assert same(quick().fit(df, checkpoint=tmp_path, resume=True), first)  # nothing to go on with


def test_going_on_needs_a_place() -> None:
    with pytest.raises(ValueError, match="say where: checkpoint=directory"):
        quick().fit(hourly(), resume=True)


def test_losses_equal_those_of_another_library() -> None:
    random = torch.Generator().manual_seed(0)
    forecast, future = torch.randn(2, 50, 4, 1, generator=random)
    weight = torch.ones_like(future)
    frame = pd.DataFrame({"unique_id": 0, "ds": range(200), "y": future.flatten(), "m": forecast.flatten()})
    for name, its in (("mae", mae), ("mse", mse)):
        mine = pointwise(name)(forecast[..., None], future, weight)
        assert float(mine) == pytest.approx(float(its(frame, models=["m"])["m"].iloc[0]), rel=1e-5)
    mine = pinball((0.3,))(forecast[..., None], future, weight)
    expected = quantile_loss(frame, models={"m": "m"}, q=0.3)["m"].iloc[0]
    assert float(mine) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("loss", [pointwise("mae"), pointwise("mse"), pointwise("huber"), pinball((0.5,))])
def test_what_was_not_observed_is_not_trained_on(loss: training.Loss) -> None:
    forecast, future = torch.randn(2, 6, 4, 1)
    weight = (torch.arange(24).view(6, 4, 1) % 3 > 0).float()
    spoiled = torch.where(weight > 0, future, 1e9)
    torch.testing.assert_close(loss(forecast[..., None], spoiled, weight), loss(forecast[..., None], future, weight))


def test_training_stops_when_patience_or_time_are_used_up() -> None:
    df = hourly(noise=3.0)
    history = quick(max_epochs=30, patience=1, learning_rate=0.05).fit(df)._fitted.history  # type: ignore[union-attr]
    errors = [epoch["validation"] for epoch in history]
    assert len(errors) < 30
    assert errors.index(min(errors)) == len(errors) - 2
    timed = quick(max_epochs=30, patience=30, max_time=1e-6).fit(df)._fitted
    assert timed is not None
    assert len(timed.history) == 1


def test_training_that_diverges_says_so() -> None:
    with pytest.raises(TrainingError, match="use a smaller learning_rate"):
        quick(loss="mse", learning_rate=1e18, gradient_clip=0.0, num_decays=2).fit(hourly())


def test_an_epoch_has_neither_too_few_nor_too_many_steps() -> None:
    seen: list[int] = []

    class Counted(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            seen.append(1)
            return super().step(closure)

    original = torch.optim.Adam
    torch.optim.Adam = Counted  # type: ignore[misc]
    try:
        for least, most, expected in ((64, 1000, 64), (1, 2, 2), (1, 1000, 3)):  # 2 series of 73 windows, 64 at once
            seen.clear()
            quick(max_epochs=1, prune=False, epoch_steps=(least, most)).fit(hourly(150), val_size=18)
            assert len(seen) == expected
    finally:
        torch.optim.Adam = original  # type: ignore[misc]


class Slope(torch.nn.Module):
    """A straight line through the last value, with one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> torch.Tensor:
        ahead = torch.arange(1.0, batch.target.shape[1] + 1)[:, None]
        return (batch.past[:, -1:] + self.slope * ahead)[..., None]


def slope_trainer(recipe: Recipe) -> Trainer[Slope]:
    """On a series that grows by 50 in each step."""
    values, none = 50 * np.arange(40.0)[:, None], np.zeros((40, 0))
    observed = np.ones((40, 1), bool)
    one = Series(name="a", position=0, values=values, observed=observed, past=none, future=none, static=np.zeros(0))
    sequences = WindowDataset(
        [one], [SeriesScaler(np.zeros(1), np.ones(1), (), np.zeros(1))], CovariateScaler.fit([one], [40]), 4, 2
    )
    windows = sequences.windows([4], [38])
    return Trainer(Slope(), sequences, windows, windows, pointwise("mse"), recipe, 0, make_fabric("cpu", 1, "32-true"))


def test_steps_get_shorter_from_epoch_to_epoch() -> None:
    trainer = slope_trainer(Recipe(learning_rate=0.1, decay=0.5, max_epochs=3, epoch_steps=(2, 2), batch_size=8))
    rates = []
    trainer.run(lambda trainer: rates.append(trainer.optimizer.param_groups[0]["lr"]))
    assert rates == pytest.approx([0.05, 0.025, 0.0125])


def test_the_weights_of_the_best_epoch_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = slope_trainer(Recipe(learning_rate=0.1, max_epochs=4, patience=9, epoch_steps=(2, 2), batch_size=8))
    judged = iter([3.0, 1.0, 2.0, 5.0])
    monkeypatch.setattr(trainer, "judge", lambda: next(judged))
    slopes = []
    found = trainer.run(lambda trainer: slopes.append(trainer.network.slope.item()))
    assert len(set(slopes)) == 4
    assert found.slope.item() == slopes[1]
    assert trainer.progress.best_epoch == 1


@pytest.mark.parametrize("wrong", [("abacus", "32-true"), ("cpu", "3-true"), ("tpu", "32-true")])
def test_what_cannot_be_had_is_refused_with_what_can(wrong: tuple[str, str]) -> None:
    with pytest.raises(ArgumentError, match=r"cannot be had here: .* accelerator='cpu'"):
        make_fabric(wrong[0], 1, wrong[1])


@pytest.mark.parametrize("clip", [0.0, 2.5])
def test_long_gradients_are_clipped(clip: float) -> None:
    trainer = slope_trainer(Recipe(gradient_clip=clip, max_epochs=1, epoch_steps=(3, 3), batch_size=8))
    seen = []
    trainer.optimizer.register_step_pre_hook(lambda *_: seen.append(abs(float(trainer.network.slope.grad))))  # type: ignore[arg-type]
    trainer.run()
    assert len(seen) == 3
    if clip:
        assert seen == pytest.approx([clip] * 3, rel=1e-4)
    else:
        assert min(seen) > 100


@pytest.mark.parametrize(
    ("loss", "expected"), [(pointwise("mae"), 2.0), (pointwise("mse"), 5.0), (pinball((0.5,)), 1.0)]
)
def test_a_loss_is_the_mean_over_what_was_observed(loss: training.Loss, expected: float) -> None:
    future = torch.tensor([[1.0, 9.0, 3.0, 9.0]])[..., None]
    weight = torch.tensor([[1.0, 0.0, 1.0, 0.0]])[..., None]
    assert float(loss(torch.zeros(1, 4, 1, 1), future, weight)) == expected
