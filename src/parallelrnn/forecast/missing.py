"""Missing values: how gaps are filled, where series are trimmed, and what users are warned about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parallelrnn.errors import TableError

MISSING = ("interpolate", "error")  # policies


@dataclass(kw_only=True)
class MissingValues:
    """Trims and fills series by one policy, and counts what was missing."""

    policy: str
    targets: Collection[str]
    past: Collection[str]  # covariates, which are held and not interpolated: a line to the next value would leak it
    filled: dict[Any, int] = field(default_factory=dict)  # values, by the name of the series
    trimmed: dict[Any, int] = field(default_factory=dict)  # steps, by the name of the series
    with_gaps: dict[str, None] = field(default_factory=dict)  # columns, in order

    def fill(
        self, name: Any, table: NDArray[np.float64], keys: Sequence[str], stamp: Callable[[int], Any]
    ) -> tuple[int, NDArray[np.float64], NDArray[np.bool_]]:
        """Return the steps trimmed at the start, the filled rest of the table, and where it had values.

        The columns of `table` (T, columns) are named by `keys`; `stamp` gives the timestamp of a row.
        """
        is_target = [key in self.targets for key in keys]
        has_target: NDArray[np.bool_] = np.asarray(~np.isnan(table[:, is_target]).all(axis=1))
        if not has_target.any():
            raise TableError(f"series {name!r} has no values", hint="drop it from the table")
        start, end = int(has_target.argmax()), len(table) - int(has_target[::-1].argmax())
        if end - start < len(table):
            self.trimmed[name] = len(table) - (end - start)
        table = table[start:end]
        observed = ~np.isnan(table)
        count = int((~observed).sum())
        if count and self.policy == "error":
            row, column = np.argwhere(~observed)[0].tolist()
            problem = f"series {name!r}: {keys[column]!r} is missing at {stamp(start + row)}; {count} missing in all"
            raise TableError(problem, hint="fill them", code="or use missing='interpolate'")
        if count:
            self.filled[name] = count
        for column, known, key in zip(table.T, observed.T, keys, strict=True):
            if not known.any():
                hint = "drop the column or the series"
                raise TableError(f"series {name!r}: every value of {key!r} is missing", hint=hint)
            if not known.all():
                self.with_gaps[key] = None
                rows = np.flatnonzero(known)
                if key in self.past:
                    before = np.searchsorted(rows, np.arange(len(column)), side="right") - 1
                    column[:] = column[rows[before.clip(min=0)]]
                else:
                    column[~known] = np.interp(np.flatnonzero(~known), rows, column[known])
        return start, table, observed

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on what was filled and one on what was trimmed, if anything was."""
        notes = []
        if self.filled:
            covariates = [key for key in self.with_gaps if key not in self.targets]
            names = ["targets"] * (len(covariates) < len(self.with_gaps)) + covariates
            which = f" ({', '.join(names)})" if covariates else ""
            carried = ", past covariates with their last value" if self.past else ""
            notes.append(
                f"{_count(self.filled, 'value', 'missing')}{which}: filled by linear interpolation{carried}; filled "
                "targets count neither in training nor in validation"
            )
        if self.trimmed:
            notes.append(f"{_count(self.trimmed, 'step', 'without values at the ends')}: trimmed")
        return tuple(notes)


def _count(counts: dict[Any, int], what: str, how: str) -> str:
    total, (name, most) = sum(counts.values()), max(counts.items(), key=lambda item: item[1])
    where = f"in series {name!r}" if len(counts) == 1 else f"in {len(counts)} series, the most ({most}) in {name!r}"
    return f"{total} {what}{'s' * (total > 1)} {how} {where}"
