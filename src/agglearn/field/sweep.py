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

from math import log, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from agglearn.cells import bucket, mix
from agglearn.field.lanes import LANES, NEVER, WIDTH, add_rows, exp_row, greatest_of_row, pick_value
from agglearn.field.layout import Layout
from agglearn.field.rng import uniform32, uniform64

_TILE = 8192  # chains that take turns feature by feature: enough to use a matrix often once loaded
_SHORT = 128  # chains summed at a time where rows are one line: rows and logits stay in L1
_LOGITS = 1 << 16  # floats of logits at a time where rows are longer: they stay in L2
_PIECE = 1 << 13  # weights prepared in one piece of work
_PIECE_ROWS = 128  # rows of one line written across before the next: they stay in L1

_LINE, _LANES = np.uint64(WIDTH), np.uint64(LANES)
_ONE = np.uint64(1)

Index = npt.NDArray[np.uint64]


class Plan(NamedTuple):
    """Where the weights of a layout sit in the matrices of its features.

    A *view* is a plain table seen from one of its features. The views of feature ``f`` are numbered
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


def plan_of(layout: Layout) -> Plan:
    """The plan of a layout."""
    cards = layout.cards
    lines = [-(-m // WIDTH) for m in cards]
    heights, views, first_view = [], [], [0]
    others, first_other = [], [0]
    pieces = []
    hashed, first_hashed = [], [0]
    scopes, first_scope = [], [0]
    bucket_start = np.cumsum([0, *layout.hash_sizes])
    for f, card in enumerate(cards):
        height = 0
        for t, scope in enumerate(layout.scopes):
            if f not in scope:
                continue
            if layout.hash_sizes[t]:
                hashed.append((bucket_start[t], layout.hash_sizes[t]))
                scopes.extend(scope)
                first_scope.append(len(scopes))
                continue
            place = scope.index(f)
            stride = prod(cards[g] for g in scope[place + 1 :])
            rows = layout.sizes[t] // card
            pieces += _pieces(len(views), rows, card, stride)
            views.append((f, height, layout.offsets[t], stride))
            rest = [g for g in scope if g != f]
            others += [(g, prod(cards[h] for h in rest[k + 1 :])) for k, g in enumerate(rest)]
            first_other.append(len(others))
            height += rows
        if len(views) == first_view[-1]:  # a row of zeros, so that there is one to sum
            views.append((f, 0, 0, 1))
            first_other.append(len(others))
            height = 1
        heights.append(height)
        first_view.append(len(views))
        first_hashed.append(len(hashed))
    matrix = np.cumsum([0, *(h * n * WIDTH for h, n in zip(heights, lines, strict=True))])
    return Plan(
        *map(_index, (cards, lines, heights, matrix, first_view)),
        *_columns(views, 4),
        _index(first_other),
        *_columns(others, 2),
        _index(first_hashed),
        *_columns(hashed, 2),
        *map(_index, (first_scope, scopes)),
        *_columns(pieces, 3),
    )


def weights_needed(layout: Layout) -> tuple[int, int]:
    """Floats of the matrices and of the buckets, both labels together."""
    heights = [0] * layout.n_features
    for scope, size, hashed in zip(layout.scopes, layout.sizes, layout.hash_sizes, strict=True):
        for f in scope:
            heights[f] += 0 if hashed else size // layout.cards[f]
    lines = [-(-m // WIDTH) for m in layout.cards]
    floats = sum(max(h, 1) * n * WIDTH for h, n in zip(heights, lines, strict=True))
    return 2 * floats, 2 * sum(layout.hash_sizes)


def empty_weights(plan: Plan, n_buckets: int) -> Weights:
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
    return Weights(matrices, np.zeros(2 * n_buckets, np.float32))


def _pieces(view: int, rows: int, card: int, stride: int) -> list[tuple[int, int, int]]:
    step = max(1, _PIECE // card) if stride == 1 else _PIECE_ROWS
    return [(view, start, min(start + step, rows)) for start in range(0, rows, step)]


def _index(values: Any) -> Index:
    return np.array(values, np.uint64)


def _columns(tuples: list[tuple[Any, ...]], width: int) -> list[Index]:
    return [np.ascontiguousarray(c) for c in np.array(tuples, np.uint64).reshape(-1, width).T]


def _aligned_zeros(size: int) -> npt.NDArray[np.float32]:
    """Zeros that start on a cache line, so that a line of a row is one of the machine's."""
    room = np.zeros(size + WIDTH, np.float32)
    skip = (-room.ctypes.data % (4 * WIDTH)) // 4
    return room[skip : skip + size]


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def sweep(  # type: ignore[no-untyped-def]
    plan, weights, proposals, n_proposals, codes, labels, key, worker, workers
):
    """Redraw all features of this worker's chains; how many values moved, and were accepted."""
    n_features, n = codes.shape
    tiles = workers * max(1, -(-n // (workers * _TILE)))
    tile = -(-n // tiles)
    most_views = np.uint64(0)
    longest = np.uint64(0)
    for f in range(n_features):
        most_views = max(most_views, plan.first_view[f + 1] - plan.first_view[f])
        longest = max(longest, plan.lines[f] * _LINE)
    batch = max(_SHORT, min(tile, _LOGITS // (2 * WIDTH)))
    scratch = Scratch(
        np.empty(tile, np.int64),
        np.empty(n_features * tile, np.uint16),
        np.empty(most_views * _run(np.uint64(batch)), np.uint32),
        np.empty(max(longest, np.uint64(_LOGITS)), np.float32),
        np.empty(batch, np.float32),
        np.empty(batch * LANES, np.float32),
        np.empty(batch, np.float32),
    )
    moved, accepted = 0, 0
    for start in range(worker * tile, n, workers * tile):
        stop = min(start + tile, n)
        zeros = _take(codes, labels, start, stop, scratch.chains, scratch.codes)
        size = stop - start
        for f in range(n_features):
            metropolis = proposals.start[f] >= 0
            if metropolis or plan.lines[f] == 1:
                step = _SHORT
            else:
                step = max(1, _LOGITS // np.int64(plan.lines[f] * _LINE))
            for label in range(2):
                first = zeros if label else 0
                last = size if label else zeros
                for begin in range(first, last, step):
                    end = min(begin + step, last)
                    _find_rows(plan, f, scratch.codes, size, begin, end, scratch.rows)
                    if metropolis:
                        m, a = _metropolis(
                            plan, weights, proposals, n_proposals, f, label, key,
                            scratch, size, begin, end,
                        )  # fmt: skip
                        moved += m
                        accepted += a
                    else:
                        moved += _gibbs(
                            plan, weights, n_proposals, f, label, key, scratch, size, begin, end
                        )
        for f in range(n_features):
            for j in range(size):
                codes[f, scratch.chains[j]] = scratch.codes[f * size + j]
    return moved, accepted


class Scratch(NamedTuple):
    """What one worker writes on; position ``j`` of a tile is chain ``chains[j]``."""

    chains: npt.NDArray[np.int64]
    codes: npt.NDArray[np.uint16]  # of the tile, column-major
    rows: npt.NDArray[np.uint32]  # of a batch: one run for each view
    logits: npt.NDArray[np.float32]
    greatest: npt.NDArray[np.float32]
    lane_sums: npt.NDArray[np.float32]
    uniforms: npt.NDArray[np.float32]


@njit(cache=True, nogil=True)
def _take(codes, labels, start, stop, chains, taken):  # type: ignore[no-untyped-def]
    """Copy a tile, the chains with y = 0 before the others; how many those are."""
    size = stop - start
    zeros = 0
    for i in range(start, stop):
        zeros += labels[i] == 0
    places = np.array([0, zeros])
    for i in range(start, stop):
        label = np.int64(labels[i] != 0)
        chains[places[label]] = i
        places[label] += 1
    for f in range(codes.shape[0]):
        for j in range(size):
            taken[f * size + j] = codes[f, chains[j]]
    return zeros


@njit(cache=True, nogil=True, inline="always")
def _run(count):  # type: ignore[no-untyped-def]
    """From the rows of one view to those of the next: an odd number of cache lines.

    With a power of two the runs would all compete for the same few places of the L1 cache.
    """
    return ((count + _LINE - _ONE) // _LINE | _ONE) * _LINE


@njit(cache=True, nogil=True)
def _find_rows(plan, f, codes, size, begin, end, rows):  # type: ignore[no-untyped-def]
    """The row of each view of ``f`` for each chain of a batch."""
    count = np.uint64(end - begin)
    to = np.uint64(0)
    for view in range(plan.first_view[f], plan.first_view[f + 1]):
        top = np.uint32(plan.view_row[view])
        first, last = plan.first_other[view], plan.first_other[view + _ONE]
        if first == last:
            for i in range(count):
                rows[to + i] = top
        for k in range(first, last):
            column = plan.other_feature[k] * np.uint64(size) + np.uint64(begin)
            stride = np.uint32(plan.other_stride[k])
            if k == first:
                for i in range(count):
                    rows[to + i] = top + np.uint32(codes[column + i]) * stride
            else:
                for i in range(count):
                    rows[to + i] += np.uint32(codes[column + i]) * stride
        to += _run(count)


@njit(cache=True, nogil=True)
def _gibbs(plan, weights, n_proposals, f, label, key, scratch, size, begin, end):  # type: ignore[no-untyped-def]
    """Draw the feature of a batch of chains from its exact conditional."""
    count = np.uint64(end - begin)
    card, lines = plan.cards[f], plan.lines[f]
    n_views = plan.first_view[f + 1] - plan.first_view[f]
    length = lines * _LINE
    vectors = length // _LANES
    run = _run(count)
    column = np.uint64(f) * np.uint64(size) + np.uint64(begin)
    line_start = np.uint64(label) * plan.matrix[-1] + plan.matrix[f]
    for line in range(lines):
        for i in range(count):
            add_rows(
                scratch.logits, i * length + line * _LINE, weights.matrices, line_start,
                scratch.rows, i, run, n_views,
            )  # fmt: skip
        line_start += plan.heights[f] * _LINE
    if plan.first_hashed[f] < plan.first_hashed[f + 1]:
        for i in range(count):
            for v in range(card):
                scratch.logits[i * length + v] += _hashed_logit(
                    plan, weights.buckets, f, v, label, scratch.codes, size, begin + i
                )
    slots = np.uint64(2 * n_proposals * plan.cards.size)
    slot = np.uint64(2 * n_proposals * f)
    for i in range(count):
        chain = np.uint64(scratch.chains[np.uint64(begin) + i])
        scratch.uniforms[i] = uniform32(key, chain * slots + slot)
    # One short loop after the other: a loop that did all of this for a chain would be too long for
    # the processor to have several chains under way, and would wait for each step of each.
    for i in range(count):
        scratch.greatest[i] = greatest_of_row(scratch.logits, i * length, vectors)
    for i in range(count):
        exp_row(
            scratch.logits, i * length, vectors, scratch.greatest[i], scratch.lane_sums, i * _LANES
        )
    moved = 0
    for i in range(count):
        v = pick_value(
            scratch.logits, i * length, vectors, scratch.lane_sums, i * _LANES,
            scratch.uniforms[i],
        )  # fmt: skip
        x = np.uint64(scratch.codes[column + i])
        v = v if v < card else x
        scratch.codes[column + i] = v
        moved += v != x
    return moved


@njit(cache=True, nogil=True)
def _metropolis(  # type: ignore[no-untyped-def]
    plan, weights, proposals, n_proposals, f, label, key, scratch, size, begin, end
):
    """Move the feature of a batch of chains by proposals that do not depend on its value.

    A proposal v comes from q(v | neighbour's value) and is accepted with probability
    min(1, π(v) q(x) / (π(x) q(v))).
    """
    count = np.uint64(end - begin)
    card = plan.cards[f]
    column = np.uint64(f) * np.uint64(size) + np.uint64(begin)
    neighbour = proposals.neighbour[f]
    slots = np.uint64(2 * n_proposals * plan.cards.size)
    moved, accepted = 0, 0
    for i in range(count):
        j = np.uint64(begin) + i
        x = np.uint64(scratch.codes[column + i])
        q = np.uint64(proposals.start[f])
        if neighbour >= 0:
            given = scratch.codes[np.uint64(neighbour) * np.uint64(size) + j]
            q += np.uint64(given) * card
        counter = np.uint64(scratch.chains[j]) * slots + np.uint64(2 * n_proposals * f)
        now = x
        ratio = _logit(plan, weights, f, now, label, scratch, size, j, i, count)
        ratio -= proposals.log_density[q + now]
        for _ in range(n_proposals):
            spot = uniform64(key, counter) * np.float64(card)
            v = np.uint64(spot)
            if spot - np.float64(v) >= proposals.threshold[q + v]:
                v = np.uint64(proposals.alias[q + v])
            new_ratio = _logit(plan, weights, f, v, label, scratch, size, j, i, count)
            new_ratio -= proposals.log_density[q + v]
            accept = 1.0 - uniform64(key, counter + _ONE)
            if log(accept) <= new_ratio - ratio:
                now, ratio = v, new_ratio
                accepted += 1
            counter += np.uint64(2)
        scratch.codes[column + i] = now
        moved += now != x
    return moved, accepted


@njit(cache=True, nogil=True, inline="always")
def _logit(plan, weights, f, v, label, scratch, size, j, i, count):  # type: ignore[no-untyped-def]
    """The logit of one value, up to a constant."""
    column = plan.matrix[f] + np.uint64(label) * plan.matrix[-1]
    column += (v // _LINE) * plan.heights[f] * _LINE + v % _LINE
    total = np.float32(0.0)
    for k in range(plan.first_view[f + 1] - plan.first_view[f]):
        row = np.uint64(scratch.rows[k * _run(count) + i])
        total += weights.matrices[column + row * _LINE]
    if plan.first_hashed[f] < plan.first_hashed[f + 1]:
        total += _hashed_logit(plan, weights.buckets, f, v, label, scratch.codes, size, j)
    return np.float64(total)


@njit(cache=True, nogil=True)
def _hashed_logit(plan, buckets, f, v, label, codes, size, j):  # type: ignore[no-untyped-def]
    """What the hashed tables of ``f`` add to the logit of ``v`` for the chain at ``j``."""
    total = np.float32(0.0)
    start = np.uint64(label) * np.uint64(buckets.size // 2)
    for k in range(plan.first_hashed[f], plan.first_hashed[f + 1]):
        state = np.uint64(0)
        for s in range(plan.first_scope[k], plan.first_scope[k + _ONE]):
            g = plan.scope_feature[s]
            code = np.uint64(codes[g * np.uint64(size) + np.uint64(j)])
            state = mix(state, v if g == np.uint64(f) else code)
        cell = plan.hashed_start[k] + bucket(state, plan.hashed_size[k])
        total += buckets[start + cell]
    return total
