# mypy: disallow-untyped-decorators=False
"""Where the weights sit while the chains move, and how they get there.

Each feature ``f`` has one matrix: a column for each of its values, and a row for each combination
of the *other* features of each of its tables. The logits of its values are then a sum of rows,
one row a table, whatever the tables' orders::

    log π(x_f = v | rest) = Σ_{tables t of f} matrix_f[row_t(rest), v] + constant

The matrix is stored in lines of ``WIDTH`` columns, all rows of the first line, then all rows of
the second, and so on: while one line is summed for many chains, its rows stay in cache. There is
a set of matrices for each label, y = 0 with weights μ and y = 1 with μ + θ.

A hashed table has no rows; its weights are looked up value by value. A sparse table has short ones: what it
adds to the logit of a value is how far the weight of the listed cell is from that of the rest, so that the
values a row does not list add nothing (:mod:`.listed`). Where such rows are not much longer written out,
zeros and all, they stand in the matrix below the others: to add a row takes a fraction of the time that it
takes to go through its list.
"""

from collections.abc import Collection
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.lanes import NEVER, WIDTH
from agglearn.field.layout import Layout
from agglearn.runtime.compiled import njit

_PIECE = 1 << 13  # weights prepared in one piece of work
_PIECE_ROWS = 128  # rows of one line written across before the next: they stay in L1
_WRITTEN_OUT = 128  # bytes for each listed cell, of both labels, that rows written out may take

_LINE = np.uint64(WIDTH)
_ONE = np.uint64(1)

Index = npt.NDArray[np.uint64]
Singles = npt.NDArray[np.float32]


class Plan(NamedTuple):
    """Where the weights of a layout sit in the matrices of its features.

    A *view* is a table seen from one of its features. The views of feature ``f`` are numbered
    ``first_view[f]:first_view[f + 1]``, and their rows stand one below the other in its matrix.
    """

    cards: Index
    lines: Index  # of each feature: its modalities / WIDTH, rounded up
    heights: Index  # rows of each feature's matrix
    matrix: Index  # where it starts; the last entry is the size of the set
    first_view: Index
    view_feature: Index
    view_row: Index  # its first row in the matrix
    view_cell: Index  # first cell of the table in μ and θ
    view_stride: Index  # cells from one value of the feature to the next
    first_other: Index  # of each view, into the other_ arrays
    other_feature: Index
    other_stride: Index  # rows from one value of that feature to the next
    first_hashed: Index  # of each feature, into the hashed_ arrays
    hashed_start: Index  # first bucket of the table among all buckets
    hashed_size: Index
    first_scope: Index  # of each hashed view, into scope_feature
    scope_feature: Index
    piece_view: Index  # pieces of the preparation: some rows of a view
    piece_start: Index
    piece_stop: Index


class Weights(NamedTuple):
    """The weights as the sweep reads them, for each label."""

    matrices: npt.NDArray[np.float32]  # the set of y = 0, then the set of y = 1
    buckets: npt.NDArray[np.float32]  # of the hashed tables: y = 0, then y = 1
    listed: npt.NDArray[np.float32]  # of the sparse tables, less that of the rest: y = 0, then y = 1


def written_out(layout: Layout, exact: Collection[int]) -> list[int]:
    """The features drawn exactly whose rows of sparse tables stand in their matrices, all of a feature's."""
    chosen = []
    for f in exact:
        sparse = [t for t, cells in enumerate(layout.cells) if cells.tied and f in layout.scopes[t]]
        rows = sum(_other_values(layout, t, f) for t in sparse)
        listed = sum(layout.sizes[t] - 1 for t in sparse)
        if sparse and 8 * WIDTH * -(-layout.cards[f] // WIDTH) * rows <= _WRITTEN_OUT * listed:
            chosen.append(f)
    return sorted(chosen)


def _other_values(layout: Layout, t: int, f: int) -> int:
    """Rows of a table seen from one of its features."""
    return prod(layout.cards[g] for g in layout.scopes[t] if g != f)


def plan_of(layout: Layout, written: Collection[int] = ()) -> Plan:
    """The plan of a layout; of the features ``written`` the rows of sparse tables are written out."""
    cards = layout.cards
    lines = [-(-m // WIDTH) for m in cards]
    heights: list[int] = []
    views: list[tuple[int, ...]] = []
    others: list[tuple[int, ...]] = []
    pieces: list[tuple[int, ...]] = []
    hashed: list[tuple[int, ...]] = []
    scopes: list[int] = []
    first_view, first_other, first_hashed, first_scope = [0], [0], [0], [0]
    bucket_start = np.cumsum([0, *layout.buckets])
    for f, card in enumerate(cards):
        height = 0
        for t, scope in enumerate(layout.scopes):
            if f not in scope:
                continue
            if layout.cells[t].tied:
                continue
            if layout.buckets[t]:
                hashed.append((int(bucket_start[t]), layout.buckets[t]))
                scopes.extend(scope)
                first_scope.append(len(scopes))
                continue
            place = scope.index(f)
            stride = prod(cards[g] for g in scope[place + 1 :])
            rows = layout.sizes[t] // card
            pieces += _pieces(len(views), rows, card, stride)
            views.append((f, height, int(layout.offsets[t]), stride))
            rest = [g for g in scope if g != f]
            others += [(g, prod(cards[h] for h in rest[k + 1 :])) for k, g in enumerate(rest)]
            first_other.append(len(others))
            height += rows
        for t, scope in enumerate(layout.scopes if f in written else ()):
            if f in scope and layout.cells[t].tied:
                views.append((f, height, 0, 1))
                rest = [g for g in scope if g != f]
                others += [(g, prod(cards[h] for h in rest[k + 1 :])) for k, g in enumerate(rest)]
                first_other.append(len(others))
                height += _other_values(layout, t, f)
        if len(views) == first_view[-1]:  # a row of zeros, so that there is one to sum
            views.append((f, 0, 0, 1))
            first_other.append(len(others))
            height = 1
        heights.append(height)
        first_view.append(len(views))
        first_hashed.append(len(hashed))
    matrix = np.cumsum([0, *(h * n * WIDTH for h, n in zip(heights, lines, strict=True))])
    view_feature, view_row, view_cell, view_stride = _columns(views, 4)
    other_feature, other_stride = _columns(others, 2)
    hashed_start, hashed_size = _columns(hashed, 2)
    piece_view, piece_start, piece_stop = _columns(pieces, 3)
    return Plan(
        cards=_index(cards),
        lines=_index(lines),
        heights=_index(heights),
        matrix=_index(matrix),
        first_view=_index(first_view),
        view_feature=view_feature,
        view_row=view_row,
        view_cell=view_cell,
        view_stride=view_stride,
        first_other=_index(first_other),
        other_feature=other_feature,
        other_stride=other_stride,
        first_hashed=_index(first_hashed),
        hashed_start=hashed_start,
        hashed_size=hashed_size,
        first_scope=_index(first_scope),
        scope_feature=_index(scopes),
        piece_view=piece_view,
        piece_start=piece_start,
        piece_stop=piece_stop,
    )


def weights_needed(layout: Layout, written: Collection[int] = ()) -> tuple[int, int]:
    """Floats of the matrices and of the buckets, both labels together."""
    heights = [0] * layout.n_features
    for t, (scope, cells) in enumerate(zip(layout.scopes, layout.cells, strict=True)):
        for f in scope:
            if cells.dense or (cells.tied and f in written):
                heights[f] += _other_values(layout, t, f)
    lines = [-(-m // WIDTH) for m in layout.cards]
    floats = sum(max(h, 1) * n * WIDTH for h, n in zip(heights, lines, strict=True))
    return 2 * floats, 2 * sum(layout.buckets)


def empty_weights(plan: Plan, n_buckets: int, n_listed: int = 0) -> Weights:
    """Room for the weights of both labels, padded places filled in once for all."""
    size = int(plan.matrix[-1])
    matrices = _aligned_zeros(2 * size)
    for f, (card, lines, height) in enumerate(
        zip(plan.cards.tolist(), plan.lines.tolist(), plan.heights.tolist(), strict=True)
    ):
        # one padded row in each sum is enough: those of the first view
        first, end = int(plan.first_view[f]), int(plan.first_view[f + 1])
        rows = int(plan.view_row[first + 1]) if first + 1 < end else height
        for label in (0, 1):
            start = label * size + int(plan.matrix[f]) + (lines - 1) * height * WIDTH
            last_line = matrices[start : start + rows * WIDTH].reshape(rows, WIDTH)
            last_line[:, card - (lines - 1) * WIDTH :] = NEVER
    return Weights(matrices, np.zeros(2 * n_buckets, np.float32), np.zeros(2 * n_listed, np.float32))


def _pieces(view: int, rows: int, card: int, stride: int) -> list[tuple[int, ...]]:
    step = max(1, _PIECE // card) if stride == 1 else _PIECE_ROWS
    return [(view, start, min(start + step, rows)) for start in range(0, rows, step)]


def _index(values: Any) -> Index:
    return np.array(values, np.uint64)


def _columns(tuples: list[tuple[int, ...]], width: int) -> list[Index]:
    return [np.ascontiguousarray(c) for c in np.array(tuples, np.uint64).reshape(-1, width).T]


def _aligned_zeros(size: int) -> npt.NDArray[np.float32]:
    """Zeros that start on a cache line, so that a line of a row is one of the machine's."""
    room = np.zeros(size + WIDTH, np.float32)
    skip = (-room.ctypes.data % (4 * WIDTH)) // 4
    return room[skip : skip + size]


@njit(nogil=True)
def prepare(plan, mu, theta, weights, worker, workers):  # type: ignore[no-untyped-def]
    """Write the matrices of both labels: μ for y = 0, μ + θ for y = 1 (this worker's pieces)."""
    matrices = weights.matrices
    one = plan.matrix[-1]  # from a weight of y = 0 to that of y = 1
    for k in range(worker, plan.piece_view.size, workers):
        view, start, stop = plan.piece_view[k], plan.piece_start[k], plan.piece_stop[k]
        f = plan.view_feature[view]
        card, stride = plan.cards[f], plan.view_stride[view]
        line_size = plan.heights[f] * _LINE
        top = plan.matrix[f] + plan.view_row[view] * _LINE
        if stride == 1:
            for row in range(start, stop):
                cell = plan.view_cell[view] + row * card
                for v in range(card):
                    to = top + (v // _LINE) * line_size + row * _LINE + v % _LINE
                    matrices[to] = mu[cell + v]
                    matrices[one + to] = mu[cell + v] + theta[cell + v]
            continue
        block = card * stride  # cells that share the codes of the features before this one
        for v in range(card):
            to = top + (v // _LINE) * line_size + start * _LINE + v % _LINE
            within = start % stride
            cell = plan.view_cell[view] + (start // stride) * block + v * stride + within
            for _ in range(start, stop):
                matrices[to] = mu[cell]
                matrices[one + to] = mu[cell] + theta[cell]
                to += _LINE
                cell += _ONE
                within += _ONE
                if within == stride:
                    within = np.uint64(0)
                    cell += block - stride


def prepare_buckets(layout: Layout, mu: Singles, theta: Singles, weights: Weights) -> None:
    """Copy the weights of the hashed tables, for both labels."""
    start, one = 0, weights.buckets.size // 2
    for t, size in enumerate(layout.buckets):
        if not size:
            continue
        cells = slice(layout.offsets[t], layout.offsets[t] + size)
        weights.buckets[start : start + size] = mu[cells]
        weights.buckets[one + start : one + start + size] = mu[cells] + theta[cells]
        start += size
