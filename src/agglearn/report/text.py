"""A document on a terminal: aligned columns, wrapped paragraphs, nothing that steers the terminal.

Title and statements stay one line, however long: they name files, which are copied whole. The last column of
a grid is wrapped below itself, names before it are cut. Figures are left out: what they show is also said.
"""

from __future__ import annotations

from collections.abc import Iterator

from agglearn.report.characters import cut, pad, visible, width, wrap
from agglearn.report.document import Block, Document, Figure, Grid, Heading, Note, Paragraph, Statement

WIDTH = 110

_INDENT = 2
_GAP = "  "
_LONGEST_NAME = 40  # places of a name that others stand to the right of
_NARROWEST = 20  # places that the last column has, however narrow the terminal
_SIGNS = {"note": "note", "warning": "warning", "problem": "PROBLEM"}


def text(document: Document, width: int = WIDTH) -> str:
    """The document for a terminal of so many places."""
    return "\n".join(lines(document, width))


def lines(document: Document, width: int = WIDTH) -> Iterator[str]:
    """The lines of the document; no name or value makes two of one."""
    begun = False
    if document.title:
        yield visible(document.title)
        begun = True
    for block in (*document.warnings, *document.blocks):
        if isinstance(block, Heading) and begun:
            yield ""
        for line in _block(block, width):
            begun = True
            yield line


def _block(block: Block, places: int) -> Iterator[str]:
    match block:
        case Statement(said):
            yield visible(said)
        case Heading(said):
            yield from _wrapped(said, places, 0)
        case Paragraph(said):
            yield from _wrapped(said, places, _INDENT)
        case Note():
            yield from _wrapped(f"{_SIGNS[block.severity]}: {block.text}", places, 0)
        case Grid():
            yield from _grid(block, places)
        case Figure():
            pass


def _wrapped(said: str, places: int, indent: int) -> Iterator[str]:
    """Lines; where nothing is indented, those after the first are."""
    first, *rest = wrap(visible(said), places - _INDENT)
    yield " " * indent + first
    yield from (" " * _INDENT + line for line in rest)


def _grid(grid: Grid, places: int) -> Iterator[str]:
    if grid.caption:
        yield from _wrapped(grid.caption, places, _INDENT)
    names = [[column.name for column in grid.columns]] if grid.headed else []
    table = [[visible(value) for value in row] for row in (*names, *grid.shown())]
    if not table:
        return
    right = [column.align == "right" for column in grid.columns]
    last = len(right) - 1
    widths = [max(map(width, cells)) for cells in zip(*table, strict=True)]
    widths = [w if right[i] or i == last else min(w, _LONGEST_NAME) for i, w in enumerate(widths)]
    before = _INDENT + sum(widths[:-1]) + len(_GAP) * last
    if not right[last]:
        widths[last] = min(widths[last], max(places - before, _NARROWEST))
    for row in table:
        cells = [pad(cut(v, w), w, left=r) for v, w, r in zip(row[:-1], widths, right, strict=False)]
        ends = [pad(row[-1], widths[-1], left=True)] if right[last] else wrap(row[-1], widths[-1])
        yield (" " * _INDENT + _GAP.join([*cells, ends[0]])).rstrip()
        yield from (" " * before + end for end in ends[1:])
