"""Classify sequences of different lengths with a scikit-learn estimator, and see which blocks decide.

Needs scikit-learn: pip install 'parallelrnn[sequences]'
"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import cross_val_score

from parallelrnn import SequenceClassifier

PERIODS = {"slow": 24.0, "fast": 11.0}


def waves(count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return noisy waves of 40 to 80 steps with random phases, and whether each is slow or fast."""
    random = np.random.default_rng(0)
    labels = random.choice(list(PERIODS), count)
    sequences = []
    for label in labels:
        time = np.arange(random.integers(40, 81))
        wave = np.sin(2 * np.pi * (time / PERIODS[label] + random.random()))
        sequences.append((wave + 0.5 * random.standard_normal(len(time)))[:, None])  # (T, 1)
    return sequences, labels


def main() -> None:
    """Score by cross-validation, fit and explain."""
    sequences, labels = waves(160)
    classifier = SequenceClassifier(hidden_size=16, max_epochs=20, random_state=0)
    scores = cross_val_score(classifier, sequences, labels, cv=3)
    print(f"Accuracy in three-fold cross-validation: {scores.mean():.0%} of {len(labels)} sequences; by chance: 50%.")
    print(classifier.fit(sequences, labels).explain().summary())


if __name__ == "__main__":
    main()
