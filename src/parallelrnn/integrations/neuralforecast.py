"""Models for neuralforecast: `pip install 'parallelrnn[neuralforecast]'`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, MissingPackageError, ModelFileError, check_choice, check_integer

try:
    import safetensors.torch
    from neuralforecast.common._base_model import BaseModel
    from neuralforecast.core import MODEL_FILENAME_DICT
    from neuralforecast.losses.pytorch import MAE

    from parallelrnn.forecast.decomposition import Explanation, memory_features
    from parallelrnn.forecast.initialization import default_segment, initialize_decoder, wave_periods
    from parallelrnn.forecast.model import DECODERS, Network, NetworkConfig
    from parallelrnn.forecast.windows import Batch
    from parallelrnn.interpret.display import Step
    from parallelrnn.interpret.modes import ForecastModes, forecast_modes
    from parallelrnn.io import MODEL_FILE, load_model, save_model
    from parallelrnn.nn import WaveDecoder
    from parallelrnn.nn.encoder import check_block_size
except ModuleNotFoundError as error:
    hint = "pip install 'parallelrnn[neuralforecast]'"
    problem = f"these models need {error.name}, which is not installed"
    raise MissingPackageError(problem, name=error.name, hint=hint) from error

_KIND, _VERSION = "parallelrnn.neuralforecast", 2
_MAX_SAMPLE = 512  # windows over which shares are taken


class ParaModel(BaseModel):  # type: ignore[misc]
    """The network of `parallelrnn.Forecaster` in the training loop of neuralforecast.

    neuralforecast scales the window (`scaler_type`); recurrent blocks remember it, and their last state sets the
    amplitudes of the damped waves and decays that sum to the forecast. The effect of `futr_exog_list` is linear.

    Parameters
    ----------
    h, input_size
        Steps that are forecast, and that a forecast looks back.
    hidden_size, block_size, num_layers
        Sizes of the recurrent blocks.
    decoder, num_waves, num_decays
        "waves", which start at the strongest spectral peaks of the training data; or "linear".
    segment
        Steps that are read at once; by default 1, about 24 for LSTM and GRU.
    gate, dropout
        Of the memory before it sets the amplitudes; a gate may turn down units of unusual size.
    others
        As in all models of neuralforecast, exogenous variables included.
    """

    EXOGENOUS_FUTR = EXOGENOUS_HIST = EXOGENOUS_STAT = EXOGENOUS_CAT = True
    MULTIVARIATE = RECURRENT = False
    CELL: ClassVar[str]

    def __init__(
        self,
        h: int,
        input_size: int = -1,
        hidden_size: int = 64,
        block_size: int = 2,
        num_layers: int = 1,
        decoder: str = "waves",
        num_waves: int = 8,
        num_decays: int = 4,
        segment: int | None = None,
        gate: bool = True,
        dropout: float = 0.3,
        loss: nn.Module | None = None,
        valid_loss: nn.Module | None = None,
        max_steps: int = 1000,
        learning_rate: float = 5e-3,
        num_lr_decays: int = 4,
        val_check_steps: int = 100,
        batch_size: int = 32,
        valid_batch_size: int | None = None,
        windows_batch_size: int | None = 448,
        inference_windows_batch_size: int | None = 1024,
        start_padding_enabled: bool = False,
        scaler_type: str = "standard",
        **others: Any,
    ) -> None:
        super().__init__(
            h=h,
            input_size=input_size,
            loss=MAE() if loss is None else loss,
            valid_loss=valid_loss,
            max_steps=max_steps,
            learning_rate=learning_rate,
            num_lr_decays=num_lr_decays,
            val_check_steps=val_check_steps,
            batch_size=batch_size,
            valid_batch_size=valid_batch_size,
            windows_batch_size=windows_batch_size,
            inference_windows_batch_size=inference_windows_batch_size,
            start_padding_enabled=start_padding_enabled,
            scaler_type=scaler_type,
            **others,
        )
        check_choice("decoder", decoder, DECODERS)
        hidden_size = check_integer("hidden_size", hidden_size, 1)
        block_size = check_integer("block_size", block_size, 1)
        check_block_size(hidden_size, block_size)
        segment = default_segment(self.CELL, self.input_size, ()) if segment is None else segment
        outputs = self.loss.outputsize_multiplier
        self.network = Network(
            NetworkConfig(
                lookback=self.input_size,
                horizon=h,
                cell=self.CELL,
                decoder=decoder,
                block_size=block_size,
                hidden_size=hidden_size,
                num_layers=check_integer("num_layers", num_layers, 1),
                num_waves=check_integer("num_waves", num_waves, 0),
                num_decays=check_integer("num_decays", num_decays, 0),
                normalize=None,
                segment=check_integer("segment", segment, 1),
                gate=gate,
                dropout=dropout,
                past=self.hist_exog_size,
                future=self.futr_exog_size,
                static=self.stat_exog_size,
                quantiles=outputs,
            )
        )
        # What is known ahead moves all quantiles alike, but each parameter of a distribution in its own way.
        distribution = self.loss.is_distribution_output and self.futr_exog_size
        self.effect_on = nn.Parameter(torch.ones(outputs)) if distribution else None
        self._states: Tensor | None = None  # of the latest forecasts outside training

    def forward(self, windows_batch: dict[str, Any]) -> Tensor:
        """Return forecasts (B, h, outputs of the loss) at the scale of the window."""
        encoded = self.network.encode(self._batch(windows_batch))
        if not self.training:
            self._states = encoded.state[-_MAX_SAMPLE:].detach().cpu()
        decoded: Tensor = self.network.decoder(encoded.state, self.h)
        return decoded + (encoded.exog_effect if self.effect_on is None else encoded.exog_effect * self.effect_on)

    def fit(self, dataset: Any, val_size: int = 0, test_size: int = 0, **more: Any) -> Any:
        """Fit as neuralforecast does; waves without an amplitude yet start at the strongest lines of the spectrum."""
        decoder = self.network.decoder
        if isinstance(decoder, WaveDecoder) and not decoder.amplitudes.weight.any():
            if hasattr(dataset, "temporal"):
                self._initialize(decoder, dataset, val_size + test_size)
            else:
                warnings.warn(
                    "the series are not in memory, so waves start at periods from 4 to 512 steps instead of the lines "
                    "of their spectrum",
                    stacklevel=2,
                )
        return super().fit(dataset, val_size, test_size, **more)

    def explanation(self, freq: str | None = None) -> Explanation:
        """Return the waves and decays of forecasts, with their shares in the latest, and how the model remembers.

        Shares are those of the last windows that were forecast, for example by `predict`; before, there are none. The
        name is not `explain`, which is a switch in neuralforecast.
        """
        time = Step.of(freq)
        modes = ForecastModes(rows=(), where="a linear decoder has no modes", time=time)
        if isinstance(self.network.decoder, WaveDecoder):
            modes = forecast_modes(self.network.decoder, x=self._states, horizon=max(2, self.h), freq=freq)
        return Explanation(modes, memory_features(self.network, time), None)

    def save(self, path: str | Path) -> None:
        """Write the model into a directory; `NeuralForecast.save` works as well."""
        if "://" in str(path):
            raise ArgumentError(argument="path", expected="a local directory", got=path, hint="copy it from there")
        data = self.serialize()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        metadata = {"model": type(self).__name__, "header": header}
        save_model(Path(path) / MODEL_FILE, _KIND, _VERSION, metadata, safetensors.torch.load(data))

    @classmethod
    def load(cls, path: str | Path, *more: Any, **others: Any) -> ParaModel:
        """Return a model from a directory that `save` wrote, or from a file of `NeuralForecast.save`."""
        read = super().load
        if not Path(path).is_dir():
            return read(path, *more, **others)  # type: ignore[no-any-return]

        def build(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> ParaModel:
            if metadata["model"] != cls.__name__:
                raise ModelFileError(f"{path} holds a {metadata['model']}, not a {cls.__name__}")
            with TemporaryDirectory() as folder:
                file = Path(folder) / MODEL_FILE
                safetensors.torch.save_file(tensors, file, metadata["header"])
                return read(str(file), *more, **others)  # type: ignore[no-any-return]

        return load_model(path, _KIND, _VERSION, build)

    def _initialize(self, decoder: WaveDecoder, dataset: Any, unseen: int) -> None:
        """Start waves at the strongest lines of the spectrum; waves that are left stay where they are."""
        values = dataset.temporal[:, dataset.y_idx].double().numpy()
        series = [single[: max(0, len(single) - unseen)] for single in np.split(values, dataset.indptr[1:-1])]
        scaled = [((single - single.mean()) / (single.std() or 1))[:, None] for single in series if len(single) > 2]
        if scaled:
            periods = wave_periods(scaled, decoder.num_waves, self.input_size, self.h)
            initialize_decoder(decoder, periods, self.input_size, self.h)

    def _batch(self, windows: dict[str, Any]) -> Batch:
        mask = windows["insample_mask"].reshape(len(windows["insample_y"]), -1, 1)  # (B, L, 1)
        past = windows["insample_y"] * (mask > 0)  # what stood where nothing was observed was scaled like the rest
        valid = mask[..., 0].cummax(1).values > 0  # from the first value on
        valid[:, -1] = True
        begun = nn.functional.pad(valid, (0, self.h), value=True)
        future = past.new_zeros(len(past), self.h, 1)

        def exog(name: str, *size: int) -> Tensor:
            values: Tensor | None = windows[name]
            return past.new_zeros(len(past), *size, 0) if values is None else values

        return Batch(
            past=past,
            valid=None if valid.all() else valid,
            target=future,
            weight=future,
            past_exog=exog("hist_exog", self.input_size) * valid[..., None],
            future_exog=exog("futr_exog", self.input_size + self.h) * begun[..., None],
            static=exog("stat_exog"),
        )


class ParaRNN(ParaModel):
    """Linear blocks: two decays or one damped wave each. Memory and forecasts can be read exactly."""

    CELL = "linear"


class ParaLSTM(ParaModel):
    """An LSTM of small blocks."""

    CELL = "lstm"


class ParaGRU(ParaModel):
    """A GRU of small blocks."""

    CELL = "gru"


for _model in (ParaRNN, ParaLSTM, ParaGRU):  # what `NeuralForecast.save` and `load` know
    MODEL_FILENAME_DICT.setdefault(_model.__name__.lower(), _model)
