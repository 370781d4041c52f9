"""Progress on the terminal: on stderr, only where a person watches, only past the first second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 1.0  # seconds before a bar is worth showing


@contextmanager
def meter(
    what: str, total: float | None = None, unit: str = "rows", *, show: bool = True
) -> Iterator[Callable[..., None]]:
    """Give a function ``advance(amount, note="")`` that draws a bar with the rate once it takes long.

    Where the total is known it also tells how long the rest may take.
    """
    if not show or not sys.stderr.isatty():
        yield lambda amount, note="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        *((TextColumn("left:"), TimeRemainingColumn()) if total else ()),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(what, total=total, rate="")
    began = time.perf_counter()
    done, shown = 0.0, False

    def advance(amount: float, note: str = "") -> None:
        nonlocal done, shown
        done += amount
        elapsed = time.perf_counter() - began
        if not shown and elapsed > _PATIENCE:
            bar.start()
            shown = True
        if shown:
            bar.update(task, completed=done, rate=f"{done:,.0f} {unit}, {done / elapsed:,.0f}/s  {note}")

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
