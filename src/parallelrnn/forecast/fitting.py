"""From a panel of series to a fitted state: scalers, a trained and pruned network, its calibration."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from parallelrnn.errors import ArgumentError, TableError, check_integer
from parallelrnn.forecast.conformal import calibrate
from parallelrnn.forecast.data import Array, Panel, Series, warn_user
from parallelrnn.forecast.initialization import initial_network
from parallelrnn.forecast.local import Bank, LocalModels, choose_bank, run_local, season_of, weigh
from parallelrnn.forecast.model import Network
from parallelrnn.forecast.seasonality import calendar_periods, fit_scaler
from parallelrnn.forecast.state import ForecasterState
from parallelrnn.forecast.windows import Batch, CovariateScaler, SeriesScaler, WindowDataset
from parallelrnn.nn import WaveDecoder
from parallelrnn.training.checkpoint import Checkpoint
from parallelrnn.training.distributed import from_first
from parallelrnn.training.losses import pinball, pointwise
from parallelrnn.training.trainer import Loss, Trainer, fork_rng, make_fabric

if TYPE_CHECKING:
    from parallelrnn.forecast.api import Forecaster

_LOOKBACK = 336  # steps, where series are long enough
_MAX_SAMPLE = 512  # windows that explanations, and the pruning of waves, are based on
_MAX_LOOKBACK_RATIO = 10  # of the look-back to the longest series
_VALIDATION_PART = 5  # a fifth of a series validates
# How much worse forecasts may get when waves are removed, before the rest is trained to make up for it. The first
# tolerance from which training does is taken.
_PRUNING_TOLERANCES = (0.03, 0.005)
_LOGS = {"auto": None, "log": True, None: False}  # by transform
_MANY_STEPS, _LONG_SERIES = 20_000, 120  # of all series, or of one, that a network takes to add anything
_STEPS_OF_KNOWN_SEASON = 1000  # of all series, that it takes besides where local models know the seasons
_SHARES = tuple(n / 10 for n in range(11))  # of the network in forecasts
_MAX_SHARED = 20_000  # windows that shares are compared on
_DOUBT = 0.2  # of its error, by which a network alone has to be better if it was compared over one horizon
_NO_WORSE = 1.001  # times the validation loss before


@dataclass(frozen=True)
class Split:
    """The windows that are trained on, and those that are not."""

    training: Tensor  # windows (N, 2)
    validation: Tensor
    first: list[int]  # of each series, the first origin that is not trained on


def fit_panel(
    options: Forecaster, panel: Panel, val_size: int | None, checkpoint: Checkpoint | None = None
) -> ForecasterState:
    """Fit everything; random numbers come from a generator of their own."""
    periods, named = _periods(options, panel)
    typical, season = int(np.median([len(series) for series in panel.series])), season_of(periods)
    lookback = options.lookback or max(1, min(_LOOKBACK, max(typical // 4, min(3 * season, typical // 2))))
    longest = max(map(len, panel.series))
    if lookback > _MAX_LOOKBACK_RATIO * longest:
        problem = f"{lookback} steps are more than {_MAX_LOOKBACK_RATIO} times the longest series of {longest} steps"
        warn_user(f"{problem}; padding before its beginning takes time and adds nothing", argument="lookback")
    steps = [len(series) - _validation_steps(len(series), options.horizon, val_size) for series in panel.series]
    if val_size is not None and steps == [len(series) for series in panel.series]:
        expected = f"at most {longest - options.horizon - 2} of the {longest} steps of the longest series"
        hint = "leave training more steps than {horizon}"
        raise ArgumentError(argument="val_size", expected=expected, got=val_size, hint=hint)
    _check_observed(panel, steps)
    _check_positive(panel, options.positive)
    lengths = [len(series) for series in panel.series]
    floors: Sequence[Array | None] = [None] * len(panel.series)
    # Local models know no covariates, and their forecasts have no quantiles.
    uses_local = options.models != "network" and options.quantiles is None and not panel.columns.future
    if uses_local:
        logs = _LOGS[options.transform]
        bank = choose_bank(season, options.horizon, panel.series, steps, logs)
        found, weights, _ = weigh(bank, panel.series, steps, logs)
        floors = list(found)
        _warn_not_positive(panel.series, list(found), options.transform)
    scalers = [
        fit_scaler(series, n, periods, named, floor)
        for series, n, floor in zip(panel.series, steps, floors, strict=True)
    ]
    if named:
        _warn_missing_cycles(panel.series, steps, scalers, periods)
    covariates = CovariateScaler.fit(panel.series, steps)
    dataset = WindowDataset(panel.series, scalers, covariates, lookback, options.horizon)
    trains = not uses_local or checkpoint is not None or _is_worth_training(options, panel, dataset, periods)
    split = split_windows(dataset, steps, None if trains else bank)
    history: tuple[dict[str, float], ...] = ()
    with fork_rng(options.random_state, options.accelerator):
        network = initial_network(options, panel, dataset, split.training, periods, covariates, steps)
        if trains:
            network, history = _train(options, network, dataset, split, checkpoint)
    local: LocalModels | None = None
    if uses_local:
        tables = [scaler.with_cycles(series) for scaler, series in zip(scalers, panel.series, strict=True)]
        known = [max(0, own - options.horizon) for own in split.first]  # also errors before the validation part
        nothing_validates = not trains and steps == lengths
        states = run_local(bank, tables, split.first if nothing_validates else steps, weights, known)
        if nothing_validates:  # what models begin with says nothing about their errors
            states = [own[begin - 1 :] for own, begin in zip(states, split.first, strict=True)]
        with_local = dataset.with_local(states)
        hidden = np.median([n - own for n, own in zip(lengths, steps, strict=True)])
        turns = max(1.0, float(hidden) / options.horizon)
        share = _network_share(network, with_local, split.validation, bank.period, turns) if history else 0.0
        network.config = replace(network.config, share=share, season=bank.period)
        dataset = with_local if share < 1 else dataset
        if share < 1 or (found > 0).any():
            _, weights, prior = weigh(bank, panel.series, lengths, found > 0)
            final = run_local(bank, tables, lengths, weights, steps)
            local = LocalModels(bank, prior, weights, torch.stack([own[-1] for own in final]), logs)
    sample = _thinned(split.validation)
    with torch.no_grad():
        encoded = network.eval().encode(dataset.batch(sample))
    quantiles = None if options.quantiles is None else tuple(options.quantiles)
    return ForecasterState(
        network=network,
        columns=panel.columns,
        grid=panel.grid,
        periods=tuple(periods),
        named_cycles=named,
        covariates=covariates,
        scalers=tuple(scalers),
        trained_until=tuple(series.position + n for series, n in zip(panel.series, steps, strict=True)),
        recent=tuple(series.tail(lookback) for series in panel.series),
        calibration=calibrate(network, dataset, 0 if quantiles is None else quantiles.index(0.5), split.first),
        sample=encoded,
        sample_origins=dataset.origins(sample),
        quantiles=quantiles,
        history=history,
        local=local,
        positive=options.positive,
    )


def _is_worth_training(options: Forecaster, panel: Panel, dataset: WindowDataset, periods: Sequence[float]) -> bool:
    """Return whether a network was asked for, or there are enough data for one to add anything to local models."""
    if options.models != "auto":
        return options.models == "both"
    if options.cell != "linear" or panel.columns.past or panel.columns.static:
        return True
    total, longest = int(dataset.lengths.sum()), int(dataset.lengths.max())
    needed = _STEPS_OF_KNOWN_SEASON if season_of(periods) == max(periods, default=0) else 0
    return total >= _MANY_STEPS or (longest >= _LONG_SERIES and total >= needed)


@torch.no_grad()
def _network_share(network: Network, dataset: WindowDataset, windows: Tensor, season: int, turns: float) -> float:
    """Return the share of the network in forecasts, the rest being that of local models, that misses least.

    Training has stopped where it did best on these very windows, and the fewer `turns` of the horizon there are, the
    less they say: a large share has to be better by more.
    """
    windows = windows[:: max(1, len(windows) // _MAX_SHARED)]
    network.eval()
    base, errors = network.config, np.zeros(len(_SHARES))
    for batch in dataset.batches(windows):
        network.config = base
        own = network(batch)[..., 0]
        network.config = replace(base, share=0.0, season=season)
        local = network(batch)[..., 0]
        for index, share in enumerate(_SHARES):
            missed = (batch.target - share * own - (1 - share) * local).abs() * batch.weight
            errors[index] += float(missed.sum())
    network.config = base
    shares = np.array(_SHARES)
    return _SHARES[int((errors * (1 + _DOUBT / turns * shares**2)).argmin())]


def _train(
    options: Forecaster, network: Network, dataset: WindowDataset, split: Split, checkpoint: Checkpoint | None
) -> tuple[Network, tuple[dict[str, float], ...]]:
    """Train a network and prune its waves; return it with the losses of each epoch."""
    loss = pointwise(options.loss) if options.quantiles is None else pinball(tuple(options.quantiles))
    fabric = make_fabric(options.accelerator, options.devices, options.precision)
    data, seed = (dataset, split.training, split.validation, loss), options.random_state
    config = options.trainer_config()
    trainer = Trainer(network, *data, config, seed, fabric, checkpoint=checkpoint)
    trainer.resume()
    network = trainer.run(show_progress=options.progress)
    history, best, seconds = tuple(trainer.progress.history), trainer.progress.best, trainer.progress.seconds
    if not options.prune or (options.max_time is not None and seconds >= options.max_time):
        return network, history
    # All processes have to remove the same waves, although their processors may round differently.
    shared_loss = (lambda *batch: torch.tensor(from_first(float(loss(*batch))))) if fabric.world_size > 1 else loss
    for candidate in pruned_networks(network, dataset.batch(_thinned(split.validation)), shared_loss):
        left = None if config.max_time is None else max(1e-9, config.max_time - seconds)
        rate = config.learning_rate * config.schedule.epoch_factor(()) ** 2  # that of the third epoch
        finish = replace(config, learning_rate=rate, max_epochs=1, max_time=left)
        trainer = Trainer(candidate, *data, finish, seed, fabric)
        candidate = trainer.run()
        seconds += trainer.progress.seconds
        if trainer.progress.best <= best * _NO_WORSE:
            return candidate, history
    return network, history


def pruned_networks(network: Network, batch: Batch, loss: Loss) -> Iterator[Network]:
    """Yield copies of a network without waves that hardly matter, fewer waves first."""
    if not isinstance(network.decoder, WaveDecoder):
        return
    order, losses = _order_of_removal(network, network.decoder, batch, loss)
    for tolerance in _PRUNING_TOLERANCES:
        count = max((n for n in range(len(order)) if losses[n] <= losses[0] * (1 + tolerance)), default=0)
        if not count:
            return
        pruned = copy.deepcopy(network)
        pruned.decoder = decoder = network.decoder.keep(order[count:])
        pruned.config = replace(network.config, num_waves=decoder.num_waves, num_decays=decoder.num_decays)
        yield pruned


@torch.no_grad()
def _order_of_removal(
    network: Network, decoder: WaveDecoder, batch: Batch, loss: Loss
) -> tuple[list[int], list[float]]:
    """Return blocks in the order in which they are missed least, and the loss without the first n of them."""
    encoded = network.eval().encode(batch)
    parts = decoder.parts(encoded.state, network.config.horizon)  # (B, H, blocks, C * Q)

    def loss_of(blocks: list[int]) -> float:
        return float(loss(encoded.forecast(parts[:, :, blocks].sum(2)), batch.target, batch.weight))

    left = list(range(parts.shape[2]))
    order, losses = [], [loss_of(left)]
    while len(left) > 1:
        least, block = min((loss_of([other for other in left if other != block]), block) for block in left)
        left.remove(block)
        order.append(block)
        losses.append(least)
    return [*order, *left], losses


def _thinned(windows: Tensor) -> Tensor:
    return windows[:: max(1, len(windows) // _MAX_SAMPLE)]


def _periods(options: Forecaster, panel: Panel) -> tuple[list[float], bool]:
    """Return the periods of the cycles to look for, and whether the user has named them."""
    if options.cycles is None:
        return [], False
    if options.cycles == "calendar":
        return calendar_periods(panel.grid.step), False
    return [float(period) for period in options.cycles], True


def _warn_missing_cycles(
    series: Sequence[Series], steps: Sequence[int], scalers: Sequence[SeriesScaler], periods: Sequence[float]
) -> None:
    for single, n, scaler in zip(series, steps, scalers, strict=True):
        fitted = [cycle.period for cycle in scaler.cycles]
        missing = [f"{period:g}" for period in periods if period not in fitted]
        if missing:
            problem = f"series {single.name!r} has no cycle of {', '.join(missing)} steps"
            warn_user(f"{problem}: its {n} training steps do not hold it twice")


def _check_observed(panel: Panel, steps: Sequence[int]) -> None:
    for series, n in zip(panel.series, steps, strict=True):
        empty = np.flatnonzero(~series.observed[:n].any(axis=0))
        if len(empty):
            target = panel.columns.targets[empty[0]]
            problem = f"series {series.name!r}: target {target!r} has no value in its {n} training steps"
            raise TableError(problem, hint="drop it, or give a smaller {val_size}")


def _check_positive(panel: Panel, positive: bool | None) -> None:
    for series in panel.series if positive else ():
        least = float(series.values.min())
        if least < 0:
            problem = f"series {series.name!r} falls to {least:g}, so its forecasts may, too"
            raise ArgumentError(problem, argument="positive", got=True, hint="leave out {positive}")


def _warn_not_positive(series: Sequence[Series], floors: Sequence[Array], transform: str | None) -> None:
    """Warn of series that have no logarithms, if these were asked for."""
    without = [own.name for own, floor in zip(series, floors, strict=True) if transform == "log" and not floor.all()]
    if without:
        which = f"{len(without)} series, such as {without[0]!r}" if len(series) > 1 else f"series {without[0]!r}"
        warn_user(f"{which}: not read as logarithms, because of values of zero or less", argument="transform")


def _validation_steps(length: int, horizon: int, val_size: int | None) -> int:
    """Return the steps at the end of a series that training does not see; none if that would leave too little."""
    if val_size is not None and check_integer("val_size", val_size, 1) < horizon:
        raise ArgumentError(argument="val_size", expected=f"at least the horizon of {horizon} steps", got=val_size)
    wanted = max(horizon, length // _VALIDATION_PART) if val_size is None else val_size
    return wanted if length - wanted > horizon + 1 else 0


def split_windows(dataset: WindowDataset, steps: list[int], bank: Bank | None = None) -> Split:
    """Split windows into those whose futures lie in the first `steps` of each series, and those whose lie after.

    Where there are none of the latter, the models of a `bank` make do with the first steps of futures, all of which
    they forecast from what they did not begin with.
    """
    lookback, horizon, ends = dataset.lookback, dataset.horizon, dataset.lengths.tolist()
    # Windows of long series are full; series that are too short for one begin within it.
    first = [lookback if n >= lookback + horizon else min(2, max(1, n - horizon)) for n in steps]
    training = dataset.with_target(dataset.windows(first, [n - horizon + 1 for n in steps]))
    if bank is not None and steps == ends:
        first = [bank.beginning(n) for n in steps]
        training = dataset.with_target(dataset.windows(first, ends))
    if not len(training):
        longest = max(dataset.series, key=len)
        observed = int(longest.observed.any(axis=1).sum())
        most = f"the longest, {longest.name!r}, has {observed} observed values in {len(longest)} steps"
        hint = "give longer series, or a smaller {horizon}" + ", or a coarser {freq}" * (observed < len(longest))
        raise TableError(f"no series has enough values to train for a horizon of {horizon} steps: {most}", hint=hint)
    validation = dataset.with_target(dataset.windows(steps, [end - horizon + 1 for end in ends]))
    if not len(validation):
        consequence = "training does not stop early, and intervals are calibrated on training data"
        if bank is not None:
            consequence = "intervals are calibrated on the values that local models were chosen by"
        problem = "no series is long enough for a validation part, or its values are missing there"
        warn_user(f"{problem}: {consequence}, so they are too narrow")
        return Split(training, training, first)
    return Split(training, validation, list(steps))
