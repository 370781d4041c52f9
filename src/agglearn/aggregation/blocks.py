"""Counters of a table in blocks that travel and add up, each as small as it can be.

A block holds the counters of a range of places. Where few of them have counted anything, it lists those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.tables.table import Array

_FEW_BITS = 17  # places of a block, in bits: a megabyte of counters of one label
_MOST_BLOCKS = 8  # of a table, in bits: a larger one has larger blocks
_MOST_IN_32_BITS = 2**32 - 1


@dataclass
class Block:
    """Counters of a range of places, a row each and a column for each joint label.

    Attributes
    ----------
    size
        Places in the range.
    places
        Which of them have a row, increasing; None if all have.
    """

    size: int
    counters: Array
    places: npt.NDArray[np.unsignedinteger] | None = None

    @classmethod
    def listed(cls, size: int, places: Array, counters: Array) -> Block:
        """A block of these places of the range, or of all of them where that is smaller."""
        narrow: npt.NDArray[np.unsignedinteger] = places.astype(np.uint32 if size <= 1 << 32 else np.uint64)
        if narrow.nbytes + counters.nbytes < size * counters[:1].nbytes or not len(counters):
            return cls(size, counters, narrow)
        whole = np.zeros((size, counters.shape[1]), counters.dtype)
        whole[narrow] = counters
        return cls(size, whole)

    def merge(self, other: Block) -> None:
        """Add the counters of another block of the same range."""
        both = int(self.counters.max(initial=0)) + int(other.counters.max(initial=0))
        dtype = np.uint32 if both <= _MOST_IN_32_BITS else np.uint64
        mine: npt.NDArray[Any] = self.counters.astype(dtype, copy=False)
        its: npt.NDArray[Any] = other.counters.astype(dtype, copy=False)
        if self.places is not None and other.places is not None:
            places, to = np.unique(np.concatenate([self.places, other.places]), return_inverse=True)
            total: npt.NDArray[Any] = np.zeros((len(places), mine.shape[1]), dtype)
            total[to[: len(mine)]] = mine  # each place is there once in either
            total[to[len(mine) :]] += its
            summed = Block.listed(self.size, places, total)
            self.counters, self.places = summed.counters, summed.places
            return
        if self.places is None:
            total = mine if mine is not self.counters else mine.copy()
            total[slice(None) if other.places is None else other.places] += its
        else:
            total = its.copy()
            total[self.places] += mine
        self.counters, self.places = total, None

    def rows(self) -> tuple[npt.NDArray[np.int64], Array]:
        """Places that have counted something, and their counters."""
        if self.places is not None:
            return self.places.astype(np.int64), self.counters
        places = np.flatnonzero(self.counters.any(axis=1))
        return places, self.counters[places]


def _bits(size: int) -> int:
    """Places of a block of a table with so many, in bits."""
    return max(_FEW_BITS, (size - 1).bit_length() - _MOST_BLOCKS)


def start_of(number: int, size: int) -> int:
    """The first place of a block of a table with so many places."""
    return number << _bits(size)


def whole_blocks(counters: Array) -> Iterator[tuple[int, Block]]:
    """Blocks of the counters of all places, with their numbers; one without a count is left out."""
    size = len(counters)
    step = 1 << _bits(size)
    for number, start in enumerate(range(0, size, step)):
        own = counters[start : start + step]
        places = np.flatnonzero(own.any(axis=1))
        if len(places):
            yield number, Block.listed(len(own), places, own[places])


def listed_blocks(size: int, places: npt.NDArray[np.int64], counters: Array) -> Iterator[tuple[int, Block]]:
    """Blocks of the counters of some places, which increase."""
    numbers = places >> _bits(size)
    edges = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    for a, b in zip(edges, [*edges[1:], len(places)], strict=True):
        start = start_of(int(numbers[a]), size)
        span = min(1 << _bits(size), size - start)
        yield int(numbers[a]), Block.listed(span, places[a:b] - start, counters[a:b])
