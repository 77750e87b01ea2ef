"""What is shown of one experiment, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence

from parallelrnn.lab.experiments.experiment import Experiment
from parallelrnn.lab.markdown import as_text
from parallelrnn.lab.picking import Runs, conditions, pick
from parallelrnn.lab.running.store import Line


class Page:
    """What is shown of an experiment, and the budgets that its tables speak of, numbered as they come."""

    def __init__(self, experiment: Experiment, lines: Sequence[Line]) -> None:
        self.name = experiment.name
        self.picked = pick(experiment, lines)
        self._budgets: list[str] = []

    def budget(self, runs: Runs) -> str:
        """The number of a budget, marked if most twins have another."""
        words = as_text(runs.budget_in_words)
        if words not in self._budgets:
            self._budgets.append(words)
        return f"{self._budgets.index(words) + 1}{'†' if runs.apart else ''}"

    def end(self) -> list[str]:
        """Budgets, what is not shown, and conditions."""
        parts = ["\n".join(f"- budget {number}: {words}" for number, words in enumerate(self._budgets, 1))]
        if any(one.apart for one in self.picked.runs):
            parts.append("† Run with another budget than most of its twins: not to be compared with them.")
        lines = [line for one in self.picked.runs for line in one.lines]
        return [part for part in parts if part] + [*self.left_out(), f"Conditions: {as_text(conditions(lines))}."]

    def left_out(self) -> list[str]:
        """A sentence on runs that no table shows, if there are some."""
        found = (("other budgets", self.picked.other_budgets), ("other cells", self.picked.other_cells))
        words = [f"{count} of {what}" for what, count in found if count]
        return [f"Runs that are not shown: {', '.join(words)}."] if words else []
