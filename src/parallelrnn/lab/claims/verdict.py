"""What is found of a claim: what runs say by a rule, and the verdict that this makes.

Differences are of runs of the same budget and paired by seed; they are significant where their 95 % interval by
Student's t does not hold zero, which takes three pairs. Where a rule takes runs that are not there, the verdict is that
nothing is known yet; where runs were shorter than the paper's, on fewer examples or with smaller models, the verdict
says that it is of this budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parallelrnn.lab import paper
from parallelrnn.lab.experiments.models import twin
from parallelrnn.lab.markdown import as_text
from parallelrnn.lab.picking import NOT_RUN, Picked, Runs

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not yet known"
UNTOLD = "cannot be told: the data as described cannot be learned"
SMALLER = " at this budget"
DRAWN = "drawn only"
NOT_OF_PAPER = "-"  # of data that the paper does not have


@dataclass(frozen=True)
class Finding:
    """A claim, and what came of it."""

    claim: paper.Claim
    about: str  # the data or models it is looked at with
    paper: str  # its number
    ours: str
    budget: str
    rule: str  # by which it holds
    verdict: str

    @property
    def text(self) -> str:
        """The claim, and with what it is looked at."""
        return f"{self.claim.text} ({self.about})" if self.about else self.claim.text


@dataclass(frozen=True)
class Told:
    """What runs say by a rule."""

    ours: str = NOT_RUN
    holds: bool | None = None  # None: they are too few to tell
    runs: Sequence[Runs] = ()
    untold: bool = False  # whether they could not tell, however many they were

    @property
    def verdict(self) -> str:
        """In words."""
        if self.untold:
            return UNTOLD
        if self.holds is None:
            return UNKNOWN
        return (HOLDS if self.holds else FAILS) + (SMALLER if any(one.is_smaller for one in self.runs) else "")

    def of(self, claim: paper.Claim, about: str, of_paper: str, rule: str) -> Finding:
        """What that means for a claim."""
        return Finding(claim, about, of_paper, self.ours, budgets(self.runs), rule, self.verdict)


def unpaired(picked: Picked, vanilla: str, **where: Any) -> Told:
    """Of twins that cannot be compared: what there is of them."""
    there = [model for model in (vanilla, twin(vanilla)) if picked.get(model=model, **where) is not None]
    if not there:
        return Told()
    return Told(f"only {there[0]} was run" if len(there) == 1 else "twins have no budget and seed in common")


def budgets(runs: Sequence[Runs]) -> str:
    """How many replicates, and which budgets they had."""
    if not runs:
        return "-"
    words = list(dict.fromkeys(as_text(one.budget_in_words) for one in runs))
    named = words[0] if len(words) == 1 else f"{len(words)} budgets: {' / '.join(words)}"
    return f"{replicates(runs)}; {named}"


def replicates(runs: Sequence[Runs]) -> str:
    """How many there are of each, in words."""
    counts = [len(one.lines) for one in runs]
    if min(counts) < max(counts):
        return f"{min(counts)} to {max(counts)} replicates"
    return f"{counts[0]} replicate{'s' if counts[0] != 1 else ''}"
