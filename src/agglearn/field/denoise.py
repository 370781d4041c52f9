"""Noisy tables made consistent with one another, and relieved of what is likely to be noise.

Tables of negatives and of positives, n₀ and n₁, carry noise of known variance. Three things are known beyond
them: every feature's margin stands in several tables; most pairs of features hardly interact; and the
interaction of a pair is much the same in both classes. So, before a fit:

1. **Consistency**, in closed form, for each class. The total is the mean over tables, weighted by
   1/(cells·σ²), the margin of a feature the mean over the tables that hold it of what is left of theirs once
   totals are taken out, weighted by 1/(cells a value·σ²), which leaves a variance V. Margins are projected to
   numbers of at least 0 that add up to the total, and put back into the tables; their interactions stay.
2. **Pairs of features**: d = n₀ + n₁, all pairs together (:mod:`.dependence`).
3. **The label in each margin**: r = c − p·d, with noise V₁(1 − p)² + V₀p² − 2p(1 − p)·V₀₁, all features
   together, by how they depend on each other (:mod:`.effects`). That also says how strong main effects are,
   for their penalties.
4. **The label in pairs**: either class is shrunk toward the new d raked to the class's margins, by how much
   its table shows beside all others (:mod:`.shrink`), and raked to them again. A record is in one cell, so a
   difference has (1 − 1/M_f)(1 − 1/M_g) of a cell's noise.

5. **Tables that list cells**: a listed cell is shrunk toward the product of the margins, by laws that know of
   multiples; either class in it toward its share of that once classes are raked to their margins. The rest is
   what the total leaves.

As the noise goes to 0 the tables come back as they were.

Other tables of three or more features and tables that lack cells only get consistent margins; hashed tables
stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from agglearn.errors import TableError
from agglearn.field.dependence import MOST_VALUES, RAKINGS, Pairs, without_noise
from agglearn.field.effects import Effects, main_effects
from agglearn.field.layout import Layout
from agglearn.field.margins import CellNumbers, is_sparse, marginal
from agglearn.field.problem import Problem, make_problem
from agglearn.field.shrink import Laws, differences, multiples, shrunk
from agglearn.tables.cells import SparseCells
from agglearn.tables.data import AggregatedData

Floats = npt.NDArray[np.float64]

_LEAST = 1e-9  # of a margin or an expected count


def denoised(problem: Problem) -> Problem:
    """The problem with tables to fit to; the same one where nothing is noisy."""
    if problem.noise is None or problem.free is not None:
        return problem
    classes = _Classes.of(problem).consistent()
    known, unsure = classes.known_pairs()
    margins, effects = classes.margins_told(known, unsure)
    d, c = classes.shrunk(margins, known)
    rows = float(sum(classes.totals))
    return replace(problem, d=d, c=c, rows=rows, positives=float(classes.totals[1]), effects=effects)


def denoise(data: AggregatedData) -> AggregatedData:
    """Noisy tables made consistent and relieved of what is likely to be noise, for other tools.

    They are marked as such: what is left of the noise they do not tell. Where there are several labels, the
    records in a cell are the mean of what each label tells of them, and its rates stay.

    Parameters
    ----------
    data
        Tables with declared noise, of which none lacks cells.

    Examples
    --------
    >>> import agglearn
    >>> from agglearn.privacy.release import simulate
    >>> records = {"colour": ["red", "blue"] * 500, "size": ["S", "S", "L", "L"] * 250,
    ...            "click": [1, 0, 1, 1] * 250}
    >>> noisy = simulate(agglearn.aggregate(records, "click"), 1.0)
    >>> agglearn.denoise(noisy).denoised
    True
    """
    problems = [make_problem(data, label) for label in data.schema.label_names]
    if problems[0].noise is None:
        raise TableError("these tables have no noise that is declared: there is nothing to take out")
    if problems[0].free is not None:
        raise TableError("some cells were withheld: noise cannot be taken out of tables that lack cells")
    clean = [denoised(problem) for problem in problems]
    d = np.mean([problem.d for problem in clean], axis=0)
    rates = [np.divide(p.c, p.d, out=np.zeros_like(p.c), where=p.d > 0) for p in clean]
    layout = problems[0].layout
    tables = {}
    for t, (scope, table) in enumerate(data.tables.items()):
        part = layout.part(t)
        tables[scope] = replace(
            table,
            counts=d[part].reshape(table.counts.shape),
            sums=np.stack([(rate[part] * d[part]).reshape(table.counts.shape) for rate in rates]),
            unknown=np.zeros(1 + len(rates)),
            noise=None,
        )
    rows = float(np.mean([p.rows for p in clean]))
    positives = tuple(rows * p.rate for p in clean)
    return replace(data, tables=tables, rows=rows, positives=positives, parts=(), denoised=True)


@dataclass(frozen=True, eq=False)
class _Classes:
    """Negatives and positives of all tables.

    Attributes
    ----------
    layout
        Features and tables.
    numbers
        Negatives, positives: flat.
    variance
        Of the noise on each number of a table, of either class.
    of_counts, shared
        Of that on their sums, the counts; and what the noise of the two has in common.
    totals
        Negatives and positives in all.
    margins, left
        Of each feature in either class, and the variance that noise leaves them.
    """

    layout: Layout
    numbers: tuple[Floats, Floats]
    variance: tuple[Floats, Floats]
    of_counts: Floats
    shared: Floats
    totals: tuple[float, float] = (0.0, 0.0)
    margins: tuple[tuple[Floats, ...], ...] = ()
    left: tuple[Floats, Floats] = (np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, problem: Problem) -> _Classes:
        assert problem.noise is not None
        noise = problem.noise
        counts, sums = np.square(noise.counts), np.square(noise.sums)
        negatives = np.maximum(counts + sums - 2 * noise.covariances, 0.0)
        numbers = problem.d - problem.c, problem.c
        return cls(problem.layout, numbers, (negatives, sums), counts, noise.covariances - sums)

    @property
    def _plain(self) -> list[int]:
        return [t for t in range(self.layout.n_tables) if self.layout.cells[t].dense]

    def consistent(self) -> _Classes:
        """Totals and margins from all tables, put back into each."""
        totals, margins, left, numbers = [], [], [], []
        for values, variance in zip(self.numbers, self.variance, strict=True):
            total, of_features, remains = self._agreed(values, variance)
            totals.append(total)
            margins.append(of_features)
            left.append(remains)
            numbers.append(self._put_back(values, total, of_features))
        return replace(
            self,
            numbers=(numbers[0], numbers[1]),
            totals=(totals[0], totals[1]),
            margins=tuple(margins),
            left=(left[0], left[1]),
        )

    def _agreed(self, values: Floats, variance: Floats) -> tuple[float, tuple[Floats, ...], Floats]:
        """What all tables together say of the total and of each margin, and the variance of the latter."""
        layout = self.layout
        sizes = np.array(layout.sizes, float)
        weights = 1 / (sizes * np.maximum(variance, _LEAST))
        sums = np.array([values[layout.part(t)].sum() for t in range(layout.n_tables)])
        total = max(float(weights @ sums / weights.sum()), 1.0)
        margins, left = [], np.zeros(layout.n_features)
        for f, card in enumerate(layout.cards):
            found, weight = np.zeros(card), 0.0
            for t in self._plain:
                if f in layout.scopes[t]:
                    each = 1 / (sizes[t] / card * max(float(variance[t]), _LEAST))
                    found += each * (marginal(layout, values, t, (f,)) - sums[t] / card)
                    weight += each
            if weight:
                found /= weight
                left[f] = 1 / weight
            margins.append(_onto_simplex(found + total / card, total))
        return total, tuple(margins), left

    def _put_back(self, values: Floats, total: float, margins: Sequence[Floats]) -> Floats:
        """Tables with these margins, and their own interactions."""
        layout, new = self.layout, values.copy()
        for t in self._plain:
            scope, size = layout.scopes[t], layout.sizes[t]
            table = layout.table(new, t)
            was = float(values[layout.part(t)].sum())
            for f in scope:
                shape = [layout.cards[g] if g == f else 1 for g in scope]
                gap = margins[f] - marginal(layout, values, t, (f,))
                table += (gap / (size / layout.cards[f])).reshape(shape)
            table -= (len(scope) - 1) * (total - was) / size
        return new

    @property
    def _pairs(self) -> Pairs:
        return Pairs(self.layout, tuple(t for t in self._plain if len(self.layout.scopes[t]) == 2))

    @property
    def _both(self) -> list[Floats]:
        """Margins of all records."""
        return [a + b for a, b in zip(*self.margins, strict=True)]

    def known_pairs(self) -> tuple[Floats, Floats]:
        """Records in the cells of all pairs, relieved of noise, and the variance of what is left of it."""
        pairs = self._pairs
        noisy = pairs.gathered(self.numbers[0] + self.numbers[1])
        variance = pairs.each(self.of_counts)
        return without_noise(pairs, noisy, variance, self._both)

    def margins_told(self, known: Floats, unsure: Floats) -> tuple[tuple[tuple[Floats, ...], ...], Effects]:
        """Margins of either class once the label's noise is taken out, and what is known of main effects."""
        cards, n = self.layout.cards, sum(self.totals)
        p = self.totals[1] / n
        d = np.concatenate(self._both)
        r = np.concatenate(self.margins[1]) - p * d
        apart = self.left[1] * (1 - p) ** 2 + self.left[0] * p**2
        noise = np.repeat(np.maximum(apart - 2 * p * (1 - p) * self.left_shared(), 0.0), cards)
        h, left = p * (1 - p) * d * (1 - d / n), np.zeros(0)
        if d.size <= MOST_VALUES:
            h, left = self._information(known, p), (p * (1 - p)) ** 2 * self._pairs.matrix(unsure)
        r, effects = main_effects(r, h, noise, left, cards)
        positives = [
            _onto_simplex(m, self.totals[1])
            for m in np.split(np.clip(p * d + r, 0.0, d), np.cumsum(cards)[:-1])
        ]
        negatives = [
            _onto_simplex(np.maximum(a - b, 0.0), self.totals[0])
            for a, b in zip(self._both, positives, strict=True)
        ]
        return (tuple(negatives), tuple(positives)), effects

    def left_shared(self) -> Floats:
        """Of each feature what noise the margins of the two classes have in common."""
        layout, left = self.layout, np.zeros(self.layout.n_features)
        for f, card in enumerate(layout.cards):
            for t in self._plain:
                if f in layout.scopes[t]:
                    cells = layout.sizes[t] / card
                    of_each = np.maximum([variance[t] * cells for variance in self.variance], _LEAST)
                    left[f] += cells * self.shared[t] / of_each.prod()
            left[f] *= self.left[0][f] * self.left[1][f]
        return left

    def _information(self, known: Floats, p: float) -> Floats:
        """H: p(1 − p) times what the values of all features vary together; pairs without a table do not."""
        pairs, both = self._pairs, self._both
        h = pairs.matrix(known - pairs.of_margins(both))
        at = pairs.starts
        for f, margin in enumerate(both):
            h[at[f] : at[f + 1], at[f] : at[f + 1]] = np.diag(margin) - np.multiply.outer(
                margin, margin
            ) / sum(self.totals)
        return p * (1 - p) * h

    def shrunk(self, margins: tuple[tuple[Floats, ...], ...], known: Floats) -> tuple[Floats, Floats]:
        """Records and positives of each cell: either class of a pair toward what its margins tell."""
        layout, pairs = self.layout, self._pairs
        new = []
        for y, (values, total) in enumerate(zip(self.numbers, self.totals, strict=True)):
            numbers = self._put_back(values, total, margins[y])
            expected = pairs.raked(known, margins[y])
            r = pairs.gathered(numbers) - expected
            r, _ = shrunk(r, expected, pairs.each(self.variance[y]) * pairs.freedom, pairs.sizes)
            told = pairs.raked(np.maximum(expected + r, 0.0), margins[y])
            for t in self._plain:
                np.maximum(layout.table(numbers, t), 0.0, out=layout.table(numbers, t))
            for t, table in zip(pairs.tables, pairs.apart(told), strict=True):
                layout.table(numbers, t)[:] = table
            new.append(numbers)
        self._write_listed(margins, new)
        return new[0] + new[1], new[1]

    def _write_listed(self, margins: tuple[tuple[Floats, ...], ...], new: Sequence[Floats]) -> None:
        """Put what is left of the cells that tables list into numbers of either class."""
        layout, both = self.layout, [a + b for a, b in zip(*margins, strict=True)]
        listed = [_Listed.of(layout, t) for t in range(layout.n_tables) if is_sparse(layout, t)]
        if not listed:
            return
        tables, sizes = [one.table for one in listed], [one.codes.shape[1] for one in listed]
        ends = np.cumsum(sizes)[:-1]

        def left(values: Floats, variance: Floats, expected: Sequence[Floats], laws: Laws) -> list[Floats]:
            """What is left of the listed numbers of all tables, table by table."""
            e = np.concatenate(expected)
            r = np.concatenate([values[layout.part(t)][:-1] for t in tables]) - e
            r, _ = shrunk(r, e, np.repeat(variance[tables], sizes), sizes, laws)
            return np.split(np.maximum(e + r, 0.0), ends)

        # A margin may be as much as the noise on it, whatever it is told to be.
        noise_of_margins = np.sqrt(self.left[0] + self.left[1])
        most = [np.maximum(margin, noise) for margin, noise in zip(both, noise_of_margins, strict=True)]
        products = [one.product(most) for one in listed]
        known = left(self.numbers[0] + self.numbers[1], self.of_counts, products, multiples)
        raked = [[one.raked(a, both, m) for one, a in zip(listed, known, strict=True)] for m in margins]
        for y, total in enumerate(self.totals):
            shares = [classes[y] / (classes[0] + classes[1]) for classes in zip(*raked, strict=True)]
            expected = [a * share for a, share in zip(known, shares, strict=True)]
            found = left(self.numbers[y], self.variance[y], expected, differences)
            for t, cells in zip(tables, found, strict=True):
                held = max(float(cells.sum()), _LEAST)
                numbers = cells * min(total / held, 1.0)
                new[y][layout.part(t)] = np.append(numbers, max(total - held, 0.0))


@dataclass(frozen=True, eq=False)
class _Listed:
    """A table that lists its cells: its features, and the codes of each cell, a row for each."""

    table: int
    scope: tuple[int, ...]
    codes: CellNumbers

    @classmethod
    def of(cls, layout: Layout, t: int) -> _Listed:
        cells = layout.cells[t]
        assert isinstance(cells, SparseCells)
        return cls(t, layout.scopes[t], np.asarray(cells.listed_codes, np.int64))

    def product(self, margins: Sequence[Floats]) -> Floats:
        """What the cells would hold if the features were independent."""
        total = float(margins[self.scope[0]].sum())
        shares = [margins[f][codes] / total for f, codes in zip(self.scope, self.codes, strict=True)]
        product: Floats = np.maximum(total * np.prod(shares, axis=0), _LEAST)
        return product

    def raked(self, cells: Floats, both: Sequence[Floats], margins: Sequence[Floats]) -> Floats:
        """The cells with as large a share of a class's margins as they have of those of both."""
        parts = list(zip(self.scope, self.codes, strict=True))
        shares = [
            np.minimum(_held(cells, codes, both[f]) / np.maximum(both[f], _LEAST), 1.0) for f, codes in parts
        ]
        for _ in range(RAKINGS):
            for (f, codes), share in zip(parts, shares, strict=True):
                cells = cells * (share * margins[f] / _held(cells, codes, both[f]))[codes]
        return np.maximum(cells, _LEAST)


def _held(cells: Floats, codes: CellNumbers, margin: Floats) -> Floats:
    """What listed cells hold of each value of a feature."""
    return np.maximum(np.bincount(codes, cells, margin.size), _LEAST)


def _onto_simplex(values: Floats, total: float) -> Floats:
    """The nearest numbers of at least 0 that add up to the total."""
    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    kept = int(np.flatnonzero(falling > over)[-1]) if (falling > over).any() else 0
    return np.asarray(np.maximum(values - over[kept], 0.0))
