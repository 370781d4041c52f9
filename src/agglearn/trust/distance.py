"""How far counts are from what a field expects, in measures that do not grow with the number of records.

The distance of Hellinger between two laws over K cells, √(1 − Σ√(d/n · e/n)), is taken less the K/8n that
sampling puts under the root. And what given positives would add to the log-likelihood if each cell's rate
were put right is half of their deviance G², less what chance gives.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

Floats = npt.NDArray[np.float64]


def hellinger(d: Floats, e: Floats) -> float:
    """√(1 − Σ√(pq)) of two laws given by counts, less what sampling alone would give."""
    d = np.maximum(d, 0.0)
    if not (d.sum() > 0 and e.sum() > 0):
        return 0.0
    affinity = float(np.sqrt(d * e).sum() / np.sqrt(d.sum() * e.sum()))
    by_chance = (np.count_nonzero(e) - 1) / (8 * d.sum())
    return float(np.sqrt(max(1 - affinity - by_chance, 0.0)))


def gain_of_rates(d: Floats, c: Floats, q: Floats, spread: Floats) -> tuple[float, float]:
    """Log-likelihood that the cells' own rates have above the field's, less what chance gives; its error.

    Chance gives a cell one half, more where chains or noise add to its spread, and more where it is small
    (the correction of Williams, 1976).
    """
    rate = np.clip(c / d, 0.0, 1.0)
    gain = d * (xlogy(rate, rate / q) + xlogy(1 - rate, (1 - rate) / (1 - q)))
    binomial = d * q * (1 - q)
    by_chance = spread / (2 * binomial) * (1 + (1 / (q * (1 - q)) - 1) / (6 * d))
    found = max(float((gain - by_chance).sum()), 0.0)
    # Of χ² with K degrees the half has variance K/2; a gain that is there has about twice its own on top.
    return found, float(np.sqrt((2 * by_chance**2).sum() + 2 * found))
