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

try:
    import safetensors.torch
    from neuralforecast.common._base_model import BaseModel
    from neuralforecast.core import MODEL_FILENAME_DICT
    from neuralforecast.losses.pytorch import MAE

    from parallelrnn.errors import check_integer
    from parallelrnn.forecast.explanation import Explanation, memory_of
    from parallelrnn.forecast.initialization import default_segment, start_decoder, wave_periods
    from parallelrnn.forecast.model import DECODERS, Architecture, Network
    from parallelrnn.forecast.windows import Batch
    from parallelrnn.interpret.display import Step
    from parallelrnn.interpret.modes import ForecastModes, forecast_modes
    from parallelrnn.nn import WaveDecoder
    from parallelrnn.training.arguments import check_blocks, check_choice
    from parallelrnn.training.model_files import ModelFileError, ModelFormat
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"these models need {error.name}, which is not installed: pip install 'parallelrnn[neuralforecast]'",
        name=error.name,
    ) from error

_FORMAT = ModelFormat("parallelrnn.neuralforecast", 1)
_EXPLAINED = 512  # windows, over which shares are taken


class ParaModel(BaseModel):  # type: ignore[misc]
    """What the three models share: the network of `parallelrnn.Forecaster` in the training loop of neuralforecast.

    The window is scaled by neuralforecast (`scaler_type`); blocks remember it, and its last state sets the amplitudes
    of the damped waves and decays that the forecast is the sum of. The effect of `futr_exog_list` is linear.

    Parameters
    ----------
    h, input_size
        Steps that are forecast, and that a forecast looks back.
    hidden_size, block_size, num_layers
        Of the blocks that remember.
    decoder, num_waves, num_decays
        "waves", which start at the strongest lines of the spectrum of what is trained on; or "linear".
    segment
        Steps that are read at once; by default 1, about 24 for LSTM and GRU.
    gate, dropout
        Of the memory before it sets the amplitudes; a gate may turn units down that are of unusual size.
    others
        As those of all models of neuralforecast, exogenous variables included.
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
        hidden_size, block_size = (
            check_integer("hidden_size", hidden_size, 1),
            check_integer("block_size", block_size, 1),
        )
        check_blocks(hidden_size, block_size)
        outputs = self.loss.outputsize_multiplier
        self.network = Network(
            Architecture(
                self.input_size,
                h,
                cell=self.CELL,
                decoder=decoder,
                block_size=block_size,
                hidden_size=hidden_size,
                num_layers=check_integer("num_layers", num_layers, 1),
                num_waves=check_integer("num_waves", num_waves, 0),
                num_decays=check_integer("num_decays", num_decays, 0),
                normalize=None,
                segment=default_segment(self.CELL, self.input_size, ())
                if segment is None
                else check_integer("segment", segment, 1),
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
        self._states: Tensor | None = None  # those that the latest forecasts outside training came from

    def forward(self, windows_batch: dict[str, Any]) -> Tensor:
        """Forecasts (B, h, outputs of the loss) at the scale of the window."""
        held = self.network.read(self._batch(windows_batch))
        if not self.training:
            self._states = held.state[-_EXPLAINED:].detach().cpu()
        decoded: Tensor = self.network.decoder(held.state, self.h)
        return decoded + (held.added if self.effect_on is None else held.added * self.effect_on)

    def fit(self, dataset: Any, val_size: int = 0, test_size: int = 0, **more: Any) -> Any:
        """As in neuralforecast; waves that have no amplitude yet start at the strongest lines of the spectrum."""
        decoder = self.network.decoder
        if isinstance(decoder, WaveDecoder) and not decoder.amplitudes.weight.any():
            if hasattr(dataset, "temporal"):
                self._start(decoder, dataset, val_size + test_size)
            else:
                warnings.warn(
                    "the series are not in memory, so that waves do not start at the lines of their spectrum but at "
                    "periods from 4 to 512 steps",
                    stacklevel=2,
                )
        return super().fit(dataset, val_size, test_size, **more)

    def explanation(self, freq: str | None = None) -> Explanation:
        """The waves and decays of the forecasts, with their shares in the latest, and what remembers them.

        Shares are of the last windows that were forecast, by `predict` say; before, there are none. Not `explain`,
        which is a switch in neuralforecast.
        """
        time = Step.of(freq)
        modes = ForecastModes((), "a linear decoder has no modes", time)
        if isinstance(self.network.decoder, WaveDecoder):
            modes = forecast_modes(self.network.decoder, x=self._states, horizon=max(2, self.h), freq=freq)
        return Explanation(modes, memory_of(self.network, time), None)

    def save(self, path: str | Path) -> None:
        """Write the model into a directory, as JSON and safetensors; `NeuralForecast.save` works as well."""
        if "://" in str(path):
            raise ValueError(f"expected a directory of this machine, got {path}; copy what is written there")
        data = self.serialize()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        _FORMAT.save(path, {"model": type(self).__name__, "header": header}, safetensors.torch.load(data))

    @classmethod
    def load(cls, path: str | Path, *more: Any, **others: Any) -> ParaModel:
        """A model from a directory that `save` wrote, or from a file of `NeuralForecast.save`."""
        read = super().load
        if not Path(path).is_dir():
            return read(path, *more, **others)  # type: ignore[no-any-return]

        def make(words: dict[str, Any], tensors: dict[str, Tensor]) -> ParaModel:
            if words["model"] != cls.__name__:
                raise ModelFileError(f"{path} holds a {words['model']}, not a {cls.__name__}")
            with TemporaryDirectory() as folder:
                file = Path(folder) / "model.safetensors"
                safetensors.torch.save_file(tensors, file, words["header"])
                return read(str(file), *more, **others)  # type: ignore[no-any-return]

        return _FORMAT.load(path, make)

    def _start(self, decoder: WaveDecoder, dataset: Any, unseen: int) -> None:
        """Put waves at the strongest lines of the spectrum; those that are left stay where they are."""
        values = dataset.temporal[:, dataset.y_idx].double().numpy()
        series = [one[: max(0, len(one) - unseen)] for one in np.split(values, dataset.indptr[1:-1])]
        scaled = [((one - one.mean()) / (one.std() or 1))[:, None] for one in series if len(one) > 2]
        if scaled:
            periods = wave_periods(scaled, decoder.num_waves, self.input_size, self.h)
            start_decoder(decoder, periods, self.input_size, self.h)

    def _batch(self, windows: dict[str, Any]) -> Batch:
        mask = windows["insample_mask"].reshape(len(windows["insample_y"]), -1, 1)  # (B, L, 1)
        past = windows["insample_y"] * (mask > 0)  # what stood where nothing was observed was scaled like the rest
        valid = mask[..., 0].cummax(1).values > 0  # from the first value on
        valid[:, -1] = True
        begun = nn.functional.pad(valid, (0, self.h), value=True)
        ahead = past.new_zeros(len(past), self.h, 1)

        def given(name: str, *size: int) -> Tensor:
            found: Tensor | None = windows[name]
            return past.new_zeros(len(past), *size, 0) if found is None else found

        return Batch(
            past=past,
            valid=None if valid.all() else valid,
            target=ahead,
            weight=ahead,
            covariates=given("hist_exog", self.input_size) * valid[..., None],
            known=given("futr_exog", self.input_size + self.h) * begun[..., None],
            static=given("stat_exog"),
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
