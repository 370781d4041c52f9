# mypy: disallow-untyped-decorators=False, check-untyped-defs=False, disallow-untyped-calls=False
"""Redraw one feature for a run of chains of a tile, from its conditional given the rest.

Two ways: the exact draw (Gibbs) costs a sum over all modalities; Metropolis steps with proposals
from the data cost the same whatever their number.
"""

from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.lanes import LANES, WIDTH, add_rows, exp_row, greatest_of_row, pick_value
from agglearn.field.kernels.listed import add_rows_listed, add_values_listed
from agglearn.field.kernels.lists import find_listed
from agglearn.field.kernels.rng import uniform32, uniform64
from agglearn.field.kernels.score import Codes
from agglearn.runtime.compiled import njit
from agglearn.tables.hashing import bucket, mix

SHORT = 128  # chains drawn for at a time where rows are one line: rows and logits stay in L1
LOGITS = 1 << 19  # floats of logits at a time where rows are longer: the L3 cache takes them
BATCH = LOGITS // (2 * WIDTH)  # chains at a time, at most
_FEW_ROWS = 512  # of one line: L1 keeps them anyway
_REUSE = 16  # times each row is to be used, on average, while its line is in cache

_LINE, _LANES = np.uint64(WIDTH), np.uint64(LANES)
_ZERO, _ONE, _TWO, _THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
_NOT_YET = np.float32(np.inf)  # no value has probability 0


class Scratch(NamedTuple):
    """What one worker writes on; position ``j`` of its tile is chain ``chains[j]``, at ``places[j]``."""

    chains: npt.NDArray[np.uint64]
    places: npt.NDArray[np.uint64]
    codes: Codes  # of the tile, column-major
    rows: npt.NDArray[np.uint32]  # of a batch: a run for each view
    logits: npt.NDArray[np.float32]
    greatest: npt.NDArray[np.float32]
    lane_sums: npt.NDArray[np.float32]
    uniforms: npt.NDArray[np.float32]
    chain_rows: npt.NDArray[np.uint32]  # of the tile: the rows of all views, chain by chain
    values: Codes  # of each chain the present value, then those proposed
    ratios: npt.NDArray[np.float32]  # log π(v) - log q(v) of each of these
    by_line: npt.NDArray[np.uint32]  # which of these, in the order of their lines
    line_starts: npt.NDArray[np.uint32]


@njit(nogil=True, error_model="numpy")
def batch_size(plan, f):  # type: ignore[no-untyped-def]
    """How many chains to draw the feature for at a time."""
    if plan.lines[f] == 1 and plan.heights[f] <= _FEW_ROWS:
        return SHORT
    n_views = plan.first_view[f + 1] - plan.first_view[f]
    enough = np.int64(np.uint64(_REUSE) * plan.heights[f] // n_views)
    return max(SHORT, min(enough, LOGITS // np.int64(plan.lines[f] * _LINE), BATCH))


@njit(nogil=True, error_model="numpy")
def gibbs(plan, listed, weights, n_proposals, f, label, key, scratch, size, begin, end):  # type: ignore[no-untyped-def]
    """Draw the feature of a batch of chains from its exact conditional."""
    count = np.uint64(end - begin)
    card, lines = plan.cards[f], plan.lines[f]
    n_views = plan.first_view[f + 1] - plan.first_view[f]
    length = lines * _LINE
    vectors = length // _LANES
    run = find_rows(plan, f, scratch.codes, size, begin, end, scratch.rows)
    column = np.uint64(f) * np.uint64(size) + np.uint64(begin)
    line_start = np.uint64(label) * plan.matrix[-1] + plan.matrix[f]
    often = plan.heights[f] > _FEW_ROWS and count * n_views > plan.heights[f]
    for line in range(lines):
        if often:
            scratch.greatest[0] = _fetch(weights.matrices, line_start, plan.heights[f])
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
                    plan, weights.buckets, f, v, label, scratch.codes, size, np.uint64(begin) + i
                )
    if listed.first[f] < listed.first[f + 1]:
        add_rows_listed(
            listed, weights.listed, f, label, scratch.codes, size, begin, end, scratch.logits, length, card
        )
    slots = np.uint64(2 * n_proposals * plan.cards.size)
    slot = np.uint64(2 * n_proposals * f)
    for i in range(count):
        chain = scratch.chains[np.uint64(begin) + i]
        scratch.uniforms[i] = uniform32(key, chain * slots + slot)
    # One short loop after the other: a loop that did all of this for a chain would be too long for
    # the processor to have several chains under way, and would wait for each step of each.
    for i in range(count):
        scratch.greatest[i] = greatest_of_row(scratch.logits, i * length, vectors)
    for i in range(count):
        exp_row(scratch.logits, i * length, vectors, scratch.greatest[i], scratch.lane_sums, i * _LANES)
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


@njit(nogil=True, error_model="numpy")
def metropolis(  # type: ignore[no-untyped-def]
    plan, listed, weights, proposals, n_proposals, f, label, key, scratch, size, begin, end
):
    """Move the feature of a run of chains by proposals that do not depend on its present value.

    A proposal v comes from q(v | neighbour's value) and is accepted with probability
    min(1, π(v) q(x) / (π(x) q(v))). The weights of all values to judge are read line by line of the
    matrix, not chain by chain: a line fits in the cache and the matrix of many modalities does not.
    """
    card, count = plan.cards[f], np.uint64(end - begin)
    column = np.uint64(f) * np.uint64(size) + np.uint64(begin)
    each = np.uint64(n_proposals + 1)
    slots = np.uint64(2 * n_proposals * plan.cards.size)
    slot = np.uint64(2 * n_proposals * f)
    neighbour = proposals.neighbour[f]
    if proposals.laws.first[f] != proposals.laws.first[f + 1]:
        _propose_seen(
            proposals, listed.lists, f, card, each, neighbour, key, slots, slot, scratch, size, begin, end
        )
        count_dense = np.uint64(0)
    else:
        count_dense = count
    for i in range(count_dense):
        law = np.uint64(proposals.start[f])
        if neighbour >= 0:
            law += card * scratch.codes[np.uint64(neighbour * size + begin) + i]
        x = np.uint64(scratch.codes[column + i])
        scratch.values[i * each] = x
        scratch.ratios[i * each] = -proposals.log_density[law + x]
        counter = scratch.chains[np.uint64(begin) + i] * slots + slot
        for k in range(_ONE, each):
            spot = uniform64(key, counter) * np.float64(card)
            v = np.uint64(spot)
            place = proposals.spots[law + v]
            kept = (spot - np.float64(v)) * 65536.0 < np.float64(place >> np.uint32(16))
            v = v if kept else np.uint64(place & np.uint32(65535))
            scratch.values[i * each + k] = v
            scratch.ratios[i * each + k] = -proposals.log_density[law + v]
            counter += np.uint64(2)

    _add_logits(plan, listed, weights, f, label, scratch, size, begin, end, each)

    moved, accepted = 0, 0
    for i in range(count):
        now = i * each
        counter = scratch.chains[np.uint64(begin) + i] * slots + slot + _ONE
        for k in range(_ONE, each):
            new = i * each + k
            gain = scratch.ratios[new] - scratch.ratios[now]
            accept = log(1.0 - uniform64(key, counter)) <= gain
            now = new if accept else now
            accepted += accept
            counter += np.uint64(2)
        moved += scratch.values[now] != scratch.codes[column + i]
        scratch.codes[column + i] = scratch.values[now]
    return moved, accepted


@njit(nogil=True, error_model="numpy")
def _add_logits(plan, listed, weights, f, label, scratch, size, begin, end, each):  # type: ignore[no-untyped-def]
    """Add the logit of each of ``scratch.values`` to ``scratch.ratios``."""
    n_views = plan.first_view[f + 1] - plan.first_view[f]
    height, lines = plan.heights[f], plan.lines[f]
    to = np.uint64(0)
    for start in range(begin, end, SHORT):
        stop = min(start + SHORT, end)
        run = find_rows(plan, f, scratch.codes, size, start, stop, scratch.rows)
        for i in range(np.uint64(stop - start)):
            for k in range(n_views):
                scratch.chain_rows[to] = scratch.rows[k * run + i]
                to += _ONE

    # counting sort of the values by line
    n_values = np.uint64(end - begin) * each
    starts = scratch.line_starts
    for line in range(lines):
        starts[line] = np.uint32(0)
    for s in range(n_values):
        starts[np.uint64(scratch.values[s]) // _LINE] += np.uint32(1)
    total = np.uint32(0)
    for line in range(lines):
        total += starts[line]
        starts[line] = total - starts[line]
    for s in range(n_values):
        line = np.uint64(scratch.values[s]) // _LINE
        scratch.by_line[starts[line]] = s
        starts[line] += np.uint32(1)

    first = np.uint64(0)
    line_start = np.uint64(label) * plan.matrix[-1] + plan.matrix[f]
    for line in range(lines):
        last = np.uint64(starts[line])
        if (last - first) * n_views > height:
            scratch.greatest[0] = _fetch(weights.matrices, line_start, height)
        for s in range(first, last):
            value = np.uint64(scratch.by_line[s])
            lane = line_start + np.uint64(scratch.values[value]) % _LINE
            row = value // each * n_views
            logit = np.float32(0.0)
            for k in range(n_views):
                logit += weights.matrices[lane + np.uint64(scratch.chain_rows[row + k]) * _LINE]
            scratch.ratios[value] += logit
        first = last
        line_start += height * _LINE

    if listed.first[f] < listed.first[f + 1]:
        add_values_listed(
            listed, weights.listed, f, label, scratch.codes, size, begin, end,
            scratch.values, each, scratch.ratios,
        )  # fmt: skip
    if plan.first_hashed[f] < plan.first_hashed[f + 1]:
        for s in range(n_values):
            scratch.ratios[s] += _hashed_logit(
                plan, weights.buckets, f, np.uint64(scratch.values[s]), label,
                scratch.codes, size, np.uint64(begin) + s // each,
            )  # fmt: skip


@njit(nogil=True, error_model="numpy")
def _propose_seen(  # type: ignore[no-untyped-def]
    proposals, lists, f, card, each, neighbour, key, slots, slot, scratch, size, begin, end
):
    """Propose from the values seen with the neighbour's, or from the marginal: values and −log q of each."""
    keys, cells = lists.keys, lists.cells
    laws = proposals.laws
    column = np.uint64(f) * np.uint64(size) + np.uint64(begin)
    marginal = laws.marginal[f]
    table = laws.table[f]
    for i in range(np.uint64(end - begin)):
        z = np.uint64(0)
        if neighbour >= 0:
            z = np.uint64(scratch.codes[np.uint64(neighbour * size + begin) + i])
        row = laws.first[f] + z
        first, length = laws.row_start[row], laws.row_start[row + _ONE] - laws.row_start[row]
        share = laws.share[row]
        offset = z * laws.other_stride[f]
        scratch.values[i * each] = scratch.codes[column + i]
        counter = scratch.chains[np.uint64(begin) + i] * slots + slot
        for k in range(_ONE, each):
            u = uniform64(key, counter)
            counter += np.uint64(2)
            if u < share:
                spot = u / share * np.float64(length)
                at = min(np.uint64(spot), length - _ONE)
                kept = (spot - np.float64(at)) * 4294967296.0 < np.float64(laws.spots[first + at, _ZERO])
                at = at if kept else np.uint64(laws.spots[first + at, _ONE])
                scratch.values[i * each + k] = laws.spots[first + at, _TWO]
                scratch.ratios[i * each + k] = np.uint32(laws.spots[first + at, _THREE]).view(np.float32)
            else:
                spot = (u - share) / (1.0 - share) * np.float64(card)
                v = min(np.uint64(spot), card - _ONE)
                kept = (spot - np.float64(v)) * 4294967296.0 < np.float64(laws.marginal_kept[marginal + v])
                v = v if kept else np.uint64(laws.marginal_other[marginal + v])
                scratch.values[i * each + k] = v
                scratch.ratios[i * each + k] = _NOT_YET
        scratch.ratios[i * each] = _NOT_YET
        for s in range(i * each, (i + _ONE) * each):
            if scratch.ratios[s] != _NOT_YET:
                continue
            v = np.uint64(scratch.values[s])
            cell = laws.cells[f]
            if share > 0.0:
                cell = offset + v * laws.stride[f]
                if table >= 0:
                    t = np.uint64(table)
                    cell = find_listed(
                        keys, cells, lists.marked[t], lists.start[t], lists.size[t], cell, laws.cells[f]
                    )
            if cell < laws.cells[f]:
                scratch.ratios[s] = laws.surprise[laws.first_cell[f] + cell]
            else:
                q = (1.0 - share) * np.float64(laws.marginal_law[marginal + v])
                scratch.ratios[s] = -np.float32(log(q))


@njit(nogil=True, inline="always")
def _run_length(count):  # type: ignore[no-untyped-def]
    """From the rows of one view to those of the next: an odd number of cache lines.

    With a power of two the runs would all compete for the same few places of the L1 cache.
    """
    return ((count + _LINE - _ONE) // _LINE | _ONE) * _LINE


@njit(nogil=True, error_model="numpy")
def find_rows(plan, f, codes, size, begin, end, rows):  # type: ignore[no-untyped-def]
    """The row of each view of ``f`` for each chain of a batch: the views' runs are so far apart."""
    count = np.uint64(end - begin)
    run = _run_length(count)
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
        to += run
    return run


@njit(nogil=True, error_model="numpy")
def _fetch(matrices, start, height):  # type: ignore[no-untyped-def]
    """Read a line of all rows in order, for the cache: in the order of use it takes longer."""
    total = np.float32(0.0)
    for row in range(height):
        total += matrices[start + row * _LINE]
    return total


@njit(nogil=True, error_model="numpy")
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
