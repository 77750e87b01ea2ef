"""What sequence estimators do beyond scikit-learn's contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parallelrnn import SequenceClassifier, SequenceRegressor
from parallelrnn.estimators.model_files import MANIFEST, ModelFileError

QUICK: dict[str, Any] = {"hidden_size": 8, "max_epochs": 3, "epoch_steps": (4, 8), "random_state": 0}


def ragged(count: int = 30) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal((length, 2)) for length in random.integers(3, 20, count)]


@pytest.mark.parametrize("cell", ["linear", "rnn", "lstm", "gru"])
@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("more", [{}, {"segment": 3}, {"bidirectional": True}, {"normalize": "sequence"}], ids=str)
def test_a_sequence_is_predicted_the_same_alone_as_among_longer_ones(cell: str, readout: str, more: Any) -> None:
    x = ragged()
    y = np.array([one.mean() for one in x])
    fitted = SequenceRegressor(cell=cell, readout=readout, **QUICK, **more).fit(x, y)
    together = fitted.predict(x)
    np.testing.assert_allclose(together, [fitted.predict([one])[0] for one in x], rtol=1e-9, atol=1e-12)


def test_parts_of_blocks_add_up_to_predictions() -> None:
    x = ragged()
    y = np.stack([[one.mean(), 1000 + 50 * one.std()] for one in x])
    fitted = SequenceRegressor(**QUICK).fit(x, y)
    explained = fitted.explain(x)
    parts = explained.components
    assert parts.parts.shape == (30, 4, 2)
    np.testing.assert_allclose(parts.parts.sum(1) + parts.bias, fitted.predict(x), rtol=1e-9)
    of_one_gate = [row.share for row in explained.features if row.gate == "reset"]
    assert sum(of_one_gate) == pytest.approx(1)
    assert "Recurrence features" in str(explained.summary())
    assert str(fitted.explain().summary()) == str(fitted.explain(x).summary())  # a sample: here all of them


@pytest.mark.parametrize("labels", [["a", "b"], [3, 7], [True, False]], ids=str)
def test_saved_and_loaded_it_is_the_same(tmp_path: Path, labels: list[Any]) -> None:
    x = ragged()
    y = np.array(labels)[np.arange(30) % 2]
    fitted = SequenceClassifier(**QUICK).fit(x, y)
    loaded = SequenceClassifier.load(fitted.save(tmp_path))
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))
    np.testing.assert_array_equal(loaded.predict(x), fitted.predict(x))
    assert loaded.predict(x).dtype == fitted.predict(x).dtype
    assert loaded.get_params() == fitted.get_params()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]
    with pytest.raises(ModelFileError, match="is not of a parallelrnn SequenceRegressor"):
        SequenceRegressor.load(tmp_path)
    words = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**words, "normalize": None}))
    with pytest.raises(ModelFileError, match="it was changed"):
        SequenceClassifier.load(tmp_path)


def test_a_training_that_was_cut_off_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    x, y = ragged(), np.arange(30.0)
    whole = SequenceRegressor(**QUICK).fit(x, y)
    SequenceRegressor(**QUICK, max_time=1e-9).fit(x, y, checkpoint=tmp_path)  # one epoch
    resumed = SequenceRegressor(**QUICK).fit(x, y, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.predict(x), whole.predict(x))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([np.zeros((3, 2)), np.zeros((4, 1))], r"the same number of channels in all sequences, got \[1, 2\]"),
        ([np.zeros((3, 2)), np.zeros((0, 2))], r"X\[1\]: expected a sequence"),
        (
            [np.ones((3, 2)), np.full((4, 2), np.nan)],
            "NaN or infinity, first in sequence 1 at step 0",
        ),
        (np.zeros((0, 4, 2)), "at least one sequence"),
    ],
)
def test_sequences_that_cannot_be_read_are_refused(x: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SequenceRegressor(**QUICK).fit(x, np.zeros(len(x)))


def test_a_second_fit_forgets_the_table_of_the_first() -> None:
    random = np.random.default_rng(0)
    fitted = SequenceRegressor(**QUICK).fit(random.normal(size=(40, 30)), random.normal(size=40))
    assert fitted.n_features_in_ == 30
    fitted.fit(ragged(), np.arange(30.0))
    assert not hasattr(fitted, "n_features_in_")
    assert fitted.predict([np.zeros((7, 2))]).shape == (1,)


def test_a_fit_that_is_refused_leaves_a_classifier_as_it_was() -> None:
    fitted = SequenceClassifier(**QUICK).fit(ragged(), np.arange(30) % 2)
    expected = fitted.predict(ragged())
    with pytest.raises(ValueError, match="hidden_size 8 is not a multiple of block_size 3"):
        fitted.set_params(block_size=3).fit(ragged(), np.arange(30) % 5)
    np.testing.assert_array_equal(fitted.predict(ragged()), expected)
