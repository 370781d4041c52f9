# mypy: disallow-untyped-decorators=False, check-untyped-defs=False, disallow-untyped-calls=False
"""Redraw groups of features of every chain together, by a step of Metropolis (:mod:`agglearn.field.groups`).

Chains are taken a block at a time: their codes, and below them the codes proposed for a group's members.
Every random number belongs to a chain and a group, so neither blocks nor threads show.
"""

from math import log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.rng import uniform64
from agglearn.field.kernels.score import Codes, cell_of, pair_of
from agglearn.runtime.compiled import njit

_BLOCK = 2048  # chains: their codes, and the weights of a small table, stay in the L2 cache
_ONE, _TWO = np.uint64(1), np.uint64(2)


class GroupScratch(NamedTuple):
    """What one worker writes on."""

    codes: Codes  # a row for each feature, then one for each member of the largest group
    ratios: npt.NDArray[np.float64]
    changed: npt.NDArray[np.int64]  # chains for which something else than they have is proposed


def group_scratch(n_features: int, largest: int, dtype: npt.DTypeLike) -> GroupScratch:
    """What one worker needs to write on."""
    codes: Codes = np.empty((n_features + largest, _BLOCK), dtype)
    return GroupScratch(codes, np.empty(_BLOCK), np.empty(_BLOCK, np.int64))


@njit(nogil=True)
def both_labels(mu, theta, weights, worker, workers):  # type: ignore[no-untyped-def]
    """The weights of each cell for label 0 and for label 1, side by side."""
    each = -(-mu.size // workers)
    for k in range(worker * each, min((worker + 1) * each, mu.size)):
        weights[2 * k] = mu[k]
        weights[2 * k + 1] = mu[k] + theta[k]


@njit(nogil=True, error_model="numpy")
def regroup(codes, labels, ids, groups, tables, weights, key, scratch, worker, workers):  # type: ignore[no-untyped-def]
    """Propose every group to this worker's chains, one after the other; how many proposals were accepted."""
    n_features, n = codes.shape
    n_groups = groups.first.size - 1
    slots = np.uint64(groups.member.size + n_groups)
    accepted = 0
    for start in range(worker * _BLOCK, n, workers * _BLOCK):
        size = min(_BLOCK, n - start)
        for f in range(n_features):
            for i in range(size):
                scratch.codes[f, i] = codes[f, start + i]
        for g in range(n_groups):
            first, last = groups.first[g], groups.first[g + 1]
            for i in range(size):
                scratch.ratios[i] = 0.0
            for m in range(first, last):
                slot = np.uint64(m + g)
                _propose(groups, m, first, tables.cards, ids, start, size, key, slots, slot, scratch)
            changed = _find_changed(groups, first, last, n_features, size, scratch)
            for k in range(groups.first_table[g], groups.first_table[g + 1]):
                _weigh(groups, k, tables, weights, labels, start, changed, scratch)
            accepted += size - changed
            for j in range(changed):
                i = scratch.changed[j]
                u = uniform64(key, ids[start + i] * slots + np.uint64(last + g))
                if log(1.0 - u) <= scratch.ratios[i]:
                    accepted += 1
                    for m in range(first, last):
                        scratch.codes[groups.member[m], i] = scratch.codes[n_features + m - first, i]
        for m in range(groups.member.size):
            f = groups.member[m]
            for i in range(size):
                codes[f, start + i] = scratch.codes[f, i]
    return accepted


@njit(nogil=True, error_model="numpy")
def _propose(groups, m, first, cards, ids, start, size, key, slots, slot, scratch):  # type: ignore[no-untyped-def]
    """Draw a member given its parent; its part of log q(old) − log q(new)."""
    f, parent, row = groups.member[m], groups.parent[m], groups.row[m]
    to = cards.size + m - first
    card = np.int64(cards[f])
    codes = scratch.codes
    for i in range(size):
        law = old = groups.law[m]
        if row >= 0:
            law += np.int64(codes[row, i]) * card
            old += np.int64(codes[parent, i]) * card
        u = uniform64(key, ids[start + i] * slots + slot)
        low, high = np.int64(0), card - 1
        while low < high:
            middle = (low + high) >> 1
            if u < groups.upto[law + middle]:
                high = middle
            else:
                low = middle + 1
        codes[to, i] = low
        scratch.ratios[i] += groups.log_law[old + np.int64(codes[f, i])] - groups.log_law[law + low]


@njit(nogil=True, error_model="numpy")
def _find_changed(groups, first, last, n_features, size, scratch):  # type: ignore[no-untyped-def]
    """How many chains something new is proposed to: they are listed in ``scratch.changed``."""
    found = 0
    for i in range(size):
        new = False
        for m in range(first, last):
            new |= scratch.codes[groups.member[m], i] != scratch.codes[n_features + m - first, i]
        scratch.changed[found] = i
        found += new
    return found


@njit(nogil=True, error_model="numpy")
def _weigh(groups, k, tables, weights, labels, start, changed, scratch):  # type: ignore[no-untyped-def]
    """What one table adds to log π(new) − log π(old)."""
    t = groups.table[k]
    codes, ratios = scratch.codes, scratch.ratios
    offset = tables.offsets[t]
    simple, a, b, stride = pair_of(tables, t)
    begin, at = tables.scope_start[t], np.uint64(groups.first_row[k])
    if simple:
        new_a = groups.rows[at]
        new_b = groups.rows[at + (tables.scope_start[t + _ONE] - begin) - _ONE]
        for j in range(changed):
            i = scratch.changed[j]
            old = offset + np.uint64(codes[a, i]) * stride + np.uint64(codes[b, i])
            new = offset + np.uint64(codes[new_a, i]) * stride + np.uint64(codes[new_b, i])
            label = np.uint64(labels[start + i])
            ratios[i] += weights[_TWO * new + label] - weights[_TWO * old + label]
        return
    for j in range(changed):
        i = scratch.changed[j]
        old = offset + cell_of(codes, i, tables, t, tables.features, begin)
        new = offset + cell_of(codes, i, tables, t, groups.rows, at)
        label = np.uint64(labels[start + i])
        ratios[i] += weights[_TWO * new + label] - weights[_TWO * old + label]
