"""Put the numbers of stress/results into the tables of docs/reliability.md.

    python stress/tables.py

A table stands between two marks, `<!-- kills -->` and the like, and what stands between them is replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "stress" / "results", ROOT / "docs" / "reliability.md"

KILLED = {
    "fit": "`parallelrnn fit --resume`",
    "sequences": "`SequenceRegressor.fit`",
    "reproduce": "`parallelrnn reproduce`",
    "workers": "a process of `parallelrnn reproduce --workers 2`",
    "save": "`Forecaster.save` over an older model",
}
CHECKED = {
    "driver": "address and undefined-behaviour sanitizers, every kernel on memory of exact size",
    "threads": "thread sanitizer, the same",
    "valgrind": "valgrind, the library as it is installed",
    "tests": "address and undefined-behaviour sanitizers, the kernels' tests",
}
REPEATED = {
    "training": "training steps, as many as an hour has of the case S1",
    "fits": "fits of a `Forecaster`",
    **{f"{mode} cell": f"single steps of `Para{mode}Cell`" for mode in ("RNN", "LSTM", "GRU")},
    **{f"{mode} cell backward": f"the same of `Para{mode}Cell` with backward" for mode in ("RNN", "LSTM", "GRU")},
}


def kills(found: dict[str, Any]) -> list[str]:
    """What was killed how often, and whether it came to the same end."""
    rows = [
        (KILLED[name], one["kills"], one["moments"].get("while a file is written", 0), one["ends"])
        for name, one in sorted(found["survived"].items(), key=_in(KILLED))
    ]
    columns = ("what", "kills survived", "of them while a file was written", "ends compared")
    return _table(
        columns, [*rows, ("in all", *(sum(numbers) for numbers in zip(*(row[1:] for row in rows), strict=True)))]
    )


def sanitizers(found: dict[str, Any]) -> list[str]:
    """What was looked at by which tool."""
    rows = [
        (CHECKED[name], f"{one.get('cases', one.get('passed')):,}", one["findings"])
        for name, one in sorted(found.items(), key=_in(CHECKED))
    ]
    return _table(("check", "cases", "findings"), rows)


def soak(found: dict[str, Any]) -> list[str]:
    """What was repeated how often, and how much more memory was in use at the end."""
    rows = [
        (REPEATED[name], f"{one['count']:,}", f"{one['growth']:.3%}")
        for name, one in sorted(found.items(), key=_in(REPEATED))
    ]
    return _table(("work", "times", "growth of resident memory"), rows)


def fuzz(found: dict[str, Any]) -> list[str]:
    """How many inputs each reader was given."""
    rows = [
        (name, f"{one['runs']:,}", one["seconds"], one["edges"], one["peak_mb"], len(one["findings"]))
        for name, one in found.items()
    ]
    columns = ("reader", "inputs", "seconds in all", "branches reached", "most memory, MB", "findings")
    return _table(columns, rows)


def renewed(text: str) -> str:
    """A document with its tables as the results have them."""
    for make in (kills, sanitizers, soak, fuzz):
        name = make.__name__
        found = json.loads((RESULTS / f"{name}.json").read_text())
        table = "\n".join([*make(found), "", f"Measured at {' and '.join(sorted(commits(found)))}."])
        mark = f"<!-- {name} -->"
        pattern = rf"{mark}\n.*?{mark}"
        if not re.search(pattern, text, re.DOTALL):
            raise ValueError(f"{DOCUMENT.name} has no two marks {mark}; put them where the table should be")
        text = re.sub(pattern, lambda _, new=f"{mark}\n\n{table}\n\n{mark}": new, text, flags=re.DOTALL)
    return text


def commits(found: Any) -> set[str]:
    """All that numbers come from."""
    if not isinstance(found, dict):
        return set()
    named = found.get("commit", "")
    changed = " (with changes that were committed later)" * named.endswith("+")
    here = {f"commit `{named[:10]}`{changed}"} if named else set()
    return here.union(*(commits(one) for one in found.values()))


def _in(order: dict[str, str]) -> Any:
    return lambda item: list(order).index(item[0])


def _table(columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    lines = [columns, ("---",) * len(columns), *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))
