"""One case by hand: T=5, B=2 (10 rows), input_size 3, d=4, two layers, block_size 2."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parallelrnn.kernels.machine_peak import MachinePeak
from parallelrnn.lab.benchmarks.cases import Case
from parallelrnn.lab.benchmarks.roofline import Work, work

CASE = Case(name="by hand", length=5, input_size=3, hidden_size=4, batch=2, num_layers=2, block_size=2)


def test_inference() -> None:
    # Projections 2*10*3*4 = 240 and 2*10*4*4 = 320; recurrences 2 * (2*10*4*2) = 320.
    # 40 units a layer; 30 numbers read, 40 written.
    assert work(CASE, "RNN", "forward") == Work(880, 80, 4 * (30 + 40))
    assert work(CASE, "LSTM", "forward") == Work(4 * 880, 80 * 5, 4 * (30 + 40))
    assert work(CASE, "GRU", "forward") == Work(3 * 880, 80 * 3, 4 * (30 + 40))


def test_training() -> None:
    # Projections 2*240 and 3*320, recurrences 3*320. Input read twice; h of both layers written and read; the gradient
    # of both outputs read, and that of the second layer's input written. An LSTM saves its cells, too.
    assert work(CASE, "RNN", "training") == Work(480 + 960 + 960, 80, 4 * (2 * 30 + 2 * 80 + 2 * 40 + 40))
    assert work(CASE, "LSTM", "training") == Work(4 * 2400, 80 * 6, 4 * (2 * 30 + 2 * 160 + 2 * 40 + 40))


def test_gates_are_saved_where_the_input_has_more_than_8_columns() -> None:
    narrow, wide = (replace(CASE, input_size=columns, num_layers=1) for columns in (8, 9))
    extra_input = 2 * 10 * 4
    assert work(wide, "GRU", "training").bytes - work(narrow, "GRU", "training").bytes == extra_input + 2 * 3 * 40 * 4
    assert work(wide, "RNN", "training").bytes - work(narrow, "RNN", "training").bytes == extra_input
    assert work(CASE, "GRU", "training").bytes == work(CASE, "RNN", "training").bytes


def test_an_aggregate_adds_its_product_and_in_training_its_output() -> None:
    for kind, products, numbers in (("forward", 1, 0), ("training", 3, 40)):
        without, aggregated = work(CASE, "GRU", kind), work(CASE, "GRU", kind, aggregated=True)
        assert aggregated == without + Work(products * 2 * 10 * 4 * 4, 0, 4 * numbers)


def test_time_is_arithmetic_or_traffic() -> None:
    peak = MachinePeak(fma=100.0, tanh=10.0, bandwidth=4.0)
    assert Work(200, 30, 19).seconds(peak) == pytest.approx(2 + 3)
    assert Work(200, 30, 24).seconds(peak) == pytest.approx(6)
