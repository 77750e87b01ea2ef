from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from lightning_fabric import Fabric
from utilsforecast.losses import mae, mse, quantile_loss

from parallelrnn import Forecaster
from parallelrnn.errors import ArgumentError, CheckpointError, TrainingError
from parallelrnn.forecast import fitting
from parallelrnn.forecast.data import Series
from parallelrnn.forecast.windows import Batch, CovariateScaler, SeriesScaler, WindowDataset
from parallelrnn.io import load_tensors, save_tensors
from parallelrnn.sequence.data import SequenceBatch
from parallelrnn.training import trainer as training
from parallelrnn.training.checkpoint import FILE, Checkpoint
from parallelrnn.training.losses import pinball, pointwise
from parallelrnn.training.optimizers import Exponential, OneCycle, WarmupCosine
from parallelrnn.training.trainer import (
    EpochSampler,
    PassSampler,
    Progress,
    Trainer,
    TrainerConfig,
    make_fabric,
)
from tests.support import raises
from tests.training.samples import hourly, quick


def weights(forecaster: Forecaster) -> dict[str, torch.Tensor]:
    assert forecaster._state is not None
    return forecaster._state.network.state_dict()


def same(first: Forecaster, second: Forecaster) -> bool:
    ours, theirs = weights(first), weights(second)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


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


def test_plain_torch_trains_to_the_same_bits_as_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with two groups of parameters, whose gradients are clipped together."""
    monkeypatch.setattr(training, "parameter_groups", lambda network, *_: two_groups(network))
    fits = [quick(cell="gru", gradient_clip=0.01).fit(hourly())]
    assert not isinstance(make_fabric(), Fabric)
    monkeypatch.setattr(fitting, "make_fabric", lambda *_: Fabric(accelerator="cpu", devices=1, precision="32-true"))
    fits.append(quick(cell="gru", gradient_clip=0.01).fit(hourly()))
    assert same(*fits)


def two_groups(network: torch.nn.Module) -> list[dict[str, Any]]:
    parameters = list(network.parameters())
    return [{"params": parameters[::2], "lr": 0.01}, {"params": parameters[1::2], "lr": 0.02}]


def test_processes_that_slurm_has_started_are_left_to_fabric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert isinstance(make_fabric(), Fabric)


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_other_precisions_train_to_about_the_same(precision: str) -> None:
    df = hourly()
    usual, other = (quick(precision=value).fit(df).predict() for value in ("32-true", precision))
    scale = df.groupby("unique_id")["y"].std()[usual["unique_id"]].to_numpy()
    assert (abs(usual["yhat"] - other["yhat"]) / scale).max() < 0.1


class CutOffError(Exception):
    """What stops a training in the middle."""


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_training_that_was_cut_off_resumes_to_the_same_bits(
    epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = hourly()
    options: dict[str, Any] = {"max_epochs": 4, "patience": 4, "dropout": 0.2}
    uninterrupted = quick(**options).fit(df)
    step = Trainer._step

    def cut(self: Trainer[Any]) -> None:
        if self.progress.epoch == epochs:
            raise CutOffError
        step(self)

    with monkeypatch.context() as patched:
        patched.setattr(training.Trainer, "_step", cut)
        with pytest.raises(CutOffError):
            quick(**options).fit(df, checkpoint=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
    resumed = quick(**options).fit(df, checkpoint=tmp_path, resume=True)
    assert same(uninterrupted, resumed)
    assert resumed._state is not None
    assert len(resumed._state.history) == 4


def test_a_checkpoint_of_another_training_is_rejected(tmp_path: Path) -> None:
    df = hourly()
    first = quick().fit(df, checkpoint=tmp_path)
    for forecaster, table in ((quick(random_state=1), df), (quick(), df.assign(y=df["y"] + 1))):
        with raises(CheckpointError, tmp_path / FILE, "data", "arguments"):
            forecaster.fit(table, checkpoint=tmp_path, resume=True)
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data[:20])
    with raises(CheckpointError, FILE, "checksum", hint="delete it to start over"):
        quick().fit(df, checkpoint=tmp_path, resume=True)
    assert same(quick().fit(df, checkpoint=tmp_path), first)  # anew
    shutil.rmtree(tmp_path)
    assert same(quick().fit(df, checkpoint=tmp_path, resume=True), first)  # nothing to resume


def test_resuming_needs_a_checkpoint() -> None:
    with raises(ValueError, "checkpoint"):
        quick().fit(hourly(), resume=True)


def test_losses_equal_those_of_another_library() -> None:
    random = torch.Generator().manual_seed(0)
    forecast, future = torch.randn(2, 50, 4, 1, generator=random)
    weight = torch.ones_like(future)
    frame = pd.DataFrame({"unique_id": 0, "ds": range(200), "y": future.flatten(), "m": forecast.flatten()})
    for name, theirs in (("mae", mae), ("mse", mse)):
        ours = pointwise(name)(forecast[..., None], future, weight)
        assert float(ours) == pytest.approx(float(theirs(frame, models=["m"])["m"].iloc[0]), rel=1e-5)
    ours = pinball((0.3,))(forecast[..., None], future, weight)
    expected = quantile_loss(frame, models={"m": "m"}, q=0.3)["m"].iloc[0]
    assert float(ours) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("loss", [pointwise("mae"), pointwise("mse"), pointwise("huber"), pinball((0.5,))])
def test_unobserved_values_are_not_trained_on(loss: training.Loss) -> None:
    forecast, future = torch.randn(2, 6, 4, 1)
    weight = (torch.arange(24).view(6, 4, 1) % 3 > 0).float()
    spoiled = torch.where(weight > 0, future, 1e9)
    torch.testing.assert_close(loss(forecast[..., None], spoiled, weight), loss(forecast[..., None], future, weight))


def test_training_stops_when_patience_or_time_are_used_up() -> None:
    df = hourly(noise=3.0)
    history = quick(max_epochs=30, patience=1, learning_rate=0.05).fit(df)._state.history  # type: ignore[union-attr]
    errors = [epoch["validation"] for epoch in history]
    assert len(errors) < 30
    assert errors.index(min(errors)) == len(errors) - 2
    timed = quick(max_epochs=30, patience=30, max_time=1e-6).fit(df)._state
    assert timed is not None
    assert len(timed.history) == 1


def test_training_that_diverges_says_so() -> None:
    for clip in (0.0, 1.0):
        trainer = slope_trainer(learning_rate=1e30, gradient_clip=clip, epoch_steps=(2, 2))
        with raises(TrainingError, "epoch 1") as raised:
            trainer.run()
        assert "{learning_rate}" in raised.value.hint


@pytest.mark.parametrize(("limits", "steps"), [((64, 1000), 64), ((1, 2), 2), ((1, 1000), 3)])
def test_an_epoch_has_neither_too_few_nor_too_many_steps(limits: tuple[int, int], steps: int) -> None:
    sampler = EpochSampler(torch.arange(146), 64, limits, seed=0)
    assert sampler.steps == steps
    batches = [sampler.rows(0, step) for step in range(steps)]
    assert {len(batch) for batch in batches} == {64}
    counts = torch.cat(batches).bincount(minlength=146)
    assert counts.max() - counts.min() <= 1, "all rows come equally often"


@pytest.mark.parametrize("sampler", [EpochSampler(torch.arange(50), 8, (1, 99), 3), PassSampler(50, 8, 3, 5)])
def test_batches_do_not_depend_on_the_order_of_requests(sampler: EpochSampler | PassSampler) -> None:
    steps = [(epoch, step) for epoch in range(4) for step in range(sampler.steps)]
    batches = {place: sampler.rows(*place) for place in steps}
    for place in reversed(steps):
        assert torch.equal(sampler.rows(*place), batches[place])
    assert not torch.equal(batches[0, 0], batches[1, 0])


def test_epochs_of_any_length_see_every_example_once_a_pass() -> None:
    short, full = PassSampler(50, 8, 3, epoch_steps=5), PassSampler(50, 8, 3)
    rows = torch.cat([short.rows(*divmod(step, 5)) for step in range(14)])  # two passes of seven
    first = torch.cat([full.rows(0, step) for step in range(7)])
    assert torch.equal(rows[:50], first)
    assert torch.equal(rows[50:].sort().values, torch.arange(50))
    assert not torch.equal(rows[50:], first)


class Slope(torch.nn.Module):
    """A straight line through the last value, with one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros(()))

    def forward(self, batch: Batch) -> torch.Tensor:
        ahead = torch.arange(1.0, batch.target.shape[1] + 1)[:, None]
        return (batch.past[:, -1:] + self.slope * ahead)[..., None]


def slope_trainer(**options: Any) -> Trainer[Slope]:
    """On a series that grows by 50 in each step."""
    config = TrainerConfig(**{"learning_rate": 0.1, "batch_size": 8, "epoch_steps": (2, 2), **options})
    values, none = 50 * np.arange(40.0)[:, None], np.zeros((40, 0))
    observed = np.ones((40, 1), bool)
    series = Series(name="a", position=0, values=values, observed=observed, past=none, future=none, static=np.zeros(0))
    scaler = SeriesScaler(np.zeros(1), np.ones(1), (), np.zeros(1), np.zeros(1))
    dataset = WindowDataset([series], [scaler], CovariateScaler.fit([series], [40]), 4, 2)
    windows = dataset.windows([4], [38])
    return Trainer(Slope(), dataset, windows, windows, pointwise("mse"), config, 0, make_fabric())


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Exponential(0.5), [0.1, 0.1, 0.05, 0.05, 0.025, 0.025]),
        (WarmupCosine(1 / 3), [0.05, 0.1, 0.1, 0.08536, 0.05, 0.01464]),
    ],
)
def test_steps_are_as_long_as_the_schedule_says(schedule: Any, expected: list[float]) -> None:
    trainer = slope_trainer(schedule=schedule, max_epochs=3)
    rates: list[float] = []
    trainer.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    trainer.run()
    assert rates == pytest.approx(expected, rel=1e-3)


def test_training_ends_when_the_rate_is_low() -> None:
    trainer = slope_trainer(schedule=Exponential(0.1), max_epochs=9, minimum_rate=1e-3)
    trainer.run()
    assert [epoch["rate"] for epoch in trainer.progress.history] == pytest.approx([0.1, 0.01, 0.001])


def test_weights_decay() -> None:
    optimizer = small_trainer(weight_decay=0.1).optimizer
    assert type(optimizer) is torch.optim.AdamW
    assert {group["weight_decay"] for group in optimizer.param_groups} == {0.0, 0.1}


def test_the_weights_of_the_best_epoch_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for keep_best, epoch in ((True, 1), (False, 3)):
        trainer = slope_trainer(max_epochs=4, patience=9, keep_best=keep_best)
        errors = iter([3.0, 1.0, 2.0, 5.0])
        monkeypatch.setattr(trainer, "validate", lambda errors=errors: {"validation": next(errors)})
        slopes: list[float] = []
        network = trainer.run(lambda trainer, slopes=slopes: slopes.append(trainer.network.slope.item()))
        assert len(set(slopes)) == 4
        assert network.slope.item() == slopes[epoch]
        assert trainer.progress.best_epoch == 1


@pytest.mark.parametrize("wrong", [("abacus", "32-true"), ("cpu", "3-true"), ("tpu", "32-true")])
def test_an_accelerator_that_is_not_there_is_named(wrong: tuple[str, str]) -> None:
    with raises(ArgumentError, *map(repr, wrong)):
        make_fabric(wrong[0], 1, wrong[1])


@pytest.mark.parametrize("clip", [0.0, 2.5])
def test_long_gradients_are_clipped(clip: float) -> None:
    trainer = slope_trainer(gradient_clip=clip, max_epochs=1, epoch_steps=(3, 3))
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


class Examples:
    """Fifty sequences whose sum is to be predicted."""

    def __init__(self) -> None:
        self.x = torch.randn(50, 6, 2, generator=torch.Generator().manual_seed(0))

    def batch(self, rows: torch.Tensor) -> SequenceBatch:
        target = self.x[rows].sum((1, 2))[:, None]
        return SequenceBatch(self.x[rows], None, target, torch.ones_like(target))


def small_trainer(
    directory: Path | None = None, hidden_size: int = 8, weight_decay: float = 0.0, **options: Any
) -> Trainer[Any]:
    """With dropout, which draws random numbers at every step; seven steps in an epoch."""
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, hidden_size), torch.nn.Dropout(0.2))
    network.append(torch.nn.Linear(hidden_size, 1))
    return Trainer(
        network,
        Examples(),
        torch.arange(50),
        torch.arange(50),
        lambda output, target, weight: torch.nn.functional.mse_loss(output, target),
        TrainerConfig(
            learning_rate=1.0, max_epochs=4, schedule=OneCycle(0.8), patience=None, weight_decay=weight_decay
        ),
        0,
        make_fabric(),
        forward=lambda module, batch: module(batch.x),
        sampler=PassSampler(50, 8, 3),
        checkpoint=None if directory is None else Checkpoint(directory=directory, fingerprint="small", **options),
    )


def without_times(progress: Progress) -> Progress:
    return replace(progress, seconds=0.0, processor_seconds=0.0)


@pytest.mark.parametrize("steps", [1, 3, 7, 8, 20])  # 7 make an epoch
@pytest.mark.parametrize("each_epoch", [True, False])
def test_a_training_that_is_stopped_anywhere_resumes_to_the_bit(tmp_path: Path, steps: int, each_epoch: bool) -> None:
    uninterrupted = small_trainer()
    network = uninterrupted.run(lambda trainer: trainer.progress.notes.append(trainer.progress.epoch))
    assert uninterrupted.progress.best_epoch == 0, "so that the best weights are not the last"
    stops = 0
    while True:
        trainer = small_trainer(tmp_path, each_epoch=each_epoch)
        assert trainer.resume() == (stops > 0)
        left = iter([False] * (steps - 1))
        trainer.run(
            lambda trainer: trainer.progress.notes.append(trainer.progress.epoch), lambda left=left: next(left, True)
        )
        if trainer.is_done:
            break
        stops += 1
        torch.manual_seed(stops)  # another process would not draw the same numbers by itself
    assert stops == -(-28 // steps) - 1
    assert without_times(trainer.progress) == without_times(uninterrupted.progress)
    for parameter, expected in zip(trainer.network.parameters(), network.parameters(), strict=True):
        assert torch.equal(parameter, expected)


def test_a_training_that_is_killed_in_an_epoch_resumes_there(tmp_path: Path) -> None:
    """Checkpoints come every so many seconds, not only when somebody asks to stop."""
    expected = small_trainer().run()

    def kill_at_step_10() -> bool:
        if trainer.progress.epoch == 1 and trainer.progress.step == 3:
            raise CutOffError
        return False

    trainer = small_trainer(tmp_path, every=0.0)
    with pytest.raises(CutOffError):
        trainer.run(should_stop=kill_at_step_10)
    resumed = small_trainer(tmp_path)
    assert resumed.resume()
    assert (resumed.progress.epoch, resumed.progress.step) == (1, 2)
    assert load_tensors(tmp_path / FILE)[0]["progress"]["step"] == 2
    network = resumed.run()
    assert all(torch.equal(*pair) for pair in zip(network.parameters(), expected.parameters(), strict=True))


@pytest.mark.parametrize("change", [{"step": 99}, {"step": 0.5}, {"rates": []}, {"epoch": 3}])
def test_progress_that_no_training_has_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    small_trainer(tmp_path).run(should_stop=lambda: True)
    metadata, tensors = load_tensors(tmp_path / FILE)
    save_tensors(tmp_path / FILE, tensors, {**metadata, "progress": {**metadata["progress"], **change}})
    with raises(CheckpointError, FILE):
        small_trainer(tmp_path).resume()


def test_a_checkpoint_without_best_weights_is_rejected(tmp_path: Path) -> None:
    small_trainer(tmp_path).run(should_stop=lambda: True)
    metadata, tensors = load_tensors(tmp_path / FILE)
    rest = {name: tensor for name, tensor in tensors.items() if not name.startswith("best.")}
    save_tensors(tmp_path / FILE, rest, metadata)
    with raises(CheckpointError, FILE):
        small_trainer(tmp_path).resume()


def test_a_checkpoint_of_another_network_is_rejected(tmp_path: Path) -> None:
    small_trainer(tmp_path).run(should_stop=lambda: True)
    with raises(CheckpointError, FILE, "size mismatch"):
        small_trainer(tmp_path, hidden_size=10).resume()


@pytest.mark.parametrize(
    "wrong", [{"step": 1, "more": 2}, {"history": [{}]}, {"rates": [1.0, 1.0]}, {"epoch": 7}], ids=str
)
def test_a_checkpoint_with_other_progress_is_rejected(tmp_path: Path, wrong: dict[str, Any]) -> None:
    trainer = small_trainer(tmp_path)
    trainer.run(should_stop=lambda: True)
    progress, tensors = trainer._state()
    assert trainer.checkpoint is not None
    trainer.checkpoint.save({**progress, **wrong}, tensors)
    with raises(CheckpointError, FILE):
        small_trainer(tmp_path).resume()


def test_groups_are_trained_at_their_own_rates() -> None:
    network = torch.nn.ParameterList([torch.zeros(1), torch.zeros(1)])
    groups = [{"params": [network[0]], "lr": 0.1}, {"params": [network[1]], "lr": 0.01}]
    trainer = Trainer(
        network,
        Examples(),
        torch.arange(50),
        torch.arange(50),
        lambda output, target, weight: (output - target).square().mean(),
        TrainerConfig(max_epochs=1, epoch_steps=(1, 1)),
        0,
        make_fabric(),
        forward=lambda module, batch: network[0] + network[1],
        groups=groups,
    )
    trainer.run()
    first, second = (abs(parameter.item()) for parameter in network)
    assert first == pytest.approx(10 * second, rel=1e-3)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("epoch_steps", 3), ("epoch_steps", (2, 1)), ("max_time", "1"), ("max_time", 0), ("gradient_clip", -1.0)),
        *(("learning_rate", 0.0), ("learning_rate", "x"), ("batch_size", 1.5), ("patience", -1), ("max_epochs", 0)),
    ],
)
def test_wrong_arguments_are_rejected(argument: str, value: Any) -> None:
    with raises(ArgumentError, argument=argument, got=value):
        TrainerConfig(**{argument: value})
