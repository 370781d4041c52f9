"""Noisy tables made consistent with one another, and relieved of what is likely to be noise.

Tables of negatives and of positives, n₀ and n₁, carry noise of known variance. Three things are known beyond
them: every feature's margin stands in several tables; most pairs of features hardly interact; and the
interaction of a pair is much the same in both classes. So, before a fit:

1. **Consistency**, in closed form, for each class. The total is the mean over tables, weighted by
   1/(cells·σ²), the margin of a feature the mean over the tables that hold it of what is left of theirs once
   totals are taken out, weighted by 1/(cells a value·σ²), which leaves a variance V. Margins are projected to
   numbers of at least 0 that add up to the total, and put back into the tables; their interactions stay.
2. **The label in each margin**: r = c − p·d, with noise V₁(1 − p)² + V₀p², is shrunk (:mod:`.shrink`) with
   e = p(1 − p)d.
3. **Pairs**: d = n₀ + n₁ toward the product of its margins; then either class toward the new d, raked to the
   class's margins; each is raked to its margins again. A record is in one cell, so a difference has
   (1 − 1/M_f)(1 − 1/M_g) of a cell's noise.

As the noise goes to 0 the tables come back as they were. What noise is left of the margins makes all
penalties heavier, by 1 + ρ with ρ = mean_f(M·V)/(n·p(1 − p)): the fit would take it for sampling.

Tables of three or more features and tables that lack cells only get consistent margins; hashed tables and
those that list the cells seen stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from agglearn.field.layout import Layout
from agglearn.field.margins import marginal
from agglearn.field.problem import Problem
from agglearn.field.shrink import shrunk

Floats = npt.NDArray[np.float64]

_RAKINGS = 20  # turns of raking a table to its margins
_LEAST = 1e-9  # of a margin or an expected count


def denoised(problem: Problem) -> Problem:
    """The problem with tables to fit to; the same one where nothing is noisy."""
    if problem.noise is None or problem.free is not None:
        return problem
    classes = _Classes.of(problem)
    classes = classes.consistent()
    margins, unsure = classes.margins_told()
    d, c = classes.shrunk(margins)
    rows = float(sum(classes.totals))
    return replace(problem, d=d, c=c, rows=rows, positives=float(classes.totals[1]), unsure=1.0 + unsure)


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
    totals
        Negatives and positives in all.
    margins, left
        Of each feature in either class, and the variance that noise leaves them.
    """

    layout: Layout
    numbers: tuple[Floats, Floats]
    variance: tuple[Floats, Floats]
    totals: tuple[float, float] = (0.0, 0.0)
    margins: tuple[tuple[Floats, ...], ...] = ()
    left: tuple[Floats, Floats] = (np.zeros(0), np.zeros(0))

    @classmethod
    def of(cls, problem: Problem) -> _Classes:
        assert problem.noise is not None
        noise = problem.noise
        counts, sums = np.square(noise.counts), np.square(noise.sums)
        negatives = np.maximum(counts + sums - 2 * noise.covariances, 0.0)
        return cls(problem.layout, (problem.d - problem.c, problem.c), (negatives, sums))

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

    def margins_told(self) -> tuple[tuple[tuple[Floats, ...], ...], float]:
        """Margins of either class once the label's noise is taken out, and ρ."""
        layout, n = self.layout, sum(self.totals)
        p = self.totals[1] / n
        d = [a + b for a, b in zip(*self.margins, strict=True)]
        v = self.left[1] * (1 - p) ** 2 + self.left[0] * p**2
        sizes = [len(m) for m in d]
        every, variance = np.concatenate(d), np.repeat(v, sizes)
        r = np.concatenate(self.margins[1]) - p * every
        r = shrunk(r, p * (1 - p) * every, variance)
        positive = np.split(np.clip(p * every + r, 0.0, every), np.cumsum(sizes)[:-1])
        positives = [_onto_simplex(m, self.totals[1]) for m in positive]
        negatives = [
            _onto_simplex(np.maximum(a - b, 0.0), self.totals[0]) for a, b in zip(d, positives, strict=True)
        ]
        cards = np.array(layout.cards, float)
        return (tuple(negatives), tuple(positives)), float(np.mean(cards * v) / (n * p * (1 - p)))

    def shrunk(self, margins: tuple[tuple[Floats, ...], ...]) -> tuple[Floats, Floats]:
        """Records and positives of each cell: pairs toward what their margins, and either class, tell."""
        layout = self.layout
        numbers = tuple(
            self._put_back(v, t, m) for v, t, m in zip(self.numbers, self.totals, margins, strict=True)
        )
        pairs = [t for t in self._plain if len(layout.scopes[t]) == 2]
        both = [a + b for a, b in zip(*margins, strict=True)]
        n = sum(self.totals)

        def gathered(values: Floats) -> Floats:
            return np.concatenate([values[layout.part(t)] for t in pairs]) if pairs else np.zeros(0)

        def apart(values: Floats) -> list[Floats]:
            return [
                part.reshape(layout.cells[t].shape)
                for t, part in zip(
                    pairs, np.split(values, np.cumsum([layout.sizes[t] for t in pairs])[:-1]), strict=True
                )
            ]

        freedom = np.concatenate(
            [
                np.full(layout.sizes[t], np.prod([1 - 1 / layout.cards[f] for f in layout.scopes[t]]))
                for t in pairs
            ]
            or [np.zeros(0)]
        )
        noise = [np.repeat(v, layout.sizes) for v in self.variance]
        expected = [np.multiply.outer(*(both[f] for f in layout.scopes[t])) / n for t in pairs]
        flat = np.concatenate([e.reshape(-1) for e in expected] or [np.zeros(0)])
        r = shrunk(gathered(numbers[0] + numbers[1]) - flat, flat, gathered(noise[0] + noise[1]) * freedom)
        known = (
            [
                raked(np.maximum(table, 0.0), *(both[f] for f in layout.scopes[t]))
                for t, table in zip(pairs, apart(flat + r), strict=True)
            ]
            if pairs
            else []
        )
        new = [values.copy() for values in numbers]
        for y in (0, 1):
            mine = [
                raked(table, *(margins[y][f] for f in layout.scopes[t]))
                for t, table in zip(pairs, known, strict=True)
            ]
            flat = np.concatenate([e.reshape(-1) for e in mine] or [np.zeros(0)])
            r = shrunk(gathered(numbers[y]) - flat, flat, gathered(noise[y]) * freedom)
            if pairs:
                for t, table in zip(pairs, apart(flat + r), strict=True):
                    to = (margins[y][f] for f in layout.scopes[t])
                    layout.table(new[y], t)[:] = raked(np.maximum(table, 0.0), *to)
        for t in self._plain:
            if t not in set(pairs):
                for values in new:
                    np.maximum(layout.table(values, t), 0.0, out=layout.table(values, t))
        return new[0] + new[1], new[1]


def raked(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """A table brought to these margins, its interaction kept; a cell of nothing stays nothing."""
    table = np.maximum(table, _LEAST)
    for _ in range(_RAKINGS):
        table = table * (rows / np.maximum(table.sum(axis=1), _LEAST))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), _LEAST))
    return table


def _onto_simplex(values: Floats, total: float) -> Floats:
    """The nearest numbers of at least 0 that add up to the total."""
    falling = np.sort(values)[::-1]
    over = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    kept = int(np.flatnonzero(falling > over)[-1]) if (falling > over).any() else 0
    return np.asarray(np.maximum(values - over[kept], 0.0))
