# mypy: disallow-untyped-decorators=False
"""Score and tally for several sets of weights at once.

The weights of a cell in all sets stand side by side, ``weights[cell, set]``, so that a cell is found once for
all sets and read as one run of memory. Numbers are float32, their sums over all cells float64. Work is dealt
out in fixed pieces as in :mod:`.score`, and each set is summed on its own: no number depends on the threads,
nor on how many sets go together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.score import Codes, cell_of, pair_of, tables_of
from agglearn.field.layout import Layout
from agglearn.runtime.compiled import njit
from agglearn.runtime.threads import in_threads

Sets = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]

_BLOCK = 1 << 11  # records at a time: their sums stay in cache while the tables go by
_CHUNK = 1 << 14  # cells of a sum at a time
_UNKNOWN = np.uint64(2**64 - 1)
_ONLY = np.uint64(0)  # the column, where there is one


def score_sets(codes: Codes, layout: Layout, weights: Sets, threads: int = 1) -> Sets:
    """φ(x)·w for each record (rows) and each set of weights (columns); unknown values add nothing."""
    assert codes.shape[0] == layout.n_features
    assert weights.shape[0] == layout.n_cells
    codes, tables = np.ascontiguousarray(codes), tables_of(layout)
    scores = np.zeros((codes.shape[1], weights.shape[1]), np.float32)
    in_threads(threads, lambda w: _score_sets(codes, tables, weights, scores, w, threads))
    return scores


def tally_sets(codes: Codes, values: Sets, layout: Layout, threads: int = 1) -> Sets:
    """The sum of the records' values (a column for each set) in each cell; every code must be known."""
    assert codes.shape == (layout.n_features, len(values))
    codes, tables = np.ascontiguousarray(codes), tables_of(layout)
    sums = np.zeros((layout.n_cells, values.shape[1]), np.float32)
    order = np.argsort(-np.array(layout.sizes), kind="stable").astype(np.uint64)
    in_threads(threads, lambda w: _tally_sets(codes, values, tables, order, sums, w, threads))
    return sums


def dot_sets(a: Sets, b: Sets, threads: int = 1) -> Floats:
    """Σ a·b over the rows, for each column."""
    parts = np.zeros((-(-len(a) // _CHUNK), a.shape[1]))
    in_threads(threads, lambda w: _dot_sets(a, b, parts, w, threads))
    return np.array(np.add.accumulate(parts, axis=0)[-1])


@njit(nogil=True)
def _score_sets(codes, tables, weights, scores, worker, workers):  # type: ignore[no-untyped-def]
    n, width = scores.shape
    known = np.empty(codes.shape[0], np.bool_)
    for start in range(worker * _BLOCK, n, workers * _BLOCK):
        stop = min(start + _BLOCK, n)
        for f in range(codes.shape[0]):
            greatest = codes[f, start]
            for i in range(start, stop):
                greatest = max(greatest, codes[f, i])
            known[f] = np.uint64(greatest) < tables.cards[f]
        for t in range(tables.hash_sizes.size):
            offset = tables.offsets[t]
            simple, a, b, stride = pair_of(tables, t)
            if simple and known[a] and known[b]:
                if width == 1:  # a loop of one turn costs more than what it does
                    for i in range(np.uint64(start), np.uint64(stop)):
                        row = offset + np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                        scores[i, _ONLY] += weights[row, _ONLY]
                else:
                    for i in range(np.uint64(start), np.uint64(stop)):
                        row = offset + np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                        for k in range(np.uint64(width)):
                            scores[i, k] += weights[row, k]
            else:
                for i in range(np.uint64(start), np.uint64(stop)):
                    cell = cell_of(codes, i, tables, t, tables.features, tables.scope_start[t])
                    if cell != _UNKNOWN:
                        row = offset + cell
                        for k in range(np.uint64(width)):
                            scores[i, k] += weights[row, k]


@njit(nogil=True)
def _tally_sets(codes, values, tables, order, sums, worker, workers):  # type: ignore[no-untyped-def]
    n, width = values.shape
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for at in range(worker, order.size, workers):
            t = order[at]
            offset = tables.offsets[t]
            simple, a, b, stride = pair_of(tables, t)
            if simple and width == 1:
                for i in range(np.uint64(start), np.uint64(stop)):
                    row = offset + np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                    sums[row, _ONLY] += values[i, _ONLY]
                continue
            for i in range(np.uint64(start), np.uint64(stop)):
                if simple:
                    row = offset + np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                else:
                    row = offset + cell_of(codes, i, tables, t, tables.features, tables.scope_start[t])
                for k in range(np.uint64(width)):
                    sums[row, k] += values[i, k]


@njit(nogil=True)
def _dot_sets(a, b, parts, worker, workers):  # type: ignore[no-untyped-def]
    for chunk in range(worker, parts.shape[0], workers):
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, a.shape[0])):
            for k in range(a.shape[1]):
                parts[chunk, k] += np.float64(a[i, k]) * np.float64(b[i, k])
