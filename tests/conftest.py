from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests import browser as chromium

# Triton reads this when it is imported, and importing torch does not import it; other libraries do.
os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

if "PYTEST_XDIST_WORKER" in os.environ:  # a worker has a core of its own, and more threads would fight for it
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fresh_memory_is_nan() -> Iterator[None]:
    """Fill uninitialised memory with NaN, so that reading what nobody wrote shows."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = before
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium.start()
