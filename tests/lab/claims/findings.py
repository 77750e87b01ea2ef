"""What is found of lines that were made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from parallelrnn.lab import paper
from parallelrnn.lab.claims import findings
from parallelrnn.lab.claims.verdict import Finding
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.picking import pick
from parallelrnn.lab.running.store import Line


def everything(lines: Sequence[Line]) -> list[Finding]:
    return findings(
        {
            name: pick(experiment, [one for one in lines if one["experiment"] == name])
            for name, experiment in EXPERIMENTS.items()
        }
    )


def found(experiment: str, claim: str, lines: Sequence[Line], about: str = "") -> Finding:
    """The first of a claim that is about these words."""
    said = paper.CLAIMS[experiment][claim]
    return next(one for one in everything(lines) if one.claim is said and about in one.about)
