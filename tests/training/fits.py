"""Small fits whose numbers are compared: a test runs them in one process, and by this script in two."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, distributed

from parallelrnn import Forecaster, SequenceClassifier, SequenceRegressor
from parallelrnn.errors import ArgumentError, ProcessError
from parallelrnn.training import trainer as training
from parallelrnn.training.trainer import Trainer, make_fabric
from tests.training.samples import hourly, quick

Numbers = dict[str, Tensor]
FILE = Path(__file__)  # which is no directory


def with_gaps() -> Any:
    """Series of which much is missing in one part, so that the two halves of a batch count differently."""
    df = hourly(steps=400, noise=1.0)
    step = np.arange(len(df)) % 400
    missing = (np.random.default_rng(0).random(len(df)) < 0.5) & (step >= 50) & (step < 200)
    return df.assign(y=df["y"].where(~missing))


def ragged(count: int = 61) -> tuple[list[Any], Any]:
    random = np.random.default_rng(1)
    sequences = [random.standard_normal((int(length), 2)) for length in random.integers(5, 30, count)]
    return sequences, np.array([sequence.mean() for sequence in sequences])


def forecaster(**options: Any) -> Forecaster:
    """33 windows at once, which two processes cannot share evenly; early stopping and pruning decide.

    Squares have no kink: where an error's size is the loss, its gradient jumps, and rounding grows from step to step.
    """
    same = {"loss": "mse", "dropout": 0.0, "batch_size": 33, "max_epochs": 6, "patience": 1, "learning_rate": 0.02}
    return quick(lookback=24, horizon=8, **{**same, **options})


def numbers_of(fitted: Any) -> Numbers:
    """All that a fit has learned, and how it went."""
    if isinstance(fitted, Forecaster):
        assert fitted._state is not None
        epochs, network = fitted._state.history, fitted._state.network
    else:
        epochs, network = fitted._history, fitted._network
    history = torch.tensor([[epoch["training"], epoch["validation"]] for epoch in epochs], dtype=torch.float64)
    numbers = {f"weights.{name}": tensor for name, tensor in network.state_dict().items()}
    if isinstance(fitted, Forecaster):
        numbers["forecasts"] = torch.tensor(fitted.predict(level=[80]).select_dtypes("number").to_numpy())
    return {"history": history, **numbers}


def fit_forecaster(devices: int) -> Numbers:
    return numbers_of(forecaster(devices=devices).fit(with_gaps()))


def fit_quantiles(devices: int) -> Numbers:
    options = {"quantiles": [0.1, 0.9], "cell": "gru", "max_epochs": 1, "segment": 6}
    return numbers_of(forecaster(devices=devices, **options).fit(with_gaps()))


def fit_classifier(devices: int) -> Numbers:
    """Classes of very different weights, some of a batch's halves being lighter than one."""
    sequences, values = ragged()
    classes = np.where(values > np.quantile(values, 0.9), "many", "few")
    quick = {"max_epochs": 3, "batch_size": 5, "epoch_steps": (8, 8), "hidden_size": 8, "random_state": 0}
    weights = {"many": 1.0, "few": 0.05}
    return numbers_of(SequenceClassifier(devices=devices, class_weight=weights, **quick).fit(sequences, classes))


def fit_regressor(devices: int) -> Numbers:
    """With one sequence for validation more than a process has of them."""
    sequences, values = ragged()
    quick = {"max_epochs": 3, "batch_size": 7, "epoch_steps": (8, 8), "hidden_size": 8, "random_state": 0}
    split = {"validation_fraction": 0.17}
    return numbers_of(SequenceRegressor(devices=devices, **quick, **split).fit(sequences, values))


FITS: dict[str, Callable[[int], Numbers]] = {
    "forecaster": fit_forecaster,
    "quantiles": fit_quantiles,
    "classifier": fit_classifier,
    "regressor": fit_regressor,
}


def fit_with_checkpoint(out: Path, resume: bool = False, **options: Any) -> Forecaster:
    """With dropout, whose random numbers have to continue as well, and a directory that only this process knows."""
    directory = out / f"checkpoint-{os.environ.get('LOCAL_RANK', '0')}"
    model = forecaster(devices=2, dropout=0.2, patience=9, max_epochs=4, **options)
    return model.fit(with_gaps(), checkpoint=directory, resume=resume)


def error_message(call: Callable[[], Any]) -> str:
    try:
        call()
    except (ArgumentError, ProcessError, OSError) as error:
        return str(error)
    return ""


def exchanged(rank: int) -> tuple[list[Any], Any]:
    """Of many sequences two have each other's target, in one process."""
    sequences, values = ragged(count=400)
    values[[200, 201]] = values[[201, 200]] if rank else values[[200, 201]]
    return sequences, values


def ending_otherwise(rank: int) -> Any:
    """One value, which serves for validation alone, is another in one process."""
    df = hourly(noise=1.0)
    df.loc[399, "y"] += 0.1 * rank
    return df


def error_messages(rank: int) -> dict[str, str]:
    """Return the error message of each case that is unfit for two processes."""
    return {
        "other data": error_message(lambda: forecaster(devices=2).fit(hourly(noise=1.0, seed=rank))),
        "other steps": error_message(lambda: forecaster(devices=2).fit(hourly(steps=300 + rank))),
        "other seeds": error_message(lambda: SequenceRegressor(devices=2).fit(*ragged())),
        "exchanged": error_message(lambda: SequenceRegressor(devices=2, random_state=0).fit(*exchanged(rank))),
        "other ending": error_message(lambda: forecaster(devices=2).fit(ending_otherwise(rank))),
        "small batch": error_message(lambda: forecaster(devices=2, batch_size=1).fit(hourly())),
        "three": error_message(lambda: make_fabric("cpu", 3, "32-true")),
    }


def epochs_by_other_clocks(rank: int) -> int:
    """How many epochs are trained if time is up in one process alone."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 100.0 * rank
        return now

    real, training.time.perf_counter = training.time.perf_counter, clock
    try:
        state = forecaster(devices=2, max_time=50.0, max_epochs=5, patience=9).fit(with_gaps())._state
    finally:
        training.time.perf_counter = real
    assert state is not None
    return len(state.history)


def killed_in_the_third_epoch(out: Path, rank: int) -> str:
    """What the first process says when the other is killed in the middle of an epoch."""
    step = Trainer._step

    def killed(self: Trainer[Any]) -> None:
        if rank == 1 and self.progress.epoch == 2 and self.progress.step == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        step(self)

    Trainer._step = killed  # type: ignore[method-assign]
    return error_message(lambda: fit_with_checkpoint(out))


def keep(out: Path, rank: int, numbers: dict[str, Numbers]) -> None:
    flat = {f"{name} {key}": tensor.contiguous() for name, fit in numbers.items() for key, tensor in fit.items()}
    save_file(flat, out / f"numbers-{rank}.safetensors")


def everything(out: Path) -> None:
    """All of it in two processes, with what each of them finds; at the end one of them is killed."""
    numbers = {name: fit(2) for name, fit in FITS.items()}
    rank = distributed.get_rank()
    if rank == 1:
        sys.modules["rich.console"] = None  # type: ignore[assignment]  # only the first shows how far it is
    uninterrupted = fit_with_checkpoint(out / "uninterrupted", progress=True)
    numbers["resumable"] = numbers_of(uninterrupted)
    uninterrupted.save(out / f"model-{rank}")
    results: dict[str, Any] = {"errors": error_messages(rank), "epochs": epochs_by_other_clocks(rank)}
    results["no directory"] = error_message(lambda: forecaster(devices=2).fit(with_gaps(), checkpoint=FILE))
    if rank == 0:  # as a script does that has more to do once: nobody else takes part
        forecaster(max_epochs=1).fit(with_gaps(), checkpoint=out / "alone")
    keep(out, rank, numbers)
    (out / f"results-{rank}.json").write_text(json.dumps(results))
    (out / "killed.txt").write_text(killed_in_the_third_epoch(out / "killed", rank))


def resume_killed(out: Path) -> None:
    """Resume the fit that was killed; only the first process knows of its checkpoint."""
    model = fit_with_checkpoint(out, resume=True)
    rank = distributed.get_rank()
    keep(out, rank, {"resumable": numbers_of(model)})
    distributed.destroy_process_group()
    model.save(out / f"model-{rank}")


if __name__ == "__main__":
    {"everything": everything, "resume": resume_killed}[sys.argv[1]](Path(sys.argv[2]))
