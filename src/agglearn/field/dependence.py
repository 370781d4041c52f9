"""How features depend on each other, once noise is taken out of their pair tables: all pairs together.

Written as one matrix, a row and a column for each value of each feature, the differences between pair tables
and the product of their margins are mostly of low rank: whatever makes features depend on each other shows in
many pairs at once, while the noise of one table says nothing of another. So, from noisy tables:

1. **What many pairs share.** Of the symmetric matrix of all differences the eigenvalues λ above 2√v are kept,
   with v the summed noise variance of a row (the mean over rows): those of a matrix of noise alone are below.
   A kept one becomes √(λ² − 4v), the best estimate in squared error, as an eigenvector follows the noise too
   (Gavish and Donoho, 2017, for a symmetric matrix). The blocks of a feature with itself, which no table has,
   are those of the estimate, found in turns. A cell of it has noise of variance σ²(l_i + l_j), l the sums of
   the squared entries of the kept eigenvectors: it is shrunk (:mod:`.shrink`) by what the product of margins
   expects, and each table's difference from it likewise.
2. **What each table shows alone**: its difference from the product of its margins, shrunk. It knows of no
   other table, but what is shared is spread over cells that hold nothing, and this is not.
3. **Both**, as their geometric mean, so that a cell that either finds empty is empty.

Squared distances from the exact tables of 80 % of the training records, each over the records of the cell and
one more, were thousands a table (1 alone, 2 alone, both): Adult 2.1, 1.5, 1.4, Bank 3.1, 2.8, 2.0, credit
1.4, 1.9, 1.4 and a simulated log 3.5, 1.6, 1.7 at ε = 1.25; Adult 0.64, 0.61, 0.54, Bank 0.64, 0.58, 0.41,
credit 0.58, 0.75, 0.55 and the log 0.68, 0.58, 0.55 at 3.75. By laws about what is expected only, the same
for all tables, 1 left 3.0, 7.5 and 1.8 of Adult, Bank and credit at 1.25.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from agglearn.field.layout import Layout
from agglearn.field.shrink import multiples, shrunk

Floats = npt.NDArray[np.float64]

MOST_VALUES = 1_500  # of all features together: beyond, a matrix of all takes minutes
_TURNS = 10  # of finding a feature's block with itself
RAKINGS = 20  # turns of raking a table to its margins
_LEAST = 1e-9  # of a margin or an expected count
_FLOOR = 0.01  # of the product of margins, below which an estimate of low rank does not bring a cell


@dataclass(frozen=True)
class Pairs:
    """The pair tables of a layout, end to end.

    Attributes
    ----------
    layout
        Features and tables.
    tables
        Which tables are pairs with a cell for each combination.
    """

    layout: Layout
    tables: tuple[int, ...]

    @property
    def scopes(self) -> list[tuple[int, int]]:
        """The two features of each table."""
        return [(self.layout.scopes[t][0], self.layout.scopes[t][1]) for t in self.tables]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where the values of each feature begin, among those of all; and how many there are."""
        return np.concatenate([[0], np.cumsum(self.layout.cards)]).astype(np.int64)

    def gathered(self, values: Floats) -> Floats:
        """The cells of all pairs, of a flat vector over the layout."""
        return np.concatenate([values[self.layout.part(t)] for t in self.tables] or [np.zeros(0)])

    def apart(self, values: Floats) -> list[Floats]:
        """Gathered cells, as tables."""
        parts = np.split(values, np.cumsum(self.sizes)[:-1]) if self.tables else []
        return [p.reshape(self.layout.cells[t].shape) for t, p in zip(self.tables, parts, strict=True)]

    @property
    def sizes(self) -> list[int]:
        """Cells of each table."""
        return [self.layout.sizes[t] for t in self.tables]

    def each(self, value: Floats) -> Floats:
        """A number of each table of the layout, for each gathered cell."""
        return np.concatenate([np.full(self.layout.sizes[t], value[t]) for t in self.tables] or [np.zeros(0)])

    @property
    def freedom(self) -> Floats:
        """The share of a cell's noise that is left once a table has its margins: (1 − 1/M_f)(1 − 1/M_g)."""
        cards = np.array(self.layout.cards, float)
        each = np.ones(self.layout.n_tables)
        for t, (f, g) in zip(self.tables, self.scopes, strict=True):
            each[t] = (1 - 1 / cards[f]) * (1 - 1 / cards[g])
        return self.each(each)

    def of_margins(self, margins: Sequence[Floats]) -> Floats:
        """The products of margins, of the records of a whole, gathered."""
        flat = [
            (np.multiply.outer(margins[f], margins[g]) / max(margins[f].sum(), _LEAST)).reshape(-1)
            for f, g in self.scopes
        ]
        return np.concatenate(flat or [np.zeros(0)])

    def raked(self, tables: Floats, margins: Sequence[Floats]) -> Floats:
        """Gathered tables, brought to these margins."""
        found = [
            raked(table, margins[f], margins[g]).reshape(-1)
            for table, (f, g) in zip(self.apart(tables), self.scopes, strict=True)
        ]
        return np.concatenate(found or [np.zeros(0)])

    def matrix(self, values: Floats) -> Floats:
        """Gathered cells as a symmetric matrix over the values of all features, 0 where no table is."""
        at = self.starts
        full = np.zeros((int(at[-1]), int(at[-1])))
        for table, (f, g) in zip(self.apart(values), self.scopes, strict=True):
            full[at[f] : at[f + 1], at[g] : at[g + 1]] = table
            full[at[g] : at[g + 1], at[f] : at[f + 1]] = table.T
        return full

    def of_matrix(self, full: Floats) -> Floats:
        """The cells of such a matrix, gathered."""
        at = self.starts
        flat = [full[at[f] : at[f + 1], at[g] : at[g + 1]].reshape(-1) for f, g in self.scopes]
        return np.concatenate(flat or [np.zeros(0)])


def without_noise(
    pairs: Pairs, noisy: Floats, variance: Floats, margins: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Gathered pair tables with these margins, relieved of noise; and the variance of what is left of it.

    Parameters
    ----------
    pairs
        Which tables.
    noisy
        Their records, gathered, with these margins already.
    variance
        Of the noise in each cell.
    margins
        Of each feature.
    """
    product = pairs.of_margins(margins)
    variance = variance * pairs.freedom
    found, unsure = _beside(pairs, noisy, variance, product, margins)
    if pairs.starts[-1] > MOST_VALUES or len(pairs.tables) < 2:
        return found, unsure
    shared, held = _shared(pairs, noisy - product, variance)
    shared, _ = shrunk(shared, product, held, pairs.sizes, multiples)
    expected = pairs.raked(np.maximum(product + shared, _FLOOR * product), margins)
    other, unsure_too = _beside(pairs, noisy, variance, expected, margins)
    return pairs.raked(np.sqrt(found * other), margins), np.minimum(unsure, unsure_too)


def _beside(
    pairs: Pairs, noisy: Floats, variance: Floats, expected: Floats, margins: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Tables by what they show beside what is expected, and the variance of what is left of their noise."""
    rest, unsure = shrunk(noisy - expected, expected, variance, pairs.sizes, multiples)
    return pairs.raked(np.maximum(expected + rest, 0.0), margins), unsure


def _shared(pairs: Pairs, differences: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """What many pairs show of the differences, and the variance of its noise."""
    full, noise = pairs.matrix(differences), pairs.matrix(variance)
    v = float(noise.sum(axis=1).mean())
    at = pairs.starts
    blocks = [slice(at[f], at[f + 1]) for f in range(len(at) - 1)]
    with threadpool_limits(1):  # the same bits with any number of threads
        for _ in range(_TURNS):
            values, vectors = np.linalg.eigh(full)
            kept = values > 2 * np.sqrt(v)
            vectors = vectors[:, kept]
            estimate = (vectors * np.sqrt(np.maximum(values[kept] ** 2 - 4 * v, 0.0))) @ vectors.T
            for block in blocks:
                full[block, block] = estimate[block, block]
    entries = np.square(vectors).sum(axis=1)
    held = noise * (entries[:, None] + entries[None, :])
    return pairs.of_matrix(estimate), pairs.of_matrix(held)


def raked(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """A table brought to these margins, its interaction kept; a cell of nothing stays nothing."""
    table = np.maximum(table, _LEAST)
    for _ in range(RAKINGS):
        table = table * (rows / np.maximum(table.sum(axis=1), _LEAST))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), _LEAST))
    return table
