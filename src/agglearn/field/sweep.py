"""Move the chains: redraw every feature of every chain given the others and the label.

Each feature ``f`` has one matrix: a column for each of its values, and a row for each combination
of the *other* features of each of its tables. The logits of its values are then a sum of rows,
one row a table, whatever the tables' orders::

    log π(x_f = v | rest) = Σ_{tables t of f} matrix_f[row_t(rest), v] + constant

The matrix is stored in lines of ``WIDTH`` columns, all rows of the first line, then all rows of
the second, and so on: while one line is summed for many chains, its rows stay in cache. There is
a set of matrices for each label, y = 0 with weights μ and y = 1 with μ + θ.

A hashed table has no rows; its weights are looked up value by value.

Chains are taken a tile at a time, those with y = 0 before those with y = 1, feature by feature.
Every random number belongs to a chain and a feature, so tiles and threads change nothing.
"""

from math import log
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from agglearn.cells import bucket, mix
from agglearn.field.kernels import in_threads
from agglearn.field.lanes import LANES, NEVER, WIDTH, add_rows, exp_row, pick_value
from agglearn.field.layout import Layout
from agglearn.field.proposals import Proposals
from agglearn.field.rng import uniform32, uniform64

_TILE = 8192  # chains that take turns feature by feature: enough to use a matrix often once loaded
_LOGITS = 1 << 16  # floats of logits at a time: a quarter of a megabyte, half a usual L2 cache
_CELLS_A_TILE = 1 << 13  # weights prepared in one piece of work

_LINE, _LANES = np.uint64(WIDTH), np.uint64(LANES)
_ONE = np.uint64(1)


class Plan(NamedTuple):
    """Where the weights of a layout sit in the matrices of its features.

    A *view* is a plain table seen from one of its features: the views of feature ``f`` are
    ``first_view[f]:first_view[f + 1]``, their rows stand one below the other in its matrix.
    """

    cards: npt.NDArray[np.uint64]
    lines: npt.NDArray[np.uint64]  # of each feature: modalities / WIDTH, rounded up
    heights: npt.NDArray[np.uint64]  # rows of each feature's matrix
    matrix: npt.NDArray[np.uint64]  # where it starts, and at the end the size of one set
    first_view: npt.NDArray[np.uint64]
    view_row: npt.NDArray[np.uint64]  # first row in the matrix
    view_cell: npt.NDArray[np.uint64]  # first cell of the table in μ and θ
    view_stride: npt.NDArray[np.uint64]  # cells from one value of the feature to the next
    view_feature: npt.NDArray[np.uint64]
    first_other: npt.NDArray[np.uint64]  # of each view
    other_feature: npt.NDArray[np.uint64]
    other_stride: npt.NDArray[np.uint64]  # rows from one value of that feature to the next
    first_hashed: npt.NDArray[np.uint64]  # of each feature, into the hashed_ arrays
    hashed_cell: npt.NDArray[np.uint64]  # first cell of the table in μ and θ
    hashed_size: npt.NDArray[np.uint64]
    hashed_scope: npt.NDArray[np.uint64]  # first feature of the table in scope_feature
    scope_feature: npt.NDArray[np.uint64]
    piece_view: npt.NDArray[np.uint64]  # pieces of the preparation: rows of a view
    piece_start: npt.NDArray[np.uint64]
    piece_stop: npt.NDArray[np.uint64]


class Weights(NamedTuple):
    """The weights of both labels, as the sweep reads them."""

    matrices: npt.NDArray[np.float32]  # two sets: y = 0, then y = 1
    hashed: npt.NDArray[np.float32]  # two runs of all cells, empty where no table is hashed
