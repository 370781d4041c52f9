# mypy: disallow-untyped-decorators=False, check-untyped-defs=False, disallow-untyped-calls=False
"""Move the chains: redraw every feature of every chain given the rest, then every label.

Chains are taken a tile at a time, those with y = 0 before those with y = 1, feature by feature, so
that the weights of one feature and label are used often once they are in the cache. Every random
number belongs to a chain and a feature: how the chains are dealt out to tiles and threads changes
nothing.
"""

from math import exp, floor
from typing import Any

import numpy as np

from agglearn.field.kernels.draws import BATCH, LOGITS, SHORT, Scratch, batch_size, gibbs, metropolis
from agglearn.field.kernels.lanes import LANES, WIDTH
from agglearn.field.kernels.plan import Plan
from agglearn.field.kernels.rng import uniform64
from agglearn.field.layout import Layout
from agglearn.runtime.compiled import njit

_TILE = 8192  # chains
_LARGE_TILE = 32768  # where Metropolis steps read matrices that no cache holds: once for each tile


def tile_size(n_chains: int, workers: int, proposing: bool) -> int:
    """Chains of a tile such that every worker has as many tiles."""
    largest = _LARGE_TILE if proposing else _TILE
    tiles = workers * max(1, -(-n_chains // (workers * largest)))
    return -(-n_chains // tiles)


@njit(nogil=True, error_model="numpy")
def sweep(  # type: ignore[no-untyped-def]
    plan, listed, weights, proposals, n_proposals, codes, labels, ids, key, scratch, tile, worker, workers
):
    """Redraw all features of this worker's chains; how many values moved, and were accepted.

    Chain ``i`` draws by the random numbers of ``ids[i]``, wherever it stands.
    """
    n_features, n = codes.shape
    moved, accepted = 0, 0
    for start in range(worker * tile, n, workers * tile):
        size = min(tile, n - start)
        zeros = _take(codes, labels, ids, start, size, scratch)
        for f in range(n_features):
            for label in range(2):
                first = zeros if label else 0
                last = size if label else zeros
                if proposals.start[f] >= 0:
                    m, a = metropolis(
                        plan, listed, weights, proposals, n_proposals, f, label, key,
                        scratch, size, first, last,
                    )  # fmt: skip
                    moved += m
                    accepted += a
                    continue
                step = batch_size(plan, f)
                for begin in range(first, last, step):
                    end = min(begin + step, last)
                    moved += gibbs(
                        plan, listed, weights, n_proposals, f, label, key, scratch, size, begin, end
                    )
        _put_back(codes, size, scratch)
    return moved, accepted


@njit(nogil=True, error_model="numpy")
def redraw_labels(p, labels, ids, key, worker, workers):  # type: ignore[no-untyped-def]
    """Turn scores into the probability of y = 1, in place, and draw the labels by it.

    The probabilities are rounded to multiples of 2⁻³⁰: float64 sums of them are then exact (up to
    8 million positives), so that neither the order nor the partition of a sum can show.
    """
    for start in range(worker * _TILE, p.size, workers * _TILE):
        for i in range(start, min(start + _TILE, p.size)):
            p[i] = floor(2.0**30 / (1.0 + exp(-p[i])) + 0.5) * 2.0**-30
            labels[i] = uniform64(key, ids[i]) < p[i]


@njit(nogil=True, error_model="numpy")
def _take(codes, labels, ids, start, size, scratch):  # type: ignore[no-untyped-def]
    """Copy a tile, the chains with y = 0 before the others; how many those are."""
    zeros = 0
    for i in range(start, start + size):
        if labels[i] == 0:
            scratch.places[zeros] = i
            zeros += 1
    ones = zeros
    for i in range(start, start + size):
        if labels[i] != 0:
            scratch.places[ones] = i
            ones += 1
    for j in range(size):
        scratch.chains[j] = ids[scratch.places[j]]
    for f in range(codes.shape[0]):
        for j in range(size):
            scratch.codes[f * size + j] = codes[f, scratch.places[j]]
    return zeros


@njit(nogil=True, error_model="numpy")
def _put_back(codes, size, scratch):  # type: ignore[no-untyped-def]
    for f in range(codes.shape[0]):
        for j in range(size):
            codes[f, scratch.places[j]] = scratch.codes[f * size + j]


def new_scratch(plan: Plan, tile: int, n_proposals: int, codes: Any = np.uint16) -> Scratch:
    """What one worker needs to write on; ``codes`` is their type."""
    views = int(np.diff(plan.first_view).max())
    lines = int(plan.lines.max())
    batch = max(SHORT, min(tile, BATCH))
    values = tile * (n_proposals + 1)
    return Scratch(
        chains=np.empty(tile, np.uint64),
        places=np.empty(tile, np.uint64),
        codes=np.empty(plan.cards.size * tile, codes),
        rows=np.empty(views * (batch + 2 * WIDTH), np.uint32),
        logits=np.empty(max(LOGITS, lines * WIDTH), np.float32),
        greatest=np.empty(batch, np.float32),
        lane_sums=np.empty(batch * LANES, np.float32),
        uniforms=np.empty(batch, np.float32),
        chain_rows=np.empty(views * tile, np.uint32),
        values=np.empty(values, codes),
        ratios=np.empty(values, np.float32),
        by_line=np.empty(values, np.uint32),
        line_starts=np.empty(lines, np.uint32),
    )


def scratch_needed(layout: Layout, n_proposals: int) -> int:
    """Bytes of the scratch of one worker, at most."""
    views = max((sum(f in s for s in layout.scopes) for f in range(layout.n_features)), default=1)
    lines = max(layout.cards, default=1) // WIDTH + 1
    batch = max(SHORT, BATCH)
    of_tile = _LARGE_TILE * (16 + 4 * layout.n_features + 4 * views + 10 * (n_proposals + 1))
    of_batch = 4 * ((batch + 2 * WIDTH) * views + batch * (LANES + 2))
    return of_tile + of_batch + 4 * (max(LOGITS, lines * WIDTH) + lines)
