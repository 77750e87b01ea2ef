from __future__ import annotations

import numpy as np

from parallelrnn.forecast.data import read_panel
from tests.forecast.small import FULL, assert_same_series, two_series


def test_the_ends_of_a_series() -> None:
    series = read_panel(two_series(), FULL).series[1]  # 11 steps from position 1 on
    tail = series.tail(4)
    assert (tail.position, len(tail), tail.end) == (8, 4, 12)
    np.testing.assert_array_equal(tail.values, series.values[7:])
    np.testing.assert_array_equal(tail.future, series.future[7:])
    assert_same_series(series.tail(11), series)
    assert_same_series(series.tail(99), series)
    head = series.without_last(4)
    assert (head.position, len(head), head.end) == (1, 7, 8)
    np.testing.assert_array_equal(head.values, series.values[:7])
    np.testing.assert_array_equal(head.past, series.past[:7])
    np.testing.assert_array_equal(head.observed, series.observed[:7])
    assert_same_series(series.without_last(0), series)
    assert len(series.without_last(15)) == len(series.without_last(11)) == 0


def test_a_panel_without_its_ends() -> None:
    panel = read_panel(two_series(), FULL).without_last(5)
    assert [(one.position, len(one)) for one in panel.series] == [(0, 7), (1, 6)]
    assert panel.grid.freq == "h"
