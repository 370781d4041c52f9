"""Pages in Markdown, made from stored results and never typed by hand."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev

from evidence.subject import Subject

IMAGES = "images"


def write_page(subject: Subject, target: Path | None = None) -> None:
    """Write the page of a subject, and its figures beside it, from the results on disk."""
    target = target or subject.target
    images = target.parent / IMAGES
    stored = {name: results for name in subject.sections if len(results := subject.results(name))}
    lines = subject.opening(stored, images)
    for name, results in stored.items():
        module = subject.module(name)
        lines += ["", f"## {module.TITLE}", "", inspect.cleandoc(module.__doc__ or ""), ""]
        lines += subject.body(name, results, images)
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = True) -> list[str]:
    """Lines of a table, its first column left and the others right, or all left where they are words."""
    rule = "---:|" if numbers else "---|"
    lines = [f"| {' | '.join(header)} |", "|---|" + rule * (len(header) - 1)]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def spread(values: Sequence[float], digits: int = 4) -> str:
    """A mean with the standard deviation over seeds or splits, where there are several."""
    mean = f"{fmean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {stdev(values):.{digits}f}"


def picture(name: str, what: str) -> list[str]:
    """A figure of the page, with the words for those who cannot see it."""
    return ["", f"![{what}]({IMAGES}/{name})", ""]
