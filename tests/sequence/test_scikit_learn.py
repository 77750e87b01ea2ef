"""scikit-learn's own checks of estimators, and what people do with estimators in scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from parallelrnn import SequenceClassifier, SequenceRegressor

# Small enough for hundreds of fits.
SMALL: dict[str, Any] = {"cell": "rnn", "readout": "last", "hidden_size": 16, "max_epochs": 4, "epoch_steps": (8, 16)}
LONGER = 30  # epochs, to learn what is to be learned


@parametrize_with_checks([SequenceRegressor(**SMALL), SequenceClassifier(**SMALL)])
@pytest.mark.filterwarnings("ignore")  # checks provoke warnings of scikit-learn's own
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    if check.func.__name__.endswith("_train"):
        estimator.set_params(max_epochs=LONGER)
    check(estimator)


def waves(count: int = 120, steps: int = 25, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noisy waves, and which of two periods each has."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, count)
    angle = np.arange(steps) * np.where(kind, 0.5, 1.5)[:, None] + rng.uniform(0, 6, count)[:, None]
    return np.sin(angle) + 0.1 * rng.normal(size=(count, steps)), kind


def test_in_a_pipeline_a_grid_search_and_a_cross_validation() -> None:
    x, kind = waves()
    classifier = SequenceClassifier(**{**SMALL, "max_epochs": LONGER}, random_state=0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), classifier), {"sequenceclassifier__cell": ["linear", "rnn"]}, cv=2
    )
    search.fit(x, kind)
    assert search.best_params_ == {"sequenceclassifier__cell": "rnn"}  # a wave's phase is no class
    assert search.score(*waves(seed=1)) > 0.9
    assert cross_val_score(clone(classifier), x[:, :, None], kind, cv=2).min() > 0.8  # three axes, too
