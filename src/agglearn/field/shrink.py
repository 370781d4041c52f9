"""How much of a difference is more than noise: a mixture of laws learnt from all differences together.

Differences r_k = (what a noisy table says) − (what is expected, e_k) carry noise of known variance v_k. What
is more than noise is taken for a draw of N(0, τ²·e_k^α), with (α, τ²) from a grid (α = 1: like sampling,
α = 2: in proportion; τ = 0: nothing) whose weights are learnt by EM over all differences. The best estimate
is

    r_k · E[ τ²e^α / (τ²e^α + v_k) | r_k ],

which goes to r_k as the noise goes to 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_POWERS = {1.0: range(-6, 13, 2), 2.0: range(-14, 5, 2)}  # of 2, for τ², by α
_TURNS = 60  # of EM: weights that matter have come to rest long before
_LEARNT_FROM = 100_000  # differences, evenly chosen: the weights of twenty laws need no more
_AT_A_TIME = 50_000
_LEAST = 1e-12


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
        spread, held = _laws(e[at]), variance[at, None]
        likely = _posterior(r[at], spread + held, weights)
        factor = spread / (spread + held)
        mean = (likely * factor).sum(axis=1)
        left[at] = r[at] * mean
        between = np.maximum((likely * factor**2).sum(axis=1) - mean**2, 0.0)
        unsure[at] = mean * variance[at] + r[at] ** 2 * between
    return left, unsure


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


def _posterior(r: Floats, total: Floats, weights: Floats) -> Floats:
    """The probability of each law given each difference."""
    with np.errstate(divide="ignore"):
        log = np.log(weights) - 0.5 * (np.log(total) + r[:, None] ** 2 / total)
    log -= log.max(axis=1, keepdims=True)
    likely: Floats = np.exp(log)
    likely /= likely.sum(axis=1, keepdims=True)
    return likely
