"""Results of a long benchmark, a line each: what is there, and under which conditions it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from parallelrnn.io import write_text


def load(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The conditions and the results so far; a last line that was cut off does not count."""
    if not path.exists():
        return {}, []
    lines = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    made_under = next((line["conditions"] for line in lines if "conditions" in line), {})
    return made_under, [line for line in lines if "conditions" not in line]


def go_on(path: Path, now: dict[str, Any]) -> list[dict[str, Any]]:
    """The results so far, to which more may be appended; results of other conditions are not mixed with them."""
    then, lines = load(path)
    changed = [name for name in now if then.get(name, now[name]) != now[name]]
    if changed:
        raise SystemExit(f"{path} was made under other conditions ({', '.join(changed)}); write to another file")
    whole = [{"conditions": now}, *lines]  # without a line that was cut off
    write_text(path, "".join(json.dumps(line) + "\n" for line in whole))
    return lines
