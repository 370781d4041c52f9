"""Where a listed combination of modalities is found: an index by its rank, with open addressing, compiled."""

from __future__ import annotations

import numpy as np

from agglearn.runtime.compiled import njit

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LOAD = 0.6  # share of an index's slots that are taken
_NO_KEY = np.uint64(2**64 - 1)
_HALF = np.uint64(32)


def index_size(listed: int) -> int:
    """Slots of an index of so many listed combinations."""
    return int(listed / _LOAD) + 1  # one is always free: there a search ends


@njit(nogil=True, inline="always")
def slot_of(rank, size):  # type: ignore[no-untyped-def]
    """The slot of an index where the search for a combination begins."""
    return (((rank * _MULTIPLIER) >> _HALF) * np.uint64(size)) >> _HALF


@njit(nogil=True)
def fill_index(listed, keys, cells, start, size):  # type: ignore[no-untyped-def]
    """Enter a list into its slots ``start:start + size`` of an index, by open addressing."""
    keys[start : start + size] = _NO_KEY
    for k in range(listed.size):
        rank = np.uint64(listed[k])
        slot = np.uint64(slot_of(rank, size))
        while keys[np.uint64(start) + slot] != _NO_KEY:
            slot += np.uint64(1)
            if slot == np.uint64(size):
                slot = np.uint64(0)
        keys[np.uint64(start) + slot] = rank
        cells[np.uint64(start) + slot] = k


@njit(nogil=True, inline="always")
def look_up(keys, cells, start, size, rank, rest):  # type: ignore[no-untyped-def]
    """The cell of a combination in an index, or the rest."""
    slot = slot_of(rank, size)
    key = keys[start + slot]
    while key != rank and key != _NO_KEY:
        slot += np.uint64(1)
        if slot == size:
            slot = np.uint64(0)
        key = keys[start + slot]
    return np.uint64(cells[start + slot]) if key == rank else rest
