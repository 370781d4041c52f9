"""Intervals for the effects of a feature's values.

An effect is linear in the weights (:mod:`agglearn.field.parts`), so draws of the weights are parted as the
weights are, and their spread is that of the effect. What can move from one table to another without a
change of any prediction cancels in the sum over tables: effects are told far better than single weights.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agglearn.field.parts import part_table
from agglearn.trust.intervals import Posterior

Floats = npt.NDArray[np.float64]

_AT_ONCE = 1 << 24  # numbers parted at a time


def effect_intervals(
    posterior: Posterior, shares: Floats, f: int, level: float = 0.9
) -> tuple[Floats, Floats]:
    """Lower and upper ends for what each value of a feature adds to the log-odds by itself.

    Parameters
    ----------
    posterior
        What the tables leave open about the weights.
    shares
        The share of the records in each cell, by which the field is parted.
    f
        The feature.
    level
        Of the intervals.
    """
    layout, draws = posterior.fitted.layout, posterior.draws.shape[1]
    sets = np.column_stack([posterior.draws[:-1], posterior.fitted.theta, posterior.centre.theta])
    effects = np.zeros((layout.cards[f], sets.shape[1]))
    for t, scope in enumerate(layout.scopes):
        if f not in scope or not layout.cells[t].apart:
            continue
        d = np.asarray(layout.table(shares, t), float)
        width = max(1, _AT_ONCE // d.size)
        for start in range(0, sets.shape[1], width):
            some = slice(start, start + width)
            theta = sets[layout.part(t), some].reshape(*d.shape, -1)
            effects[:, some] += part_table(layout.cells[t], theta, d)[0][scope.index(f)]
    moved, (fitted, centre) = effects[:, :draws], effects[:, draws:].T
    reach = posterior.quantile(level) * np.sqrt(np.square(moved).mean(axis=1))
    return np.minimum(centre - reach, fitted), np.maximum(centre + reach, fitted)
