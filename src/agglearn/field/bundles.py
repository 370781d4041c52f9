"""Tables put together into bundles, so that many members are gathered and tallied in fewer passes.

The pairs of three features are all in the cells of the three together: a weight for each of these is the sum
of the pairs' weights, and the pairs' sums are margins of its sums. One look-up stands for three, and that of
four features of few values for six. What it costs is once a pass: to write the bundle's weights, or to take
its margins. So it pays where there are many more members than cells of bundles. Tables that have no cell for
each combination, or too many, stay as they are: the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import log, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from agglearn.field.kernels.bundles import BundlePlan, score_bundles, tally_bundles
from agglearn.field.kernels.score import Codes, score_codes, tally
from agglearn.field.kernels.sets import score_sets, tally_sets
from agglearn.field.layout import Layout

Array = npt.NDArray[Any]

_MOST_CELLS = 1 << 13  # of a bundle: its weights are in the first cache
_FEWEST_MEMBERS = 1 << 14  # below which any way is fast
_LEAST_SAVED = 64  # look-ups saved for each cell of the bundles, whose weights are written and margins taken


@dataclass(frozen=True, eq=False)
class Bundles:
    """The tables of a layout, dealt out to bundles and a rest.

    Attributes
    ----------
    layout
        The tables.
    features
        Those of each bundle, increasing.
    tables
        The tables of each bundle.
    rest
        Those of none.
    """

    layout: Layout
    features: tuple[tuple[int, ...], ...]
    tables: tuple[tuple[int, ...], ...]
    rest: tuple[int, ...] = ()

    @property
    def n_cells(self) -> int:
        """Cells of all bundles."""
        return sum(prod(self._shape(g)) for g in range(len(self.features)))

    def pay(self, members: int) -> bool:
        """Whether so many members are better gathered and tallied by bundles."""
        saved = members * (self.layout.n_tables - len(self.rest) - len(self.features))
        return members >= _FEWEST_MEMBERS and saved >= _LEAST_SAVED * self.n_cells

    def scores(self, codes: Codes, weights: Array, threads: int = 1) -> Array:
        """φ(x)·w of each record; of several sets of weights, a column each."""
        together = np.zeros((self.n_cells, *weights.shape[1:]), weights.dtype)
        for g, (start, stop) in enumerate(pairwise(self._offsets())):
            cells = together[start:stop].reshape(*self._shape(g), *weights.shape[1:])
            for t in self.tables[g]:
                cells += weights[self.layout.part(t)].reshape(*self._along(g, t), *weights.shape[1:])
        if self.rest:
            left = np.concatenate([weights[self.layout.part(t)] for t in self.rest])
            scores = self._score_rest(codes, left, threads).astype(weights.dtype, copy=False)
        else:
            scores = np.zeros((codes.shape[1], *weights.shape[1:]), weights.dtype)
        score_bundles(codes, self._plan(), together, scores, threads)
        return scores

    def tally(self, codes: Codes, values: Array, threads: int = 1) -> Array:
        """The sum of the records' values in each cell of the layout; of several sets, a column each."""
        together = np.zeros((self.n_cells, *values.shape[1:]), values.dtype)
        tally_bundles(codes, self._plan(), values, together, threads)
        sums = np.empty((self.layout.n_cells, *values.shape[1:]), values.dtype)
        for g, (start, stop) in enumerate(pairwise(self._offsets())):
            cells = together[start:stop].reshape(*self._shape(g), *values.shape[1:])
            for t in self.tables[g]:
                gone = tuple(i for i, n in enumerate(self._along(g, t)) if n == 1 and cells.shape[i] > 1)
                part = sums[self.layout.part(t)]
                part[...] = cells.sum(axis=gone, dtype=np.float64).reshape(part.shape)
        if self.rest:
            left = self._tally_rest(codes, values, threads)
            for k, t in enumerate(self.rest):
                sums[self.layout.part(t)] = left[self._rest.part(k)]
        return sums

    @cached_property
    def _rest(self) -> Layout:
        """The layout of the rest."""
        layout = self.layout
        scopes, cells = tuple(layout.scopes[t] for t in self.rest), tuple(layout.cells[t] for t in self.rest)
        return Layout(layout.cards, scopes, cells)

    def _score_rest(self, codes: Codes, weights: Array, threads: int) -> Array:
        if weights.ndim == 1:
            return score_codes(codes, self._rest, weights, 0.0, threads)
        return score_sets(codes, self._rest, weights, threads)

    def _tally_rest(self, codes: Codes, values: Array, threads: int) -> Array:
        if values.ndim == 1:
            return tally(codes, values, self._rest, threads)[1]
        return tally_sets(codes, values, self._rest, threads)

    def _shape(self, g: int) -> tuple[int, ...]:
        return tuple(self.layout.cards[f] for f in self.features[g])

    def _along(self, g: int, t: int) -> tuple[int, ...]:
        """The shape of a table beside its bundle's: 1 for features that it has not."""
        return tuple(self.layout.cards[f] if f in self.layout.scopes[t] else 1 for f in self.features[g])

    def _offsets(self) -> list[int]:
        sizes = [prod(self._shape(g)) for g in range(len(self.features))]
        return [0, *np.cumsum(sizes).tolist()]

    def _plan(self) -> BundlePlan:
        return BundlePlan(
            start=np.cumsum([0, *map(len, self.features)]).astype(np.uint64),
            features=np.array([f for bundle in self.features for f in bundle], np.uint64),
            cards=np.array([self.layout.cards[f] for bundle in self.features for f in bundle], np.uint16),
            offsets=np.array(self._offsets(), np.uint64),
        )


@lru_cache(maxsize=8)
def bundles_of(layout: Layout) -> Bundles | None:
    """Bundles of the tables of a layout; None where there is none that can be put into a bundle."""
    fit = [c.dense and c.size <= _MOST_CELLS for c in layout.cells]
    left = {t: frozenset(scope) for t, scope in enumerate(layout.scopes) if fit[t]}
    if not left:
        return None
    features, tables = [], []
    while left:
        bundle = _bundle(layout.cards, list(left.values()))
        held = tuple(t for t, scope in left.items() if scope <= bundle)
        features.append(tuple(sorted(bundle)))
        tables.append(held)
        for t in held:
            del left[t]
    return Bundles(layout, tuple(features), tuple(tables), tuple(t for t, fits in enumerate(fit) if not fits))


def _bundle(cards: Sequence[int], scopes: Sequence[frozenset[int]]) -> frozenset[int]:
    """Features that hold many of the tables: from the largest on, the one that adds most for its size."""
    bundle = max(scopes, key=lambda scope: (prod(cards[f] for f in scope), sorted(scope)))
    while True:
        size = prod(cards[f] for f in bundle)
        added: dict[frozenset[int], int] = {}
        for scope in scopes:
            wider = scope - bundle
            if wider and size * prod(cards[f] for f in wider) <= _MOST_CELLS:
                added[wider] = added.get(wider, 0) + 1
        if not added:
            return bundle

        worth = [(n / log(1 + prod(cards[f] for f in wider)), sorted(wider)) for wider, n in added.items()]
        bundle |= set(max(worth)[1])
