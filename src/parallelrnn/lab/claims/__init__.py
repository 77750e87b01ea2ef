"""What the paper claims, what the runs say, and a verdict by a rule that is stated with each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from parallelrnn.lab.claims import accuracies, adding, block_sizes, features, forecasts
from parallelrnn.lab.claims.verdict import Finding
from parallelrnn.lab.picking import Picked

All = Mapping[str, Picked]  # what was picked of each experiment


def findings(picked: All) -> list[Finding]:
    """Every claim in the order of the paper."""
    return [finding for name, tell in _EXPERIMENTS.items() for finding in tell(name, picked[name])]


_EXPERIMENTS: dict[str, Callable[[str, Picked], Iterator[Finding]]] = {
    "tradeoff": block_sizes.tradeoff,
    "speed": block_sizes.speed,
    "forecasting": forecasts.forecasting,
    **dict.fromkeys((*accuracies.IMAGES, "worms"), accuracies.classification),
    "feature-evolution": features.evolution,
    "feature-recovery": features.recovery,
    "adding": adding.adding,
}
