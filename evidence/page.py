"""Markdown made from findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, its first column left and the others right."""
    lines = [f"| {' | '.join(header)} |", "|---|" + "---:|" * (len(header) - 1)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def spread(values: Sequence[float], digits: int = 4) -> str:
    """A mean with the standard deviation over seeds or splits, where there are several."""
    mean = f"{fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {stdev(values):.{digits}f}"


def picture(name: str, what: str) -> list[str]:
    """A figure of the page, with the words for those who cannot see it."""
    return ["", f"![{what}](images/{name})", ""]
