"""Score and tally: what a field says of given codes, and what given codes say of its cells.

Codes are column-major, ``codes[feature, record]``, so that each table reads a few long runs of
memory. Work is dealt out to threads in fixed pieces (blocks of records to score, whole tables to
tally), so no two threads write to one place and no sum depends on how many there are.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from agglearn.cells import bucket, mix
from agglearn.field.layout import Layout

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.uint16]

_BLOCK = 2048  # records scored at a time: their codes and sums stay in cache
_UNKNOWN = np.uint64(2**64 - 1)


class Tables(NamedTuple):
    """A layout as flat arrays; table ``t`` has ``features[scope_start[t]:scope_start[t + 1]]``."""

    cards: npt.NDArray[np.uint64]
    scope_start: npt.NDArray[np.uint64]
    features: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    hash_sizes: npt.NDArray[np.uint64]


def tables_of(layout: Layout) -> Tables:
    """The arrays of a layout that the kernels read."""
    arity = [len(scope) for scope in layout.scopes]
    return Tables(
        cards=np.array(layout.cards, np.uint64),
        scope_start=np.concatenate([[0], np.cumsum(arity)]).astype(np.uint64),
        features=np.array([f for scope in layout.scopes for f in scope], np.uint64),
        offsets=layout.offsets.astype(np.uint64),
        hash_sizes=np.array(layout.hash_sizes, np.uint64),
    )


def in_threads(threads: int, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(0)``, ..., ``work(threads - 1)`` side by side; kernels let go of the GIL."""
    if threads == 1:
        return [work(0)]
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(work, number) for number in range(1, threads)]
        return [work(0), *(other.result() for other in others)]


def score_codes(
    codes: Codes,
    layout: Layout,
    theta: npt.NDArray[np.floating[Any]],
    intercept: float,
    threads: int = 1,
) -> Floats:
    """φ(x)·θ + θ₀ for each record.

    Parameters
    ----------
    codes
        ``codes[feature, record]``. A code past the feature's last modality is unknown: the tables
        of that feature add nothing to that record's score.
    theta
        A weight for each cell of the layout, float32 or float64.
    """
    codes = np.ascontiguousarray(codes)
    tables = tables_of(layout)
    scores = np.full(codes.shape[1], intercept, np.float64)
    in_threads(threads, lambda w: _score(codes, tables, theta, scores, w, threads))
    return scores


def tally(
    codes: Codes, p: Floats, layout: Layout, threads: int = 1
) -> tuple[Floats, Floats]:
    """The number of records in each cell, and the sum of their ``p``; every code must be known."""
    codes = np.ascontiguousarray(codes)
    tables = tables_of(layout)
    d = np.zeros(layout.n_cells)
    c = np.zeros(layout.n_cells)
    # the largest tables first, so that the last ones to be done are short
    order = np.argsort(-np.array(layout.sizes), kind="stable").astype(np.uint64)
    in_threads(threads, lambda w: _tally(codes, p, tables, order, d, c, w, threads))
    return d, c


@njit(cache=True, nogil=True)
def _score(codes, tables, theta, scores, worker, workers):  # type: ignore[no-untyped-def]
    n_features, n = codes.shape
    n_tables = tables.hash_sizes.size
    known = np.empty(n_features, np.bool_)
    for start in range(worker * _BLOCK, n, workers * _BLOCK):
        stop = min(start + _BLOCK, n)
        for f in range(n_features):
            greatest = np.uint16(0)
            for i in range(start, stop):
                greatest = max(greatest, codes[f, i])
            known[f] = np.uint64(greatest) < tables.cards[f]
        for t in range(n_tables):
            begin, end = tables.scope_start[t], tables.scope_start[t + 1]
            offset = tables.offsets[t]
            plain_pair = end - begin == 2 and tables.hash_sizes[t] == 0
            a = tables.features[begin]
            b = tables.features[end - np.uint64(1)]
            if plain_pair and known[a] and known[b]:
                card = tables.cards[b]
                for i in range(np.uint64(start), np.uint64(stop)):
                    cell = np.uint64(codes[a, i]) * card + np.uint64(codes[b, i])
                    scores[i] += theta[offset + cell]
            else:
                for i in range(np.uint64(start), np.uint64(stop)):
                    cell = _cell(codes, i, tables, t)
                    if cell != _UNKNOWN:
                        scores[i] += theta[offset + cell]


@njit(cache=True, nogil=True)
def _tally(codes, p, tables, order, d, c, worker, workers):  # type: ignore[no-untyped-def]
    n = np.uint64(codes.shape[1])
    for k in range(worker, order.size, workers):
        t = order[k]
        begin, end = tables.scope_start[t], tables.scope_start[t + np.uint64(1)]
        offset = tables.offsets[t]
        if end - begin == 2 and tables.hash_sizes[t] == 0:
            a, b = tables.features[begin], tables.features[begin + np.uint64(1)]
            card = tables.cards[b]
            for i in range(n):
                cell = offset + np.uint64(codes[a, i]) * card + np.uint64(codes[b, i])
                d[cell] += 1.0
                c[cell] += p[i]
        else:
            for i in range(n):
                cell = offset + _cell(codes, i, tables, t)
                d[cell] += 1.0
                c[cell] += p[i]


@njit(cache=True, nogil=True, inline="always")
def _cell(codes, i, tables, t):  # type: ignore[no-untyped-def]
    """The cell of table ``t`` that counts record ``i``, or ``_UNKNOWN``."""
    hash_size = tables.hash_sizes[t]
    cell = np.uint64(0)
    unknown = False
    for k in range(tables.scope_start[t], tables.scope_start[t + 1]):
        f = tables.features[k]
        code = np.uint64(codes[f, i])
        unknown |= code >= tables.cards[f]
        cell = mix(cell, code) if hash_size else cell * tables.cards[f] + code
    if unknown:
        return _UNKNOWN
    return bucket(cell, hash_size) if hash_size else cell
