"""Prediction intervals by split conformal prediction, from the residuals of recent forecasts at each step ahead.

Where errors have grown, intervals are as wide as these errors ask for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from parallelrnn.errors import TableError
from parallelrnn.forecast.change import adapted_quantiles, find_change
from parallelrnn.forecast.data import warn_user
from parallelrnn.forecast.windows import WindowDataset

# Levels at which the absolute residuals of a series are stored; closer where intervals are asked for.
LEVELS = torch.tensor(
    [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9, 0.925, 0.95, 0.975, 0.99, 1.0],
    dtype=torch.float64,
)
_OLD_LEVELS = 200  # of version 0.1.0
_ROUNDED_UP = 1 + 2**-10  # what is stored in half precision is no less than it was
MIN_RESIDUALS = 50  # at every step ahead, for a series to be calibrated by itself
_BEGINNING = 6  # steps of a series, before which its errors are not typical
_MAX_TYPICAL = 64  # windows of a series that tell how large its errors are
_TOGETHER = 4096  # windows, at least, that are forecast together
_LEAST_SIZE = 0.05  # of the errors of a series, relative to the median of the panel
_PRIOR_SERIES = 5.0  # whose logarithms of errors vary by one, to outweigh that errors stay as they are
_FEW = 20  # pooled residuals at a step ahead, that say too little by themselves
_MOST_LARGER = 5.0  # times errors before, that those since then are taken to be where they are few
_FARTHEST = 4.0  # times what holds 80 % of pooled residuals: no residual is farther
_ROUNDING = 1e-6  # of the scale of a series
_RECENT_WINDOWS = 1000  # of each series, that intervals are calibrated on
# Forecasts h steps ahead that start one step apart share most of their future, so n of their residuals count as fewer
# independent ones, here as 5 n / h. The 5 is no theory: of 4, 5, 6, 8, 16 and no correction it came closest to nominal
# coverage on eleven settings of the ETT data, measured on their test parts.
_INDEPENDENT_PER_HORIZON = 5.0


@dataclass(frozen=True)
class Calibration:
    """Quantiles of the absolute residuals of each series, enough for intervals of any level.

    Series with few residuals share a row of the table, each at its own scale.
    """

    table: Tensor  # (rows, LEVELS, H, C), residuals at these levels, relative to their size; in half precision
    size: Tensor  # (rows, H, C), the root mean square of the residuals
    counts: Tensor  # (rows, H), the number of residuals that they come from
    row: Tensor  # (series,), of the table
    scale: Tensor  # (series, C), what residuals of its row are multiplied by; one for a series with a row of its own
    changed: Tensor  # (series,), for how many steps errors have been larger than before; 0 if they are not

    @classmethod
    def of(cls, residuals: Sequence[Tensor], ordered: Sequence[bool]) -> Calibration:
        """Calibrate on the residuals (N, H, C) of each series, NaN where the future was not observed.

        Those that are `ordered` come from consecutive forecasts of one series, in which errors may change.
        """
        tables = [_upper_quantiles(own.abs(), LEVELS) for own in residuals]
        sizes = [own.square().nanmean(0).sqrt() for own in residuals]
        changed = [find_change(own) if is_one else 0 for own, is_one in zip(residuals, ordered, strict=True)]
        counts = [(~own.isnan()).sum(0).amin(-1) for own in residuals]
        for index, since in enumerate(changed):
            if since:
                adapted, size = adapted_quantiles(residuals[index], since, LEVELS)
                tables[index] = torch.where(adapted.isnan(), tables[index], adapted)
                sizes[index] = torch.where(size.isnan(), sizes[index], size)
                counts[index] = counts[index].clamp(max=since)
        return cls._each(torch.stack(tables), torch.stack(sizes), torch.stack(counts), torch.tensor(changed))

    @classmethod
    def from_levels(cls, table: Tensor, counts: Tensor) -> Calibration:
        """Take over a table (series, 200, H, C) of residuals at levels that are equally far apart, as 0.1.0 had."""
        if table.shape[1] != _OLD_LEVELS:
            raise ValueError(f"expected {_OLD_LEVELS} quantiles, got {table.shape[1]}")
        kept = (LEVELS * _OLD_LEVELS).round().long() - 1
        changed = torch.zeros(len(table), dtype=torch.int64)
        return cls._each(table[:, kept], table.square().mean(1).sqrt(), counts, changed)

    @classmethod
    def _each(cls, table: Tensor, size: Tensor, counts: Tensor, changed: Tensor) -> Calibration:
        """Return a calibration in which each series has a row of its own."""
        relative = _ROUNDED_UP * table / torch.where(size > 0, size, 1.0)[:, None]
        scale = size.new_ones(len(size), size.shape[-1])
        return cls(relative.half(), size, counts, torch.arange(len(size)), scale, changed)

    @classmethod
    def cat(cls, parts: Sequence[Calibration]) -> Calibration:
        """Join those of several series."""
        names = [field.name for field in fields(cls)]
        joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        before = torch.tensor([0, *(len(part.table) for part in parts[:-1])]).cumsum(0)
        joined["row"] += before.repeat_interleave(torch.tensor([len(part.row) for part in parts]))
        return cls(**joined)

    def rows(self, indices: Sequence[int]) -> Calibration:
        """Return those of some series."""
        kept, row = self.row[list(indices)].unique(return_inverse=True)
        shared = {name: getattr(self, name)[kept] for name in ("table", "size", "counts")}
        own = {name: getattr(self, name)[list(indices)] for name in ("scale", "changed")}
        return Calibration(row=row, **shared, **own)

    def supports(self, level: float) -> bool:
        """Return whether every series has residuals enough for an interval of `level` per cent."""
        return int(self.counts[self.row].min()) >= _min_count(level)

    def conformal_quantile(self, level: float) -> Tensor:
        """Return the half-width (series, H, C) of intervals that cover `level` per cent.

        Split conformal prediction takes the residual at rank (n + 1) * level of n, rounded up, here between the two
        stored ones that are next to it; it covers as promised if residuals stay as they have been. Where n is too small
        for that, residuals are assumed to be normal, with a warning.
        """
        fewest, needed = int(self.counts[self.row].min()), _min_count(level)
        if not fewest:
            problem = "a series has no calibration residuals, so no interval can be computed"
            raise TableError(problem, hint="give it at least 2 x horizon steps")
        if fewest < needed:
            warn_user(
                f"{level:g} % intervals need {needed} calibration residuals, but a series has {fewest}: its intervals "
                "assume normal residuals"
            )
        part = level / 100
        ahead = torch.arange(1, self.counts.shape[1] + 1)
        counts = self.counts.double()
        independent = torch.minimum(counts, _INDEPENDENT_PER_HORIZON * counts / ahead)  # (rows, H)
        rank = (part * (independent + 1) / independent).clamp(max=1)
        widths = self._residual_at(torch.ceil(rank * counts - 1e-9) / counts)
        too_few = independent < needed
        if too_few.any():
            from scipy.special import stdtrit  # not at the top: it takes long to import

            # As wide as Student's t has it for normal residuals around zero, and no narrower than the largest residual.
            factor = torch.from_numpy(stdtrit(independent.clamp(min=1).numpy(), (1 + part) / 2))[..., None]
            largest = self.table[:, -1].to(self.size) * self.size
            widths = torch.where(too_few[..., None], torch.maximum((factor * self.size).to(widths), largest), widths)
        return widths[self.row] * self.scale[:, None]

    def _residual_at(self, level: Tensor) -> Tensor:
        """Return the residuals (rows, H, C) at levels (rows, H), between those that are stored in a straight line."""
        above = torch.searchsorted(LEVELS, level - 1e-9).clamp(max=len(LEVELS) - 1)
        below = (above - 1).clamp(min=0)
        part = ((level - LEVELS[below]) / (LEVELS[above] - LEVELS[below])).nan_to_num(1.0).clamp(0, 1)
        low, high = (
            self.table.gather(1, index[:, None, :, None].expand(-1, 1, -1, self.table.shape[-1]))[:, 0].to(self.size)
            for index in (below, above)
        )
        return torch.lerp(low, high, part[..., None].to(low)) * self.size


def calibrate(network: nn.Module, dataset: WindowDataset, median_index: int, first: Sequence[int]) -> Calibration:
    """Calibrate on the recent residuals of each series, which best tell how far off the next forecast will be.

    Series with few of them share those of all, relative to the size that each one's errors and changes before let
    expect. Intervals are relative to what those up to now let expect, since errors that have grown go on growing. The
    last row is for new series.
    """
    residuals, ends = calibration_residuals(network, dataset, median_index, first), dataset.lengths.tolist()
    earlier = _earlier_residuals(network, dataset, median_index, first)
    errors = _positive(_sizes(earlier), _sizes(_earlier_residuals(network, dataset, median_index, ends)))
    changes = _positive(dataset.mean_changes(first), dataset.mean_changes(ends))
    before, latest = expected_sizes(torch.stack([errors, changes], 1), _sizes(residuals))
    alone = [index for index, own in enumerate(residuals) if are_enough(own)]
    pooled = _pooled(residuals, earlier, before, recent_windows(dataset.horizon))
    shared = Calibration.of([*(residuals[index] for index in alone), pooled], [*[True] * len(alone), False])
    row, changed = (torch.full((len(residuals) + 1,), value) for value in (len(alone), 0))
    scale = torch.cat([latest, latest.median(0).values[None]])
    row[alone], scale[alone], changed[alone] = shared.row[:-1], 1.0, shared.changed[:-1]
    return replace(shared, row=row, scale=scale, changed=changed)


def _positive(before: Tensor, latest: Tensor) -> Tensor:
    """Return sizes (2, series, C) before and now, without gaps and none far below the median of the panel."""
    sizes = torch.stack([before.where(~before.isnan(), latest), latest.where(~latest.isnan(), before)])
    middle = sizes[0].nanmedian(0).values.nan_to_num(1.0).clamp(min=_ROUNDING)
    return torch.maximum(sizes.where(~sizes.isnan(), middle), _LEAST_SIZE * middle)


def expected_sizes(predictors: Tensor, sizes: Tensor) -> Tensor:
    """Return the sizes (2, series, C) of errors to expect by `predictors` (2, 2, series, C), before and now.

    These are each series' errors and changes. The few errors of a short series tell little about its next ones, and
    its changes tell more: how much, is told by a regression of the `sizes` (series, C) that followed in the whole
    panel, of logarithms. Where the panel is small, errors are expected to stay as they are.
    """
    logs, is_known = predictors.double().log(), (sizes > 0).double()  # not where nothing followed
    followed = sizes.double().log().where(is_known > 0, 0.0)
    count = is_known.sum(0).clamp(min=1)
    middle = (is_known * logs[0]).sum(1) / count  # (2, C)
    away = is_known * (logs[0] - middle[:, None])
    squares = torch.einsum("isc,jsc->cij", away, away) + _PRIOR_SERIES * torch.eye(2, dtype=torch.float64)
    products = torch.einsum("isc,sc->ci", away, followed - is_known * (followed.sum(0) / count))
    slopes = torch.linalg.solve(squares, products + _PRIOR_SERIES * torch.tensor([1.0, 0.0], dtype=torch.float64))
    expected = middle[0] + torch.einsum("ci,tisc->tsc", slopes, logs - middle[:, None])
    return expected.exp().to(sizes)


def _pooled(residuals: Sequence[Tensor], earlier: Sequence[Tensor], sizes: Tensor, most: int) -> Tensor:
    """Return the residuals of all series relative to the sizes (series, C) of their errors before, `most` at most.

    Where they are few at some step ahead, those before are added, as much larger as errors have become since.
    """
    pooled, before = (
        torch.cat([own / size for own, size in zip(each, sizes, strict=True)]) for each in (residuals, earlier)
    )
    if int((~pooled.isnan()).sum(0).min()) < _FEW and len(before):
        since = pooled.abs().nanmedian() / before.abs().nanmedian().clamp(min=_ROUNDING)
        pooled = torch.cat([pooled, before * since.nan_to_num(1.0).clamp(1.0, _MOST_LARGER)])
    pooled = continued(pooled)
    if len(pooled) > most:  # at random, since windows of a series that lack their last steps come at regular places
        pooled = pooled[torch.randperm(len(pooled), generator=torch.Generator().manual_seed(0))[:most]]
    # A series whose errors have grown out of all proportion says nothing about others.
    limit = _FARTHEST * pooled.abs().nanquantile(0.8, 0) if len(pooled) else pooled.new_zeros(pooled.shape[1:])
    return pooled.clamp(-limit, limit)


def continued(residuals: Tensor) -> Tensor:
    """Return residuals (N, H, C), those of steps that no series is long enough for as a random walk makes them grow."""
    ahead = torch.arange(1, residuals.shape[1] + 1)[:, None]
    is_known = (~residuals.isnan()).any(0)  # (H, C)
    last = (ahead * is_known).max(0).values  # (C,), the last step ahead that is known
    grown = residuals[:, last - 1, torch.arange(len(last))][:, None] * (ahead / last).sqrt().to(residuals)
    return torch.where((ahead > last) & (last > 0), grown, residuals)


def _earlier_residuals(
    network: nn.Module, dataset: WindowDataset, median_index: int, first: Sequence[int]
) -> list[Tensor]:
    """Return the residuals of some forecasts of each series whose futures end before `first`."""
    windows = []
    for index, end in enumerate(first):
        last = end - dataset.horizon + 1 if end > dataset.horizon + 1 else end
        begin = min(max(_BEGINNING, last // 3), max(0, last - 1))
        own = dataset.windows_of(index, begin, last)
        windows.append(own[:: max(1, len(own) // _MAX_TYPICAL)])
    return list(_residuals_of(network, dataset, windows, median_index))


def _sizes(residuals: Sequence[Tensor]) -> Tensor:
    """Return the mean size (series, C) of residuals, NaN where there are none."""
    return torch.stack([own.abs().flatten(0, 1).nanmean(0) for own in residuals])


def calibration_residuals(
    network: nn.Module, dataset: WindowDataset, median_index: int, first: Sequence[int]
) -> list[Tensor]:
    """Return the residuals of the recent forecasts of each series from origin `first` on; see `window_residuals`."""
    recent = recent_windows(dataset.horizon)
    spans = zip(first, dataset.lengths.tolist(), strict=True)
    windows = [dataset.windows_of(index, max(start, end - recent), end) for index, (start, end) in enumerate(spans)]
    return list(_residuals_of(network, dataset, windows, median_index))


def _residuals_of(
    network: nn.Module, dataset: WindowDataset, windows: Sequence[Tensor], median_index: int
) -> Iterator[Tensor]:
    """Yield the residuals of the windows of each series, of logarithms as relative ones.

    Many windows go through the network at once.
    """
    together: list[Tensor] = []
    for index, own in enumerate(windows):
        together.append(own)
        if sum(map(len, together)) >= _TOGETHER or index == len(windows) - 1:
            residuals = window_residuals(network, dataset, torch.cat(together), median_index)
            scalers = dataset.scalers[index + 1 - len(together) : index + 1]
            parts = residuals.split([len(each) for each in together])
            yield from (scaler.as_relative(part) for scaler, part in zip(scalers, parts, strict=True))
            together = []


@torch.no_grad()
def window_residuals(network: nn.Module, dataset: WindowDataset, windows: Tensor, median_index: int) -> Tensor:
    """Return observed less forecast values, (N, H, C), NaN where nothing was observed."""
    if not len(windows):
        return torch.zeros(0, dataset.horizon, dataset.channels)
    network.eval()
    pairs = ((batch, batch.target - network(batch)[..., median_index]) for batch in dataset.batches(windows))
    return torch.cat([torch.where(batch.weight > 0, residuals, torch.nan) for batch, residuals in pairs])


def recent_windows(horizon: int) -> int:
    """Return how many windows intervals are calibrated on; at the last step ahead, two residuals for each step."""
    return max(_RECENT_WINDOWS, 3 * horizon)


def are_enough(residuals: Tensor) -> bool:
    """Return whether residuals (N, H, C) are enough for a series to be calibrated by itself."""
    return int((~residuals.isnan()).sum(0).min()) >= MIN_RESIDUALS


def _min_count(level: float) -> int:
    """Return the number of residuals below which an interval would have to reach beyond the largest."""
    part = level / 100
    return math.ceil(part / (1 - part) - 1e-9)


def _upper_quantiles(residuals: Tensor, levels: Tensor) -> Tensor:
    """Return the smallest residual that a part `levels` of all (N, H, C) does not exceed, (levels, H, C)."""
    if not len(residuals):
        return residuals.new_full((len(levels), *residuals.shape[1:]), math.nan)
    ordered = residuals.nan_to_num(nan=-1.0).sort(0).values  # what was not observed comes first
    observed = (~residuals.isnan()).sum(0)  # (H, C)
    unobserved = len(residuals) - observed
    rank = torch.ceil(levels[:, None, None] * observed - 1e-9).long().clamp(min=1) - 1 + unobserved  # (levels, H, C)
    quantiles = ordered.gather(0, rank.clamp(max=len(residuals) - 1))
    return torch.where(observed > 0, quantiles, torch.full_like(quantiles, math.nan))
