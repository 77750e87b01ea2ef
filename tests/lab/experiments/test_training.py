"""A training that is cut off anywhere and gone on with gives the numbers of one that never was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from parallelrnn.lab.experiments.experiment import ExperimentError, OutOfTimeError, Workspace
from parallelrnn.lab.experiments.models import Recurrent
from parallelrnn.lab.experiments.tasks import Part, Regression
from parallelrnn.lab.experiments.training import Progress, Schedule, Training, progress_of

LONG = Schedule(1e-2, max_epochs=4, patience=0, minimum_rate=1e-6)


def task(epoch_steps: int | None = None) -> Regression:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(50, 6, 2, generator=random)
    y = x.sum((1, 2))[:, None]
    part = Part(50, lambda rows: (x[rows], y[rows]))
    return Regression(part, part, batch_size=8, seed=3, epoch_steps=epoch_steps)


def network() -> nn.Module:
    torch.manual_seed(1)
    layer = Recurrent("ParaGRU", 2, 1, hidden_size=8)
    layer.aggregate = nn.Sequential(layer.aggregate, nn.Dropout(0.2))  # which draws at every step
    return layer


class Clock(Workspace):
    """A workspace whose time is up after so many looks at it."""

    def after(self, looks: int) -> Clock:
        object.__setattr__(self, "looks", looks)
        return self

    @property
    def is_over(self) -> bool:
        self.after(self.looks - 1)  # type: ignore[has-type]
        return self.looks < 0  # type: ignore[has-type, no-any-return]


def without_time(progress: Progress) -> tuple[object, ...]:
    return progress.epoch, progress.rate, progress.best, progress.curve, progress.notes


@pytest.mark.parametrize("steps", [1, 3, 7, 8, 20])  # 7 make an epoch
def test_goes_on_to_the_bit(tmp_path: Path, steps: int) -> None:
    whole = network()
    expected = Training(whole, task(), LONG, Workspace(), watch=lambda network: len(list(network.parameters()))).run()
    cuts = 0
    while True:
        again = network()
        clock = Clock(tmp_path, every=0.0).after(steps)
        training = Training(again, task(), LONG, clock, watch=lambda network: len(list(network.parameters())))
        try:
            found = training.run()
            break
        except OutOfTimeError:
            cuts += 1
    assert cuts >= 28 // (steps + 1) - 1
    assert without_time(found) == without_time(expected)
    for mine, its in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, its)


def test_best_weights_are_taken() -> None:
    net = network()
    learning = task()
    progress = Training(net, learning, Schedule(0.3, max_epochs=6, gradient_clip=None), Workspace()).run()
    judged = [line["validation"] for line in progress.curve]
    assert min(judged) < judged[-1], "the last epoch should not be the best here"
    assert learning.judge(net)["validation"] == pytest.approx(min(judged), rel=1e-6)


def test_rate_is_halved_when_nothing_gets_better_and_training_ends_when_it_is_low() -> None:
    class Stuck(Regression):
        def judge(self, network: nn.Module) -> dict[str, float]:
            return {"validation": 1.0}

    some = task()
    stuck = Stuck(some._train, some._validation, 8, 3)
    progress = Training(network(), stuck, Schedule(1.0, 100, patience=1, minimum_rate=0.2), Workspace()).run()
    # The first epoch is better than nothing; then the rate falls after every two.
    assert [line["rate"] for line in progress.curve] == [1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_rate_is_lowered_in_steps() -> None:
    schedule = Schedule(1.0, 6, factor=0.1, patience=None, period=2)
    progress = Training(network(), task(), schedule, Workspace()).run()
    assert [line["rate"] for line in progress.curve] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_stops_when_stuck() -> None:
    progress = Training(network(), task(), Schedule(0.0, 50, stop_after=3), Workspace()).run()
    assert progress.epoch == 4  # a first one, and three that are no better


def test_epochs_of_any_length_see_every_example_once_a_pass() -> None:
    short = task(epoch_steps=5)
    seen = torch.cat([short.batch(*divmod(step, 5))[1] for step in range(14)])  # two passes of seven
    once = torch.cat([task().batch(0, step)[1] for step in range(7)])
    assert torch.equal(seen[:50], once)
    assert torch.equal(seen[50:].sort(0).values, once.sort(0).values)
    assert not torch.equal(seen[50:], once)


def test_a_broken_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutOfTimeError):
        Training(network(), task(), LONG, Clock(tmp_path, every=0.0).after(2)).run()
    assert progress_of(Workspace(tmp_path)) is not None
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ExperimentError, match=r"is not what was written.*remove it to start anew"):
        Training(network(), task(), LONG, Workspace(tmp_path)).run()


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutOfTimeError):
        Training(network(), task(), LONG, Clock(tmp_path, every=0.0).after(2), of="one").run()
    with pytest.raises(ExperimentError, match="of a training on other data; remove it to start anew"):
        Training(network(), task(), LONG, Workspace(tmp_path), of="two").run()
    torch.manual_seed(0)
    wider = Recurrent("ParaGRU", 2, 1, hidden_size=10)
    with pytest.raises(ExperimentError, match=r"(?s)does not fit this release: .*remove it to start anew"):
        Training(wider, task(), LONG, Workspace(tmp_path), of="one").run()


def test_threads_stay_what_they_were(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(OutOfTimeError):
            Training(network(), task(), LONG, Clock(tmp_path, every=0.0).after(2)).run()
        torch.set_num_threads(1)
        Training(network(), task(), LONG, Workspace(tmp_path)).run()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_diverges_is_no_result() -> None:
    class Lost(Regression):
        def judge(self, network: nn.Module) -> dict[str, float]:
            return {"validation": float("nan")}

    some = task()
    with pytest.raises(ExperimentError, match="training diverged: the validation error is not finite after epoch 1"):
        Training(network(), Lost(some._train, some._validation, 8, 3), LONG, Workspace()).run()


def test_parts_are_judged_some_steps_at_a_time() -> None:
    lengths = []

    def take(rows: Tensor) -> tuple[Tensor, Tensor]:
        lengths.append(len(rows))
        return torch.zeros(len(rows), 40_000, 1), torch.zeros(len(rows), 1)

    assert sum(len(targets) for _, targets in Part(5, take).in_turns()) == 5
    assert lengths == [1, 2, 2, 1], "one to see how long they are, then 80,000 steps at a time"


def test_deadline_is_a_time(tmp_path: Path) -> None:
    assert not Workspace(tmp_path, time.monotonic() + 100).is_over
    assert Workspace(tmp_path, time.monotonic()).is_over


def test_twins_share_all_but_the_recurrent_layer() -> None:
    for cell in ("RNN", "LSTM", "GRU"):
        vanilla, para = (Recurrent(name, 3, 2, hidden_size=8, num_layers=2, seed=5) for name in (cell, f"Para{cell}"))
        shared, other = (
            {name: parameter for name, parameter in net.named_parameters() if not name.startswith("layer")}
            for net in (vanilla, para)
        )
        assert len(shared) == 6
        assert shared.keys() == other.keys()
        assert all(torch.equal(shared[name], other[name]) for name in shared), "they begin the same"
        assert type(vanilla.layer) is getattr(nn, cell)
        x = torch.randn(4, 5, 3)
        for net in (vanilla, para):
            states: Tensor = net.layer(x)[0]
            expected = net.read_out(net.aggregate(states[:, -1]))
            torch.testing.assert_close(net(x), expected)
