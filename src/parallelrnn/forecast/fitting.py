"""From series to all that a forecaster knows: profiles, a trained network, and how far off it is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from parallelrnn.errors import TableError, check_integer
from parallelrnn.forecast.conformal import middle_of
from parallelrnn.forecast.decomposition import Origins
from parallelrnn.forecast.fitted import Fitted
from parallelrnn.forecast.inference import calibrate
from parallelrnn.forecast.initialization import start_network
from parallelrnn.forecast.model import Network
from parallelrnn.forecast.options import Options
from parallelrnn.forecast.panel import Panel, Series
from parallelrnn.forecast.pruning import prune
from parallelrnn.forecast.seasonality import calendar_periods
from parallelrnn.forecast.windows import CovariateScale, Profile, Sequences
from parallelrnn.training.checkpoint import Checkpoint
from parallelrnn.training.distributed import from_first
from parallelrnn.training.losses import pinball, pointwise
from parallelrnn.training.trainer import Loss, Trainer, TrainerConfig, fork_rng, make_fabric

_LOOKBACK = 336  # steps, where series are long enough
_SAMPLED = 512  # windows, by which forecasts are explained
_MUCH = 10  # times the steps of a series
_DECAY = 0.6  # of the learning rate after each epoch
_VALIDATION = 5  # a series over this is its part for validation


@dataclass(frozen=True)
class Split:
    """Which windows are trained on, and which are not."""

    training: Tensor  # windows (N, 2)
    validation: Tensor
    first: list[int]  # of each series, the first origin that is not trained on


def learn(options: Options, panel: Panel, val_size: int | None, checkpoint: Checkpoint | None = None) -> Fitted:
    """Fit everything; random numbers come from a generator of their own."""
    periods = _periods(options, panel)
    lookback = options.lookback or _default_lookback(panel.series)
    _tell_of_long_lookback(lookback, panel.series)
    steps = [len(one) - _validation_steps(len(one), options.horizon, val_size) for one in panel.series]
    _check_observed(panel, steps)
    named = options.cycles is not None and options.cycles != "calendar"
    profiles = [Profile.of(one, n, periods, named) for one, n in zip(panel.series, steps, strict=True)]
    if named:
        _tell_lost_cycles(panel.series, steps, profiles, periods)
    covariates = CovariateScale.of(panel.series, steps)
    sequences = Sequences(panel.series, profiles, covariates, lookback, options.horizon)
    split = split_windows(panel.series, sequences, steps)
    with fork_rng(options.random_state, options.accelerator):
        network = start_network(options, panel, sequences, split.training, periods, profiles, covariates, steps)
        network, history = _train(options, network, sequences, split, checkpoint)
    sample = split.validation[:: max(1, len(split.validation) // _SAMPLED)]
    return Fitted(
        network,
        panel.columns,
        panel.grid,
        tuple(periods),
        named,
        covariates,
        {one.name: profile for one, profile in zip(panel.series, profiles, strict=True)},
        {one.name: one.position + n for one, n in zip(panel.series, steps, strict=True)},
        tuple(one.tail(lookback) for one in panel.series),
        calibrate(network, sequences, middle_of(options.quantiles), split.first),
        Origins.of(
            network,
            sequences.batch(sample),
            sample[:, 0].tolist(),
            [panel.series[index].position + origin for index, origin in sample.tolist()],
        ),
        None if options.quantiles is None else tuple(options.quantiles),
        history,
    )


def _train(
    options: Options, network: Network, sequences: Sequences, split: Split, checkpoint: Checkpoint | None
) -> tuple[Network, tuple[dict[str, float], ...]]:
    """Train, and take out the waves that are not needed; the network, and the errors after each epoch."""
    loss = pointwise(options.loss) if options.quantiles is None else pinball(tuple(options.quantiles))
    fabric = make_fabric(options.accelerator, options.devices, options.precision)
    seconds = 0.0

    def trainer_of(network: Network, config: TrainerConfig, checkpoint: Checkpoint | None = None) -> Trainer[Network]:
        parts = (split.training, split.validation)
        return Trainer(network, sequences, *parts, loss, config, options.random_state, fabric, checkpoint=checkpoint)

    def train_again(network: Network) -> tuple[Network, float]:
        nonlocal seconds
        again = trainer_of(network, _to_finish(options.trainer_config(), seconds))
        trained = again.run()
        seconds += again.progress.seconds
        return trained, again.progress.best

    trainer = trainer_of(network, options.trainer_config(), checkpoint)
    trainer.resume()
    trained = trainer.run(show_progress=options.progress)
    seconds = trainer.progress.seconds
    if not options.prune or (options.max_time is not None and seconds >= options.max_time):
        return trained, tuple(trainer.progress.history)
    judge = _as_first(loss) if fabric.world_size > 1 else loss
    pruned, _ = prune(trained, sequences, split.validation, judge, trainer.progress.best, train_again)
    return pruned, tuple(trainer.progress.history)


def _to_finish(config: TrainerConfig, used: float) -> TrainerConfig:
    """Two more epochs at the pace of the third, for a network that has lost a part of itself; in the time left."""
    left = None if config.max_time is None else max(1e-9, config.max_time - used)
    return replace(config, learning_rate=config.learning_rate * _DECAY**2, max_epochs=2, max_time=left)


def _as_first(loss: Loss) -> Loss:
    """As the first process finds it: all have to decide alike, and other processors round otherwise."""
    return lambda *batch: torch.tensor(from_first(float(loss(*batch))))


def _periods(options: Options, panel: Panel) -> list[float]:
    if options.cycles is None:
        return []
    return calendar_periods(panel.grid.step) if options.cycles == "calendar" else [float(p) for p in options.cycles]


def _tell_lost_cycles(
    series: Sequence[Series], steps: Sequence[int], profiles: Sequence[Profile], periods: Sequence[float]
) -> None:
    for one, n, profile in zip(series, steps, profiles, strict=True):
        lost = [period for period in periods if period not in [cycle.period for cycle in profile.cycles]]
        if lost:
            warnings.warn(
                f"series {one.name!r} lacks cycles of {', '.join(f'{one:g}' for one in lost)} steps: the {n} steps "
                "that are learned from do not hold them twice",
                stacklevel=5,
            )


def _check_observed(panel: Panel, steps: Sequence[int]) -> None:
    for one, n in zip(panel.series, steps, strict=True):
        empty = np.flatnonzero(~one.observed[:n].any(axis=0))
        if len(empty):
            raise TableError(
                f"series {one.name!r}: the target {panel.columns.targets[empty[0]]!r} has no value in the {n} steps "
                "that are learned from; leave it out, or give a smaller val_size"
            )


def _tell_of_long_lookback(lookback: int, series: Sequence[Series]) -> None:
    longest = max(len(one) for one in series)
    if lookback > _MUCH * longest:
        warnings.warn(
            f"lookback={lookback} is more than {_MUCH} times the longest series, {longest} steps; what is before its "
            "beginning says nothing and takes time",
            stacklevel=4,
        )


def _default_lookback(series: Sequence[Series]) -> int:
    typical = int(np.median([len(one) for one in series]))
    return max(1, min(_LOOKBACK, typical // 4))


def _validation_steps(length: int, horizon: int, val_size: int | None) -> int:
    """Steps at the end of a series that training does not see; none where that would leave nothing to learn from."""
    if val_size is not None and check_integer("val_size", val_size, 1) < horizon:
        raise ValueError(
            f"val_size has to hold at least one forecast of {horizon} steps, got {val_size}; use {horizon} or more"
        )
    wanted = max(horizon, length // _VALIDATION) if val_size is None else val_size
    return wanted if length - wanted > horizon + 1 else 0


def split_windows(series: Sequence[Series], sequences: Sequences, steps: list[int]) -> Split:
    """Windows whose futures lie in the first so many steps of each series, and windows whose futures lie after."""
    lookback, horizon = sequences.lookback, sequences.horizon
    # Windows of long series are whole; series that are too short for one begin within it.
    least = [lookback if n >= lookback + horizon else min(2, max(1, n - horizon)) for n in steps]
    training = sequences.with_future(sequences.origins(least, [n - horizon + 1 for n in steps]))
    if not len(training):
        longest = max(series, key=len)
        raise ValueError(
            f"no series is long enough to learn a horizon of {horizon} steps from: the longest, {longest.name!r}, has "
            f"{len(longest)}, or too much of them is missing; give longer series or a shorter horizon"
        )
    validation = sequences.with_future(sequences.origins(steps, [len(one) - horizon + 1 for one in series]))
    if not len(validation):
        warnings.warn(
            "no series has a part that can be kept for validation, being too short or missing there: training does not "
            "stop early, and intervals come from forecasts of what was trained on, so they are too narrow",
            stacklevel=4,
        )
        return Split(training, training, least)
    return Split(training, validation, list(steps))
