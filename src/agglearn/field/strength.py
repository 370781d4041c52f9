"""How strong weights are before any table is seen, as noisy tables show it.

A fit to tables that noise was taken out of (:mod:`.denoise`) has weights near 0 wherever noise hid them. That
predicts well, but what such a fit says of the strength of weights is no law of them: intervals that followed
it would shrink as noise grows. The noisy tables themselves tell it. Their interaction with the label,

    r_k = (c_k − e¹_k)(1 − π_k) − (d_k − c_k − e⁰_k)·π_k,   π = e¹/(e⁰ + e¹),

with eʸ the records raked to the margins of class y, and the margins of either difference taken out, has the
variance h + v + h²s if its weights are draws of N(0, s): h_k = (e⁰_k + e¹_k)·π_k(1 − π_k) of sampling,
v_k of the noise on c_k − d_k·π_k, both times (1 − 1/M_f)(1 − 1/M_g), the share that margins leave. One s
for all pairs is its mean over all that it could be (as in :mod:`~agglearn.trust.prior`): where noise hides
everything the most likely s may be 0. Main effects have the variances of :mod:`.effects`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agglearn.field.dependence import Pairs
from agglearn.field.margins import marginal
from agglearn.field.problem import Problem

Floats = npt.NDArray[np.float64]

_GRID = np.geomspace(1e-5, 1.0, 101)  # of s: from nothing that could be seen to log-odds of 1 in every cell
_LEAST = 1e-9


def interaction_variance(noisy: Problem, clean: Problem) -> float | None:
    """s of the weights of pairs, or None where no table has a pair's every cell.

    Parameters
    ----------
    noisy, clean
        The tables as they are, and relieved of noise.
    """
    layout = noisy.layout
    assert noisy.noise is not None
    plain = (t for t, scope in enumerate(layout.scopes) if len(scope) == 2 and layout.cells[t].dense)
    pairs = Pairs(layout, tuple(plain))
    if not pairs.tables:
        return None
    expected = [_without_interaction(pairs, clean, y) for y in (0, 1)]
    given = [pairs.gathered(numbers) for numbers in (noisy.d - noisy.c, noisy.c)]
    away = [_without_margins(pairs, a - b) for a, b in zip(given, expected, strict=True)]
    rate = expected[1] / np.maximum(expected[0] + expected[1], _LEAST)
    on_counts, on_sums = (pairs.each(np.square(sigma)) for sigma in (noisy.noise.counts, noisy.noise.sums))
    shared = pairs.each(noisy.noise.covariances)
    r = away[1] * (1 - rate) - away[0] * rate
    h = (expected[0] + expected[1]) * rate * (1 - rate) * pairs.freedom
    v = (on_sums + on_counts * rate**2 - 2 * shared * rate) * pairs.freedom
    return _mean(r, h, v, pairs.freedom)


def _without_interaction(pairs: Pairs, clean: Problem, y: int) -> Floats:
    """Records of a class in all pairs, if each pair interacted alike in both classes."""
    own = clean.c if y else clean.d - clean.c
    margins: list[Floats] = [np.ones(card) for card in pairs.layout.cards]
    for t in pairs.tables:
        for f in pairs.layout.scopes[t]:
            margins[f] = marginal(pairs.layout, own, t, (f,))
    return pairs.raked(pairs.gathered(clean.d), margins)


def _without_margins(pairs: Pairs, differences: Floats) -> Floats:
    """Differences of all pairs, less the means of their rows and columns."""
    tables = pairs.apart(differences)
    centred = [t - t.mean(axis=0) - t.mean(axis=1)[:, None] + t.mean() for t in tables]
    return np.concatenate([table.reshape(-1) for table in centred])


def _mean(r: Floats, h: Floats, v: Floats, freedom: Floats) -> float:
    """The mean of s over all that it could be, every √s being as likely before."""
    likelihood = np.empty(_GRID.size)
    for i, s in enumerate(_GRID):
        total = np.maximum(h + v + h**2 * s, _LEAST)
        likelihood[i] = -0.5 * float(freedom @ (np.log(total) + r**2 / total))
    weights = np.exp(likelihood - likelihood.max()) * np.sqrt(_GRID)
    return float(weights @ _GRID / weights.sum())


def weight_variances(noisy: Problem, clean: Problem) -> Floats | None:
    """Variance of the weights of each table that ``clean`` has, or None where it cannot be told.

    Where no table is left to main effects, they are spread over all that hold their feature.
    """
    layout, effects = clean.layout, clean.effects
    shared = None if effects is None else interaction_variance(noisy, clean)
    if effects is None or shared is None:
        return None
    told = [[f for f in scope if layout.cards[f] > 1] for scope in layout.scopes]
    apart = {scope[0] for scope in told if len(scope) == 1}
    holding = np.bincount([f for scope in told for f in scope], minlength=layout.n_features)
    return np.array(
        [
            effects.variances[scope[0]]
            if len(scope) == 1
            else shared + sum(effects.variances[f] / holding[f] for f in scope if f not in apart)
            for scope in told
        ]
    )
