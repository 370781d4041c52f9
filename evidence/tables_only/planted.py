"""An ads log with three-way effects put into its label where tables of pairs cannot show them whole."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.optimize import brentq
from scipy.special import expit, logit

from agglearn.datasets import AdsLog
from agglearn.tables.table import Scope

CLICK_RATE = 0.15


@dataclass(frozen=True)
class Planted:
    """Records of a log, those to learn from and fresh ones, and the triples that have an effect."""

    train: pa.Table
    fresh: pa.Table
    triples: tuple[Scope, ...]


def plant(
    seed: int,
    rows: int,
    fresh: int,
    features: int = 12,
    modalities: int = 20,
    triples: int = 5,
    scale: float = 1.0,
) -> Planted:
    """Draw a log whose log-odds have a normal effect of the given scale for each cell of some random triples.

    The effect of a triple is the same function of its cells for all records, drawn once, and of the same
    scale whichever triple it is. The intercept is such that :data:`CLICK_RATE` of the records are positive.
    """
    log = AdsLog(features, modalities, click_rate=CLICK_RATE, seed=seed)
    rng = np.random.default_rng([seed, 3])
    codes, _ = log.sample(rows + fresh, seed)
    score: npt.NDArray[np.float64] = logit(log.probability(codes))
    every = list(combinations(range(features), 3))
    chosen = [every[i] for i in sorted(rng.choice(len(every), triples, replace=False))]
    for scope in chosen:
        effect = rng.normal(0.0, scale, [log.cards[f] for f in scope])
        score += effect[tuple(codes[:, f] for f in scope)]
    score += brentq(lambda shift: float(expit(score + shift).mean()) - CLICK_RATE, -50.0, 50.0)
    y = (rng.random(len(score)) < expit(score)).astype(np.uint8)
    names = tuple(tuple(log.names[f] for f in scope) for scope in chosen)
    return Planted(log.to_table(codes[:rows], y[:rows]), log.to_table(codes[rows:], y[rows:]), names)
