"""How much of a difference is more than noise: a mixture of laws learnt from all differences together.

Differences r_k = (what a noisy table says) − (what is expected, e_k) carry noise of known variance v_k. What
is more than noise is taken for a draw of N(0, τ²·e_k^α), with (α, τ²) from a grid (α = 1: like sampling,
α = 2: in proportion; τ = 0: nothing) whose weights are learnt by EM over all differences. The best estimate
is

    r_k · E[ τ²e^α / (τ²e^α + v_k) | r_k ],

which goes to r_k as the noise goes to 0.

Where differences come from many tables, of which a few have an interaction and most have none
(:func:`shrunk_apart`), each table has weights of its own. They too are learnt by EM, with
:data:`_COMMON_CELLS` differences' worth of the weights of all tables added to the table's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_POWERS = {1.0: range(-6, 13, 2), 2.0: range(-14, 5, 2)}  # of 2, for τ², by α
_TURNS = 60  # of EM: weights that matter have come to rest long before
_LEARNT_FROM = 100_000  # differences, evenly chosen: the weights of twenty laws need no more
_AT_A_TIME = 50_000
_COMMON_CELLS = 5.0  # what all tables say, beside a table's own differences; 20 was as good on Adult
_LEARNT_FROM_ONE = 2_000  # differences of one table
_LEAST = 1e-12
_NEVER = 1e-300


def shrunk(r: Floats, expected: Floats, variance: Floats) -> Floats:
    """What is left of each difference once what is likely to be noise is taken out."""
    return estimated(r, expected, variance)[0]


def estimated(r: Floats, expected: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """What is left of each difference, and how uncertain that is: the variance given the noisy one."""
    noisy = np.flatnonzero(variance > 0)
    if not noisy.size:
        return r.copy(), np.zeros_like(r)
    e = np.maximum(expected, _LEAST)
    chosen = noisy[:: max(1, noisy.size // _LEARNT_FROM)]
    weights = _learn(r[chosen], e[chosen], variance[chosen])
    left, unsure = r.copy(), np.zeros_like(r)
    for start in range(0, noisy.size, _AT_A_TIME):
        at = noisy[start : start + _AT_A_TIME]
        left[at], unsure[at] = _relieved(r[at], e[at], variance[at], weights)
    return left, unsure


def shrunk_apart(r: Floats, expected: Floats, variance: Floats, sizes: Sequence[int]) -> Floats:
    """What is left of each difference, where they come from tables of so many cells, one after the other."""
    noisy = np.flatnonzero(variance > 0)
    if not noisy.size:
        return r.copy()
    e = np.maximum(expected, _LEAST)
    chosen = noisy[:: max(1, noisy.size // _LEARNT_FROM)]
    common = _learn(r[chosen], e[chosen], variance[chosen])
    left = r.copy()
    ends = np.searchsorted(noisy, np.cumsum(sizes))
    for own in np.split(noisy, ends[:-1]):
        if not own.size:
            continue
        some = own[:: max(1, own.size // _LEARNT_FROM_ONE)]
        weights = _learn_beside(r[some], e[some], variance[some], common)
        for start in range(0, own.size, _AT_A_TIME):
            at = own[start : start + _AT_A_TIME]
            left[at] = _relieved(r[at], e[at], variance[at], weights)[0]
    return left


def _relieved(r: Floats, e: Floats, variance: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The mean and the variance of what is more than noise, by the weights of the laws."""
    spread, held = _laws(e), variance[:, None]
    likely = _posterior(r, spread + held, weights)
    factor = spread / (spread + held)
    mean = (likely * factor).sum(axis=1)
    between = np.maximum((likely * factor**2).sum(axis=1) - mean**2, 0.0)
    return r * mean, mean * variance + r**2 * between


def _laws(e: Floats) -> Floats:
    """τ²e^α of each difference (rows) under each law (columns), nothing first."""
    columns = [np.zeros_like(e)]
    columns += [2.0**power * e**alpha for alpha, powers in _POWERS.items() for power in powers]
    return np.stack(columns, axis=1)


def _learn(r: Floats, e: Floats, variance: Floats) -> Floats:
    total = _laws(e) + variance[:, None]
    weights = np.full(total.shape[1], 1 / total.shape[1])
    for _ in range(_TURNS):
        weights = _posterior(r, total, weights).mean(axis=0)
    return weights


def _learn_beside(r: Floats, e: Floats, variance: Floats, common: Floats) -> Floats:
    """Weights of one table, beside those of all."""
    total = _laws(e) + variance[:, None]
    log = -0.5 * (np.log(total) + r[:, None] ** 2 / total)
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    weights = common
    for _ in range(_TURNS):
        likely = likelihood * weights
        likely /= np.maximum(likely.sum(axis=1, keepdims=True), _NEVER)
        weights = (likely.sum(axis=0) + _COMMON_CELLS * common) / (r.size + _COMMON_CELLS)
    return weights


def _posterior(r: Floats, total: Floats, weights: Floats) -> Floats:
    """The probability of each law given each difference."""
    with np.errstate(divide="ignore"):
        log = np.log(weights) - 0.5 * (np.log(total) + r[:, None] ** 2 / total)
    log -= log.max(axis=1, keepdims=True)
    likely: Floats = np.exp(log)
    likely /= likely.sum(axis=1, keepdims=True)
    return likely
