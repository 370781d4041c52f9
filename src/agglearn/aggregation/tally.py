"""Counting records into tables, the hot loop of aggregation.

Codes are column-major, one row per feature. Tables are counted in parallel over tables,
so no two threads share a cell and the result never depends on their number. The labels of a record are
folded into one number, and each record increments one counter of the cell: (cell, labels). A feature of
M modalities takes M+1 places here; the last is unknown.

A table that could have many cells begins with counters for those alone that come up (:mod:`.seen`), and goes
over to counters for all of them once every third has: then they are smaller, and faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.aggregation.blocks import Block, listed_blocks, start_of, whole_blocks
from agglearn.aggregation.seen import SeenCounters
from agglearn.errors import TooLargeError
from agglearn.runtime.compiled import njit
from agglearn.runtime.memory import require
from agglearn.runtime.speech import option
from agglearn.runtime.threads import in_threads, thread_count
from agglearn.schema.rules import code_type
from agglearn.schema.schema import Schema
from agglearn.tables.cells import Cells, is_dense, seen_cells
from agglearn.tables.hashing import bucket, mix
from agglearn.tables.scopes import cells_of, shape_of
from agglearn.tables.table import Array, Scope, Table

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


def require_ranks(scope: Scope, schema: Schema) -> None:
    """Refuse a table whose combinations cannot be numbered."""
    if prod(shape_of(scope, schema)) >= 2**63:
        raise TooLargeError(
            f"table {' × '.join(scope)} has more combinations than can be numbered: hash its cells with "
            f"{option('hash_size')}, or leave it out"
        )


def _with_unknown(cells: Cells) -> list[int]:
    """Places along each axis of a table's counters: one more than there are cells."""
    return [n + 1 for n in cells.shape]


class _AllCounters:
    """Counters for all cells of some tables, with a place for unknown values along each axis."""

    def __init__(
        self, schema: Schema, scopes: Sequence[Scope], cells: Sequence[Cells], dtype: Any = np.uint32
    ) -> None:
        self.scopes, self.cells, self.width = scopes, cells, 1 << len(schema.labels)
        arity = max((len(s) for s in scopes), default=0)
        self._arities = np.array([len(s) for s in scopes], np.int64)
        self._features = np.zeros((len(scopes), arity), np.int64)
        self._places = np.zeros((len(scopes), arity), np.int64)
        for t, scope in enumerate(scopes):
            self._features[t, : len(scope)] = [schema.index[f] for f in scope]
            self._places[t, : len(scope)] = [m + 1 for m in shape_of(scope, schema)]
        self.sizes = [prod(_with_unknown(own)) for own in cells]
        self._hash_sizes = np.array([own.buckets for own in cells], np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64) * self.width
        # Half the size of a full integer, so that twice as many cells stay in cache.
        self.counters: npt.NDArray[Any] = np.zeros(int(self._starts[-1]), dtype)
        # Dealt out in turns from the largest table on, threads get about as much to do.
        self._by_size = np.argsort(-np.array(self.sizes), kind="stable")

    def widen(self) -> None:
        """Room for more than 2³² records."""
        self.counters = self.counters.astype(np.uint64, copy=False)

    def add(self, codes: Array, joint: Array, worker: int, workers: int) -> None:
        """Count a batch into this worker's tables."""
        if len(self.scopes) > worker:
            _count(
                codes,
                joint,
                np.ascontiguousarray(self._by_size[worker::workers]),  # one kernel for any number of workers
                self._arities,
                self._features,
                self._places,
                self._hash_sizes,
                self._starts,
                self.width,
                self.counters,
            )

    def all_of(self, t: int) -> Array:
        """Counters of all places of a table, a row each."""
        return self.counters[self._starts[t] : self._starts[t + 1]].reshape(-1, self.width)

    def of(self, t: int) -> Array:
        """Counters of a table's known cells: its shape, then one for each joint label."""
        places = _with_unknown(self.cells[t])
        own = self.all_of(t).reshape(*places, self.width)
        # The last place of each axis counts unknown values: those records have no cell.
        return own[(*(slice(0, p - 1) for p in places),)]


def get_ready() -> None:
    """Load the kernel, which takes as long as a first look at a million records."""
    none, nothing = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
    codes, joint, counters = nothing.astype(code_type(1)), none.astype(np.uint8), none.astype(np.uint32)
    _count(codes, joint, none, none, nothing, nothing, none, none, 2, counters)


@dataclass
class Tally:
    """Counters of a set of tables, to which batches of coded records are added."""

    schema: Schema
    scopes: list[Scope]
    hash_size: int | None = None
    copies: int = 1  # how many such tallies will stand side by side

    def __post_init__(self) -> None:
        self._width = 1 << len(self.schema.labels)
        cells = {scope: cells_of(scope, self.schema, self.hash_size) for scope in self.scopes}
        whole = [s for s in self.scopes if cells[s].buckets or is_dense(cells[s].shape, 0)]
        sizes = [prod(_with_unknown(cells[s])) for s in whole]
        # Counters while counting, then counts and sums of the finished tables.
        self._numbers = self.copies * (self._width + 1 + len(self.schema.labels))
        if whole:
            require_memory(whole, sizes, self._numbers)
        self._whole = _AllCounters(self.schema, whole, [cells[s] for s in whole])
        self._seen: dict[Scope, SeenCounters] = {}
        self._grown: dict[Scope, _AllCounters] = {}  # that began as those seen
        for scope in self.scopes:
            if scope not in whole:
                require_ranks(scope, self.schema)
                features = [self.schema.index[f] for f in scope]
                self._seen[scope] = SeenCounters(features, cells[scope].shape, self._width)
        self.rows = 0
        self.positives = np.zeros(len(self.schema.labels), np.int64)

    def add(self, codes: Array, labels: npt.NDArray[np.uint8]) -> None:
        """Count a batch: codes with a row per feature, labels with a row per label."""
        joint: npt.NDArray[Any] = np.zeros(codes.shape[1], np.uint8 if len(labels) <= 8 else np.uint32)
        for k, row in enumerate(labels):
            joint |= row.astype(joint.dtype, copy=False) << joint.dtype.type(k)
        if self.rows + codes.shape[1] > _MOST_IN_32_BITS:
            for counters in (self._whole, *self._grown.values()):
                counters.widen()
            for listed in self._seen.values():
                listed.widen()
        threads = min(thread_count(), len(self.scopes))
        grown, seen = list(self._grown.values()), list(self._seen.values())

        def count(worker: int) -> None:
            self._whole.add(codes, joint, worker, threads)
            for counters in grown[worker::threads]:
                counters.add(codes, joint, 0, 1)
            for own in seen[worker::threads]:
                own.add(codes, joint)

        in_threads(threads, count)
        self.rows += codes.shape[1]
        self.positives += labels.sum(axis=1, dtype=np.int64)
        self._go_over()

    def _go_over(self) -> None:
        """Give all cells a counter where every third has come up; see that what there is fits in memory."""
        for scope in [s for s, own in self._seen.items() if is_dense(own.cards, own.used)]:
            own = self._seen.pop(scope)
            whole = _AllCounters(self.schema, [scope], [cells_of(scope, self.schema)], own.counters.dtype)
            ranks, counters = own.listed()
            whole.of(0)[np.unravel_index(ranks, own.cards)] = counters
            self._grown[scope] = whole
        if self._seen or self._grown:
            sizes = {s: own.used for s, own in self._seen.items()}
            sizes |= {s: own.sizes[0] for s, own in self._grown.items()}
            require_memory(list(sizes), list(sizes.values()), self._numbers)

    def blocks(self) -> Iterator[tuple[int, int, Block]]:
        """What was counted, in blocks, each with the number of its table and its own."""
        whole = {scope: t for t, scope in enumerate(self._whole.scopes)}
        for table, scope in enumerate(self.scopes):
            if scope in whole:
                found = whole_blocks(self._whole.all_of(whole[scope]))
            elif scope in self._grown:
                # Others may have listed the combinations of this table, by their ranks: so does this one.
                found = whole_blocks(self._grown[scope].of(0).reshape(-1, self._width))
            else:
                found = listed_blocks(prod(self._seen[scope].cards), *self._seen[scope].listed())
            for number, block in found:
                yield table, number, block

    def take(self, totals: npt.NDArray[np.int64], blocks: Mapping[tuple[int, int], Block]) -> None:
        """Hold what others counted, where nothing was counted yet: records and positives, and blocks."""
        self.rows, self.positives = int(totals[0]), totals[1:]
        if self.rows > _MOST_IN_32_BITS:
            self._whole.widen()
        whole = {scope: t for t, scope in enumerate(self._whole.scopes)}
        listed: dict[Scope, list[tuple[Array, Array]]] = {}
        for (table, number), block in sorted(blocks.items(), key=lambda item: item[0]):
            scope = self.scopes[table]
            places, counters = block.rows()
            if scope in whole:
                own = self._whole.all_of(whole[scope])
                own[start_of(number, len(own)) + places] = counters
            else:
                first = start_of(number, prod(self._seen[scope].cards))
                listed.setdefault(scope, []).append((first + places, counters))
        for scope, rows in listed.items():
            ranks, found = zip(*rows, strict=True)
            self._seen[scope].put(np.concatenate(ranks), np.concatenate(found))
        self._go_over()

    def tables(self) -> dict[Scope, Table]:
        """The tables counted so far."""
        whole = {scope: t for t, scope in enumerate(self._whole.scopes)}
        found = {}
        for scope in self.scopes:
            if scope in self._seen:
                own = self._seen[scope]
                ranks, counters = own.listed()
                cells: Cells = seen_cells(own.cards, ranks)
                # and none in the rest
                numbers = np.concatenate([counters, np.zeros((1, self._width), counters.dtype)])
            else:
                counted, t = (self._whole, whole[scope]) if scope in whole else (self._grown[scope], 0)
                cells, numbers = counted.cells[t], counted.of(t)
            found[scope] = self._table(scope, cells, numbers)
        return found

    def _table(self, scope: Scope, cells: Cells, counters: Array) -> Table:
        counts = np.zeros(cells.shape, np.int64)
        sums = np.zeros((len(self.schema.labels), *counts.shape), np.int64)
        for joint in range(self._width):
            counts += counters[..., joint]
            for k in range(len(self.schema.labels)):
                if joint >> k & 1:
                    sums[k] += counters[..., joint]
        counted = [counts.sum(), *(layer.sum() for layer in sums)]
        return Table(
            features=scope,
            counts=counts,
            sums=sums,
            unknown=np.array([self.rows, *self.positives]) - np.array(counted),
            cells=cells,
        )
