# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False
"""How a listed cell is found: by an index of open addressing, by marks of all combinations where these are
smaller, or by halving its sorted row. Half of what is looked up is listed. Nanoseconds a look-up, on one
thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numba import njit

from agglearn.tables.lookup import (
    block_count,
    fill_index,
    fill_marks,
    index_size,
    is_marked,
    look_at_marks,
    look_up,
)
from evidence.page import table
from evidence.runner import Cell, Results, Value
from evidence.timing import in_turns, machine

TITLE = "Finding a cell"
_LOOKED_UP = 2_000_000


@dataclass(frozen=True)
class Sizes:
    """Listed cells, and values of either feature."""

    lists: tuple[tuple[int, int], ...]


FULL = Sizes(((8_000, 1_000), (20_000, 1_000), (100_000, 1_500), (200_000, 4_000), (10_000_000, 100_000)))
QUICK = Sizes(((20_000, 1_000),))


def cells(config: Sizes) -> list[Cell]:
    """A cell for each size."""
    return [
        Cell(f"{n}-listed", {"listed": n, "card": card}, partial(measure, n, card), again=True)
        for n, card in config.lists
    ]


def measure(n: int, card: int) -> Value:
    """Nanoseconds of each way."""
    rng = np.random.default_rng(0)
    law = 1 / np.arange(1, card + 1)
    codes = np.searchsorted(np.cumsum(law) / law.sum(), rng.random((2, 4 * n))).clip(max=card - 1)
    listed = np.unique(codes[0].astype(np.int64) * card + codes[1])
    listed = np.sort(rng.permutation(listed)[:n])
    starts = np.searchsorted(listed, np.arange(card + 1) * card).astype(np.uint64)
    values = (listed % card).astype(np.uint32)
    size = index_size(len(listed))
    keys, places = np.empty(size, np.uint64), np.empty(size, np.uint32)
    fill_index(listed, keys, places, 0, size)
    half = _LOOKED_UP // 2
    others = rng.integers(0, card**2, half)
    wanted = rng.permutation(np.concatenate([listed[rng.integers(0, len(listed), half)], others]))
    ranks = wanted.astype(np.uint64)
    ways = {
        "index": lambda: _by_index(keys, places, ranks, len(listed)),
        "halves": lambda: _by_halves(starts, values, ranks, card),
    }
    if is_marked(len(listed), card**2):
        marks = np.empty(2 * block_count(card**2), np.uint64)
        fill_marks(listed, marks, 0, block_count(card**2))
        ways["marks"] = lambda: _by_marks(marks, ranks, len(listed))
    assert len({way() for way in ways.values()}) == 1
    seconds = in_turns(list(ways.values()))
    times = {name: 1e9 * s / _LOOKED_UP for name, s in zip(ways, seconds, strict=True)}
    return {"machine": machine(), "listed": len(listed), "combinations": card**2, **times}


@njit(nogil=True)
def _by_index(keys, cells, ranks, n):  # type: ignore[no-untyped-def]
    total = 0
    for k in range(ranks.size):
        cell = look_up(keys, cells, np.uint64(0), np.uint64(keys.size), ranks[k], np.uint64(n))
        if cell < np.uint64(n):
            total += int(cell)
    return total


@njit(nogil=True)
def _by_marks(marks, ranks, n):  # type: ignore[no-untyped-def]
    total = 0
    for k in range(ranks.size):
        cell = look_at_marks(marks, np.uint64(0), ranks[k], np.uint64(n))
        if cell < np.uint64(n):
            total += int(cell)
    return total


@njit(nogil=True)
def _by_halves(starts, values, ranks, card):  # type: ignore[no-untyped-def]
    total = 0
    for k in range(ranks.size):
        row, value = ranks[k] // np.uint64(card), np.uint32(ranks[k] % np.uint64(card))
        low, end = starts[row], starts[row + np.uint64(1)]
        high = end
        while low < high:
            middle = (low + high) // np.uint64(2)
            if values[middle] < value:
                low = middle + np.uint64(1)
            else:
                high = middle
        if low < end and values[low] == value:
            total += int(low)
    return total


def section(results: Results, images: Path) -> list[str]:
    """A row for each size."""
    rows = [
        [
            f"{found['listed']:,}",
            f"{found['combinations']:,}" if "combinations" in found else "",
            f"{found['marks']:.1f}" if "marks" in found else "",
            f"{found['index']:.1f}",
            f"{found['halves']:.1f}",
        ]
        for found in results.values()
    ]
    return table(["listed cells", "of", "marks, ns", "index, ns", "halves, ns"], rows)
