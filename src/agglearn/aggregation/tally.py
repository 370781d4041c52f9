"""Counting records into tables, the hot loop of aggregation.

Codes are column-major, one row of ``uint16`` per feature. Tables are counted in parallel over tables,
so no two threads share a cell and the result never depends on their number. The labels of a record are
folded into one number, and each record increments one counter of the cell: (cell, labels). A feature of
M modalities takes M+1 places here; the last is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.runtime.compiled import njit
from agglearn.runtime.memory import require
from agglearn.runtime.speech import option
from agglearn.runtime.threads import in_threads, thread_count
from agglearn.schema.schema import Schema
from agglearn.tables.cells import Cells
from agglearn.tables.hashing import bucket, mix
from agglearn.tables.scopes import cells_of, shape_of
from agglearn.tables.table import Scope, Table

_MOST_IN_32_BITS = 2**32 - 1


@njit(nogil=True)
def _count(  # type: ignore[no-untyped-def]
    codes, labels, tables, arities, scopes, places, hash_sizes, starts, width, out
):  # fmt: skip
    n = codes.shape[1]
    for t in tables:
        base = np.uint64(starts[t])
        arity = arities[t]
        if hash_sizes[t] > 0:
            for i in range(n):
                state = np.uint64(0)
                known = True
                for k in range(arity):
                    code = codes[scopes[t, k], i]
                    known = known and code < places[t, k] - 1
                    state = mix(state, code)
                cell = bucket(state, hash_sizes[t]) if known else np.uint64(hash_sizes[t])
                out[base + cell * np.uint64(width) + np.uint64(labels[i])] += 1
        elif arity == 2:
            first, second = scopes[t, 0], scopes[t, 1]
            stride = np.uint64(places[t, 1])
            for i in range(n):
                cell = np.uint64(codes[first, i]) * stride + np.uint64(codes[second, i])
                out[base + cell * np.uint64(width) + np.uint64(labels[i])] += 1
        else:
            for i in range(n):
                cell = np.uint64(0)
                for k in range(arity):
                    cell = cell * np.uint64(places[t, k]) + np.uint64(codes[scopes[t, k], i])
                out[base + cell * np.uint64(width) + np.uint64(labels[i])] += 1


def require_memory(scopes: Sequence[Scope], sizes: Sequence[int], numbers: int) -> None:
    """Refuse tables of these sizes, with so many numbers a cell, if they would not fit in memory."""
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    require(
        8 * sum(sizes) * numbers,
        f"{sum(sizes):,} cells (the largest table is {' × '.join(scopes[largest])} with {sizes[largest]:,})",
        f"fold rare values with {option('max_modalities')}, hash cells with {option('hash_size')}, or leave "
        "features out",
    )


def _with_unknown(cells: Cells) -> list[int]:
    """Places along each axis of a table's counters: one more than there are cells."""
    return [n + 1 for n in cells.shape]


@dataclass
class Tally:
    """Counters of a set of tables, to which batches of coded records are added."""

    schema: Schema
    scopes: list[Scope]
    hash_size: int | None = None
    copies: int = 1  # how many such tallies will stand side by side

    def __post_init__(self) -> None:
        self._width = 1 << len(self.schema.labels)
        self._cells = [cells_of(scope, self.schema, self.hash_size) for scope in self.scopes]
        arity = max(len(s) for s in self.scopes)
        self._arities = np.array([len(s) for s in self.scopes], np.int64)
        self._features = np.zeros((len(self.scopes), arity), np.int64)
        self._places = np.zeros((len(self.scopes), arity), np.int64)
        sizes = []
        for t, scope in enumerate(self.scopes):
            self._features[t, : len(scope)] = [self.schema.index[f] for f in scope]
            self._places[t, : len(scope)] = [m + 1 for m in shape_of(scope, self.schema)]
            sizes.append(prod(_with_unknown(self._cells[t])))
        # Counters while counting, then counts and sums of the finished tables.
        require_memory(self.scopes, sizes, self.copies * (self._width + 1 + len(self.schema.labels)))
        self._hash_sizes = np.array([cells.buckets for cells in self._cells], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(sizes)]) * self._width
        # Half the size of a full integer, so that twice as many cells stay in cache.
        self._counters: npt.NDArray[Any] = np.zeros(int(self._starts[-1]), np.uint32)
        # Dealt out in turns from the largest table on, threads get about as much to do.
        self._by_size = np.argsort(-np.array(sizes), kind="stable")
        self.rows = 0
        self.positives = np.zeros(len(self.schema.labels), np.int64)

    def add(self, codes: npt.NDArray[np.uint16], labels: npt.NDArray[np.uint8]) -> None:
        """Count a batch: codes with a row per feature, labels with a row per label."""
        joint: npt.NDArray[Any] = np.zeros(codes.shape[1], np.uint8 if len(labels) <= 8 else np.uint32)
        for k, row in enumerate(labels):
            joint |= row.astype(joint.dtype, copy=False) << joint.dtype.type(k)
        if self.rows + codes.shape[1] > _MOST_IN_32_BITS and self._counters.dtype == np.uint32:
            self._counters = self._counters.astype(np.uint64)
        threads = min(thread_count(), len(self.scopes))
        in_threads(
            threads,
            lambda worker: _count(
                codes,
                joint,
                self._by_size[worker::threads],
                self._arities,
                self._features,
                self._places,
                self._hash_sizes,
                self._starts,
                self._width,
                self._counters,
            ),
        )
        self.rows += codes.shape[1]
        self.positives += labels.sum(axis=1, dtype=np.int64)

    def tables(self) -> dict[Scope, Table]:
        """The tables counted so far."""
        return {scope: self._table(t, scope) for t, scope in enumerate(self.scopes)}

    def _table(self, t: int, scope: Scope) -> Table:
        counters = self._counters[self._starts[t] : self._starts[t + 1]]
        places = _with_unknown(self._cells[t])
        # The last place of each axis counts unknown values: those records have no cell.
        cells = counters.reshape(*places, self._width)[(*(slice(0, p - 1) for p in places),)]
        counts = np.zeros(cells.shape[:-1], np.int64)
        sums = np.zeros((len(self.schema.labels), *counts.shape), np.int64)
        for joint in range(self._width):
            counts += cells[..., joint]
            for k in range(len(self.schema.labels)):
                if joint >> k & 1:
                    sums[k] += cells[..., joint]
        counted = [counts.sum(), *(layer.sum() for layer in sums)]
        return Table(
            features=scope,
            counts=counts,
            sums=sums,
            unknown=np.array([self.rows, *self.positives]) - np.array(counted),
            cells=self._cells[t],
        )
