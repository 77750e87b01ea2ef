from __future__ import annotations

import math

import pandas as pd
import pytest

from parallelrnn.errors import ArgumentError
from parallelrnn.interpret.display import Step, format_share
from tests.support import raises


@pytest.mark.parametrize(
    ("freq", "steps", "text"),
    [
        (None, 23.81, "23.8 steps"),
        (None, 1, "1 step"),
        ("h", 23.81, "23.8 h"),
        ("h", 72, "3 d"),
        ("h", 168, "7 d"),
        ("h", 336, "14 d"),
        ("h", 0.25, "0.25 h"),
        ("15min", 96, "24 h"),
        ("15min", 1, "15 min"),
        ("D", 365, "365 d"),
        ("W-SUN", 1, "1 week"),
        ("ms", 1, "1 ms"),
        ("MS", 132, "11 years"),
        ("QS-JAN", 4, "12 months"),
        ("YE", 10.94, "10.9 years"),
        ("s", 1e-5, "1e-05 s"),
        ("B", 5, "5 business days"),
        ("D", math.inf, "inf"),
    ],
)
def test_steps_in_the_words_of_a_calendar(freq: str | None, steps: float, text: str) -> None:
    assert Step.of(freq).format(steps) == text


@pytest.mark.parametrize("freq", ["hour", "", "-1h", "h24", "0h"])
def test_a_frequency_that_pandas_does_not_know(freq: str) -> None:
    with raises(ArgumentError, argument="freq", got=freq):
        Step.of(freq)


def test_an_offset_of_pandas_is_a_frequency_too() -> None:
    assert Step.of(pd.offsets.Hour(6)).format(2) == "12 h"


def test_a_share_that_rounds_to_zero_has_no_sign() -> None:
    assert [format_share(share) for share in (-1e-9, -0.0, -0.01)] == ["0.0%", "0.0%", "-1.0%"]
