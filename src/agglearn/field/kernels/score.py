# mypy: disallow-untyped-decorators=False
"""Score and tally: what a field says of given codes, and what given codes say of its cells.

Codes are column-major, ``codes[feature, record]``, so that each table reads a few long runs of
memory. Work is dealt out to threads in fixed pieces (blocks of records to score, whole tables to
tally), so no two threads write to one place and no sum depends on how many there are.
"""

from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.lists import Lists, find_listed, lists_of
from agglearn.field.layout import Layout
from agglearn.runtime.compiled import njit
from agglearn.runtime.threads import in_threads
from agglearn.tables.hashing import bucket, mix
from agglearn.tables.lookup import look_at_marks, look_up

Floats = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]  # of 16 bits, or of 32 where a feature needs them

_BLOCK = 1 << 15  # records scored at a time, so that a table is used often once it is in cache
_SMALL = 1 << 12  # cells of a small table
_TURN = 1 << 14  # records tallied by all small tables before the next
_UNKNOWN = np.uint64(2**64 - 1)


class Tables(NamedTuple):
    """A layout as flat arrays; table ``t`` has ``features[scope_start[t]:scope_start[t + 1]]``."""

    cards: npt.NDArray[np.uint64]
    scope_start: npt.NDArray[np.uint64]
    features: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    hash_sizes: npt.NDArray[np.uint64]
    lists: Lists


_made: WeakKeyDictionary[Layout, Tables] = WeakKeyDictionary()


def tables_of(layout: Layout) -> Tables:
    """The arrays of a layout that the kernels read, made once for as long as there is that layout."""
    found = _made.get(layout)
    if found is None:
        found = _made[layout] = _tables(layout)
    return found


def _tables(layout: Layout) -> Tables:
    arity = [len(scope) for scope in layout.scopes]
    return Tables(
        cards=np.array(layout.cards, np.uint64),
        scope_start=np.concatenate([[0], np.cumsum(arity)]).astype(np.uint64),
        features=np.array([f for scope in layout.scopes for f in scope], np.uint64),
        offsets=layout.offsets.astype(np.uint64),
        hash_sizes=np.array(layout.buckets, np.uint64),
        lists=lists_of(layout),
    )


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
    assert codes.shape[0] == layout.n_features
    assert theta.shape == (layout.n_cells,)
    codes = np.ascontiguousarray(codes)
    tables = tables_of(layout)
    scores = np.full(codes.shape[1], intercept, np.float64)
    in_threads(threads, lambda w: _score(codes, tables, theta, scores, w, threads))
    return scores


def tally(codes: Codes, p: Floats, layout: Layout, threads: int = 1) -> tuple[Floats, Floats]:
    """The number of records in each cell, and the sum of their ``p``; every code must be known."""
    assert codes.shape == (layout.n_features, p.size)
    codes = np.ascontiguousarray(codes)
    tables = tables_of(layout)
    d = np.zeros(layout.n_cells)
    c = np.zeros(layout.n_cells)
    # the largest tables first: they go first, and to the workers in turn
    order = np.argsort(-np.array(layout.sizes), kind="stable").astype(np.uint64)
    in_threads(threads, lambda w: _tally(codes, p, tables, order, d, c, w, threads))
    return d, c


@njit(nogil=True)
def _score(codes, tables, theta, scores, worker, workers):  # type: ignore[no-untyped-def]
    n_features, n = codes.shape
    n_tables = tables.hash_sizes.size
    known = np.empty(n_features, np.bool_)
    block = min(_BLOCK, -(-n // workers))
    for start in range(worker * block, n, workers * block):
        stop = min(start + block, n)
        for f in range(n_features):
            greatest = codes[f, start]
            for i in range(start, stop):
                greatest = max(greatest, codes[f, i])
            known[f] = np.uint64(greatest) < tables.cards[f]
        for t in range(n_tables):
            offset = tables.offsets[t]
            simple, a, b, stride = pair_of(tables, t)
            if simple and known[a] and known[b]:
                for i in range(np.uint64(start), np.uint64(stop)):
                    cell = np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                    scores[i] += theta[offset + cell]
            elif _is_sparse_pair(tables, t) and known[a] and known[b]:
                lists, rest = tables.lists, tables.offsets[t + 1] - offset - np.uint64(1)
                first, slots = lists.start[t], lists.size[t]
                if lists.marked[t]:
                    for i in range(np.uint64(start), np.uint64(stop)):
                        rank = np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                        scores[i] += theta[offset + look_at_marks(lists.keys, first, rank, rest)]
                    continue
                for i in range(np.uint64(start), np.uint64(stop)):
                    rank = np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                    scores[i] += theta[offset + look_up(lists.keys, lists.cells, first, slots, rank, rest)]
            else:
                for i in range(np.uint64(start), np.uint64(stop)):
                    cell = cell_of(codes, i, tables, t, tables.features, tables.scope_start[t])
                    if cell != _UNKNOWN:
                        scores[i] += theta[offset + cell]


@njit(nogil=True)
def _tally(codes, p, tables, order, d, c, worker, workers):  # type: ignore[no-untyped-def]
    """Tally this worker's tables.

    A large table is best kept in cache for all records; small ones take turns at a block of
    records, which is then what stays in cache.
    """
    n = codes.shape[1]
    first_small = order.size
    for k in range(worker, order.size, workers):
        t = order[k]
        if tables.offsets[t + np.uint64(1)] - tables.offsets[t] <= _SMALL:
            first_small = k
            break
        _tally_table(codes, p, tables, t, d, c, np.int64(0), n)
    for start in range(0, n, _TURN):
        for k in range(first_small, order.size, workers):
            _tally_table(codes, p, tables, order[k], d, c, start, min(start + _TURN, n))


@njit(nogil=True)
def _tally_table(codes, p, tables, t, d, c, start, stop):  # type: ignore[no-untyped-def]
    offset = tables.offsets[t]
    simple, a, b, stride = pair_of(tables, t)
    if simple:
        for i in range(np.uint64(start), np.uint64(stop)):
            cell = offset + np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
            d[cell] += 1.0
            c[cell] += p[i]
    elif _is_sparse_pair(tables, t):
        lists, rest = tables.lists, tables.offsets[t + np.uint64(1)] - offset - np.uint64(1)
        first, slots = lists.start[t], lists.size[t]
        if lists.marked[t]:
            for i in range(np.uint64(start), np.uint64(stop)):
                rank = np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
                cell = offset + look_at_marks(lists.keys, first, rank, rest)
                d[cell] += 1.0
                c[cell] += p[i]
            return
        for i in range(np.uint64(start), np.uint64(stop)):
            rank = np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
            cell = offset + look_up(lists.keys, lists.cells, first, slots, rank, rest)
            d[cell] += 1.0
            c[cell] += p[i]
    else:
        for i in range(np.uint64(start), np.uint64(stop)):
            cell = offset + cell_of(codes, i, tables, t, tables.features, tables.scope_start[t])
            d[cell] += 1.0
            c[cell] += p[i]


@njit(nogil=True, inline="always")
def pair_of(tables, t):  # type: ignore[no-untyped-def]
    """Whether the cell of table ``t`` is codes[a]·stride + codes[b]; a, b and the stride.

    So it is for a plain pair, and for a plain single with a = b and stride 0.
    """
    begin, end = tables.scope_start[t], tables.scope_start[np.uint64(t) + np.uint64(1)]
    a, b = tables.features[begin], tables.features[end - np.uint64(1)]
    simple = end - begin <= 2 and tables.hash_sizes[t] == 0 and tables.lists.size[t] == 0
    return simple, a, b, np.uint64(0) if a == b else tables.cards[b]


@njit(nogil=True, inline="always")
def _is_sparse_pair(tables, t):  # type: ignore[no-untyped-def]
    """Whether table ``t`` lists cells of two features."""
    arity = tables.scope_start[np.uint64(t) + np.uint64(1)] - tables.scope_start[t]
    return arity == 2 and tables.lists.size[t] > 0


@njit(nogil=True, inline="always")
def cell_of(codes, i, tables, t, rows, first):  # type: ignore[no-untyped-def]
    """The cell of table ``t`` that counts record ``i``, or ``_UNKNOWN``.

    The codes of the table's features stand in the rows ``rows[first]``, ``rows[first + 1]`` …
    """
    hash_size = tables.hash_sizes[t]
    cell = np.uint64(0)
    unknown = False
    begin = tables.scope_start[t]
    for k in range(begin, tables.scope_start[t + 1]):
        card = tables.cards[tables.features[k]]
        code = np.uint64(codes[rows[first + (k - begin)], i])
        unknown |= code >= card
        cell = mix(cell, code) if hash_size else cell * card + code
    if unknown:
        return _UNKNOWN
    slots = tables.lists.size[t]
    if slots:
        rest = tables.offsets[t + 1] - tables.offsets[t] - np.uint64(1)
        lists = tables.lists
        return find_listed(lists.keys, lists.cells, lists.marked[t], lists.start[t], slots, cell, rest)
    return bucket(cell, hash_size) if hash_size else cell
