# mypy: disallow-untyped-decorators=False, check-untyped-defs=False, disallow-untyped-calls=False
"""What sparse tables add to the logits of a feature's values.

With w the weight of a listed cell and w₀ that of the rest, the row of a sparse table is w₀ for every value,
and w − w₀ more for those it lists. The first is the same for all values and drops out, so a draw costs the
values that are listed: an exact draw adds the row of each table (stored for the features that are drawn so,
or written out in their matrices: :mod:`.plan`), a Metropolis step looks up the values it judges
(:mod:`.lists`).
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.lanes import WIDTH
from agglearn.field.kernels.lists import Lists, find_listed, lists_of
from agglearn.field.kernels.plan import Plan
from agglearn.field.layout import Layout
from agglearn.runtime.compiled import njit
from agglearn.tables.cells import SparseCells

Index = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

_PIECE = 1 << 16  # weights prepared in one piece of work
_FEW_ROWS = 1 << 20  # whose starts may be stored however few cells are listed; else as many as cells
_NO_ROWS = np.uint64(2**64 - 1)
_PIECE_ROWS = np.uint64(1 << 10)  # rows written out in one piece of work
_LINE, _ONE = np.uint64(WIDTH), np.uint64(1)


class Listed(NamedTuple):
    """The sparse tables as their features see them; feature ``f`` has the views ``first[f]:first[f + 1]``.

    The cells of all sparse tables stand one after the other; a rest adds nothing, and need not be told apart.
    """

    first: Index
    lists: Lists
    table: Index  # of each view
    weight: Index  # where the table's listed cells begin
    cells: Index  # how many they are
    stride: Index  # ranks from one value of the feature to the next
    first_other: Index  # of each view, into the other_ arrays
    other_feature: Index
    other_stride: Index  # ranks from one value of that feature to the next
    other_row: Index  # rows from one value of that feature to the next
    rows: Index  # of each view, its first row; or that it has none
    height: Index  # how many they are
    matrix_row: Index  # and the first of them in its feature's matrix; or that they are not written out
    row_start: Index  # of each row, its first entry; past the last row of a view where that ends
    value: npt.NDArray[np.uint32]  # of each entry
    place: npt.NDArray[np.uint32]  # its cell among all listed
    table_cell: Index  # of each sparse table: its first cell in μ and θ
    table_place: Index  # and among the listed; one more for the end


def listed_of(layout: Layout, exact: Collection[int], plan: Plan, written: Collection[int] = ()) -> Listed:
    """The sparse tables of a layout; features drawn exactly get rows, those ``written`` in the plan too."""
    tables = [t for t, cells in enumerate(layout.cells) if isinstance(cells, SparseCells)]
    sizes = [layout.sizes[t] for t in tables]
    place = dict(zip(tables, np.cumsum([0, *sizes]).tolist(), strict=False))
    first, first_other = [0], [0]
    views: list[tuple[int, ...]] = []
    others: list[tuple[int, int, int]] = []
    rows: list[int] = []
    heights: list[int] = []
    matrix_rows: list[int] = []
    starts: list[npt.NDArray[np.int64]] = []
    values: list[npt.NDArray[np.int32]] = []
    places: list[npt.NDArray[np.int64]] = []
    n_rows = n_entries = 0
    for f in range(layout.n_features):
        sparse = sum(f in layout.scopes[t] for t in tables)
        end = int(plan.first_view[f + 1])  # the views of sparse tables are a feature's last
        matrix_rows += plan.view_row[end - sparse : end].tolist() if f in written else sparse * [-1]
        for t in tables:
            scope, cells = layout.scopes[t], layout.cells[t]
            if f not in scope:
                continue
            assert isinstance(cells, SparseCells)
            strides = [prod(cells.cards[k + 1 :]) for k in range(len(scope))]
            at = scope.index(f)
            rest = [k for k in range(len(scope)) if k != at]
            across = [prod(cells.cards[k] for k in rest[i + 1 :]) for i in range(len(rest))]
            views.append((t, place[t], len(cells.listed), strides[at]))
            others += [(scope[k], strides[k], row) for k, row in zip(rest, across, strict=True)]
            first_other.append(len(others))
            height = prod(cells.cards[k] for k in rest)
            heights.append(height)
            few = f in written or height <= max(len(cells.listed), _FEW_ROWS)
            if f not in exact or not few:
                rows.append(-1)
                continue
            codes = cells.listed_codes
            row = sum(codes[k].astype(np.int64) * step for k, step in zip(rest, across, strict=True))
            order = np.argsort(row, kind="stable")
            rows.append(n_rows)
            starts.append(n_entries + np.searchsorted(np.asarray(row)[order], np.arange(height + 1)))
            values.append(codes[at][order])
            places.append(place[t] + order)
            n_rows += height + 1
            n_entries += len(order)
        first.append(len(views))
    columns = np.array(views, np.uint64).reshape(-1, 4).T
    beside = np.array(others, np.uint64).reshape(-1, 3).T
    return Listed(
        first=_index(first),
        lists=lists_of(layout),
        table=np.ascontiguousarray(columns[0]),
        weight=np.ascontiguousarray(columns[1]),
        cells=np.ascontiguousarray(columns[2]),
        stride=np.ascontiguousarray(columns[3]),
        first_other=_index(first_other),
        other_feature=np.ascontiguousarray(beside[0]),
        other_stride=np.ascontiguousarray(beside[1]),
        other_row=np.ascontiguousarray(beside[2]),
        rows=np.array(rows, np.int64).astype(np.uint64),
        height=_index(heights),
        matrix_row=np.array(matrix_rows, np.int64).astype(np.uint64),
        row_start=np.concatenate([np.zeros(0, np.int64), *starts]).astype(np.uint64),
        value=np.concatenate([np.zeros(0, np.int32), *values]).astype(np.uint32),
        place=np.concatenate([np.zeros(0, np.int64), *places]).astype(np.uint32),
        table_cell=_index([int(layout.offsets[t]) for t in tables]),
        table_place=_index(np.cumsum([0, *sizes]).tolist()),
    )


def listed_needed(layout: Layout, exact: Collection[int]) -> int:
    """Bytes of the weights and rows of the sparse tables."""
    needed = 0
    for scope, cells in zip(layout.scopes, layout.cells, strict=True):
        if isinstance(cells, SparseCells):
            drawn = sum(f in exact for f in scope)
            # two weights; a value and a place of each entry; rows, and what sorts them
            needed += len(cells.listed) * (8 + drawn * 8 + 24 * bool(drawn))
    return needed


def _index(values: list[int]) -> Index:
    return np.array(values, np.uint64)


@njit(nogil=True)
def prepare_listed(listed, mu, theta, weights, worker, workers):  # type: ignore[no-untyped-def]
    """Write how far each listed weight is from its rest's: μ for y = 0, μ + θ for y = 1 (this worker's)."""
    one = weights.size // 2
    piece = 0
    for k in range(listed.table_cell.size):
        cell, first = listed.table_cell[k], listed.table_place[k]
        count = listed.table_place[k + 1] - first
        rest_mu, rest_theta = mu[cell + count - _ONE], theta[cell + count - _ONE]
        for start in range(np.uint64(0), count, np.uint64(_PIECE)):
            if piece % workers == worker:
                for i in range(start, min(start + np.uint64(_PIECE), count)):
                    weight = mu[cell + i] - rest_mu
                    weights[first + i] = weight
                    weights[np.uint64(one) + first + i] = weight + (theta[cell + i] - rest_theta)
            piece += 1


@njit(nogil=True)
def write_out(plan, listed, weights, worker, workers):  # type: ignore[no-untyped-def]
    """Write what rows list into those that stand in matrices (this worker's pieces); all else is 0 there."""
    matrices, one = weights.matrices, plan.matrix[-1]
    set_of_one = np.uint64(weights.listed.size // 2)
    piece = 0
    for f in range(plan.cards.size):
        line_size = plan.heights[f] * _LINE
        for view in range(listed.first[f], listed.first[f + 1]):
            if listed.matrix_row[view] == _NO_ROWS:
                continue
            rows, height = listed.rows[view], listed.height[view]
            for start in range(np.uint64(0), height, _PIECE_ROWS):
                if piece % workers == worker:
                    for row in range(start, min(start + _PIECE_ROWS, height)):
                        top = plan.matrix[f] + (listed.matrix_row[view] + row) * _LINE
                        for e in range(listed.row_start[rows + row], listed.row_start[rows + row + _ONE]):
                            value, place = np.uint64(listed.value[e]), np.uint64(listed.place[e])
                            to = top + (value // _LINE) * line_size + value % _LINE
                            matrices[to] = weights.listed[place]
                            matrices[one + to] = weights.listed[set_of_one + place]
                piece += 1


@njit(nogil=True, error_model="numpy")
def add_rows_listed(listed, weights, f, label, codes, size, begin, end, logits, length, card):  # type: ignore[no-untyped-def]
    """Add what the sparse tables of ``f`` say to the logits of a batch, a row of ``length`` each.

    What is written out has been added with the rows of the matrix.
    """
    set_of = np.uint64(label) * np.uint64(weights.size // 2)
    lists = listed.lists
    keys, cells = lists.keys, lists.cells
    for view in range(listed.first[f], listed.first[f + 1]):
        if listed.matrix_row[view] != _NO_ROWS:
            continue
        first, last = listed.first_other[view], listed.first_other[view + _ONE]
        rows, t = listed.rows[view], listed.table[view]
        stride, count, offset = listed.stride[view], listed.cells[view], set_of + listed.weight[view]
        for i in range(np.uint64(end - begin)):
            row, rank = np.uint64(0), np.uint64(0)
            for k in range(first, last):
                code = np.uint64(codes[listed.other_feature[k] * np.uint64(size) + np.uint64(begin) + i])
                row += code * listed.other_row[k]
                rank += code * listed.other_stride[k]
            to = i * length
            if rows != _NO_ROWS:
                for e in range(listed.row_start[rows + row], listed.row_start[rows + row + _ONE]):
                    logits[to + np.uint64(listed.value[e])] += weights[set_of + np.uint64(listed.place[e])]
            else:
                marked, start, slots = lists.marked[t], lists.start[t], lists.size[t]
                for v in range(card):
                    wanted = rank + np.uint64(v) * stride
                    cell = find_listed(keys, cells, marked, start, slots, wanted, count)
                    logits[to + np.uint64(v)] += weights[offset + cell]


@njit(nogil=True, error_model="numpy")
def add_values_listed(listed, weights, f, label, codes, size, begin, end, values, each, ratios):  # type: ignore[no-untyped-def]
    """Add what the sparse tables of ``f`` say of some values, ``each`` of a chain, to their ratios.

    Table by table, so that one of moderate size stays in cache for all chains.
    """
    set_of = np.uint64(label) * np.uint64(weights.size // 2)
    lists = listed.lists
    keys, cells = lists.keys, lists.cells
    for view in range(listed.first[f], listed.first[f + 1]):
        first, last = listed.first_other[view], listed.first_other[view + _ONE]
        t = listed.table[view]
        marked, start, slots = lists.marked[t], lists.start[t], lists.size[t]
        stride, count, offset = listed.stride[view], listed.cells[view], set_of + listed.weight[view]
        column = listed.other_feature[first] * np.uint64(size) + np.uint64(begin)
        across = listed.other_stride[first]
        for i in range(np.uint64(end - begin)):
            rank = np.uint64(codes[column + i]) * across
            for k in range(first + _ONE, last):
                code = np.uint64(codes[listed.other_feature[k] * np.uint64(size) + np.uint64(begin) + i])
                rank += code * listed.other_stride[k]
            for s in range(i * each, (i + _ONE) * each):
                wanted = rank + np.uint64(values[s]) * stride
                cell = find_listed(keys, cells, marked, start, slots, wanted, count)
                ratios[s] += weights[offset + cell]
