# mypy: disallow-untyped-decorators=False
"""Counters for the cells of one table that come up, however many there could be.

They stand in a table of their own that is searched by the rank of a combination and grows as it fills, so
that cells without a record cost nothing. What is counted does not depend on where a counter stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agglearn.runtime.compiled import njit
from agglearn.tables.cells import CellNumbers
from agglearn.tables.lookup import slot_of
from agglearn.tables.table import Array

_FIRST = 1 << 10  # slots
_FULL = 0.6  # share of the slots taken at which there are to be more
_GROWTH = 2
_NO_KEY = np.uint64(2**64 - 1)
_ONE = np.uint64(1)


class SeenCounters:
    """Counters of the combinations that came up, one for each joint label.

    Attributes
    ----------
    cards
        Modalities of each feature.
    used
        How many combinations have come up.
    """

    def __init__(self, features: Sequence[int], cards: Sequence[int], width: int) -> None:
        self.cards, self.used = tuple(cards), 0
        self._features = np.array(features, np.int64)
        self._cards = np.array(cards, np.uint64)
        self._keys = np.full(_FIRST, _NO_KEY)
        self.counters: npt.NDArray[np.unsignedinteger] = np.zeros((_FIRST, width), np.uint32)

    def widen(self) -> None:
        """Room for more than 2³² records."""
        self.counters = self.counters.astype(np.uint64, copy=False)

    def add(self, codes: Array, joint: Array) -> None:
        """Count a batch; records with an unknown value are left out."""
        at = 0
        while True:
            most = int(_FULL * len(self._keys))
            at, self.used = _count_seen(
                codes, joint, self._features, self._cards, self._keys, self.counters, at, self.used, most
            )
            if at == codes.shape[1]:
                break
            self._grow()

    def listed(self) -> tuple[CellNumbers, Array]:
        """The ranks of the combinations that came up, increasing, and their counters."""
        taken = np.flatnonzero(self._keys != _NO_KEY)
        order = taken[np.argsort(self._keys[taken], kind="stable")]
        return self._keys[order].astype(np.int64), self.counters[order]

    def put(self, ranks: CellNumbers, counters: Array) -> None:
        """Hold these combinations, where none has come up yet."""
        self.used = len(ranks)
        size = len(self._keys)
        while self.used > _FULL * size:
            size *= _GROWTH
        self._keys = np.full(size, _NO_KEY)
        self.counters = np.zeros((size, counters.shape[1]), counters.dtype)
        _move(ranks.astype(np.uint64), np.ascontiguousarray(counters), self._keys, self.counters)

    def _grow(self) -> None:
        keys = np.full(_GROWTH * len(self._keys), _NO_KEY)
        counters = np.zeros((len(keys), self.counters.shape[1]), self.counters.dtype)
        _move(self._keys, self.counters, keys, counters)
        self._keys, self.counters = keys, counters


@njit(nogil=True)
def _count_seen(codes, joint, features, cards, keys, counters, at, used, most):  # type: ignore[no-untyped-def]
    """Count records from ``at`` on until there are ``most`` combinations; where it stopped, and how many."""
    size = np.uint64(keys.size)
    for i in range(at, codes.shape[1]):
        rank = np.uint64(0)
        known = True
        for k in range(features.size):
            code = np.uint64(codes[features[k], i])
            known &= code < cards[k]
            rank = rank * cards[k] + code
        if not known:
            continue
        slot = slot_of(rank, size)
        while keys[slot] != rank and keys[slot] != _NO_KEY:
            slot += _ONE
            if slot == size:
                slot = np.uint64(0)
        if keys[slot] == _NO_KEY:
            if used == most:
                return i, used
            keys[slot] = rank
            used += 1
        counters[slot, joint[i]] += 1
    return codes.shape[1], used


@njit(nogil=True)
def _move(keys, counters, new_keys, new_counters):  # type: ignore[no-untyped-def]
    size = np.uint64(new_keys.size)
    for old in range(keys.size):
        if keys[old] == _NO_KEY:
            continue
        slot = slot_of(keys[old], size)
        while new_keys[slot] != _NO_KEY:
            slot += _ONE
            if slot == size:
                slot = np.uint64(0)
        new_keys[slot] = keys[old]
        for k in range(counters.shape[1]):
            new_counters[slot, k] = counters[old, k]
