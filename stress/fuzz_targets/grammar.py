"""Mutations that keep JSON valid, so that what is behind the parser is reached."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 12, 48, 2**31, 2**63, 10**9, 10**12, 10**30, 0.5, -0.0, 1e308, 1e-308),
    *(float("nan"), float("inf"), "", "a", "\x00", "\ud800", "<script>", "../x", "linear", "gru", "lstm", "brt", "rnn"),
    *("waves", "standard", "D", "MS", "999999999D", "2024-01-01", "0001-01-01", "ns", "O", "<U999999999", [], {}),
    *([[]], [0], ["a"], [1e9] * 3, {"a": 1}, {"pairs": []}, {"pairs": [[1, 2]]}),
)


def mutate(data: bytes, max_length: int, seed: int) -> bytes:
    """Return a JSON document with one to four changes; other data unchanged."""
    random_ = random.Random(seed)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data[:max_length]
    for _ in range(random_.randint(1, 4)):
        _change(document, random_)
    try:
        changed = json.dumps(document).encode()
    except RecursionError:
        return data
    return changed if len(changed) <= max_length else data


def _change(document: Any, random_: random.Random) -> None:
    """Descend to a random node, and replace, delete or add a value."""
    node = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = random_.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and random_.random() < 0.9:
            node = node[key]
            continue
        break
    dice = random_.random()
    if dice < 0.1:
        del node[key]
    elif dice < 0.2 and isinstance(node, list):
        node.insert(key, deepcopy(random_.choice([*node, *_VALUES])))
    elif dice < 0.3 and isinstance(node, dict):
        node[random_.choice(keys)] = deepcopy(node[random_.choice(keys)])
    elif dice < 0.5 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
        node[key] = random_.choice((node[key] + 1, node[key] - 1, 2 * node[key], -node[key], node[key] * 10**6))
    else:
        node[key] = deepcopy(random_.choice(_VALUES))
