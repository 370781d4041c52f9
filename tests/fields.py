"""Small fields whose every expectation can be enumerated, for tests of the engines and the training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import prod

import numpy as np

from agglearn.field.engines.exact import ExactEngine
from agglearn.field.layout import Layout
from agglearn.field.problem import Problem


def random_problem(
    seed: int,
    cards: tuple[int, ...],
    rows: int = 20_000,
    scopes: Sequence[tuple[int, ...]] | None = None,
    strength: float = 0.5,
) -> tuple[Problem, ExactEngine]:
    """Tables of records drawn from a random field: over all pairs of features, or the scopes given."""
    rng = np.random.default_rng(seed)
    layout = Layout.plain(cards, scopes or list(combinations(range(len(cards)), 2)))
    engine = ExactEngine(layout, rows)
    mu, theta = rng.normal(0, strength, (2, layout.n_cells))
    codes, y = engine.sample(rows, mu, theta, -0.5, seed)
    d, c = count(layout, codes, y)
    return Problem(layout, d, c, float(rows), float(y.sum())), engine


def count(layout: Layout, codes: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tables of coded records (a row each), the plain way."""
    d, c = np.zeros(layout.n_cells), np.zeros(layout.n_cells)
    for t, scope in enumerate(layout.scopes):
        shape = [layout.cards[f] for f in scope]
        cells = np.ravel_multi_index(tuple(codes[:, f].astype(int) for f in scope), shape)
        part = slice(int(layout.offsets[t]), int(layout.offsets[t + 1]))
        d[part] = np.bincount(cells, minlength=prod(shape))
        c[part] = np.bincount(cells, weights=y, minlength=prod(shape))
    return d, c
