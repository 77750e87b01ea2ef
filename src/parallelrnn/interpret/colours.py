"""The colours of fitted models in figures and reports: matplotlib's, Plotly's and the HTML report's."""

from __future__ import annotations

COLOURS = {"C": "#1f6fb4", "R": "#c7522a"}  # waves and decays; also forecasts and half-lives
_SHADES = {"C": (COLOURS["C"], "#134a7c", "#0a2b4a"), "R": (COLOURS["R"], "#8c3517", "#571f0b")}  # by order

# Interactive charts, drawn on a light or a dark page.
PALETTE = ("#2f81c7", "#d2622f", "#3a9a5f", "#a05fc0", "#c79a1f", "#4fb3bf", "#b0628f")  # components, blocks
NEUTRAL = "#8a8f98"  # observed values, totals, the unit circle

# CSS variables of the HTML report.
LIGHT_PAGE = "--text: #1c2128; --soft: #59636e; --line: #d5dae0; --ground: #fff; --panel: #f4f6f8; --accent: #1f6fb4;"
DARK_PAGE = "--text: #e4e8ed; --soft: #9aa4af; --line: #353c45; --ground: #14181d; --panel: #1c2229; --accent: #6db3ec;"


def band(opacity: float) -> str:
    """Return the fill of an interval in an interactive chart."""
    red, green, blue = (int(PALETTE[0][start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity:.2f})"


def colour_of_type(label: str) -> str:
    """Return the colour of a feature type such as R-1 or C-2: waves are blue, decays red, higher orders darker."""
    shades = _SHADES[label[0]]
    return shades[min(int(label[2:]), len(shades)) - 1]
