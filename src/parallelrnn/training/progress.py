"""One progress bar, where there is a terminal to show it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from parallelrnn.training.trainer import Trainer

Watcher = Callable[[Trainer[Any]], None]  # is called after every epoch


@contextmanager
def progress_bar(wanted: bool | None) -> Iterator[Watcher]:
    """What shows epochs as they end; nothing if it is not wanted, or nobody said and there is no terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda trainer: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[error]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("training", total=None, error="")

        def watch(trainer: Trainer[Any]) -> None:
            state = trainer.progress
            error = f"validation error {state.history[-1]['validation']:.4f}, best {state.best:.4f}"
            bar.update(task, total=trainer.recipe.max_epochs, completed=state.epoch, error=error)

        yield watch
