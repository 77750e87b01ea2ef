"""The results as Markdown: for each experiment its tables, the paper's numbers beside ours, and how ours were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from parallelrnn.lab import paper
from parallelrnn.lab.claims import findings
from parallelrnn.lab.claims.verdict import FAILS, HOLDS, SMALLER, UNKNOWN, UNTOLD, Finding
from parallelrnn.lab.experiments.experiment import Experiment, ExperimentError
from parallelrnn.lab.experiments.registry import EXPERIMENTS
from parallelrnn.lab.markdown import table
from parallelrnn.lab.page import Page
from parallelrnn.lab.picking import NOT_RUN, pick, refusing_lines
from parallelrnn.lab.running.store import Line
from parallelrnn.lab.paper_tables import TABLES

HEAD = """# Results beside the paper's

The paper is arXiv 2605.02692. Of each cell the runs of one budget are shown, the largest that both twins have. A number
followed by ± is a mean over runs and their standard deviation; a difference followed by ± and pairs is a mean over
seeds that both have, and half of its 95 % interval by Student's t. Budgets are those of our runs; where the
experiment's own configuration, which has the paper's values as far as it gives them, asks for something else, that is
in brackets.
"""

_COUNTED = {
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    UNTOLD: ("cannot be told", "cannot be told"),
    UNKNOWN: ("is not yet known", "are not yet known"),
}
_SMALLER_BUDGETS = " at smaller budgets than the experiment's own"


def document(lines: Mapping[str, Sequence[Line]], pictures: Mapping[str, Sequence[str]] | None = None) -> str:
    """All experiments in the order of the paper, from their lines; `pictures` are addresses of their figures."""
    sections = [
        section(experiment, lines.get(name, ()), (pictures or {}).get(name, ()))
        for name, experiment in EXPERIMENTS.items()
    ]
    return "\n".join([HEAD, "## Claims\n", claims(lines) + "\n", *sections])


@refusing_lines()
def claims(lines: Mapping[str, Sequence[Line]]) -> str:
    """How many claims hold; the paper's statements in short; each claim with its verdict, the paper's number and ours;
    and the rules."""
    picked = {name: pick(experiment, lines.get(name, ())) for name, experiment in EXPERIMENTS.items()}
    found = findings(picked)
    rules = {rule: number for number, rule in enumerate(dict.fromkeys(one.rule for one in found), 1)}
    run = [one for one in found if one.ours != NOT_RUN]
    rows = [[_said(one, rules), f"**{one.verdict}**", one.paper, one.ours, one.budget] for one in run]
    others = [[_said(one, rules), one.paper] for one in found if one.ours == NOT_RUN]
    said = list(dict.fromkeys(one.claim for one in found))
    short = [[claim.text, claim.place, _in_short([one for one in found if one.claim == claim])] for claim in said]
    counts = _counted(found)
    parts = [
        f"Of {len(found)} claims, which are {len(said)} statements of the paper on several models and data: {counts}."
    ]
    parts += ["In short:", table(["statement of the paper", "place", "what runs here say"], short)]
    if run:
        parts += ["One by one:", table(["claim", "verdict", "paper", "ours", "budget"], rows)]
    if others:
        parts += ["Not yet known, since nothing of it was run:", table(["claim", "paper"], others)]
    numbered = "\n".join(f"{number}. {rule}." for rule, number in rules.items())
    return "\n\n".join([*parts, "Rules, by their numbers. A claim holds if", numbered])


def _counted(found: Sequence[Finding]) -> str:
    """How many there are of each verdict, and how many of these are of smaller budgets."""
    words = []
    for verdict, (singular, plural) in _COUNTED.items():
        some = [one for one in found if one.verdict.removesuffix(SMALLER) == verdict]
        smaller = sum(one.verdict.endswith(SMALLER) for one in some)
        if some:
            of_these = f" ({'all' if smaller == len(some) else smaller}{_SMALLER_BUDGETS})" if smaller else ""
            words.append(f"{len(some)} {singular if len(some) == 1 else plural}{of_these}")
    return ", ".join(words)


def _in_short(found: Sequence[Finding]) -> str:
    """The verdicts on one statement."""
    order = list(_COUNTED)
    counts = Counter(sorted((one.verdict for one in found), key=lambda one: order.index(one.removesuffix(SMALLER))))
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{verdict} ({count} of {len(found)})" for verdict, count in counts.items())


def _said(found: Finding, rules: Mapping[str, int]) -> str:
    """A claim, its place, and the rule by which it is judged."""
    return f"**{found.text}**. {found.claim.place}; rule {rules[found.rule]}"


def renew_claims(page: str, lines: Mapping[str, Sequence[Line]]) -> str:
    """A page with the table of claims between its two marks."""
    begin, end = "<!-- claims -->", "<!-- /claims -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ExperimentError(f"the page has no {begin} and {end} after it, between which the table of claims stands")
    return f"{before}{begin}\n\n{claims(lines)}\n\n{end}{after}"


@refusing_lines()
def section(experiment: Experiment, lines: Sequence[Line], pictures: Sequence[str] = ()) -> str:
    """One experiment: what the paper says of it, tables, figures, budgets and conditions."""
    of, _, title = experiment.of.partition(": ")
    claims = [f"- {claim.place}: {claim.text}." for claim in paper.CLAIMS[experiment.name].values()]
    page = Page(experiment, lines)
    parts = [f"## {experiment.name}: {title}", f"{of} of the paper, whose text says:", "\n".join(claims)]
    if not page.picked.runs:
        return "\n\n".join([*parts, "Not run.", *page.left_out()]) + "\n"
    parts += TABLES[experiment.name](page)
    parts += [f"![{experiment.name}]({address})" for address in pictures]
    return "\n\n".join([*parts, *page.end()]) + "\n"
