"""Verdicts on features along the training follow their rules."""

from __future__ import annotations

from parallelrnn.lab.claims.verdict import FAILS, HOLDS, SMALLER, UNKNOWN
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.running.store import Line
from tests.lab.claims.findings import found
from tests.lab.lines import line


def test_features_in_training() -> None:
    def runs(last: dict[str, int], middle: str = "C-2") -> list[Line]:
        steps = [{"0 reset": {"R-4": 2}}, {"0 reset": last, "1 reset": {middle: 1}}, {"0 reset": last}]
        return [
            line("feature-evolution", {}, details={"features": steps}, model=cell.model, initial=cell.initial)
            for cell in EXPERIMENTS["feature-evolution"].cells()
        ]

    def verdicts(lines: list[Line]) -> list[str]:
        return [found("feature-evolution", claim, lines).verdict for claim in ("low", "waves", "others")]

    # The experiment's own configuration is shorter than the paper's.
    assert verdicts(runs({"R-1": 2, "C-1": 3})) == [HOLDS + SMALLER] * 3
    assert verdicts(runs({"R-4": 1, "C-1": 2})) == [FAILS + SMALLER, HOLDS + SMALLER, HOLDS + SMALLER]
    assert verdicts(runs({"R-1": 3, "C-1": 2})) == [HOLDS + SMALLER, FAILS + SMALLER, HOLDS + SMALLER]
    # It was there for a while, in another layer.
    assert verdicts(runs({"R-1": 2, "C-1": 3}, "R-2")) == [HOLDS + SMALLER, HOLDS + SMALLER, FAILS + SMALLER]
    assert verdicts(runs({"R-1": 2, "C-1": 3})[1:]) == [UNKNOWN] * 3
    assert verdicts(runs({"R-1": 2, "C-1": 3}, "R-2")[1:]) == [UNKNOWN] * 3  # the rest may have many others
    assert verdicts(runs({"R-1": 200, "C-1": 300}, "R-2"))[2] == HOLDS + SMALLER  # one in 1,003
    assert verdicts(runs({"R-4": 5, "C-1": 95}))[0] == HOLDS + SMALLER
    assert verdicts(runs({"R-4": 6, "C-1": 94}))[0] == FAILS + SMALLER


def test_recovery() -> None:
    def verdicts(
        truth: str, distance: float, last: str = "R-1", modulus: float = 0.5, fall: float = 0.005, first: float = 9.0
    ) -> list[str]:
        curve = [{"validation": first}, *({"validation": (1 - fall) ** epoch} for epoch in range(6))]
        metrics = {"distance": distance, "first_distance": 2.0}
        history = [
            {"counts": {"R-7": 1}, "modulus": [1.0] * 5, "angle": [0.01] * 5},
            {"counts": {last: 4}, "modulus": [modulus] * 5, "angle": [0.03] * 5},
        ]
        details = {"features": history, "true": {"modulus": [0.4] * 5, "angle": [0.0] * 5}}
        lines = [
            line("feature-recovery", metrics, 0, curve, details, truth=truth, initial=cell.initial)
            for cell in EXPERIMENTS["feature-recovery"].cells()
            if cell.truth == truth
        ]
        about = {"normal": "normal", "mixed": "R-4"}[truth]
        claims = ("matrix", "percentiles", "types") if truth == "normal" else ("matrix", "types")
        assert {found("feature-recovery", claim, lines[1:], about).verdict for claim in claims} == {UNKNOWN}
        return [found("feature-recovery", claim, lines, about).verdict for claim in claims]

    assert verdicts("mixed", 0.1) == [HOLDS, HOLDS]
    assert verdicts("mixed", 1.9, "R-2") == [FAILS, FAILS]
    assert verdicts("normal", 0.1) == [HOLDS, HOLDS, HOLDS]  # angles began near, and are
    assert verdicts("normal", 0.1, modulus=0.75) == [HOLDS, FAILS, HOLDS]
    # While a training goes on, what is not found may be yet, and what is may go.
    assert verdicts("normal", 1.9, "R-2", modulus=0.75, fall=0.02) == [UNKNOWN] * 3
    assert verdicts("normal", 0.1, fall=0.02) == [UNKNOWN] * 3
    # And where it has hardly begun, the error does not fall either.
    assert verdicts("normal", 1.9, "R-2", modulus=0.75, first=1.5) == [UNKNOWN] * 3
