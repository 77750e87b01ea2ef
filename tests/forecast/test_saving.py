from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import safetensors.torch
import torch
from parallelrnn.training.model_files import MANIFEST

from parallelrnn import Forecaster
from parallelrnn.errors import ModelFileError
from tests.training.samples import hourly, quick


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    table = hourly().assign(holiday=0.0, wind=1.0, size=2.0)
    covariates = {"future_covariates": ["holiday"], "past_covariates": ["wind"], "static_covariates": ["size"]}
    return quick(**covariates, quantiles=[0.1, 0.5, 0.9]).fit(table)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return quick(max_epochs=1).fit(hourly()).save(tmp_path / "model")


def test_a_model_comes_back_as_it_was(fitted: Forecaster, tmp_path: Path) -> None:
    loaded = Forecaster.load(fitted.save(tmp_path / "a" / "model"))
    assert loaded.arguments() == fitted.arguments()
    stamps = pd.date_range(hourly()["ds"].max(), periods=13, freq="h")[1:]
    ahead = pd.concat([pd.DataFrame({"unique_id": name, "ds": stamps, "holiday": 1.0}) for name in "ab"])
    pd.testing.assert_frame_equal(loaded.predict(futr_df=ahead, level=[80]), fitted.predict(futr_df=ahead, level=[80]))
    assert str(loaded.explain().summary()) == str(fitted.explain().summary())
    newer = hourly(420).assign(holiday=0.0, wind=1.0, size=2.0)
    ahead["ds"] += pd.Timedelta(hours=20)
    pd.testing.assert_frame_equal(loaded.predict(newer, futr_df=ahead), fitted.predict(newer, futr_df=ahead))


def test_saving_again_is_the_same_and_replaces_what_was_there(saved: Path) -> None:
    before = {file.name: file.read_bytes() for file in saved.iterdir()}
    loaded = Forecaster.load(saved)
    loaded.save(saved)
    assert {file.name: file.read_bytes() for file in saved.iterdir()} == before
    quick(max_epochs=1, random_state=1).fit(hourly()).save(saved)
    assert len(list(saved.iterdir())) == 2
    assert {file.name for file in saved.iterdir()} != set(before)
    Forecaster.load(saved).predict()


def test_a_model_is_json_and_safetensors_and_nothing_else(saved: Path) -> None:
    kinds = sorted(file.suffix for file in saved.iterdir())
    assert kinds == [".json", ".safetensors"]
    json.loads((saved / MANIFEST).read_text())
    (weights,) = saved.glob("*.safetensors")
    assert safetensors.torch.load_file(weights)


def test_numbers_and_whole_time_steps_are_kept(tmp_path: Path) -> None:
    df = hourly().assign(unique_id=lambda t: t["unique_id"].map({"a": 3, "b": 4}))
    df["ds"] = df.groupby("unique_id").cumcount() * 5
    forecaster = quick(max_epochs=1).fit(df)
    loaded = Forecaster.load(forecaster.save(tmp_path))
    pd.testing.assert_frame_equal(loaded.predict(), forecaster.predict())
    assert loaded.predict()["unique_id"].tolist() == [3] * 12 + [4] * 12


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_time_stamps_keep_their_precision(unit: str, tmp_path: Path) -> None:
    df = hourly().assign(ds=lambda t: t["ds"].dt.as_unit(unit))
    forecaster = quick(max_epochs=1).fit(df)
    loaded = Forecaster.load(forecaster.save(tmp_path))
    pd.testing.assert_frame_equal(loaded.predict(), forecaster.predict())
    assert loaded.predict()["ds"].dtype == df["ds"].dtype


def edit(saved: Path, **changes: Any) -> None:
    words = json.loads((saved / MANIFEST).read_text())
    for name, change in changes.items():
        words[name] = {**words[name], **change} if name in ("architecture", "arguments") and change else change
    del words["words_sha256"]
    words["words_sha256"] = hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()
    (saved / MANIFEST).write_text(json.dumps(words))


@pytest.mark.parametrize(("name", "value"), [("origin", "2024-01-02"), ("periods", [8.0]), ("named", True)])
def test_words_that_were_changed_are_refused(saved: Path, name: str, value: Any) -> None:
    words = json.loads((saved / MANIFEST).read_text())
    assert words[name] != value
    (saved / MANIFEST).write_text(json.dumps({**words, name: value}))
    with pytest.raises(ModelFileError, match=r"model\.json is not what was saved: it was changed"):
        Forecaster.load(saved)


def test_a_file_that_was_cut_off_is_refused(saved: Path) -> None:
    (weights,) = saved.glob("*.safetensors")
    whole = weights.read_bytes()
    for length in (0, 7, 100, len(whole) - 1):
        weights.write_bytes(whole[:length])
        with pytest.raises(ModelFileError, match="not what was saved"):
            Forecaster.load(saved)
    weights.write_bytes(whole)
    text = (saved / MANIFEST).read_text()
    for length in (0, 10, len(text) // 2, len(text) - 1):
        (saved / MANIFEST).write_text(text[:length])
        with pytest.raises(ModelFileError, match="is no JSON"):
            Forecaster.load(saved)


def test_one_changed_bit_is_refused(saved: Path) -> None:
    (weights,) = saved.glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(ModelFileError, match="cut off or changed"):
        Forecaster.load(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "has version 2, and this release reads version 1: a newer release wrote it; upgrade"),
        ({"version": 0}, "has version 0, and this release reads version 1; install the release that wrote it"),
        ({"version": "new"}, "has version 'new', and this release reads version 1; install the release that wrote it"),
        ({"format": "other"}, "is not of a parallelrnn forecaster"),
        ({"weights": "../secret.safetensors"}, "names no weights of its own"),
        ({"weights": "/etc/passwd"}, "names no weights of its own"),
        ({"weights": "weights-0123456789abcdef.safetensors"}, "are missing"),
        ({"weights": 3}, "names no weights of its own"),
        ({"architecture": {}}, "not whole"),
        ({"architecture": {"hidden_size": 10**12}}, "do not agree about hidden_size"),
        ({"architecture": {"num_decays": 10**9}}, "do not agree about num_decays"),
        ({"architecture": {"num_waves": 10**9}}, "do not agree about num_waves"),
        ({"architecture": {"static": 10**9}}, "do not agree about static"),
        ({"architecture": {"horizon": 13}}, "do not agree about horizon"),
        ({"arguments": {"horizon": 13}}, "do not agree about horizon"),
        ({"arguments": {"hidden_size": 10**9}}, "do not agree about hidden_size"),
        ({"periods": [0.0]}, "do not agree about periods"),
        ({"backend": "x"}, "do not agree about backend"),
        ({"series": []}, "not whole"),
        ({"series": [{"name": "a"}]}, "not whole"),
        ({"columns": {"id": None}}, "not whole"),
        ({"freq": "nonsense"}, "not whole"),
        ({"origin": "nonsense"}, "not whole"),
        ({"arguments": {"horizon": -1}}, "not whole"),
        ({"arguments": {"horizon": 12, "backdoor": 1}}, "not whole"),
        ({"sample": {}}, "not whole"),
    ],
)
def test_a_manifest_that_was_tampered_with_is_refused(saved: Path, changes: dict[str, Any], message: str) -> None:
    edit(saved, **changes)
    with pytest.raises(ModelFileError, match=message):
        Forecaster.load(saved)


def test_a_manifest_without_a_part_is_refused(saved: Path) -> None:
    words = json.loads((saved / MANIFEST).read_text())
    for name in words:
        (saved / MANIFEST).write_text(json.dumps({key: value for key, value in words.items() if key != name}))
        with pytest.raises(ModelFileError):
            Forecaster.load(saved)


def test_where_there_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="there is no model in"):
        Forecaster.load(tmp_path)


def test_loading_leaves_random_numbers_alone(saved: Path) -> None:
    before = torch.get_rng_state()
    Forecaster.load(saved)
    assert torch.equal(torch.get_rng_state(), before)


def test_names_that_cannot_be_saved_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    df = hourly().assign(unique_id=lambda t: t["unique_id"].map({"a": (1, 2), "b": (3, 4)}))
    with pytest.raises(TypeError, match="only texts and numbers can be saved"):
        quick(max_epochs=1).fit(df).save(tmp_path / "model")
    assert not list(tmp_path.glob("model/*"))
