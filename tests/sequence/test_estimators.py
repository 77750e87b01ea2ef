"""What sequence estimators do beyond scikit-learn's contract."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parallelrnn import SequenceClassifier, SequenceRegressor
from parallelrnn.errors import ArgumentError, CheckpointError, ModelFileError
from parallelrnn.io import MODEL_FILE
from tests.support import raises

SAVED_BY_0_1_0 = Path(__file__).parents[1] / "data" / "0.1.0"
QUICK: dict[str, Any] = {"hidden_size": 8, "max_epochs": 3, "epoch_steps": (4, 8), "random_state": 0}


def ragged(count: int = 30) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal((length, 2)) for length in random.integers(3, 20, count)]


@pytest.mark.parametrize("cell", ["linear", "rnn", "lstm", "gru", "brt"])
@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("more", [{}, {"segment": 3}, {"bidirectional": True}, {"normalize": "sequence"}], ids=str)
def test_a_sequence_is_predicted_the_same_alone_as_among_longer_ones(cell: str, readout: str, more: Any) -> None:
    if cell == "brt" and "bidirectional" in more:
        with raises(ArgumentError, argument="bidirectional", got=True):
            SequenceRegressor(cell=cell, **QUICK, **more).fit(ragged(), np.arange(30.0))
        return
    x = ragged()
    y = np.array([sequence.mean() for sequence in x])
    fitted = SequenceRegressor(cell=cell, readout=readout, **QUICK, **more).fit(x, y)
    together = fitted.predict(x)
    np.testing.assert_allclose(together, [fitted.predict([sequence])[0] for sequence in x], rtol=1e-9, atol=1e-12)


def test_parts_of_blocks_add_up_to_predictions() -> None:
    x = ragged()
    y = np.stack([[sequence.mean(), 1000 + 50 * sequence.std()] for sequence in x])
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
    assert [path.name for path in tmp_path.iterdir()] == [MODEL_FILE]
    with raises(ModelFileError, "parallelrnn SequenceRegressor"):
        SequenceRegressor.load(tmp_path)


def test_models_of_0_1_0_predict_the_same_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = [random.normal(size=(length, 2)) for length in (3, 7, 5, 4, 9, 6)]
    expected = json.loads((SAVED_BY_0_1_0 / "sequence.json").read_text())
    shutil.copytree(SAVED_BY_0_1_0, tmp_path, dirs_exist_ok=True)
    for _ in range(2):  # as it was saved, and saved again over it
        classifier = SequenceClassifier.load(tmp_path / "classifier")
        regressor = SequenceRegressor.load(tmp_path / "regressor")
        np.testing.assert_allclose(classifier.predict_proba(x), expected["predict_proba"], rtol=1e-9)
        np.testing.assert_allclose(regressor.predict(x), expected["predict"], rtol=1e-9)
        assert classifier.classes_.tolist() == ["no", "yes"]
        assert classifier.class_weight == {"no": 1, "yes": 2}
        classifier.save(tmp_path / "classifier")
        regressor.save(tmp_path / "regressor")
    assert [file.name for file in (tmp_path / "classifier").iterdir()] == [MODEL_FILE]


def test_a_transformer_learns_explains_itself_and_is_saved(tmp_path: Path) -> None:
    y = np.array(["down", "up"])[np.arange(200) % 2]
    x = np.random.default_rng(0).standard_normal((200, 8, 1)) + np.where(y == "up", 1, -1)[:, None, None]
    options = {"hidden_size": 8, "num_layers": 2, "max_epochs": 3, "epoch_steps": (16, 16)}
    fitted = SequenceClassifier(cell="brt", random_state=0, **options).fit(x[:150], y[:150])
    assert fitted.score(x[150:], y[150:]) > 0.85
    explained = fitted.explain()
    assert {row.gate for row in explained.features} == {"query", "cross_query", "key", "value"}
    parts = explained.components
    np.testing.assert_allclose(parts.parts.sum(1) + parts.bias, parts.total)
    loaded = SequenceClassifier.load(fitted.save(tmp_path))
    np.testing.assert_array_equal(loaded.predict_proba(x), fitted.predict_proba(x))


def test_class_weights_are_applied(tmp_path: Path) -> None:
    """With nothing to tell classes by, probabilities are what each class counts in all."""
    x, y = np.zeros((100, 5, 1)), np.array([3] * 80 + [7] * 20)
    long = {"max_epochs": 60, "validation_fraction": 0, "random_state": 0, "batch_size": 100}
    for weights, expected in [(None, 0.8), ("balanced", 0.5), ({3: 1, 7: 16}, 0.2)]:
        fitted = SequenceClassifier(class_weight=weights, **long).fit(x, y)
        np.testing.assert_allclose(fitted.predict_proba(x[:1])[0, 0], expected, atol=0.01)
    assert SequenceClassifier.load(fitted.save(tmp_path)).class_weight == {3: 1, 7: 16}
    for wrong in ({3: -1, 7: 2}, {3: 0, 7: 0}):
        with raises(ArgumentError, argument="class_weight", got=wrong):
            SequenceClassifier(class_weight=wrong).fit(x, y)


def test_an_interrupted_training_resumes_to_the_bit(tmp_path: Path) -> None:
    x, y = ragged(), np.arange(30.0)
    uninterrupted = SequenceRegressor(**QUICK).fit(x, y)
    SequenceRegressor(**QUICK, max_time=1e-9).fit(x, y, checkpoint=tmp_path)  # one epoch
    with raises(CheckpointError, tmp_path, "other data or other arguments"):
        SequenceRegressor(**QUICK).fit(x, y**2, checkpoint=tmp_path, resume=True)
    resumed = SequenceRegressor(**QUICK).fit(x, y, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(resumed.predict(x), uninterrupted.predict(x))


@pytest.mark.parametrize(
    ("x", "facts", "fields"),
    [
        ([np.zeros((3, 2)), np.zeros((4, 1))], [], {"argument": "X", "got": [1, 2]}),
        ([np.zeros((3, 2)), np.zeros((0, 2))], [], {"argument": "X[1]", "got": (0, 2)}),
        ([np.ones((3, 2)), np.full((4, 2), np.nan)], ["NaN", "sequence 1", "step 0"], {}),
        (np.zeros((0, 4, 2)), [], {"argument": "X"}),
    ],
)
def test_sequences_that_cannot_be_read_are_rejected(x: Any, facts: list[str], fields: dict[str, Any]) -> None:
    with raises(ArgumentError, *facts, **fields):
        SequenceRegressor(**QUICK).fit(x, np.zeros(len(x)))


def test_a_second_fit_forgets_the_table_of_the_first() -> None:
    random = np.random.default_rng(0)
    fitted = SequenceRegressor(**QUICK).fit(random.normal(size=(40, 30)), random.normal(size=40))
    assert fitted.n_features_in_ == 30
    fitted.fit(ragged(), np.arange(30.0))
    assert not hasattr(fitted, "n_features_in_")
    assert fitted.predict([np.zeros((7, 2))]).shape == (1,)


def test_a_fit_that_fails_leaves_a_classifier_as_it_was() -> None:
    fitted = SequenceClassifier(**QUICK).fit(ragged(), np.arange(30) % 2)
    expected = fitted.predict(ragged())
    with raises(ArgumentError, "block_size 3", argument="hidden_size", got=8):
        fitted.set_params(block_size=3).fit(ragged(), np.arange(30) % 5)
    np.testing.assert_array_equal(fitted.predict(ragged()), expected)


def test_a_failed_fit_leaves_a_regressor_as_it_was() -> None:
    fitted = SequenceRegressor(**QUICK).fit(ragged(), np.arange(30.0))
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.zeros((30, 5, 1)), np.full(30, np.nan))
    assert fitted.predict(ragged()).shape == (30,)


def test_sizes_may_be_numbers_of_numpy() -> None:
    sizes = {name: np.int64(2) for name in ("hidden_size", "block_size", "num_layers", "segment", "max_epochs")}
    fitted = SequenceRegressor(**{**QUICK, **sizes, "devices": np.int64(1)}).fit(ragged(), np.arange(30.0))
    assert fitted.predict(ragged()).shape == (30,)


@pytest.mark.parametrize("wrap", [list, tuple, lambda x: pd.Series(x, dtype=object)])
def test_lists_of_arrays_of_one_length_are_sequences(wrap: Any) -> None:
    equal = [np.arange(5.0)] * 11 + [np.ones(5)]
    fitted = SequenceRegressor(**QUICK).fit(wrap(equal), np.arange(12.0))
    assert fitted.predict(wrap([np.arange(8.0)])).shape == (1,)
    table = SequenceRegressor(**QUICK).fit([sequence.tolist() for sequence in equal], np.arange(12.0))
    assert table.n_features_in_ == 5


def test_a_single_sequence_is_not_taken_for_many() -> None:
    fitted = SequenceRegressor(**QUICK).fit(ragged(), np.arange(30.0))
    with raises(ArgumentError, "1 channels", "X[None]"):
        fitted.predict(ragged()[0])
    with raises(ArgumentError, argument="X", got=(1, 1, 3, 2)):
        fitted.predict(np.zeros((1, 1, 3, 2)))


@pytest.mark.parametrize(
    ("argument", "value"),
    [("epoch_steps", 3), ("dropout", 1.0), ("validation_fraction", 1.5), ("cell", "cnn"), ("hidden_size", 8.0)],
)
def test_wrong_arguments_are_rejected(argument: str, value: Any) -> None:
    with raises(ArgumentError, argument=argument, got=value):
        SequenceRegressor(**{**QUICK, argument: value}).fit(ragged(), np.arange(30.0))


def test_a_checkpoint_needs_a_seed(tmp_path: Path) -> None:
    with raises(ArgumentError, argument="random_state", got=None):
        SequenceRegressor(**{**QUICK, "random_state": None}).fit(ragged(), np.arange(30.0), checkpoint=tmp_path)
    with raises(ArgumentError, argument="resume", problem="there is no checkpoint to resume from"):
        SequenceRegressor(**QUICK).fit(ragged(), np.arange(30.0), resume=True)


def test_a_little_is_left_to_learn_from() -> None:
    assert SequenceRegressor(**QUICK, validation_fraction=0.99).fit(ragged(), np.arange(30.0)).predict(ragged()).shape


def test_classes_that_are_days_are_saved(tmp_path: Path) -> None:
    days = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
    fitted = SequenceClassifier(**QUICK).fit(ragged(), days[np.arange(30) % 2])
    loaded = SequenceClassifier.load(fitted.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.classes_, days)
