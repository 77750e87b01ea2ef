"""What a forecaster can be told, checked once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

from parallelrnn.errors import ArgumentError, check_choice, check_integer, check_number
from parallelrnn.forecast.missing import MISSING
from parallelrnn.forecast.model import DECODERS, NORMALIZATIONS
from parallelrnn.nn.encoder import CELLS, check_block_size
from parallelrnn.training.losses import LOSSES
from parallelrnn.training.trainer import TrainerConfig

CHANNELS = ("independent", "mixed")
_SIZES = ("block_size", "hidden_size", "num_layers", "batch_size", "max_epochs", "devices")
_WHOLE = {  # numbers, and the least that each may be
    **dict.fromkeys(("horizon", "lookback", "segment", *_SIZES), 1),
    **dict.fromkeys(("num_waves", "num_decays", "patience", "random_state"), 0),
}
_OPTIONAL = ("lookback", "segment")


@dataclass(eq=False)
class Options:
    """The arguments of a forecaster, which says what they mean."""

    horizon: int
    lookback: int | None = None
    _: KW_ONLY
    cell: str = "linear"
    decoder: str = "waves"
    block_size: int = 2
    hidden_size: int = 64
    num_layers: int = 1
    num_waves: int = 8
    num_decays: int = 4
    prune: bool = True
    gate: bool | None = None
    dropout: float = 0.3
    cycles: str | Sequence[float] | None = "calendar"
    normalize: str | None = "auto"
    segment: int | None = None
    channels: str = "independent"
    past_covariates: Sequence[str] = ()
    future_covariates: Sequence[str] = ()
    static_covariates: Sequence[str] = ()
    quantiles: Sequence[float] | None = None
    missing: str = "interpolate"
    loss: str = "mae"
    learning_rate: float = 5e-3
    batch_size: int = 448
    max_epochs: int = 10
    patience: int = 3
    epoch_steps: tuple[int, int] = (64, 1000)
    gradient_clip: float = 1.0
    max_time: float | None = None
    random_state: int = 0
    accelerator: str = "cpu"
    devices: int = 1
    precision: str = "32-true"
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name, least in _WHOLE.items():
            if not (name in _OPTIONAL and getattr(self, name) is None):
                setattr(self, name, check_integer(name, getattr(self, name), least))
        check_choice("cell", self.cell, CELLS)
        check_choice("decoder", self.decoder, DECODERS)
        check_choice("normalize", self.normalize, ("auto", *NORMALIZATIONS))
        check_choice("channels", self.channels, CHANNELS)
        check_choice("missing", self.missing, MISSING)
        check_choice("loss", self.loss, LOSSES)
        check_block_size(self.hidden_size, self.block_size)
        check_number("dropout", self.dropout, "a number of at least 0 and below 1", lambda rate: 0 <= rate < 1)
        self.epoch_steps = self.trainer_config().epoch_steps
        self._check_cycles()
        self._check_quantiles()
        for name in ("past_covariates", "future_covariates", "static_covariates"):
            names = getattr(self, name)
            if isinstance(names, str):
                raise TypeError(f"{name}: expected a list of names of columns, got the string {names!r}")
            setattr(self, name, tuple(names))

    def arguments(self) -> dict[str, Any]:
        """All of them by name, as JSON would have them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(Options) if field.name != "_"}

    def trainer_config(self) -> TrainerConfig:
        """How to train."""
        return TrainerConfig(
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            patience=self.patience,
            epoch_steps=self.epoch_steps,
            gradient_clip=self.gradient_clip,
            max_time=self.max_time,
        )

    def _check_cycles(self) -> None:
        if self.cycles is None or self.cycles == "calendar":
            return
        if isinstance(self.cycles, Real):
            self.cycles = (float(self.cycles),)
        if isinstance(self.cycles, str):
            raise ArgumentError(
                f"cycles should be 'calendar', a list of periods in steps, or None, got {self.cycles!r}"
            )
        self.cycles = tuple(float(period) for period in self.cycles)
        if not all(2 <= period < math.inf for period in self.cycles):
            raise ArgumentError(f"cycles: expected periods of at least 2 steps, got {list(self.cycles)}")

    def _check_quantiles(self) -> None:
        if self.quantiles is None:
            return
        wanted = {float(quantile) for quantile in self.quantiles}
        if not wanted or not all(0 < quantile < 1 for quantile in wanted):
            raise ArgumentError(f"quantiles: expected numbers between 0 and 1, got {list(self.quantiles)}")
        self.quantiles = tuple(sorted(wanted | {0.5}))  # the forecast itself
