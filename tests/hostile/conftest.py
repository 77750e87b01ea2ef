from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parallelrnn import Forecaster
from tests.hostile.names import NAMES

STEPS = 60


def hostile_table() -> pd.DataFrame:
    """A series under each name."""
    hours = pd.date_range("2024-01-01", periods=STEPS, freq="h")
    wave = np.sin(np.arange(STEPS) / 4)
    return pd.concat([pd.DataFrame({"unique_id": name, "ds": hours, "y": wave}) for name in NAMES])


@pytest.fixture(scope="session")
def hostile_forecaster() -> Forecaster:
    small = {"hidden_size": 4, "num_waves": 2, "num_decays": 1, "max_epochs": 1, "epoch_steps": (1, 1)}
    return Forecaster(4, 8, **small).fit(hostile_table())  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def hostile_model(hostile_forecaster: Forecaster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_forecaster.save(tmp_path_factory.mktemp("hostile"))
