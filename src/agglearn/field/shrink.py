"""How much of a difference is more than noise: a mixture of laws learnt from all differences together.

Differences r_k = (what a noisy table says) − (what is expected, e_k) carry noise of known variance v_k. What
is more than noise is taken for a draw of one of some normal laws N(m, s), whose weights are learnt by EM:

- nothing: m = s = 0;
- :func:`differences`, about what is expected: m = 0 and s = τ²·e^α, with (α, τ²) from a grid (α = 1: like
  sampling, α = 2: in proportion);
- :func:`multiples`: these, and that a cell holds nothing, or about so many times what is expected, by powers
  of 2. Counts are at least 0, and where features depend on each other many cells that are expected to hold
  records hold none, which no law about what is expected says.

The best estimate is E[ m + (r_k − m)·s/(s + v_k) | r_k ], which goes to r_k as the noise goes to 0.

A few tables have an interaction and most have none, so each has weights of its own, learnt with
:data:`_COMMON_CELLS` differences' worth of the weights of all tables added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_POWERS = {1.0: range(-6, 13, 2), 2.0: range(-14, 5, 2)}  # of 2, for τ², by α
_TIMES = range(-4, 13)  # powers of 2 that a cell holds of what is expected
_WIDTH = np.log(2) / 2  # of a multiple, in its own measure: half the way to the next
_TURNS = 60  # of EM: weights that matter have come to rest long before
_LEARNT_FROM = 50_000  # differences, evenly chosen: the weights of some dozen laws need no more
_AT_A_TIME = 50_000
_COMMON_CELLS = 5.0  # what all tables say, beside a table's own differences; 20 was as good on Adult
_LEARNT_FROM_ONE = 2_000  # differences of one table
_LEAST = 1e-12
_NEVER = 1e-300


@dataclass(frozen=True)
class _Laws:
    """Mean and variance of each difference (rows) under each law (columns), nothing first."""

    mean: Floats
    variance: Floats

    def log_likelihood(self, r: Floats, noise: Floats) -> Floats:
        """Of noisy differences, but for a constant."""
        total = self.variance + noise[:, None]
        return np.asarray(-0.5 * (np.log(total) + (r[:, None] - self.mean) ** 2 / total))


Laws = Callable[[Floats], _Laws]
"""What a difference may be a draw of, by what is expected."""


def differences(e: Floats) -> _Laws:
    """Laws about what is expected."""
    columns = [np.zeros_like(e)]
    columns += [2.0**power * e**alpha for alpha, powers in _POWERS.items() for power in powers]
    variance = np.stack(columns, axis=1)
    return _Laws(np.zeros_like(variance), variance)


def multiples(e: Floats) -> _Laws:
    """Laws about what is expected, about nothing, and about multiples of what is expected."""
    about = differences(e)
    times = np.array([0.0, *(2.0**power for power in _TIMES)]) * e[:, None]
    return _Laws(
        np.hstack([about.mean, times - e[:, None]]),
        np.hstack([about.variance, (_WIDTH * times) ** 2]),
    )


def shrunk(
    r: Floats,
    expected: Floats,
    noise: Floats,
    sizes: Sequence[int],
    laws: Laws = differences,
) -> tuple[Floats, Floats]:
    """What is left of each difference once what is likely to be noise is taken out, and its variance.

    Parameters
    ----------
    r
        Differences of all tables, one table after the other.
    expected
        What each is from.
    noise
        Variance of the noise on each.
    sizes
        Cells of each table.
    laws
        What a difference may be a draw of, by what is expected.
    """
    noisy = np.flatnonzero(noise > 0)
    left, unsure = r.copy(), np.zeros_like(r)
    if not noisy.size:
        return left, unsure
    e = np.maximum(expected, _LEAST)
    some = noisy[:: max(1, noisy.size // _LEARNT_FROM)]
    common = _learn(laws(e[some]).log_likelihood(r[some], noise[some]))
    for own in np.split(noisy, np.searchsorted(noisy, np.cumsum(sizes))[:-1]):
        if not own.size:
            continue
        some = own[:: max(1, own.size // _LEARNT_FROM_ONE)]
        weights = _learn(laws(e[some]).log_likelihood(r[some], noise[some]), common)
        for start in range(0, own.size, _AT_A_TIME):
            at = own[start : start + _AT_A_TIME]
            left[at], unsure[at] = _relieved(r[at], noise[at], laws(e[at]), weights)
    return left, unsure


def _learn(log_likelihood: Floats, common: Floats | None = None) -> Floats:
    """Weights of the laws; where those of all tables are given, beside them."""
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    cells, laws = likelihood.shape
    added, beside = (0.0, np.full(laws, 1 / laws)) if common is None else (_COMMON_CELLS, common)
    weights = beside
    for _ in range(_TURNS):
        likely = likelihood * weights
        likely /= np.maximum(likely.sum(axis=1, keepdims=True), _NEVER)
        weights = (likely.sum(axis=0) + added * beside) / (cells + added)
    return weights


def _relieved(r: Floats, noise: Floats, laws: _Laws, weights: Floats) -> tuple[Floats, Floats]:
    """The mean and the variance of what is more than noise, by the weights of the laws."""
    likely = laws.log_likelihood(r, noise) + np.log(np.maximum(weights, _NEVER))
    likely = np.exp(likely - likely.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    told = laws.variance / (laws.variance + noise[:, None])
    each = laws.mean + (r[:, None] - laws.mean) * told
    mean = (likely * each).sum(axis=1)
    unsure = (likely * (told * noise[:, None] + (each - mean[:, None]) ** 2)).sum(axis=1)
    return mean, unsure
