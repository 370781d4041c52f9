# mypy: disallow-untyped-decorators=False
"""Where the listed cells of a layout's sparse tables are found: by the rank of a combination, in an index of
either kind (:mod:`agglearn.tables.lookup`), all tables' one after the other.

Sorted rows with a search by halves took four times as long as slots on a table that no cache holds, and marks
take less than half as long as slots on one that a cache does (`docs/cardinality.md`).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.runtime.compiled import njit
from agglearn.tables.cells import Cells, SparseCells
from agglearn.tables.lookup import (
    block_count,
    fill_index,
    fill_marks,
    index_size,
    is_marked,
    look_at_marks,
    look_up,
)


class Lists(NamedTuple):
    """The index of each table; table ``t`` has ``size[t]`` slots from ``start[t]`` on, or blocks of marks.

    A table that is not sparse has none. ``keys`` are the ranks in slots and, behind them all, marks;
    ``cells`` are the table's own cells, of slots. Marks in an array of their own would have kernels that
    choose count references to each, which took ten times as long as finding a cell.
    """

    start: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint64]
    marked: npt.NDArray[np.bool_]
    keys: npt.NDArray[np.uint64]
    cells: npt.NDArray[np.uint32]


_made: WeakKeyDictionary[Layout, Lists] = WeakKeyDictionary()


def lists_of(layout: Layout) -> Lists:
    """The index of a layout, made once for as long as there is that layout."""
    found = _made.get(layout)
    if found is None:
        found = _made[layout] = _make(layout)
    return found


def lists_needed(layout: Layout) -> int:
    """Bytes of the index."""
    return sum(size * (16 if marked else 12) for marked, size in map(_kind, layout.cells))


@njit(nogil=True, inline="always")  # a call for each cell that a score adds takes twice the time
def find_listed(keys, cells, marked, start, size, rank, rest):  # type: ignore[no-untyped-def]
    """The cell of a combination in the index of a table, or the rest."""
    if marked:
        return look_at_marks(keys, start, rank, rest)
    return look_up(keys, cells, start, size, rank, rest)


def _kind(cells: Cells) -> tuple[bool, int]:
    """Whether a table's index is of marks, and its blocks or slots."""
    if not isinstance(cells, SparseCells):
        return False, 0
    listed, combinations = len(cells.listed), prod(cells.cards)
    if is_marked(listed, combinations):
        return True, block_count(combinations)
    return False, index_size(listed)


def _make(layout: Layout) -> Lists:
    kinds = [_kind(cells) for cells in layout.cells]
    marked, sizes = np.array([m for m, _ in kinds], np.bool_), np.array([n for _, n in kinds], np.int64)
    slots, words = np.where(marked, 0, sizes), np.where(marked, 2 * sizes, 0)
    starts = np.where(marked, slots.sum() + np.cumsum(words) - words, np.cumsum(slots) - slots)
    keys, cells = np.empty(slots.sum() + words.sum(), np.uint64), np.empty(slots.sum(), np.uint32)
    for own, is_of_marks, start, size in zip(layout.cells, marked, starts.tolist(), sizes, strict=True):
        if isinstance(own, SparseCells):
            if is_of_marks:
                fill_marks(own.listed, keys, start, size)
            else:
                fill_index(own.listed, keys, cells, start, size)
    return Lists(starts.astype(np.uint64), sizes.astype(np.uint64), marked, keys, cells)
