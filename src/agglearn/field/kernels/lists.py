"""Where the listed cells of a layout's sparse tables are found: an index by the rank of a combination.

Open addressing over two arrays, one for all tables: 20 bytes a listed cell, and hardly more than one place to
look at. Sorted rows with a search by halves took four times as long on a table that no cache holds
(`docs/cardinality.md`).
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.tables.cells import SparseCells
from agglearn.tables.lookup import fill_index, index_size


class Lists(NamedTuple):
    """The index of each table; table ``t`` has the slots ``start[t]`` on, ``size[t]`` of them.

    A table that is not sparse has none. ``keys`` are ranks, ``cells`` the table's own cells.
    """

    start: npt.NDArray[np.uint64]
    size: npt.NDArray[np.uint64]
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
    return 12 * sum(_slots(layout))


def _slots(layout: Layout) -> list[int]:
    return [index_size(len(c.listed)) if isinstance(c, SparseCells) else 0 for c in layout.cells]


def _make(layout: Layout) -> Lists:
    sizes = _slots(layout)
    starts = np.cumsum([0, *sizes])
    keys, cells = np.empty(starts[-1], np.uint64), np.empty(starts[-1], np.uint32)
    for own, start, size in zip(layout.cells, starts.tolist(), sizes, strict=False):
        if isinstance(own, SparseCells):
            fill_index(own.listed, keys, cells, start, size)
    return Lists(starts[:-1].astype(np.uint64), np.array(sizes, np.uint64), keys, cells)
