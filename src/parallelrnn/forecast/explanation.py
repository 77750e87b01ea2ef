"""What drives a forecast: its cycles, what remembers them, and the parts that add up to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from parallelrnn.forecast.model import Network
from parallelrnn.interpret.display import Step, Summary
from parallelrnn.interpret.features import Features, recurrence_features
from parallelrnn.interpret.modes import ForecastModes
from parallelrnn.nn.segment_encoder import TransformerEncoder


@dataclass(frozen=True)
class Explanation:
    """What a forecaster has learned.

    `modes` are the cycles and trends of its forecasts; `features` how it remembers, which is not the same; `components`
    a table of the forecast at hand and its parts, or None where that needs covariates that were not given.
    """

    modes: ForecastModes
    features: Features
    components: Any

    def summary(self, most: int = 5) -> Summary:
        """The most important modes, for the terminal."""
        return self.modes.summary(most)


def memory_of(network: Network, time: Step) -> Features:
    """How a network remembers; `time` is a step of the series, of which it may read several at once."""
    steps = network.made_of.segment
    if isinstance(network.encoder, TransformerEncoder):
        steps *= network.encoder.steps_per_update
    return replace(recurrence_features(network.encoder), time=Step(time.amount * steps, time.unit))
