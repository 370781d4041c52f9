# mypy: disallow-untyped-decorators=False, check-untyped-defs=False, disallow-untyped-calls=False
"""Where a listed combination of modalities is found by its rank, compiled: an index of either of two kinds.

- *Marks*: a bit for each combination there could be, in blocks of 64, each with the number of listed ones
  before it. As ranks increase, that number and the marks below within the block are the cell. There is one
  place to look at, and nothing to guess.
- *Slots*, with open addressing: hardly more than one place to look at, and 20 bytes a listed cell however
  many combinations there are.

Whichever is smaller is taken.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import intrinsic

from agglearn.runtime.compiled import njit

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_LOAD = 0.6  # share of an index's slots that are taken
_NO_KEY = np.uint64(2**64 - 1)
_HALF = np.uint64(32)
_ONE, _TWO = np.uint64(1), np.uint64(2)
_BLOCK, _WITHIN = np.uint64(6), np.uint64(63)  # 2⁶ marks a block
_SLOT_BYTES, _BLOCK_BYTES = 12, 16


def index_size(listed: int) -> int:
    """Slots of an index of so many listed combinations."""
    return int(listed / _LOAD) + 1  # one is always free: there a search ends


def block_count(combinations: int) -> int:
    """Blocks of marks of so many combinations."""
    return (combinations >> 6) + 1


def is_marked(listed: int, combinations: int) -> bool:
    """Whether marks are smaller than slots."""
    return block_count(combinations) * _BLOCK_BYTES <= index_size(listed) * _SLOT_BYTES


@intrinsic
def _ones(typingctx, word):  # type: ignore[no-untyped-def]
    """How many bits of a word are set."""

    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


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


@njit(nogil=True)
def fill_marks(listed, marks, start, size):  # type: ignore[no-untyped-def]
    """Enter a list into so many blocks from ``start`` on, each its marks and then the number before them."""
    first = np.uint64(start)
    marks[first : first + _TWO * np.uint64(size)] = 0
    for k in range(listed.size):
        rank = np.uint64(listed[k])
        marks[first + _TWO * (rank >> _BLOCK)] |= _ONE << (rank & _WITHIN)
    before = np.uint64(0)
    for block in range(np.uint64(size)):
        marks[first + _TWO * block + _ONE] = before
        before += _ones(marks[first + _TWO * block])


@njit(nogil=True, inline="always")
def look_up(keys, cells, start, size, rank, rest):  # type: ignore[no-untyped-def]
    """The cell of a combination among slots, or the rest."""
    slot = slot_of(rank, size)
    key = keys[start + slot]
    while key != rank and key != _NO_KEY:
        slot += np.uint64(1)
        if slot == size:
            slot = np.uint64(0)
        key = keys[start + slot]
    return np.uint64(cells[start + slot]) if key == rank else rest


@njit(nogil=True, inline="always")
def look_at_marks(marks, start, rank, rest):  # type: ignore[no-untyped-def]
    """The cell of a combination by its mark, or the rest."""
    block = start + _TWO * (rank >> _BLOCK)
    bits, bit = marks[block], rank & _WITHIN
    cell = marks[block + _ONE] + _ones(bits & ((_ONE << bit) - _ONE))
    return cell if (bits >> bit) & _ONE else rest
