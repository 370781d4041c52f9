# mypy: disallow-untyped-decorators=False
"""Score and tally by bundles: several tables at once, a cell for every combination of a few features.

A record's cell in a bundle is found anew each time, for a block of records at once: that costs less than to
read it from memory. A bundle has at most 2¹⁶ cells, so that their numbers take 16 bits. Work is dealt out as
in :mod:`.score` (blocks of records to score, whole bundles to tally), so no number depends on the threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.score import Codes
from agglearn.runtime.compiled import njit
from agglearn.runtime.threads import in_threads

_BLOCK = 1 << 11  # records at a time: their codes and sums stay in cache while the bundles go by
_AT_ONCE = 4  # bundles scored at once: a sum is read and written once for all of them


class BundlePlan(NamedTuple):
    """Bundles as flat arrays: bundle ``g`` has ``features[start[g]:start[g + 1]]``, the last one fastest."""

    start: npt.NDArray[np.uint64]
    features: npt.NDArray[np.uint64]
    cards: npt.NDArray[np.uint16]
    offsets: npt.NDArray[np.uint64]


def score_bundles(
    codes: Codes,
    plan: BundlePlan,
    weights: npt.NDArray[np.floating[Any]],
    scores: npt.NDArray[np.floating[Any]],
    threads: int = 1,
) -> None:
    """Add each record's weights in all bundles to its score; with a column for each of several sets."""
    if weights.ndim == 1:
        in_threads(threads, lambda w: _score(codes, plan, weights, scores, w, threads))
    elif weights.shape[1] == 1:  # a loop of one turn costs more than what it does
        score_bundles(codes, plan, weights[:, 0], scores[:, 0], threads)
    else:
        in_threads(threads, lambda w: _score_sets(codes, plan, weights, scores, w, threads))


def tally_bundles(
    codes: Codes,
    plan: BundlePlan,
    values: npt.NDArray[np.floating[Any]],
    sums: npt.NDArray[np.floating[Any]],
    threads: int = 1,
) -> None:
    """Add the records' values to each bundle's cells; with a column for each of several sets."""
    if values.ndim == 1:
        in_threads(threads, lambda w: _tally(codes, plan, values, sums, w, threads))
    elif values.shape[1] == 1:
        tally_bundles(codes, plan, values[:, 0], sums[:, 0], threads)
    else:
        in_threads(threads, lambda w: _tally_sets(codes, plan, values, sums, w, threads))


@njit(nogil=True)
def _find(codes, plan, g, start, stop, cells):  # type: ignore[no-untyped-def]
    """The cells of a block of records in bundle ``g``."""
    first = plan.start[g]
    row = codes[plan.features[first]]
    for i in range(np.uint64(stop - start)):
        cells[i] = row[np.uint64(start) + i]
    for k in range(first + np.uint64(1), plan.start[g + 1]):
        row, card = codes[plan.features[k]], plan.cards[k]
        for i in range(np.uint64(stop - start)):
            cells[i] = cells[i] * card + row[np.uint64(start) + i]


@njit(nogil=True)
def _score(codes, plan, weights, scores, worker, workers):  # type: ignore[no-untyped-def]
    n, n_bundles = scores.shape[0], plan.offsets.size - 1
    cells = np.empty((_AT_ONCE, _BLOCK), np.uint16)
    for start in range(worker * _BLOCK, n, workers * _BLOCK):
        stop = min(start + _BLOCK, n)
        part = scores[start:stop]
        for g in range(0, n_bundles - n_bundles % _AT_ONCE, _AT_ONCE):
            for k in range(_AT_ONCE):
                _find(codes, plan, g + k, start, stop, cells[k])
            at, one, two, three = cells[0], cells[1], cells[2], cells[3]
            a, b = weights[plan.offsets[g] :], weights[plan.offsets[g + 1] :]
            c, d = weights[plan.offsets[g + 2] :], weights[plan.offsets[g + 3] :]
            for i in range(np.uint64(stop - start)):
                part[i] += (a[np.uint64(at[i])] + b[np.uint64(one[i])]) + (
                    c[np.uint64(two[i])] + d[np.uint64(three[i])]
                )
        for g in range(n_bundles - n_bundles % _AT_ONCE, n_bundles):
            _find(codes, plan, g, start, stop, cells[0])
            at, a = cells[0], weights[plan.offsets[g] :]
            for i in range(np.uint64(stop - start)):
                part[i] += a[np.uint64(at[i])]


@njit(nogil=True)
def _score_sets(codes, plan, weights, scores, worker, workers):  # type: ignore[no-untyped-def]
    n, width = scores.shape
    cells = np.empty(_BLOCK, np.uint16)
    for start in range(worker * _BLOCK, n, workers * _BLOCK):
        stop = min(start + _BLOCK, n)
        for g in range(plan.offsets.size - 1):
            _find(codes, plan, g, start, stop, cells)
            for i in range(np.uint64(stop - start)):
                cell = plan.offsets[g] + np.uint64(cells[i])
                for k in range(np.uint64(width)):
                    scores[np.uint64(start) + i, k] += weights[cell, k]


@njit(nogil=True)
def _tally(codes, plan, values, sums, worker, workers):  # type: ignore[no-untyped-def]
    n = values.size
    cells = np.empty(_BLOCK, np.uint16)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        part = values[start:stop]
        for g in range(worker, plan.offsets.size - 1, workers):
            _find(codes, plan, g, start, stop, cells)
            own = sums[plan.offsets[g] :]
            for i in range(np.uint64(stop - start)):
                own[np.uint64(cells[i])] += part[i]


@njit(nogil=True)
def _tally_sets(codes, plan, values, sums, worker, workers):  # type: ignore[no-untyped-def]
    n, width = values.shape
    cells = np.empty(_BLOCK, np.uint16)
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        for g in range(worker, plan.offsets.size - 1, workers):
            _find(codes, plan, g, start, stop, cells)
            for i in range(np.uint64(stop - start)):
                cell = plan.offsets[g] + np.uint64(cells[i])
                for k in range(np.uint64(width)):
                    sums[cell, k] += values[np.uint64(start) + i, k]
