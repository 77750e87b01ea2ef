from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import neuralforecast.losses.pytorch as losses
import numpy as np
import pandas as pd
import pytest
import torch
from neuralforecast import NeuralForecast
from neuralforecast.auto import BaseAuto
from neuralforecast.common import _model_checks
from neuralforecast.common._base_auto import RayOptions

from parallelrnn.errors import ArgumentError, ModelFileError
from parallelrnn.integrations.neuralforecast import ParaGRU, ParaLSTM, ParaModel, ParaRNN
from tests.support import raises, warns

pytestmark = pytest.mark.filterwarnings("ignore")  # neuralforecast, Lightning and their use of pandas warn of much
MODELS = [ParaRNN, ParaLSTM, ParaGRU]
# They differ in the cell alone; what takes long is tried with one of them, and with all by `make test-all`.
ONE_QUICKLY = [*(pytest.param(model, marks=pytest.mark.slow) for model in (ParaRNN, ParaLSTM)), ParaGRU]
QUIET: dict[str, Any] = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger"), False)
QUIET["accelerator"] = "cpu"
SMALL: dict[str, Any] = {"hidden_size": 8, "num_waves": 2, "max_steps": 20, "windows_batch_size": 64, **QUIET}
# Those of neuralforecast's own check, of which 3.3.0 skips every one, since its series are shorter than its input size.
LOSSES = [
    *(loss() for loss in (losses.MAE, losses.MSE, losses.RMSE, losses.MAPE, losses.SMAPE)),
    *(loss() for loss in (losses.MQLoss, losses.IQLoss, losses.HuberLoss, losses.TukeyLoss)),
    *(loss() for loss in (losses.HuberIQLoss, losses.HuberMQLoss)),
    *(loss(weighted=weighted) for loss in (losses.PMM, losses.GMM, losses.NBMM) for weighted in (False, True)),
    *(losses.DistributionLoss(name) for name in ("Normal", "StudentT", "Poisson", "NegativeBinomial", "ISQF")),
    losses.DistributionLoss("Tweedie", rho=1.5),
    losses.MASE(seasonality=7),
    losses.QuantileLoss(q=0.5),
    losses.HuberQLoss(q=0.5),
]


def waves(count: int = 400, names: str = "ab") -> pd.DataFrame:
    """Hourly series with a day, and covariates: `price` moves them at once, `wind` says what comes a step later."""
    frames = []
    for number, name in enumerate(names):
        random = np.random.default_rng(number)
        price, wind = random.normal(size=(2, count))
        day = np.sin(np.arange(count) / 24 * 2 * np.pi + number)
        y = day + 3 * price + np.r_[0, 2 * wind[:-1]] + 0.1 * random.normal(size=count)
        stamps = pd.date_range("2024-01-01", periods=count, freq="h")
        frames.append(pd.DataFrame({"unique_id": name, "ds": stamps, "y": y, "price": price, "wind": wind}))
    return pd.concat(frames, ignore_index=True)


def plain(count: int = 400) -> pd.DataFrame:
    table = waves(count)
    return table.assign(y=np.sin(np.arange(len(table)) / 24 * 2 * np.pi))[["unique_id", "ds", "y"]]


def fitted(model: ParaModel, table: Any, **more: Any) -> NeuralForecast:
    forecaster = NeuralForecast(models=[model], freq="h")
    forecaster.fit(table, **more)
    return forecaster


@pytest.mark.parametrize("model", ONE_QUICKLY)
def test_models_pass_the_checks_of_neuralforecast_without_a_skip(model: type[ParaModel]) -> None:
    for loss in LOSSES:
        config = {"max_steps": 2, "h": 7, "input_size": 14, "start_padding_enabled": True, "loss": loss}
        sizes = dict.fromkeys(("batch_size", "windows_batch_size", "valid_batch_size"), 8)
        config |= {"valid_loss": None, "val_check_steps": 2, "inference_windows_batch_size": 8, **sizes, **QUIET}
        _model_checks._run_model_tests(model, config)


@pytest.mark.parametrize("model", MODELS)
def test_models_forecast_and_cross_validate_air_passengers(
    model: type[ParaModel], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its own check, with the name that pandas now has for the ends of months."""
    monkeypatch.chdir(tmp_path)  # it writes logs
    monkeypatch.setattr(_model_checks, "NeuralForecast", lambda models, freq: NeuralForecast(models, f"{freq}E"))
    _model_checks.check_airpassengers(model)


@pytest.mark.parametrize("model", MODELS)
def test_models_learn_a_wave(model: type[ParaModel]) -> None:
    table = plain()
    config = {**SMALL, "hidden_size": 16, "max_steps": 300, "dropout": 0.0, "random_seed": 1}
    forecasts = NeuralForecast(models=[model(24, 48, **config)], freq="h").cross_validation(table, n_windows=1)
    assert (forecasts["y"] - forecasts[model.__name__]).abs().mean() < 0.1
    assert forecasts["y"].std() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("model", [ParaRNN, ParaLSTM, ParaGRU])
def test_exogenous_variables_improve_the_forecast(model: type[ParaModel]) -> None:
    """3 and 2 times a number around one; of the rest, windows scaled by 24 values leave a quarter unknown."""
    config = {**SMALL, "hidden_size": 16, "max_steps": 300, "dropout": 0.0, "segment": 1}

    def off(table: pd.DataFrame, **more: Any) -> float:
        forecaster = NeuralForecast(models=[model(1, 24, **config, **more)], freq="h")
        forecasts = forecaster.cross_validation(table, n_windows=30, step_size=1)
        return float((forecasts["y"] - forecasts[model.__name__]).abs().mean())

    table = waves()
    none, both = off(table), off(table, futr_exog_list=["price"], hist_exog_list=["wind"])
    assert both < 1 < 2 < none
    assert both < off(table, futr_exog_list=["price"]) < none


def test_each_parameter_of_a_distribution_has_its_own_effect() -> None:
    table = waves()
    model = ParaGRU(2, 24, futr_exog_list=["price"], loss=losses.DistributionLoss("Normal"), **SMALL)
    forecaster = fitted(model, table.drop(columns="wind").groupby("unique_id").head(398))
    effect = forecaster.models[0].effect_on
    assert effect is not None
    assert effect.shape == (2,)
    assert effect[0] != effect[1]


def test_static_and_categorical_covariates_tell_series_apart() -> None:
    table = pd.concat([plain().query("unique_id == 'a'").assign(unique_id=name) for name in "ab"])
    table["y"] += np.where(table["unique_id"] == "a", 1, -1) * np.linspace(0, 8, 400)[np.r_[0:400, 0:400]]
    static = pd.DataFrame({"unique_id": ["a", "b"], "size": [1.0, -1.0]})
    model = ParaRNN(12, 24, stat_exog_list=["size"], **{**SMALL, "max_steps": 100})
    forecaster = fitted(model, table, static_df=static)
    mine = forecaster.predict()["ParaRNN"]
    other = forecaster.predict(df=table, static_df=static.assign(size=-static["size"]))["ParaRNN"]
    assert (mine - other).abs().mean() > 0.05


def test_categories_are_distinguished() -> None:
    """The next value is 1 after an `x`, and -1 after a `y`."""
    table = plain()
    table["kind"] = np.random.default_rng(0).choice(["x", "y"], len(table))
    table["y"] = np.where(table["kind"].shift(1) == "x", 1.0, -1.0)
    kinds = {"hist_exog_list": ["kind"], "cat_exog_list": ["kind"], "categorical_cardinalities": {"kind": 2}}
    model = ParaGRU(1, 8, segment=1, **kinds, **{**SMALL, "max_steps": 200, "dropout": 0.0})
    forecasts = NeuralForecast(models=[model], freq="h").cross_validation(table, n_windows=20, step_size=1)
    assert (np.sign(forecasts["ParaGRU"]) == forecasts["y"]).mean() > 0.95


@pytest.mark.parametrize("model", MODELS)
def test_masked_values_are_not_read(model: type[ParaModel]) -> None:
    """Neither padding before a series, of the target and of covariates, nor what fills a gap."""
    lists = {"hist_exog_list": ["wind"], "futr_exog_list": ["price"]}
    forecaster = model(3, 12, segment=2, dropout=0.0, **lists, **SMALL).eval()
    for parameter in forecaster.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    mask = torch.ones(4, 12, 1)
    mask[2:, :5] = 0
    mask[3, 8] = 0
    windows = {"insample_y": torch.randn(4, 12, 1), "insample_mask": mask, "stat_exog": None}
    windows |= {"hist_exog": torch.randn(4, 12, 1), "futr_exog": torch.randn(4, 15, 1)}
    expected = forecaster(windows)
    for name in ("insample_y", "hist_exog", "futr_exog"):
        windows[name][2:, :5] = 7.0
    windows["insample_y"][3, 8] = 7.0
    torch.testing.assert_close(forecaster(windows), expected, rtol=0, atol=0)
    windows["hist_exog"][2, 6] += 1
    windows["futr_exog"][3, 13] += 1
    assert (forecaster(windows) - expected).abs().amax((1, 2)).gt(1e-4).tolist() == [False, False, True, True]
    mask[3] = 0
    assert torch.isfinite(forecaster(windows)).all()


def test_waves_start_at_the_lines_of_the_spectrum_and_stay_when_training_continues() -> None:
    forecaster = fitted(ParaRNN(12, 48, **{**SMALL, "max_steps": 1, "learning_rate": 1e-6}), plain())
    (model,) = forecaster.models
    assert float(model.network.decoder.angle[0]) == pytest.approx(2 * np.pi / 24, rel=0.02)
    with torch.no_grad():
        model.network.decoder.angle.fill_(1.0)
    forecaster.fit(plain(), use_init_models=False)
    np.testing.assert_allclose(forecaster.models[0].network.decoder.angle.detach(), 1.0, atol=1e-4)


def test_models_explain_themselves() -> None:
    config = {**SMALL, "hidden_size": 16, "max_steps": 300, "dropout": 0.0}
    forecaster = fitted(ParaRNN(24, 48, **config), plain())
    forecaster.predict()
    explanation = forecaster.models[0].explanation("h")
    assert explanation.modes.most_important(1)[0].period == pytest.approx(24, rel=0.1)
    assert sum(mode.share for mode in explanation.modes) == pytest.approx(1, abs=1e-6)
    assert " h " in str(explanation.summary())
    assert len(explanation.features) == 8
    assert len(ParaGRU(3, 12, decoder="linear", **SMALL).explanation().modes) == 0
    assert not ParaGRU(1, 12, **SMALL).explanation().modes.has_shares
    assert fitted(ParaRNN(1, 12, **SMALL), plain()).models[0].explanation().modes


def test_wrong_options_are_rejected(tmp_path: Path) -> None:
    for argument, value in (("decoder", "wave"), ("segment", 0)):
        with raises(ArgumentError, argument=argument, got=value):
            ParaGRU(3, 12, **{argument: value}, **SMALL)
    assert ParaGRU(3, 12, **{**SMALL, "hidden_size": np.int64(8)}).network.config.hidden_size == 8
    with raises(ArgumentError, argument="path", got="memory://model"):
        ParaGRU(3, 12, **SMALL).save("memory://model")


def test_waves_of_series_that_are_not_in_memory_start_elsewhere_with_a_warning(tmp_path: Path) -> None:
    paths = []
    for name, part in plain().groupby("unique_id"):
        (tmp_path / f"unique_id={name}").mkdir()
        part.drop(columns="unique_id").to_parquet(tmp_path / f"unique_id={name}" / "part.parquet")
        paths.append(str(tmp_path / f"unique_id={name}"))
    with warns(UserWarning, "4 to 512 steps"):
        fitted(ParaRNN(3, 12, **SMALL), paths)


@pytest.mark.parametrize("model", MODELS)
def test_a_saved_model_forecasts_the_same(model: type[ParaModel], tmp_path: Path) -> None:
    table = waves()
    config = {**SMALL, "futr_exog_list": ["price"], "loss": losses.MQLoss(level=[80])}
    forecaster = fitted(model(6, 24, **config), table.groupby("unique_id").head(390))
    ahead = table.groupby("unique_id").tail(10)
    expected = forecaster.predict(futr_df=ahead)
    forecaster.models[0].save(tmp_path / "ours")
    assert [file.name for file in (tmp_path / "ours").iterdir()] == ["model.safetensors"]
    weights = forecaster.models[0].state_dict()
    forecaster.models = [model.load(tmp_path / "ours")]
    assert list(forecaster.models[0].state_dict()) == list(weights)
    pd.testing.assert_frame_equal(forecaster.predict(futr_df=ahead), expected)
    forecaster.save(str(tmp_path / "theirs"))
    pd.testing.assert_frame_equal(NeuralForecast.load(str(tmp_path / "theirs")).predict(futr_df=ahead), expected)


def test_a_model_that_was_changed_or_is_another_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model"
    ParaGRU(3, 12, **SMALL).save(path)
    with raises(ModelFileError, "ParaGRU", "ParaLSTM"):
        ParaLSTM.load(path)
    (weights,) = path.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    with raises(ModelFileError, "checksum"):
        ParaGRU.load(path)


def tuned(**more: Any) -> BaseAuto:
    return BaseAuto(ParaGRU, h=3, loss=losses.MAE(), valid_loss=None, num_samples=2, verbose=False, **more)


def test_models_are_tuned_by_optuna() -> None:
    def config(trial: Any) -> dict[str, Any]:
        return {"input_size": trial.suggest_categorical("input_size", [12, 24]), **SMALL, "random_seed": 1}

    forecaster = NeuralForecast([tuned(config=config, search_alg=None, backend="optuna")], freq="h")
    forecaster.fit(plain(), val_size=24)
    assert forecaster.models[0].results.best_params["input_size"] in (12, 24)
    assert np.isfinite(forecaster.predict().iloc[:, -1]).all()


@pytest.mark.slow
def test_models_are_tuned_by_ray() -> None:
    from ray import tune

    config = {"input_size": tune.choice([12, 24]), **SMALL, "random_seed": 1}
    forecaster = NeuralForecast([tuned(config=config, ray_options=RayOptions(cpus=1, gpus=0))], freq="h")
    forecaster.fit(plain(), val_size=24)
    assert np.isfinite(forecaster.predict().iloc[:, -1]).all()


@pytest.mark.parametrize("missing", ["neuralforecast.core", "safetensors.torch"])
def test_without_neuralforecast_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "parallelrnn.integrations.neuralforecast")
    with raises(ModuleNotFoundError, "pip install 'parallelrnn[neuralforecast]'"):
        import_module("parallelrnn.integrations.neuralforecast")
