"""Numbers of steps in the words of a calendar: 23.8 h, 3 d, 11 years."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

# Families of units that turn into each other; months and years have no fixed number of days.
_FAMILIES: tuple[dict[str, float], ...] = (
    {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    {"business days": 1.0},
    {"weeks": 1.0},
    {"months": 1.0, "years": 12.0},
    {"steps": 1.0},
    {"segments": 1.0},
)
# The frequencies of pandas, old names and new ones, as a number of one of these units.
_FREQUENCIES = {
    **dict.fromkeys(("ms", "L"), (1, "ms")),
    **dict.fromkeys(("s", "S"), (1, "s")),
    **dict.fromkeys(("min", "T"), (1, "min")),
    **dict.fromkeys(("h", "H"), (1, "h")),
    **dict.fromkeys(("D", "d"), (1, "d")),
    **dict.fromkeys(("B",), (1, "business days")),
    **dict.fromkeys(("W",), (1, "weeks")),
    **dict.fromkeys(("M", "MS", "ME", "BM", "BMS", "BME"), (1, "months")),
    **dict.fromkeys(("Q", "QS", "QE", "BQ", "BQS", "BQE"), (3, "months")),
    **dict.fromkeys(("Y", "YS", "YE", "A", "AS", "BY", "BYS", "BYE"), (1, "years")),
}


@dataclass(frozen=True)
class Step:
    """The time from one step to the next."""

    amount: float = 1.0
    unit: str = "steps"

    @classmethod
    def of(cls, freq: Any) -> Step:
        """From a frequency of pandas, "h" or "15min" or "MS" say; steps if there is none."""
        if freq is None:
            return cls()
        freq = str(getattr(freq, "freqstr", freq))  # of an offset of pandas
        found = re.fullmatch(r"(\d*)([A-Za-z]+)(-[A-Z]{3})?", freq)
        if found is None or found[2] not in _FREQUENCIES or found[1].strip("0") == "" != found[1]:
            raise ValueError(
                f"freq {freq!r} is not known; use a frequency of pandas such as s, min, 15min, h, D, B, W, MS, QS or YS"
            )
        amount, unit = _FREQUENCIES[found[2]]
        return cls(float(found[1] or 1) * amount, unit)

    def format(self, steps: float, infinite: str = "inf") -> str:
        """A number of steps, in the largest unit of which it has two or more."""
        if math.isinf(steps) or math.isnan(steps):
            return infinite
        family = next(family for family in _FAMILIES if self.unit in family)
        total = steps * self.amount * family[self.unit]
        names = list(family)[list(family).index(self.unit) :]  # no unit is smaller than the series' own
        unit = next((name for name in reversed(names) if total / family[name] >= 2), self.unit)
        number = _number(total / family[unit])
        return f"{number} {unit.removesuffix('s') if number == '1' and len(unit) > 3 else unit}"


def _number(value: float) -> str:
    """Three digits that count."""
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
